/**
 * What is right, as pure functions: how a budget is written, what an answer says of the far side, and what comes after an
 * attempt. No clock, no network, no randomness: all of these come in as arguments. Codes are rules of `docs/contract.md`.
 */

/** What repeating a call would do. */
export type Effect = "read_only" | "idempotent" | "keyed" | "once";

/** What is known of the far side. A timeout is never proof that nothing happened. */
export type Outcome = "not_sent" | "rejected" | "applied" | "failed" | "unknown";

/** Why there is no further attempt. */
export type Stop =
  | "done" | "effect" | "status" | "reason" | "told_not_to" | "all_made" | "not_replayable"
  | "pushed_back" | "deadline" | "no_more_than_before";

/** What all attempts of one call share. Milliseconds, on one monotonic clock. */
export interface Plan {
  readonly deadline: number;
  readonly attempts: number;
  readonly perTry: number;
  readonly effect: Effect;
  readonly enforcesKeys: boolean;
  readonly replayable: boolean;
}

/** How an attempt came out. */
export interface Tried {
  /** Which: one for the first. */
  readonly number: number;
  /** What it could spend, in ms. */
  readonly had: number;
  /** What it had left when it ended, in ms. */
  readonly left: number;
  readonly outcome: Outcome;
  readonly status?: number | undefined;
  readonly reason?: string | undefined;
  /** What the answer says of when to come again: after so many ms, or never. */
  readonly pushback?: number | "never" | undefined;
}

/** Less than this is not useful (K4): no attempt begins with less. */
export const MIN_USEFUL = 5;

/** The status that each reason comes with, what it says of the far side, and whether another attempt could change it. */
const REASONS: Readonly<Record<string, readonly [status: number, outcome: Outcome, again: "no" | "with_more_time" | "yes"]>> = {
  deadline: [504, "unknown", "no"],
  expired_before_start: [504, "rejected", "with_more_time"],
  insufficient_budget: [504, "rejected", "with_more_time"],
  cap: [504, "unknown", "yes"],
  shed: [503, "rejected", "yes"],
  shutdown: [503, "rejected", "yes"],
  shutdown_midway: [503, "unknown", "yes"],
  request_body: [408, "unknown", "no"],
  malformed_deadline: [400, "failed", "no"],
};

/** What a reason says, if it comes with its own status; else it was copied from another answer and says nothing (R8). */
function said(status: number | undefined, reason: string | undefined) {
  const known = reason !== undefined && Object.hasOwn(REASONS, reason) ? REASONS[reason] : undefined;
  return known?.[0] === status ? known : undefined;
}

/** What is left, in whole milliseconds, rounded down; `null` if that is nothing: then the call is not made (E1, E2, E3, E6). */
export function encode(remaining: number): string | null {
  const whole = Math.floor(Math.min(remaining, 9_999_999_999));
  return whole >= 1 ? String(whole) : null;
}

/** What repeating a request does, from its method: what only reads, and what needs a key. */
export function effectOf(method: string): Effect {
  return /^(GET|HEAD|OPTIONS)$/i.test(method) ? "read_only" : "keyed";
}

/** What an answer says of the far side (R8). */
export function outcomeOf(effect: Effect, status: number, reason?: string): Outcome {
  const ours = said(status, reason);
  if (ours) return ours[1];
  if (status === 409 && effect === "keyed") return "unknown"; // its first attempt is at work, or nobody knows (M7)
  if (status === 429) return "rejected";
  if (status === 500) return effect === "read_only" ? "failed" : "unknown";
  if (status > 500) return "unknown";
  return status >= 400 ? "failed" : "applied";
}

/** Whether a call with this effect may be repeated after this outcome (R7). */
export function mayRepeat(effect: Effect, outcome: Outcome, enforcesKeys: boolean): boolean {
  if (outcome !== "unknown") return outcome === "not_sent" || outcome === "rejected";
  return effect === "keyed" ? enforcesKeys : effect !== "once";
}

/** What an attempt that begins now may spend (R3). */
export const limitAt = (plan: Plan, now: number): number => Math.min(plan.perTry, plan.deadline - now);

