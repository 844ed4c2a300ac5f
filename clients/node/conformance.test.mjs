// Every case of conformance/*.json that applies to this client; what is skipped is named with its reason, and counted.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { after, test } from "node:test";

import { CODECS, Deadline, FIELDS, REASONS, encode, parse, problem, read, skewed } from "./oneclock.mjs";

const VECTORS = new URL("../../conformance/", import.meta.url);
const VALUES = ["grpc-timeout", "milliseconds", "seconds", "absolute"];

// Lists that are not run, with the reason. A list that is in no file any more, or not named here, fails.
const SKIPPED = {
  "retries.json pushback": "this client makes one attempt and never repeats",
  "retries.json plans": "this client makes one attempt and never repeats",
  "retries.json tokens": "this client makes one attempt and never repeats",
};
const SKIPPED_COLUMNS = {
  "statuses.json grpc": "plain HTTP only",
  "statuses.json connect": "plain HTTP only",
  "statuses.json repeat": "this client makes one attempt and never repeats",
};
// Rows of statuses.json that this client never answers.
const OTHER_REASONS = {
  shed: "no admission here, so nothing is refused for load",
  shutdown: "shutting down belongs to whoever owns the server",
  shutdown_midway: "shutting down belongs to whoever owns the server",
  caller_gone: "for logs and metrics only, which are not kept here",
};
// Scenarios: the test of sockets.test.mjs that plays it, or why none does.
const BEHAVIOUR = {
  V1: "skipped: no retries here",
  V2: "skipped: no queue here",
  V3: "V3 connecting spends the budget",
  V4: "skipped: no gRPC here",
  V5: "V5 what cannot be written is not sent",
  V6: "V6 a reset once the clock has passed is our deadline",
  V7: "skipped: no retries here",
  V8: "V8 the wall clock has no say",
  V9: "skipped: no admission here",
  V10: "V10 an error names the bound that made the deadline",
  V11: "V11 detached work has its own deadline",
  V12: "V12 hops in a row never lengthen",
  V13: "skipped: no gRPC here",
  V14: "V14 a stalled body is cut",
};

const counted = {};
function ran(what, count) {
  assert.ok(count > 0, what);
  counted[what] = count;
}

function load(name) {
  const { version, about, ...document } = JSON.parse(readFileSync(new URL(`${name}.json`, VECTORS), "utf8"));
  assert.equal(version, 1, `${name}.json has a version that this test does not know`);
  assert.equal(typeof about, "string");
  return document;
}

/** A key that this harness does not know could change what the case means. */
function fields(one, ...known) {
  assert.deepEqual(
    Object.keys(one).filter((key) => !known.includes(key)),
    [],
    `unknown in ${JSON.stringify(one)}`,
  );
}

function valueOf(one) {
  assert.notEqual("value" in one, "value_hex" in one, `one of value and value_hex: ${JSON.stringify(one)}`);
  return one.value ?? Buffer.from(one.value_hex, "hex").toString("latin1");
}

function kindOf(one) {
  const kind = one.declared ?? FIELDS[one.field];
  assert.ok(Object.hasOwn(CODECS, kind), `no spelling for ${JSON.stringify(one)}`);
  return kind;
}

function wanted(want) {
  if (typeof want === "object") {
    fields(want, "valid_ns");
    return ["valid", BigInt(want.valid_ns)];
  }
  assert.ok(["absent", "expired", "malformed"].includes(want), want);
  return [want, 0n];
}

function decodeDiffers(one, how = parse) {
  fields(one, "rule", "field", "value", "value_hex", "declared", "wall_ns", "want");
  const said = how(kindOf(one), valueOf(one), BigInt(one.wall_ns ?? 0));
  const [word, leftNs] = wanted(one.want);
  return said.word === word && said.leftNs === leftNs
    ? null
    : `${JSON.stringify(one)}: got ${said.word} ${said.leftNs}`;
}

test("every list is run or named", () => {
  const lists = readdirSync(VECTORS)
    .filter((file) => file.endsWith(".json"))
    .flatMap((file) =>
      Object.entries(load(file.slice(0, -5)))
        .filter(([, cases]) => Array.isArray(cases))
        .map(([part]) => `${file} ${part}`),
    );
  const run = VALUES.flatMap((name) => [`${name}.json decode`, `${name}.json encode`]);
  run.push("absolute.json skew", "several.json decode", "statuses.json cases", "behaviour.json cases");
  assert.deepEqual(lists.sort(), [...run, ...Object.keys(SKIPPED)].sort());
});

