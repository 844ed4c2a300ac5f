/**
 * One time budget for a tap: every attempt, every wait and the answer's body spend from it, the server is told what is left,
 * and when it is gone everything ends.
 *
 * ```ts
 * const tap = budget(800, { perTry: 300, enforcesKeys: true });
 * const answer = await tap.fetch("/checkout", { method: "POST", body: JSON.stringify(cart) });
 * const receipt = await answer.json(); // within the same 800 ms
 * ```
 */
export { budget, Tap, type BudgetOptions, type TapInit } from "./budget.js";
export { BudgetError, type What } from "./error.js";
export { CORS, newKey } from "./fields.js";
export type { Effect, Outcome, Stop } from "./rules.js";
