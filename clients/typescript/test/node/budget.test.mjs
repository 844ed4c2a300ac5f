import assert from "node:assert/strict";
import test from "node:test";

import { budget, BudgetError, CORS, newKey } from "../../dist/index.js";
import { errorOf, serverFor } from "./server.mjs";

const ok = (_, response) => response.end("receipt");
const hang = () => {};
const refuse = (status, headers = {}) => (_, response) => response.writeHead(status, headers).end();

const post = { method: "POST", body: "{}" };
/** Long after any deadline here, and the bound of every wait. */
const NEVER = 30_000;

test("one budget for attempts, waits and the body: what is left is told anew, rounded down, and only shrinks", async (t) => {
  const { url, seen } = await serverFor(t, (request, response, number) => (number < 3 ? refuse(503) : ok)(request, response));
  const tap = budget(5_000);
  const answer = await tap.fetch(url);
  assert.equal(await answer.text(), "receipt");
  const told = seen.map(({ headers }) => headers["x-remaining-ms"]);
  assert.equal(told.length, 3);
  for (const value of told) assert.match(value, /^[1-9]\d{0,9}$/);
  const [first, second, third] = told.map(Number);
  assert.ok(first <= 5_000 && second <= first && third <= second, String(told));
  assert.ok(third >= Math.floor(tap.remaining), "never more than a moment ago, never less than now");
  assert.deepEqual(new Set(seen.map(({ headers }) => headers["idempotency-key"])), new Set([undefined]), "it only reads");
});

test("nothing answers: it ends at the budget, says so, and the server sees the caller leave", async (t) => {
  const { url, seen } = await serverFor(t, hang);
  const error = await errorOf(budget(400).fetch(url, post));
  assert.ok(error instanceof BudgetError && error instanceof Error);
  const { why, bound, limit, stage, attempts, outcome } = error;
  assert.deepEqual({ why, bound, limit, stage, attempts, outcome },
    { why: "deadline", bound: "budget", limit: 400, stage: "wait", attempts: 1, outcome: "unknown" });
  assert.ok(error.elapsed >= 399 && error.elapsed < 4_000, String(error.elapsed));
  assert.match(error.message, /^out of time in stage wait \(bound: budget\) after \d+ms of 400ms, 1 attempt, outcome: unknown$/);
  assert.ok((await seen[0].left) - seen[0].at < 4_000);
});

test("the naive way: a limit for each attempt takes three times as long, and ends with the head", async (t) => {
  const { url, seen } = await serverFor(t, hang);
  const began = performance.now();
  for (let attempt = 1; attempt <= 3; attempt++) await errorOf(fetch(url, { signal: AbortSignal.timeout(400) }));
  assert.ok(performance.now() - began >= 1_190);
  assert.equal(seen[0].headers["x-remaining-ms"], undefined);
});

test("a limit for an attempt leaves time for another, and all of them share the budget (V1)", async (t) => {
  const { url, seen } = await serverFor(t, (request, response, number) => (number < 3 ? hang : ok)(request, response));
  const answer = await budget(10_000, { perTry: 400 }).fetch(url);
  assert.equal(await answer.text(), "receipt");
  for (const { headers } of seen) assert.ok(Number(headers["x-remaining-ms"]) <= 400);

  const always = await serverFor(t, hang);
  const error = await errorOf(budget(1_000, { perTry: 400 }).fetch(always.url));
  assert.equal(error.why, "deadline");
  assert.ok(error.attempts >= 2 && error.attempts <= 3 && error.elapsed < 10_000, error.message);
  const told = always.seen.map(({ headers }) => Number(headers["x-remaining-ms"]));
  assert.ok(told.every((value, index) => value <= 400 && value <= 1_000 - 399 * index), String(told));
});

test("a limit for the only attempt is the bound that its error names", async (t) => {
  const { url } = await serverFor(t, hang);
  const error = await errorOf(budget(NEVER, { perTry: 300, attempts: 1 }).fetch(url));
  assert.deepEqual([error.bound, error.limit, error.stop], ["per_try", 300, "all_made"]);
  assert.match(error.message, /of 300ms, 1 attempt \(no more: all_made\), outcome: unknown/);
});