for (const name of VALUES) {
  const document = load(name);
  test(`${name}: read`, () => {
    for (const one of document.decode) assert.equal(decodeDiffers(one), null);
    ran(`${name} decode`, document.decode.length);
  });

  test(`${name}: written`, () => {
    for (const one of document.encode) {
      fields(one, "rule", "field", "remaining_ns", "declared", "wall_ns", "want");
      const [left, wall] = [BigInt(one.remaining_ns), BigInt(one.wall_ns ?? 0)];
      const written = encode(kindOf(one), left, wall);
      assert.equal(written, one.want, JSON.stringify(one));
      if (written !== null) assert.ok(parse(kindOf(one), written, wall).leftNs <= left, "E1");
    }
    ran(`${name} encode`, document.encode.length);
  });
}

test("several fields", () => {
  const document = load("several");
  fields(document, "wall_ns", "decode");
  for (const one of document.decode) {
    fields(one, "rule", "fields", "want", "source");
    const said = read(one.fields, FIELDS, true, BigInt(document.wall_ns));
    assert.deepEqual(
      [said.word, said.leftNs, said.source ?? null],
      [...wanted(one.want), one.source],
      JSON.stringify(one),
    );
  }
  ran("several", document.decode.length);
});

test("skew", () => {
  const cases = load("absolute").skew;
  for (const one of cases) {
    fields(one, "rule", "field", "values", "wall_ns", "ceiling_ns", "tolerance_ns", "suspected");
    const said = read(
      one.values.map((value) => [one.field, value]),
      FIELDS,
      true,
      BigInt(one.wall_ns),
    );
    const suspected = skewed(said, BigInt(one.ceiling_ns), BigInt(one.tolerance_ns));
    assert.equal(suspected, one.suspected, JSON.stringify(one));
  }
  ran("skew", cases.length);
});

test("statuses", () => {
  const rows = load("statuses").cases;
  const known = [...Object.keys(REASONS), ...Object.keys(OTHER_REASONS)];
  assert.deepEqual(rows.map((row) => row.reason).sort(), known.sort());
  for (const row of rows) {
    fields(row, "reason", "situation", "http", "grpc", "connect", "repeat", "only_in_logs");
    if (!Object.hasOwn(REASONS, row.reason)) continue;
    const document = problem(row.reason, false, Deadline.begin(100), "work");
    assert.equal(document.status, row.http, row.reason);
    assert.equal(document.type, `urn:oneclock:${row.reason}`);
    assert.deepEqual(Object.keys(document).sort(), ["status", "title", "type"], "outsiders learn nothing else");
  }
  ran("statuses", Object.keys(REASONS).length);
});

test("behaviour is played or named", () => {
  const ids = load("behaviour").cases.map((one) => one.id);
  assert.deepEqual(ids.sort(), Object.keys(BEHAVIOUR).sort());
  const played = Object.values(BEHAVIOUR).filter((name) => !name.startsWith("skipped: "));
  const source = readFileSync(new URL("sockets.test.mjs", import.meta.url), "utf8");
  for (const name of played) assert.ok(source.includes(`test("${name}"`), name);
  ran("behaviour", played.length);
});

test("the naive way fails the same cases", () => {
  // `Number(value)` takes signs, spaces, points, exponents and hexadecimal digits, and of zero says that it is fine.
  const naive = (kind, value) =>
    Number.isNaN(Number(value))
      ? { word: "malformed", leftNs: 0n }
      : { word: "valid", leftNs: BigInt(Math.floor(Number(value) * 1e6)) };
  const failed = load("milliseconds")
    .decode.filter((one) => decodeDiffers(one, naive) !== null)
    .map((one) => one.value);
  for (const value of ["+5", " 5", "5 ", "-5", "5.0", "1e3", "", "0", "12345678901"])
    assert.ok(failed.includes(value), value);
  for (const value of ["0x10", "5\n"]) {
    // not among the cases; fine to `Number`
    assert.equal(naive("remaining-ms", value).word, "valid");
    assert.equal(parse("remaining-ms", value).word, "malformed");
  }
});

after(() => {
  const total = Object.values(counted).reduce((sum, count) => sum + count, 0);
  console.log(`conformance (node): ${total} cases run: ${JSON.stringify(counted)}`);
  const rows = Object.entries(OTHER_REASONS).map(([row, why]) => [`statuses.json ${row}`, why]);
  const scenarios = Object.entries(BEHAVIOUR).filter(([, why]) => why.startsWith("skipped: "));
  for (const [what, why] of [
    ...Object.entries({ ...SKIPPED, ...SKIPPED_COLUMNS }),
    ...rows,
    ...scenarios.map(([id, why]) => [`behaviour.json ${id}`, why.replace("skipped: ", "")]),
  ])
    console.log(`  not run: ${what}: ${why}`);
});
