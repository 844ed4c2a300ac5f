/**
 * The driver: one clock for a tap. What is right to do is decided in `rules.ts`; here it is timed, sent and cut off.
 */
import { BudgetError, type Stage, type What } from "./error.js";
import { newKey } from "./key.js";
import { backoffAfter, effectOf, encode, limitAt, MIN_USEFUL, next, outcomeOf, retryAfter } from "./rules.js";
import type { Effect, Outcome, Plan, Tried } from "./rules.js";

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

/** As for `fetch`, and what repeating the call would do, where the method does not say it. */
export interface TapInit extends RequestInit {
  /** GET, HEAD and OPTIONS read; all else is `keyed` and carries the tap's key, unless this says otherwise. */
  readonly effect?: Effect;
}

/** `setTimeout` cannot wait longer than this. */
const LONGEST = 2 ** 31 - 1;

/** Begins a budget of `ms` milliseconds, now: when the user taps, not when the first request leaves. */
export const budget = (ms: number, options: BudgetOptions = {}): Tap => new Tap(ms, options);

/** One tap: one budget, one key. */
export class Tap {
  /** The idempotency key of all attempts. Keep it while the outcome is unknown. */
  readonly key: string;
  readonly #began = performance.now(); // monotonic: what somebody does to the time of day changes nothing (K2)
  readonly #limit: number;
  readonly #options: BudgetOptions;
  #outcome: Outcome = "not_sent";

  constructor(ms: number, options: BudgetOptions = {}) {
    const isLimit = (limit: number) => limit >= MIN_USEFUL && limit <= LONGEST;
    if (!isLimit(ms) || !isLimit(options.perTry ?? ms)) {
      throw new RangeError(`a limit is from ${MIN_USEFUL}ms to ${LONGEST}ms`); // there is no spelling for "none" (P7)
    }
    this.key = options.key ?? newKey();
    this.#limit = ms;
    this.#options = options;
  }

