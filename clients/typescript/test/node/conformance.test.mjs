// The contract's vectors, as far as a client that sets the budget meets them. What is left out is named, and counted.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import * as rules from "../../dist/rules.js";

const vectors = (name) => JSON.parse(readFileSync(new URL(`../../../../conformance/${name}.json`, import.meta.url), "utf8"));

test("milliseconds are written rounded down, never zero, and saturate", () => {
  const cases = vectors("milliseconds").encode.filter((each) => each.field === "x-remaining-ms");
  assert.ok(cases.length >= 7);
  for (const { rule, remaining_ns, want } of cases) {
    assert.equal(rules.encode(Number(remaining_ns) / 1e6), want, `${rule}: ${remaining_ns} ns`);
  }
  for (const nothing of [0, -1, Number.NaN, -Infinity]) assert.equal(rules.encode(nothing), null);
});

test("retry-after is read in all its forms, and what cannot be read is no permission", () => {
  const cases = vectors("retries").pushback.filter((each) => each.field === "retry-after");
  assert.ok(cases.length >= 11);
  for (const { rule, value, wall_ns, want } of cases) {
    const read = rules.retryAfter(value, Number(wall_ns ?? "1769860800000000000") / 1e6);
    assert.deepEqual(read === "never" ? read : { after_ms: read }, want, `${rule}: ${value}`);
  }
  assert.equal(rules.retryAfter(null, 0), undefined);
  // The obvious way reads dates that are none, and takes local time for UTC.
  assert.ok(!Number.isNaN(Date.parse("-1")) && !Number.isNaN(Date.parse("Sun, 31 Nov 1994 08:49:37 GMT")));
});

test("what comes after each attempt is what the plans say", () => {
  const { plans } = vectors("retries");
  // A reserve is for who answers somebody; marks between hops are not shown to outsiders (R9).
  const isOurs = (plan) => !("reserve_ms" in plan || "serving_attempt" in plan || plan.tried.some((tried) => "below" in tried));
  assert.deepEqual(plans.filter((plan) => !isOurs(plan)).map((plan) => plan.says), [
    "a reserve is kept", "a hop below has tried already", "the hop above is trying again",
  ]);
  for (const given of plans.filter(isOurs)) {
    const plan = {
      deadline: given.budget_ms,
      attempts: given.attempts,
      perTry: given.per_try_ms ?? Infinity,
      effect: given.effect,
      enforcesKeys: given.enforces_keys ?? false,
      replayable: true,
    };
    let had = rules.limitAt(plan, 0);
    let ends = had;
    const came = [{ attempt_ms: had }];
    given.tried.forEach(({ at_ms: now, outcome, status, pushback_ms: pushback }, index) => {
      const tried = { number: index + 1, had, left: ends - now, outcome, status, pushback };
      const step = rules.next(plan, tried, given.backoff_ms, now);
      if ("stop" in step) return void came.push({ stop: step.stop });
      had = rules.limitAt(plan, step.at);
      ends = step.at + had;
      came.push(step.at > now ? { wait_until_ms: step.at, attempt_ms: had } : { attempt_ms: had });
    });
    assert.deepEqual(came, given.want, `${given.rule}: ${given.says}`);
  }
});

test("each reason is believed with its own status only, and repeated as the statuses say", () => {
  const plan = { deadline: 1_000, attempts: 3, perTry: Infinity, effect: "read_only", enforcesKeys: false, replayable: true };
  const repeats = (reason, http, effect) => {
    const outcome = rules.outcomeOf(effect, http, reason);
    const tried = { number: 1, had: 1_000, left: 900, outcome, status: http, reason };
    return "at" in rules.next({ ...plan, effect }, tried, 0, 100);
  };
  let met = 0;
  for (const { reason, http, repeat, only_in_logs } of vectors("statuses").cases) {
    if (only_in_logs || http === null) continue;
    met += 1;
    // One budget has no new budget: what was refused for lack of time would be refused with less.
    assert.equal(repeats(reason, http, "read_only"), ["if_it_fits", "if_the_effect_allows"].includes(repeat), reason);
    assert.equal(repeats(reason, http, "once"), repeat === "if_it_fits", `${reason}, once`);
    assert.equal(repeats(reason, 503, "once"), repeat === "if_it_fits" && http === 503, `${reason}, copied`);
  }
  assert.ok(met >= 9);
  assert.equal(rules.outcomeOf("once", 504, "expired_before_start"), "rejected");
  assert.equal(rules.outcomeOf("once", 503, "constructor"), "unknown");
});

test("a purchase that is under way is asked for again with its key, one of which nobody knows is not", () => {
  const plan = { deadline: 5_000, attempts: 3, perTry: Infinity, effect: "keyed", enforcesKeys: true, replayable: true };
  const conflict = { number: 1, had: 1_000, left: 0, outcome: rules.outcomeOf("keyed", 409), status: 409 };
  assert.deepEqual(rules.next(plan, { ...conflict, pushback: 1_000 }, 0, 1_000), { at: 2_000 });
  assert.deepEqual(rules.next(plan, conflict, 0, 1_000), { stop: "status" });
  assert.equal(rules.outcomeOf("once", 409), "failed");
});

test("our own limit for an attempt is no deadline of the whole, also when the server is the first to say so", () => {
  const plan = { deadline: 1_000, attempts: 3, perTry: 300, effect: "read_only", enforcesKeys: false, replayable: true };
  const late = { number: 1, had: 300, left: 10, outcome: "unknown", status: 504, reason: "deadline" };
  assert.deepEqual(rules.next(plan, late, 0, 290), { at: 290 });
  assert.deepEqual(rules.next(plan, { ...late, left: 200 }, 0, 100), { stop: "reason" });
  assert.deepEqual(rules.next({ ...plan, perTry: Infinity }, { ...late, had: 1_000 }, 0, 990), { stop: "reason" });
});

test("the backoff is drawn from the whole of a range that doubles", () => {
  const ends = [1, 2, 3, 4, 5, 50].map((attempts) => [rules.backoffAfter(attempts, 0), rules.backoffAfter(attempts, 1)]);
  assert.deepEqual(ends, [[0, 25], [0, 50], [0, 100], [0, 200], [0, 250], [0, 250]]);
});
