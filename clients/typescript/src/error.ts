/** The error of a tap: which bound ended it, where, after how long and how many attempts, and what is known of the far side. */
import type { Outcome, Stop } from "./rules.js";

/** Where a call was: before an attempt, waiting between two, waiting for the head of an answer, or reading its body. */
export type Stage = "begin" | "backoff" | "wait" | "body";

/** What an error tells. Milliseconds. */
export interface What {
  /** The time was up; whoever wanted it called it off; the network failed while there was time. */
  readonly why: "deadline" | "called_off" | "failed";
  /** Which limit held then: the tap's, or that of one attempt. For `deadline` it is the one that was reached. */
  readonly bound: "budget" | "per_try";
  /** That limit. */
  readonly limit: number;
  readonly stage: Stage;
  readonly attempts: number;
  /** Since the budget began; for `per_try`, since the attempt began. */
  readonly elapsed: number;
  /** `not_sent` and `rejected` are proof that nothing happened; after `unknown` ask again only with the same key. */
  readonly outcome: Exclude<Outcome, "applied" | "failed">;
  /** Why there was no further attempt, if there could have been one. */
  readonly stop?: Stop | undefined;
  /** The status of the last answer, if there was one. */
  readonly status?: number | undefined;
  readonly cause?: unknown;
}

const WORDS = { deadline: "out of time", called_off: "called off", failed: "failed" } as const;

export interface BudgetError extends Omit<What, "cause"> {}
export class BudgetError extends Error {
  constructor(what: What) {
    const { why, bound, limit, stage, attempts, elapsed, outcome, stop, cause } = what;
    const spent = `after ${Math.round(elapsed)}ms of ${Math.round(limit)}ms`;
    const made = `${attempts} ${attempts === 1 ? "attempt" : "attempts"}${stop ? ` (no more: ${stop})` : ""}`;
    const because = cause instanceof Error ? `: ${cause.message}` : "";
    super(`${WORDS[why]} in stage ${stage} (bound: ${bound}) ${spent}, ${made}, outcome: ${outcome}${because}`);
    Object.assign(this, what);
    this.name = "BudgetError";
  }

  /** The same, and why there was no further attempt, where the error does not say so itself. */
  because(stop: Stop): BudgetError {
    const saysIt = this.why === "called_off" || (this.why === "deadline" && this.bound === "budget");
    return saysIt ? this : new BudgetError({ ...this, stop });
  }
}