  /** What is left, in ms. */
  get remaining(): number {
    return Math.max(0, this.#began + this.#limit - performance.now());
  }

  /**
   * What is known of the far side after the latest call of this tap, whether it was answered or not. The head of an answer
   * says it; an error from its body has an outcome of its own.
   */
  get outcome(): Outcome {
    return this.#outcome;
  }

  /**
   * `fetch` within the budget. Resolves with the answer, or with the last one if it is a failure and another attempt is not
   * allowed or does not fit. Nothing is repeated once it has resolved; reading the body goes on under the same budget.
   *
   * @throws {BudgetError} if there is no answer, also from reading the body. {@link TypeError} for what is no request.
   */
  async fetch(url: string | URL, init: TapInit = {}): Promise<Response> {
    const { effect = effectOf(init.method ?? "GET"), signal, ...request } = init;
    const headers = new Headers(request.headers);
    if (effect === "keyed" && !headers.has("idempotency-key")) headers.set("idempotency-key", this.key);
    const signals = [this.#options.signal, signal].filter((each) => each != null);
    const plan: Plan = {
      deadline: this.#began + this.#limit,
      attempts: this.#options.attempts ?? 3,
      perTry: this.#options.perTry ?? Infinity,
      effect,
      enforcesKeys: this.#options.enforcesKeys ?? false,
      replayable: !(request.body instanceof ReadableStream),
    };
    if (plan.replayable) new Request(url, request); // what is no request is the caller's mistake, and thrown as what it is
    let known: Known = { attempts: 0, outcome: "not_sent", stage: "begin" };
    for (;;) {
      const began = performance.now();
      const had = limitAt(plan, began);
      const remaining = plan.deadline - began < MIN_USEFUL ? null : encode(had);
      const called = signals.find((each) => each.aborted);
      if (called) throw this.#error({ why: "called_off", cause: called.reason }, known);
      if (remaining === null) throw this.#error({ why: "deadline" }, known);
      headers.set("x-remaining-ms", remaining); // anew each time, at the last moment that we see (E4)

      const at: Known = { attempts: known.attempts + 1, outcome: "unknown", stage: "wait", status: known.status };
      const ownLimit = (): Partial<What> =>
        had < plan.deadline - began ? { bound: "per_try", limit: had, elapsed: performance.now() - began } : {};
      const attempt = new Attempt(had, signals, (what) =>
        this.#error(what.why === "deadline" ? { ...ownLimit(), ...what } : what, at),
      );
      const came = await attempt.send(url, { ...request, headers }, at);
      const now = performance.now();
      const tried: Tried = { number: at.attempts, had, left: began + had - now, outcome: "unknown", ...judge(effect, came) };
      const step = next(plan, tried, backoffAfter(tried.number, Math.random()), now);
      const isOpen = known.outcome === "unknown" && tried.outcome === "rejected"; // an earlier one may have happened
      this.#outcome = isOpen ? "unknown" : tried.outcome;
      if ("stop" in step || (came instanceof BudgetError && came.why === "called_off")) {
        if (came instanceof BudgetError) throw "stop" in step ? came.because(step.stop) : came;
        return came;
      }
      attempt.release();
      if (!(came instanceof BudgetError)) void came.body?.cancel().catch(() => {});
      const outcome = this.#outcome === "rejected" ? "rejected" : "unknown";
      known = { attempts: at.attempts, outcome, stage: "backoff", status: tried.status };
      await wait(step.at - now, signals);
    }
  }

  #error(what: Partial<What> & Pick<What, "why">, known: Known): BudgetError {
    const elapsed = performance.now() - this.#began;
    return new BudgetError({ bound: "budget", limit: this.#limit, elapsed, ...known, ...what });
  }
}

/** What is known so far. */
interface Known {
  readonly attempts: number;
  readonly outcome: Exclude<Outcome, "applied" | "failed">;
  stage: Stage;
  readonly status?: number | undefined;
}

/** What came of an attempt, as far as it says. */
function judge(effect: Effect, came: Response | BudgetError): Partial<Tried> {
  if (came instanceof BudgetError) return {};
  const reason = came.headers.get("oneclock-reason") ?? undefined;
  const pushback = retryAfter(came.headers.get("retry-after"), Date.now()); // it may name a time of day
  return { outcome: outcomeOf(effect, came.status, reason), status: came.status, reason, pushback };
}

/** One attempt, head and body, with an end of its own: its limit, or a signal of whoever wanted it. */
class Attempt {
  readonly #ends = new AbortController();
  readonly #expires: number;
  readonly #timer: ReturnType<typeof setTimeout>;
  readonly #signals: readonly AbortSignal[];
  readonly #error: (what: Pick<What, "why" | "cause">) => BudgetError;
  #ended: BudgetError | undefined;

  constructor(limit: number, signals: readonly AbortSignal[], error: (what: Pick<What, "why" | "cause">) => BudgetError) {
    this.#expires = performance.now() + limit;
    this.#timer = setTimeout(() => this.#end({ why: "deadline" }), Math.ceil(limit));
    this.#signals = signals;
    this.#error = error;
    for (const signal of signals) signal.addEventListener("abort", this.#left);
  }

  /** From the head on the body is under the same limit, until the limit itself lets go of it. */
  async send(url: string | URL, request: RequestInit, at: Known): Promise<Response | BudgetError> {
    try {
      const answer = await fetch(url, { ...request, signal: this.#ends.signal });
      // Timers fire late in busy pages: the clock decides, not whether the timer was there (K3).
      if (performance.now() >= this.#expires) this.#end({ why: "deadline" });
      if (this.#ended) return this.#ended;
      at.stage = "body";
      // Nobody tells when a body was read. In Node the timer alone does not keep the process.
      (this.#timer as unknown as { unref?(): void }).unref?.();
      return answer;
    } catch (cause) {
      // A failure that is seen after our own deadline is our deadline (X2).
      return this.#end({ why: performance.now() >= this.#expires ? "deadline" : "failed", cause });
    }
  }

  release(): void {
    clearTimeout(this.#timer);
    for (const signal of this.#signals) signal.removeEventListener("abort", this.#left);
  }

  /** The first end counts. */
  #end(what: Pick<What, "why" | "cause">): BudgetError {
    this.release();
    if (!this.#ended) {
      this.#ended = this.#error(what);
      this.#ends.abort(this.#ended);
    }
    return this.#ended;
  }

  readonly #left = (event: Event): void => {
    this.#end({ why: "called_off", cause: (event.target as AbortSignal).reason });
  };
}

/** Until then, or until somebody calls it off; the loop asks which. */
function wait(ms: number, signals: readonly AbortSignal[]): Promise<void> {
  return new Promise((resolve) => {
    const over = () => {
      clearTimeout(timer);
      for (const signal of signals) signal.removeEventListener("abort", over);
      resolve();
    };
    const timer = setTimeout(over, ms);
    for (const signal of signals) signal.addEventListener("abort", over);
  });
}
