/**
 * The driver: one clock for a tap. What is right to do is decided in `rules.ts`; here it is timed, sent and cut off.
 */
import { BudgetError, type What } from "./error.js";
import { newKey } from "./fields.js";
import { backoffAfter, encode, limitAt, MIN_USEFUL, next, outcomeOf, retryAfter } from "./rules.js";
import type { Effect, Outcome, Plan } from "./rules.js";

/** Times in ms. */
export interface BudgetOptions {
  /** How often one call is tried at most, the first time included. 3 unless said otherwise. */
  readonly attempts?: number;
  /** The most that one attempt may take, body included. Without it a first attempt that hangs uses up the whole. */
  readonly perTry?: number;
  /** That the server makes one effect for each key. Without it what may have happened is repeated only if it reads. */
  readonly enforcesKeys?: boolean;
  /** The key of an earlier tap whose outcome is unknown: the same purchase, asked for again. */
  readonly key?: string;
  /** Ends the tap early. */
  readonly signal?: AbortSignal;
}

/** As for `fetch`. */
export interface TapInit extends RequestInit {
  /** What repeating the call would do. Without it GET, HEAD and OPTIONS read, and all else is `keyed`. */
  readonly effect?: Effect;
}

/** Begins a budget of `ms` milliseconds, now: when the user taps, not when the first request leaves. */
export const budget = (ms: number, options: BudgetOptions = {}): Tap => new Tap(ms, options);

/** One tap: one budget, one key. */
export class Tap {
  /** The idempotency key of all attempts. Keep it while the outcome is unknown. */
  readonly key: string;
  /** What is known of the far side after the latest call, answered or not. An error from a body has its own. */
  outcome: Outcome = "not_sent";
  readonly #began = performance.now(); // monotonic: what somebody does to the time of day changes nothing (K2)

  constructor(private readonly limit: number, private readonly options: BudgetOptions) {
    for (const ms of [limit, options.perTry ?? limit]) {
      const longest = 2 ** 31 - 1; // of a timer; there is no spelling for "none" (P7)
      if (!(ms >= MIN_USEFUL && ms <= longest)) throw new RangeError(`a limit is from ${MIN_USEFUL}ms to ${longest}ms`);
    }
    this.key = options.key ?? newKey();
  }

  /** What is left, in ms. */
  get remaining(): number {
    return Math.max(0, this.#began + this.limit - performance.now());
  }

  /**
   * `fetch` within the budget. Resolves with the answer, or with the last one if it is a failure and another attempt is not
   * allowed or does not fit. Nothing is repeated once it has resolved; reading the body goes on under the same budget.
   *
   * @throws {BudgetError} if there is no answer, also from reading the body. {@link TypeError} for what is no request.
   */
  async fetch(url: string | URL, init: TapInit = {}): Promise<Response> {
    const isRead = /^(GET|HEAD|OPTIONS)$/i.test(init.method ?? "GET");
    const { effect = isRead ? "read_only" : "keyed", signal, ...request } = init;
    const headers = new Headers(request.headers);
    if (effect === "keyed" && !headers.has("idempotency-key")) headers.set("idempotency-key", this.key);
    const callers = [this.options.signal, signal].filter((each) => each != null);
    const { attempts = 3, perTry = Infinity, enforcesKeys = false } = this.options;
    const replayable = !(request.body instanceof ReadableStream);
    const plan: Plan = { deadline: this.#began + this.limit, attempts, perTry, effect, enforcesKeys, replayable };
    if (replayable) new Request(url, request); // what is no request is the caller's mistake, and thrown as what it is

    let at: Pick<What, "attempts" | "outcome" | "stage" | "status"> = { attempts: 0, outcome: "not_sent", stage: "begin" };
    const error = (what: Pick<What, "why"> & Partial<What>) =>
      new BudgetError({ bound: "budget", limit: this.limit, elapsed: performance.now() - this.#began, ...at, ...what });
    for (;;) {
      const began = performance.now();
      const had = limitAt(plan, began);
      const left = callers.find((each) => each.aborted);
      if (left) throw error({ why: "called_off", cause: left.reason });
      const told = had < MIN_USEFUL ? null : encode(had);
      if (told === null) throw error({ why: "deadline" });
      headers.set("x-remaining-ms", told); // anew each time, at the last moment that we see (E4)

      const mayHaveHappened = at.outcome === "unknown";
      at = { ...at, attempts: at.attempts + 1, outcome: "unknown", stage: "wait" };
      const ends = new AbortController(); // the first end counts
      const end = (why: What["why"], cause?: unknown) => {
        release();
        const own = { bound: "per_try", limit: had, elapsed: performance.now() - began } as const;
        ends.abort(error({ why, cause, ...(why === "deadline" && had < plan.deadline - began && own) }));
      };
      const isPast = () => performance.now() >= began + had;
      const limit = AbortSignal.timeout(Math.ceil(had)); // in Node it does not keep the process
      const release = onAbort([...callers, limit], (by) => (by === limit ? end("deadline") : end("called_off", by.reason)));
      let answer: Response | undefined;
      try {
        answer = await fetch(url, { ...request, headers, signal: ends.signal });
        if (isPast()) end("deadline"); // timers fire late in busy pages: the clock decides (K3)
        at = { ...at, stage: "body" };
      } catch (cause) {
        end(isPast() ? "deadline" : "failed", cause); // a failure that is seen after our deadline is our deadline (X2)
      }
      const failed: BudgetError | undefined = ends.signal.reason;
      if (failed) answer = undefined;

      const now = performance.now();
      const reason = answer?.headers.get("oneclock-reason") ?? null;
      const outcome = answer ? outcomeOf(effect, answer.status, reason) : "unknown";
      const pushback = retryAfter(answer?.headers.get("retry-after") ?? null, Date.now()); // it may name a time of day
      const tried = { number: at.attempts, had, left: began + had - now, outcome, status: answer?.status, reason, pushback };
      this.outcome = mayHaveHappened && outcome === "rejected" ? "unknown" : outcome;
      const step = next(plan, tried, backoffAfter(tried.number, Math.random()), now);
      if (failed?.bound === "budget" && failed.why !== "failed") throw failed;
      if ("stop" in step) {
        if (failed) throw new BudgetError({ ...failed, stop: step.stop });
        return answer!;
      }
      release();
      answer?.body?.cancel().catch(() => {});

      at = { attempts: tried.number, outcome: this.outcome, stage: "backoff", status: tried.status };
      const pause = new AbortController();
      const timer = setTimeout(() => pause.abort(), step.at - now);
      await new Promise((resolve) => onAbort([...callers, pause.signal], resolve));
      clearTimeout(timer);
    }
  }
}

/** Calls back once, with the first of these signals to abort. Gives what calls that off. */
function onAbort(signals: AbortSignal[], then: (by: AbortSignal) => void): () => void {
  const listen = (event: Event) => {
    release();
    then(event.target as AbortSignal);
  };
  for (const signal of signals) signal.addEventListener("abort", listen);
  const release = () => signals.splice(0).forEach((signal) => signal.removeEventListener("abort", listen));
  return release;
}