test("all attempts of one tap carry one key, with the time in front of it; another tap has another", async (t) => {
  const { url, seen } = await serverFor(t, (request, response, number) => (number < 3 ? refuse(503) : ok)(request, response));
  const before = Date.now();
  const tap = budget(NEVER, { enforcesKeys: true });
  assert.equal((await tap.fetch(url, post)).status, 200);
  assert.deepEqual(seen.map(({ headers, body }) => [headers["idempotency-key"], body]), Array(3).fill([tap.key, "{}"]));
  assert.match(tap.key, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  const made = parseInt(tap.key.replace("-", "").slice(0, 12), 16);
  assert.ok(made >= before && made <= Date.now(), String(made));
  assert.notEqual(newKey(), newKey());
  assert.equal(budget(800, { key: tap.key }).key, tap.key, "asked again, later");
});

test("a key of the caller's stays, and what was said to be done once has none", async (t) => {
  const { url, seen } = await serverFor(t, ok);
  await budget(NEVER).fetch(url, { ...post, headers: { "idempotency-key": "order-7", "x-remaining-ms": "999999" } });
  await budget(NEVER).fetch(url, { ...post, effect: "once" });
  assert.deepEqual(seen.map(({ headers }) => headers["idempotency-key"]), ["order-7", undefined]);
  assert.ok(Number(seen[0].headers["x-remaining-ms"]) <= NEVER, "a stale one is replaced (E7)");
});

test("what may have happened is repeated only if it reads, or has a key that is enforced (R7)", async (t) => {
  const cases = [
    [{}, {}, 3],
    [post, {}, 1],
    [post, { enforcesKeys: true }, 3],
    [{ ...post, effect: "once" }, { enforcesKeys: true }, 1],
    [{ ...post, effect: "read_only" }, {}, 3],
    [{ method: "PUT", effect: "idempotent" }, {}, 3],
    [{ method: "PUT" }, {}, 1],
  ];
  for (const [init, options, times] of cases) {
    const { url, seen } = await serverFor(t, refuse(503));
    const answer = await budget(NEVER, options).fetch(url, init);
    assert.deepEqual([answer.status, seen.length], [503, times], JSON.stringify([init, options]));
  }
});

test("what one of ours refused is repeated whatever it does; definite errors are not (R8)", async (t) => {
  const cases = [
    [503, { "oneclock-reason": "shed" }, 3],
    [503, { "oneclock-reason": "shutdown" }, 3],
    [503, { "oneclock-reason": "shutdown_midway" }, 1],
    [504, { "oneclock-reason": "shed" }, 1], // copied from somewhere
    [504, { "oneclock-reason": "insufficient_budget" }, 1], // there is less now
    [504, { "oneclock-reason": "deadline" }, 1],
    [429, {}, 3],
    [400, {}, 1],
    [404, {}, 1],
    [422, {}, 1],
    [500, {}, 1],
  ];
  for (const [status, headers, times] of cases) {
    const { url, seen } = await serverFor(t, refuse(status, headers));
    const answer = await budget(NEVER).fetch(url, post);
    assert.deepEqual([answer.status, seen.length], [status, times], JSON.stringify([status, headers]));
  }
});

test("retry-after that fits is waited for, one that does not ends it now (R2)", async (t) => {
  const fits = await serverFor(t, (request, response, number) =>
    (number < 2 ? refuse(429, { "retry-after": "1" }) : ok)(request, response));
  assert.equal((await budget(NEVER).fetch(fits.url, post)).status, 200);
  assert.ok(fits.seen[1].at - fits.seen[0].at >= 990);

  for (const value of ["60", "soon"]) {
    const { url, seen } = await serverFor(t, refuse(503, { "retry-after": value, "oneclock-reason": "shed" }));
    const tap = budget(20_000);
    const answer = await tap.fetch(url, post);
    assert.deepEqual([answer.status, answer.headers.get("retry-after"), seen.length], [503, value, 1]);
    assert.ok(tap.remaining > 10_000, "now, not at the deadline");
  }
});

test("the body is under the same budget, and is never asked for again (R6)", async (t) => {
  const { url, seen } = await serverFor(t, (_, response) => {
    response.writeHead(200, { "content-length": "100" });
    response.write("half a rec");
  });
  const tap = budget(500);
  const answer = await tap.fetch(url);
  const error = await errorOf(answer.text());
  assert.ok(error instanceof BudgetError, String(error));
  assert.deepEqual([error.why, error.stage, error.outcome, error.attempts], ["deadline", "body", "unknown", 1]);
  assert.ok(error.elapsed >= 499 && error.elapsed < 5_000);
  await seen[0].left;
  assert.equal(seen.length, 1);
});

test("nothing left, or too little to be useful: no call (E2, E3, V5)", async (t) => {
  const { url, seen } = await serverFor(t, ok);
  const tap = budget(5);
  while (tap.remaining > 4) await new Promise(setImmediate);
  const error = await errorOf(tap.fetch(url, post));
  assert.deepEqual([error.why, error.stage, error.attempts, error.outcome], ["deadline", "begin", 0, "not_sent"]);
  assert.equal(seen.length, 0);
  for (const limit of [0, -1, 4, NaN, Infinity, 2 ** 31]) {
    assert.throws(() => budget(limit), RangeError);
    assert.throws(() => budget(800, { perTry: limit }), RangeError);
  }
});

test("what wants it may call it off: before, while it waits, between attempts, in the body", async (t) => {
  const gone = new Error("the user left");
  const { url, seen } = await serverFor(t, (request, response, number) => {
    if (number === 1) calls[1].abort(gone);
    if (number === 2) {
      refuse(429, { "retry-after": "20" })(request, response);
      response.on("finish", () => setTimeout(() => calls[2].abort(gone), 100)); // it has been read by then, or not: both end
    }
    if (number === 3) response.writeHead(200, { "content-length": "100" }).write("half");
  });
  const calls = Array.from({ length: 4 }, () => new AbortController());
  const called = async (promise, stages, outcomes, attempts) => {
    const error = await errorOf(promise);
    assert.deepEqual([error.why, error.attempts, error.cause], ["called_off", attempts, gone], error.message);
    assert.ok(stages.includes(error.stage) && outcomes.includes(error.outcome), error.message);
  };
  calls[0].abort(gone);
  await called(budget(NEVER, { signal: calls[0].signal }).fetch(url, post), ["begin"], ["not_sent"], 0);
  await called(budget(NEVER, { signal: calls[1].signal }).fetch(url, post), ["wait"], ["unknown"], 1);
  await seen[0].left;
  await called(budget(NEVER).fetch(url, { ...post, signal: calls[2].signal }), ["backoff", "wait"], ["rejected", "unknown"], 1);
  const answer = await budget(NEVER, { signal: calls[3].signal }).fetch(url, post);
  const text = answer.text();
  calls[3].abort(gone);
  await called(text, ["body"], ["unknown"], 1);
  assert.equal(seen.length, 3);
});

test("what is no request is the caller's mistake, and says so", async () => {
  const tap = budget(NEVER);
  for (const call of [["no url"], ["http://127.0.0.1:9/", { method: "GET", body: "{}" }]]) {
    const error = await errorOf(tap.fetch(...call));
    assert.ok(error instanceof TypeError && !(error instanceof BudgetError), String(error));
  }
  assert.equal(tap.outcome, "not_sent");
});

test("a tap says what is known of the far side, also where there was an answer", async (t) => {
  const answers = [[200, "applied"], [503, "unknown"], [429, "rejected"], [404, "failed"], [500, "unknown"]];
  for (const [status, outcome] of answers) {
    const { url } = await serverFor(t, refuse(status));
    const tap = budget(NEVER, { attempts: 1 });
    await tap.fetch(url, post);
    assert.equal(tap.outcome, outcome, String(status));
  }
  const { url } = await serverFor(t, (request, response, number) =>
    number === 1 ? request.socket.destroy() : refuse(429)(request, response));
  const tap = budget(NEVER, { attempts: 2, enforcesKeys: true });
  assert.equal((await tap.fetch(url, post)).status, 429);
  assert.equal(tap.outcome, "unknown", "the first one may have happened");
});

test("a network that fails is told as what it is: unknown, unless the deadline has passed", async (t) => {
  const { url, seen } = await serverFor(t, (request) => request.socket.destroy());
  const error = await errorOf(budget(NEVER).fetch(url, post));
  assert.deepEqual([error.why, error.stage, error.attempts, error.outcome, error.stop], ["failed", "wait", 1, "unknown", "effect"]);
  assert.ok(error.cause instanceof TypeError);
  const again = await errorOf(budget(NEVER).fetch(url));
  assert.deepEqual([again.attempts, again.stop, seen.length], [3, "all_made", 4]);
});

test("what may have happened stays unknown, whatever is answered to the next attempt", async (t) => {
  const { url } = await serverFor(t, (request, response, number) =>
    number === 1 ? request.socket.destroy() : refuse(429, { "retry-after": "20" })(request, response));
  const call = new AbortController();
  setTimeout(() => call.abort(), 3_000);
  const error = await errorOf(budget(NEVER, { enforcesKeys: true }).fetch(url, { ...post, signal: call.signal }));
  assert.deepEqual([error.why, error.attempts, error.stage, error.outcome, error.status], ["called_off", 2, "backoff", "unknown", 429]);
});

test("a body that can be read only once is sent only once", async (t) => {
  const { url, seen } = await serverFor(t, refuse(429));
  const body = new Blob(["{}"]).stream();
  const answer = await budget(NEVER).fetch(url, { method: "POST", body, duplex: "half" });
  assert.deepEqual([answer.status, seen.length, seen[0].body], [429, 1, "{}"]);
});

test("a step of the time of day changes nothing (K2)", async (t) => {
  const { url } = await serverFor(t, ok);
  const now = Date.now;
  t.after(() => (Date.now = now));
  const tap = budget(NEVER);
  Date.now = () => now() + 3_600_000;
  assert.equal((await tap.fetch(url)).status, 200);
});

test("a signal that outlives many taps does not collect their listeners", async (t) => {
  const { url } = await serverFor(t, refuse(404));
  const { signal } = new AbortController();
  let listening = 0;
  const [add, remove] = [signal.addEventListener, signal.removeEventListener];
  signal.addEventListener = (...what) => (listening++, add.apply(signal, what));
  signal.removeEventListener = (...what) => (listening--, remove.apply(signal, what));
  for (let tap = 0; tap < 5; tap++) await (await budget(300, { signal }).fetch(url)).text();
  assert.ok(listening > 0);
  for (const began = performance.now(); listening > 0 && performance.now() - began < NEVER; ) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.equal(listening, 0);
});

test("the lists are sorted, lower case, and name every field that is written or read", () => {
  for (const list of Object.values(CORS)) assert.deepEqual([...list], [...list].map((name) => name.toLowerCase()).sort());
  for (const name of ["x-remaining-ms", "idempotency-key"]) assert.ok(CORS.allow.includes(name));
  for (const name of ["oneclock-reason", "retry-after"]) assert.ok(CORS.expose.includes(name));
});
