// The wrapper in a real browser, on a page of another origin, against the demo shop.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import test, { after, before, beforeEach } from "node:test";

import { CORS } from "../../dist/index.js";
import { finishedSince, setTheStage, trouble, until } from "./stage.mjs";

let stage, page, start;

before(async () => {
  stage = await setTheStage();
  page = await stage.open();
});
after(() => stage?.close());
beforeEach(async () => {
  for (const service of ["gateway", "pricing", "payment"]) await trouble(service, {});
  start = await finishedSince();
});

/** One tap on the page: its answer, or what its error says. */
const tap = (on, path, limit, init, options = {}) =>
  on.evaluate(async ([path, limit, init, options]) => {
    const began = performance.now();
    const tap = window.oneclock.budget(limit, options);
    try {
      const answer = await tap.fetch(window.shop + path, init);
      const text = await answer.text();
      const [reason, replayed] = ["oneclock-reason", "idempotent-replayed"].map((name) => answer.headers.get(name));
      return { status: answer.status, text, reason, replayed, key: tap.key, took: performance.now() - began };
    } catch (error) {
      const { name, why, bound, stage, attempts, outcome, message } = error;
      return { name, why, bound, stage, attempts, outcome, message, took: performance.now() - began };
    }
  }, [path, limit, init, options]);

const buy = { method: "POST" };
/** A purchase whose work nobody keeps up once its caller has left: it has no key. */
const buyOnce = { method: "POST", effect: "once" };
const LONG = 10_000;

test("a purchase within the budget: the shop is told what is left, and charges once", async () => {
  const asked = page.waitForRequest((request) => request.url() === `${stage.shop}/checkout` && request.method() === "POST");
  const answer = await tap(page, "/checkout", LONG, buy);
  assert.deepEqual([answer.status, answer.text], [200, '{"gateway":"done"}'], answer.message);
  const headers = await (await asked).allHeaders();
  const told = Number(headers["x-remaining-ms"]);
  assert.ok(told > 0 && told <= LONG, String(told));
  assert.deepEqual([headers["idempotency-key"], headers["origin"] === stage.shop], [answer.key, false]);
  assert.equal((await finishedSince(start)).one_budget.payment, 1);

  const again = await tap(page, "/checkout", LONG, buy, { key: answer.key });
  assert.deepEqual([again.status, again.text, again.replayed], [200, answer.text, "true"]);
  assert.equal((await finishedSince(start)).one_budget.payment, 1, "the same purchase");
});

test("the shop's door has the lists of the package", async () => {
  const listed = (answer, name) => answer.headers.get(name)?.split(",").map((each) => each.trim()).sort();
  const asked = { origin: "http://page.example", "access-control-request-method": "POST" };
  const preflight = await fetch(`${stage.shop}/checkout`, { method: "OPTIONS", headers: asked });
  assert.deepEqual(listed(preflight, "access-control-allow-headers"), [...CORS.allow]);
  const answer = await fetch(`${stage.shop}/quote`, { headers: { origin: asked.origin } });
  assert.deepEqual(listed(answer, "access-control-expose-headers"), [...CORS.expose]);
});

test("without the list of what may be sent nothing is: the wrapper does not work there", async () => {
  const answer = await tap(page, "/without-allow/checkout", LONG, buy);
  assert.deepEqual([answer.name, answer.why, answer.stage], ["BudgetError", "failed", "wait"]);
  assert.equal((await finishedSince(start)).one_budget.gateway, 0);
  assert.equal((await tap(page, "/checkout", LONG, buy)).status, 200);
});

test("without the list of what may be read a page sees neither reasons nor replays", async () => {
  const refusal = (path) =>
    page.evaluate(async (url) => {
      const answer = await fetch(url, { headers: { "x-remaining-ms": "0" } });
      return [answer.status, answer.headers.get("oneclock-reason")];
    }, stage.shop + path);
  assert.deepEqual(await refusal("/quote"), [504, "expired_before_start"]);
  assert.deepEqual(await refusal("/without-expose/quote"), [504, null]);

  const { key } = await tap(page, "/without-expose/checkout", LONG, buy);
  const again = await tap(page, "/without-expose/checkout", LONG, buy, { key });
  assert.deepEqual([again.status, again.replayed], [200, null]);
});

test("a shop that is slow: the tap ends at its budget, and nobody works on; with independent timeouts they do", async () => {
  await trouble("pricing", { slow_ms: 5_000 });
  const limit = 1_500;
  const [ours, theirs] = await Promise.all([
    tap(page, "/checkout", limit, buyOnce),
    tap(page, "/independent/checkout", limit, buyOnce),
  ]);
  assert.deepEqual([theirs.why, theirs.bound, theirs.stage, theirs.attempts, theirs.outcome],
    ["deadline", "budget", "wait", 1, "unknown"], theirs.message);
  assert.match(theirs.message, /^out of time in stage wait \(bound: budget\) after \d+ms of 1500ms, 1 attempt, outcome: unknown$/);
  assert.ok(theirs.took >= limit - 1 && theirs.took < 4_500, String(theirs.took));
  // The shop, which was told, says so a moment before, or we do.
  assert.ok(ours.status === 504 || ours.why === "deadline", JSON.stringify(ours));
  assert.ok(ours.took < 4_500, String(ours.took));

  await until("the other shop prices for nobody", async () => (await finishedSince(start)).independent.pricing === 1);
  const { one_budget } = await finishedSince(start);
  assert.deepEqual([one_budget.inventory, one_budget.pricing, one_budget.payment, one_budget.order], [1, 0, 0, 0]);
});

