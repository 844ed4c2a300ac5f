import type { Outcome, Stop } from "./rules.js";

/** What an error tells. Milliseconds. */
export interface What {
  /** The time was up; whoever wanted it called it off; the network failed while there was time. */
  readonly why: "deadline" | "called_off" | "failed";
  /** Which limit held, the tap's or that of one attempt: for `deadline` the one that was reached. And how long it is. */
  readonly bound: "budget" | "per_try";
  readonly limit: number;
  /** Before an attempt, waiting between two, waiting for the head of an answer, or reading its body. */
  readonly stage: "begin" | "backoff" | "wait" | "body";
  readonly attempts: number;
  /** Since the budget began; for `per_try`, since the attempt began. */
  readonly elapsed: number;
  /** `not_sent` and `rejected` are proof that nothing happened; after `unknown` ask again only with the same key. */
  readonly outcome: Outcome;
  /** Why there was no further attempt, if there could have been one. */
  readonly stop?: Stop;
  /** The status of the last answer, if there was one. */
  readonly status?: number | undefined;
  cause?: unknown;
}

export interface BudgetError extends What {}
/** How a call ended without an answer, or an answer before the end of its body. */
export class BudgetError extends Error {
  constructor({ why, bound, limit, stage, attempts, elapsed, outcome, stop, status, cause }: What) {
    const end = { deadline: "out of time", called_off: "called off", failed: "failed" }[why];
    const spent = `after ${Math.round(elapsed)}ms of ${Math.round(limit)}ms`;
    const made = `${attempts} ${attempts === 1 ? "attempt" : "attempts"}${stop ? ` (no more: ${stop})` : ""}`;
    const because = cause instanceof Error ? `: ${cause.message}` : "";
    super(`${end} in stage ${stage} (bound: ${bound}) ${spent}, ${made}, outcome: ${outcome}${because}`);
    Object.assign(this, { name: "BudgetError", why, bound, limit, stage, attempts, elapsed, outcome, stop, status, cause });
  }
}