/** When the next attempt begins, or why there is none. `backoff` is the wait as it was drawn (R1, R2, R7). */
export function next(plan: Plan, tried: Tried, backoff: number, now: number): { readonly at: number } | { readonly stop: Stop } {
  const { outcome, status, reason, pushback } = tried;
  if (outcome === "applied") return { stop: "done" };
  if (!mayRepeat(plan.effect, outcome, plan.enforcesKeys)) return { stop: "effect" };
  const isUnderWay = status === 409 && typeof pushback === "number"; // to be asked again with the same key (M7)
  if (status !== undefined && !isUnderWay && ![429, 502, 503, 504].includes(status)) return { stop: "status" };
  const again = said(status, reason)?.[2];
  // The far side saw what our own limit for the attempt was about to end: that is our limit, not the whole (R4).
  const isOurs =
    reason === "deadline" && now + tried.left < plan.deadline && tried.left < Math.max(MIN_USEFUL, tried.had / 8);
  if (again === "no" && !isOurs) return { stop: "reason" };
  if (pushback === "never") return { stop: "told_not_to" };
  if (tried.number >= plan.attempts) return { stop: "all_made" };
  if (!plan.replayable) return { stop: "not_replayable" };
  const slack = plan.deadline - now - MIN_USEFUL;
  if (pushback === undefined ? backoff > slack : pushback > slack) {
    return { stop: pushback === undefined ? "deadline" : "pushed_back" };
  }
  // Not earlier than asked for, and not all at the same moment, as far as that fits.
  const at = now + Math.min((pushback ?? 0) + backoff, slack);
  if (again === "with_more_time" && limitAt(plan, at) < tried.had) return { stop: "no_more_than_before" };
  return { at };
}

/** Full jitter: anything up to 25 ms, then up to 50 ms, …, 250 ms at most. `random` is from 0 to 1. */
export const backoffAfter = (attempts: number, random: number): number => random * Math.min(250, 25 * 2 ** (attempts - 1));

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DATES = [
  /^[A-Z][a-z]{2}, (?<day>\d\d) (?<month>[A-Z][a-z]{2}) (?<year>\d{4}) (?<h>\d\d):(?<m>\d\d):(?<s>\d\d) GMT$/,
  /^[A-Z][a-z]{5,8}, (?<day>\d\d)-(?<month>[A-Z][a-z]{2})-(?<year>\d\d) (?<h>\d\d):(?<m>\d\d):(?<s>\d\d) GMT$/,
  /^[A-Z][a-z]{2} (?<month>[A-Z][a-z]{2}) (?<day>[ \d]\d) (?<h>\d\d):(?<m>\d\d):(?<s>\d\d) (?<year>\d{4})$/,
];

/** Reads `retry-after`: milliseconds from now. What cannot be read is no permission (R2). `wall` is the time of day in ms. */
export function retryAfter(value: string | null, wall: number): number | "never" | undefined {
  if (value === null) return undefined;
  if (/^\d+$/.test(value)) return Number(value) * 1_000;
  const parts = DATES.map((form) => form.exec(value)?.groups).find((groups) => groups !== undefined);
  if (parts === undefined) return "never";
  const [day, h, m, s] = [parts["day"], parts["h"], parts["m"], parts["s"]].map(Number) as [number, number, number, number];
  const month = MONTHS.indexOf(parts["month"] ?? "");
  let year = Number(parts["year"]);
  if (year < 100) {
    // Two digits that look more than fifty years ahead are of the past (RFC 9110 section 5.6.7).
    const thisYear = new Date(wall).getUTCFullYear();
    year += thisYear - (thisYear % 100);
    if (year > thisYear + 50) year -= 100;
  }
  const date = new Date(Date.UTC(year, month, day, h, m, s));
  const isThere = month >= 0 && date.getUTCMonth() === month && date.getUTCDate() === day && h < 24 && m < 60 && s <= 60;
  return isThere ? Math.max(0, date.getTime() - wall) : "never";
}
