/**
 * What is right, as pure functions: no clock, no network, no randomness, these come in as arguments. Times are milliseconds
 * on one monotonic clock. Codes such as R7 are rules of `docs/contract.md`.
 */

/** What repeating a call would do. */
export type Effect = "read_only" | "idempotent" | "keyed" | "once";

/** What is known of the far side. A timeout is never proof that nothing happened. */
export type Outcome = "not_sent" | "rejected" | "applied" | "failed" | "unknown";

/** Why there is no further attempt. */
export type Stop =
  | "done" | "effect" | "status" | "reason" | "told_not_to" | "all_made" | "not_replayable"
  | "pushed_back" | "deadline" | "no_more_than_before";

/** What all attempts of one call share. */
export interface Plan {
  readonly deadline: number;
  readonly attempts: number;
  readonly perTry: number;
  readonly effect: Effect;
  readonly enforcesKeys: boolean;
  readonly replayable: boolean;
}

/** How an attempt came out: its number, from one; what it could spend; what of that was left; and what its answer says. */
export interface Tried {
  readonly number: number;
  readonly had: number;
  readonly left: number;
  readonly outcome: Outcome;
  readonly status?: number | undefined;
  readonly reason?: string | null;
  readonly pushback?: number | "never" | undefined;
}

/** Less than this is not useful (K4): no attempt begins with less. */
export const MIN_USEFUL = 5;

/** Answers of ours which say that nothing began. With another status the reason was copied and says nothing (R8). */
const REJECTED = ["503 shed", "503 shutdown", "504 expired_before_start", "504 insufficient_budget"];

/** What is left, in whole milliseconds, rounded down; `null` if that is nothing: then there is no call (E1, E2, E3, E6). */
export function encode(remaining: number): string | null {
  const whole = Math.floor(Math.min(remaining, 9_999_999_999));
  return whole >= 1 ? String(whole) : null;
}

/** What an answer says of the far side (R8). */
export function outcomeOf(effect: Effect, status: number, reason?: string | null): Outcome {
  if (status === 429 || REJECTED.includes(`${status} ${reason}`)) return "rejected";
  if (status === 409 && effect === "keyed") return "unknown"; // its first attempt is at work, or nobody knows (M7)
  if (status === 408 && reason === "request_body") return "unknown";
  if (status > 500 || (status === 500 && effect !== "read_only")) return "unknown";
  return status >= 400 ? "failed" : "applied";
}

/** What an attempt that begins now may spend (R3). */
export const limitAt = (plan: Plan, now: number): number => Math.min(plan.perTry, plan.deadline - now);

/** When the next attempt begins, or why there is none. `backoff` is the wait as it was drawn (R1, R2, R7). */
export function next(plan: Plan, tried: Tried, backoff: number, now: number): { at: number } | { stop: Stop } {
  const { outcome, status, pushback, had, left } = tried;
  if (outcome === "applied") return { stop: "done" };
  const mayBeDoneTwice = plan.effect === "keyed" ? plan.enforcesKeys : plan.effect !== "once";
  if (outcome === "failed" || (outcome === "unknown" && !mayBeDoneTwice)) return { stop: "effect" };
  const isUnderWay = status === 409 && typeof pushback === "number"; // to be asked again with the same key (M7)
  if (status !== undefined && !isUnderWay && ![429, 502, 503, 504].includes(status)) return { stop: "status" };
  // If the far side saw what our own limit for the attempt was about to end, that is not the deadline of the whole (R4).
  const isOurs = had === plan.perTry && now + left < plan.deadline && left < Math.max(MIN_USEFUL, had / 8);
  if (status === 504 && tried.reason === "deadline" && !isOurs) return { stop: "reason" };
  if (pushback === "never") return { stop: "told_not_to" };
  if (tried.number >= plan.attempts) return { stop: "all_made" };
  if (!plan.replayable) return { stop: "not_replayable" };
  const slack = plan.deadline - now - MIN_USEFUL;
  if ((pushback ?? backoff) > slack) return { stop: pushback === undefined ? "deadline" : "pushed_back" };
  // Not earlier than asked for, and not all at the same moment, as far as that fits.
  const at = now + Math.min((pushback ?? 0) + backoff, slack);
  // What had too little time is refused again, unless it gets more.
  if (status === 504 && outcome === "rejected" && limitAt(plan, at) < had) return { stop: "no_more_than_before" };
  return { at };
}

/** Full jitter: anything up to 25 ms, then up to 50 ms, …, 250 ms at most. `random` is from 0 to 1. */
export const backoffAfter = (attempts: number, random: number) => random * Math.min(250, 25 * 2 ** (attempts - 1));

/** Reads `retry-after`: milliseconds from now. What cannot be read is no permission (R2). `wall` is the time of day. */
export function retryAfter(value: string | null, wall: number): number | "never" | undefined {
  if (value === null) return undefined;
  if (/^\d+$/.test(value)) return Number(value) * 1_000;
  const latest = new Date(wall).getUTCFullYear() + 50; // for years of two digits (RFC 9110 section 5.6.7)
  const date = value // its three forms as one: `31 Jan 2026 12:00:03 GMT`
    .replace(/^[A-Z][a-z]{2}, /, "")
    .replace(/^[A-Z][a-z]+day, (\d\d)-(\w{3})-(\d\d) /, (_, d, m, y) => `${d} ${m} ${latest - ((latest - y) % 100)} `)
    .replace(/^([A-Z][a-z]{2} \w{3})  (\d)/, "$1 0$2")
    .replace(/^[A-Z][a-z]{2} (\w{3}) (\d\d) (\S+) (\d{4})$/, "$2 $1 $4 $3 GMT");
  const at = Date.parse(date); // which alone takes nearly anything
  const isDate = !Number.isNaN(at) && new Date(at).toUTCString().endsWith(`, ${date}`);
  return isDate ? Math.max(0, at - wall) : "never";
}