for (const [how, leave] of [
  ["an abort", (leaving) => leaving.evaluate(() => window.leaves.abort())],
  ["a closed tab", (leaving) => leaving.close()],
]) {
  test(`${how} stops the work of a shop with one budget, and not that of the other`, async () => {
    await trouble("pricing", { slow_ms: 5_000 });
    const leaving = await stage.open();
    await leaving.evaluate((limit) => {
      window.leaves = new AbortController();
      const options = { signal: window.leaves.signal };
      window.both = ["/checkout", "/independent/checkout"].map((path) =>
        window.oneclock.budget(limit, options).fetch(window.shop + path, { method: "POST", effect: "once" }).catch((error) => error.why),
      );
    }, LONG);
    await until("both have begun", async () => {
      const { one_budget, independent } = await finishedSince(start);
      return one_budget.inventory === 1 && independent.inventory === 1;
    });
    await leave(leaving);
    if (!leaving.isClosed()) {
      assert.deepEqual(await leaving.evaluate(() => Promise.all(window.both)), ["called_off", "called_off"]);
    }
    await until("the other shop prices for nobody", async () => (await finishedSince(start)).independent.pricing === 1);
    const { one_budget } = await finishedSince(start);
    assert.deepEqual([one_budget.pricing, one_budget.payment], [0, 0]);
    if (!leaving.isClosed()) await leaving.close();
  });
}

test("a tap that is tried again charges once; a key for each attempt charges for each", async () => {
  await trouble("payment", { slow_ms: 2_000 });
  const attempts = [];
  const count = (request) => request.method() === "POST" && attempts.push(request.headers()["idempotency-key"]);
  page.on("request", count);
  const answer = await tap(page, "/checkout", 20_000, buy, { perTry: 600, attempts: 20, enforcesKeys: true });
  page.off("request", count);
  assert.equal(answer.status, 200, JSON.stringify(answer));
  assert.ok(attempts.length > 1, "it was tried again");
  assert.deepEqual(new Set(attempts), new Set([answer.key]));
  assert.equal((await finishedSince(start)).one_budget.payment, 1);

  await page.evaluate(async () => {
    for (let attempt = 1; attempt <= 3; attempt++) {
      const headers = { "idempotency-key": window.oneclock.newKey() };
      await fetch(`${window.shop}/checkout`, { method: "POST", headers, signal: AbortSignal.timeout(1_500) }).catch(() => {});
    }
  });
  await until("two charges more, or three", async () => (await finishedSince(start)).one_budget.payment > 2);
});

test("a body that stalls ends at the budget; a limit for the head alone lets it hang", async () => {
  await trouble("gateway", { stall: true });
  const cut = await tap(page, "/checkout", 1_500, buyOnce);
  assert.deepEqual([cut.name, cut.stage, cut.bound, cut.outcome], ["BudgetError", "body", "budget", "unknown"], JSON.stringify(cut));
  assert.ok(cut.took < 6_000, String(cut.took));

  const naive = await page.evaluate(async () => {
    const ends = new AbortController();
    const timer = setTimeout(() => ends.abort(), 1_500);
    const answer = await fetch(`${window.shop}/independent/checkout`, { method: "POST", signal: ends.signal });
    clearTimeout(timer);
    const later = new Promise((resolve) => setTimeout(resolve, 3_000, "still waiting"));
    return Promise.race([answer.text(), later]).finally(() => ends.abort());
  });
  assert.equal(naive, "still waiting");
});

test("what the user sees", async () => {
  const seen = await stage.open();
  const line = (number) => seen.locator("#told li").nth(number);
  const tapped = async (number) => {
    await seen.click("#buy");
    await seen.waitForFunction((number) => document.querySelectorAll("#told li").length > number
      && !document.querySelector("#buy").disabled, number);
  };
  await tapped(0);
  assert.match(await line(0).textContent(), /^bought: \{"gateway":"done"\}, \d+ of 1500 ms$/);
  await trouble("pricing", { slow_ms: 5_000 });
  await tapped(1);
  assert.match(await line(1).textContent(), /^out of time in stage wait|^504: /);
  const folder = fileURLToPath(new URL("../../screenshots/", import.meta.url));
  mkdirSync(folder, { recursive: true });
  await seen.screenshot({ path: `${folder}tap.png` });
  await seen.close();
});
