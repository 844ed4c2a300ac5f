// @ts-check
/**
 * One operation, one clock: the oneclock contract for plain HTTP services in Node. No dependencies.
 *
 * Decides what deadline fields mean (`read`), what a request may spend (`policy`, `ingress`), what a call may spend and
 * is told (`Deadline.child`, `client`), and that a call ends in time, head and body. Rules in brackets are the
 * contract's (docs/contract.md). Times are nanoseconds as BigInt (`Ns`), milliseconds where people write them (`Ms`).
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { STATUS_CODES } from "node:http";

const [US, MS, SEC] = [1_000n, 1_000_000n, 1_000_000_000n];
const [U64, I64] = [2n ** 64n - 1n, 2n ** 63n - 1n];
const least = (/** @type {bigint} */ a, /** @type {bigint} */ b) => (a < b ? a : b);

/** Both clocks, to be replaced in tests. */
export const clock = { monotonic: () => process.hrtime.bigint(), wall: () => BigInt(Date.now()) * MS };

// === Spellings: what the value of one field says, and how one is written ===

/**
 * One spelling. `read` gets the grammar's groups and the wall clock and gives what is left; null says nothing,
 * undefined is malformed. `write` gives null below one unit: not to be sent [E2]. `moment`: how far off, if absolute.
 * @typedef {(groups: string[], wall: bigint) => bigint | null | undefined} Reads
 * @typedef {(left: bigint, wall: bigint) => string | null} Writes
 * @typedef {{ grammar: RegExp, read: Reads, write: Writes, moment?: Reads }} Codec
 */

/** @type {Record<string, bigint>} */
const GRPC_UNITS = { n: 1n, u: US, m: MS, S: SEC, M: 60n * SEC, H: 3600n * SEC };
/** @type {Record<string, bigint>} */
const L5D_SECONDS = { s: 1n, m: 60n, h: 3600n, d: 86_400n };
const MS_PER_400_YEARS = 146_097n * 86_400_000n;
const LAST_EPOCH_MS = 253_402_300_799_999n; // 9999-12-31T23:59:59.999Z

/** The finest unit that fits eight digits [E1]. @type {Writes} */
function writeGrpc(left) {
  if (left <= 0n) return null;
  for (const [unit, size] of Object.entries(GRPC_UNITS)) {
    if (left / size <= 99_999_999n) return `${left / size}${unit}`;
  }
  return "99999999H";
}

/** @param {bigint} unit @param {string} [suffix] @returns {Writes} */
const writeUnits =
  (unit, suffix = "") =>
  (left) =>
    left < unit ? null : `${least(left / unit, 9_999_999_999n)}${suffix}`;

/** @type {Writes} */
function writeDecimal(left) {
  const millis = least(left / MS, 9_999_999_999_999n);
  return millis > 0n ? `${millis / 1000n}.${String(millis % 1000n).padStart(3, "0")}` : null;
}

/** More than nine digits are cut off, which is rounding down. @param {string | undefined} digits */
const fraction = (digits) => BigInt((digits ?? "0").slice(0, 9).padEnd(9, "0"));

/** @type {Reads} */
function readL5d([digits, unit]) {
  const number = least(BigInt(digits), U64);
  return unit === "ms" ? number * MS : least(number * L5D_SECONDS[unit], U64) * SEC;
}

/** @type {Reads} */
function readRfc3339(groups, wall) {
  const [year, month, day, hour, minute, second] = groups.slice(0, 6).map(Number);
  const [digits, sign, zoneHour = "0", zoneMinute = "0"] = groups.slice(6);
  // Years below 100 mean others to `Date`; the calendar repeats every 400 years.
  const midnight = Date.UTC(2000 + (year % 400), month - 1, day);
  if (month < 1 || new Date(midnight).getUTCMonth() !== month - 1 || day < 1) return undefined; // no such day
  const east = (Number(zoneHour) * 60 + Number(zoneMinute)) * (sign === "-" ? -1 : 1);
  const at = midnight + ((hour * 60 + minute - east) * 60 + Math.min(second, 59)) * 1000;
  // A leap second is the last nanosecond before it, and only at the end of a month in UTC.
  const next = new Date(at + 1000);
  if (second === 60 && (next.getTime() % 86_400_000 !== 0 || next.getUTCDate() !== 1)) return undefined;
  const millis = BigInt(at) + (BigInt(Math.floor(year / 400)) - 5n) * MS_PER_400_YEARS;
  return millis * MS + (second === 60 ? SEC - 1n : fraction(digits)) - wall;
}

/** @param {(millis: bigint) => string} print @returns {Writes} */
const writeMoment = (print) => (left, wall) => (left < MS ? null : print(least((wall + left) / MS, LAST_EPOCH_MS)));

/** @type {Reads} */
const readEpoch = ([millis], wall) => least(BigInt(millis), U64) * MS - wall;

/** What was left when it was written also bounds what is left now. @type {Reads} */
function readFinagle(groups, wall) {
  const [stamp, end] = groups.map((digits) => least(BigInt(digits), U64));
  return least(end - wall, end - stamp);
}

const TIME =
  /^([0-9]{4})-([0-9]{2})-([0-9]{2})T([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9]|60)(?:\.([0-9]+))?(?:Z|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))$/;
const TEN_DIGITS = /^([0-9]{1,10})$/;
/** @type {Record<string, Codec>} */
export const CODECS = {
  grpc: { grammar: /^([0-9]{1,8})([HMSmun])$/, read: ([n, unit]) => BigInt(n) * GRPC_UNITS[unit], write: writeGrpc },
  "remaining-ms": { grammar: TEN_DIGITS, read: ([n]) => BigInt(n) * MS, write: writeUnits(MS) },
  // Envoy means "no limit" by zero, so zero says nothing here [P2]; only trusted peers are asked.
  "envoy-ms": { grammar: TEN_DIGITS, read: ([n]) => BigInt(n) * MS || null, write: writeUnits(MS) },
  "remaining-seconds": { grammar: TEN_DIGITS, read: ([n]) => BigInt(n) * SEC, write: writeUnits(SEC) },
  "decimal-seconds": {
    grammar: /^([0-9]+)(?:\.([0-9]+))?$/,
    read: ([whole, digits]) => least(BigInt(whole), U64) * SEC + fraction(digits),
    write: writeDecimal,
  },
  l5d: { grammar: /^([0-9]+)(ms|[smhd])$/, read: readL5d, write: writeUnits(MS, "ms") },
  "epoch-ms": { grammar: /^([0-9]+)$/, read: readEpoch, write: writeMoment(String), moment: readEpoch },
  rfc3339: {
    grammar: TIME,
    read: readRfc3339,
    write: writeMoment((millis) => new Date(Number(millis)).toISOString()),
    moment: readRfc3339,
  },
  finagle: {
    grammar: /^([0-9]+) ([0-9]+)$/,
    read: readFinagle,
    write: (left, wall) => (left > 0n && wall < I64 ? `${wall} ${least(wall + left, I64)}` : null),
    moment: ([, end], wall) => least(BigInt(end), U64) - wall,
  },
};
/**
 * The contract's table. `x-request-timeout` means two things in the wild, so it is read only where its kind is
 * declared: `policy({ known: { ...DEFAULT_SET, "x-request-timeout": "remaining-seconds" } })`.
 * @typedef {Record<string, string>} Conventions Field name, lower case, to a word of CODECS.
 * @type {Conventions}
 */
export const FIELDS = {
  "grpc-timeout": "grpc",
  "connect-timeout-ms": "remaining-ms",
  "x-remaining-ms": "remaining-ms",
  "x-request-timeout-ms": "remaining-ms",
  "x-request-deadline": "rfc3339",
  "x-envoy-expected-rq-timeout-ms": "remaining-ms",
  "x-envoy-upstream-rq-timeout-ms": "envoy-ms",
  "x-envoy-upstream-rq-per-try-timeout-ms": "envoy-ms",
  "expect-within": "decimal-seconds",
  "context-ttl-ms": "remaining-ms",
  "finagle-ctx-com.twitter.finagle.deadline": "finagle",
  "l5d-timeout": "l5d",
};
export const DEFAULT_SET = Object.fromEntries(Object.entries(FIELDS).slice(0, 6));
/** What never travels on as it came [E7]. */
export const STALE = new Set([
  ...Object.keys(FIELDS),
  "x-request-timeout",
  "x-envoy-attempt-count",
  "grpc-previous-rpc-attempts",
]);
/** What outsiders have no say in beside that [C3]. */
const RETRIES_AND_HEDGES = new Set(
  (
    "grpc-retry-pushback-ms oneclock-retried x-envoy-is-timeout-retry l5d-request-timeout l5d-response-timeout " +
    "l5d-retry-http l5d-retry-grpc l5d-retry-limit l5d-retry-timeout x-envoy-max-retries x-envoy-retry-on " +
    "x-envoy-retry-grpc-on x-envoy-hedge-on-per-try-timeout"
  ).split(" "),
);

// === Fields: one request's, read together and written together ===

/**
 * What a field says, or all fields of one request together [P2]. `source` made the result; of equals it is the first.
 * `atMostNs` is the least that was understood, zero for expired, also beside a malformed field. `moments`: how far off
 * the moments are that were named, negative when past.
 * @typedef {"absent" | "valid" | "expired" | "malformed"} Word
 * @typedef {{ word: Word, leftNs: bigint, source?: string, atMostNs?: bigint, moments: bigint[] }} Reading
 */

/** What one field's value says. @param {string} kind @param {string} value @returns {Reading} */
export function parse(kind, value, wallNs = 0n) {
  const codec = CODECS[kind];
  const groups = value.length <= 128 ? codec.grammar.exec(value)?.slice(1) : undefined;
  const left = groups && codec.read(groups, wallNs);
  if (groups === undefined || left === undefined) return { word: "malformed", leftNs: 0n, moments: [] };
  if (left === null) return { word: "absent", leftNs: 0n, moments: [] };
  const leftNs = left > 0n ? left : 0n;
  const moments = codec.moment ? [/** @type {bigint} */ (codec.moment(groups, wallNs))] : [];
  return { word: leftNs ? "valid" : "expired", leftNs, atMostNs: leftNs, moments };
}

/** The value that says so much is left: rounded down, saturating [E1, E6]. Null: make no call [E2, E3].
 * @param {string} kind @param {bigint} leftNs @param {bigint} [wallNs] */
export const encode = (kind, leftNs, wallNs = 0n) => CODECS[kind].write(leftNs, wallNs);

/** The smallest wins; one malformed field makes the whole malformed [P8, P9].
 * @param {Iterable<readonly string[]>} fields @param {Conventions} known @returns {Reading} */
export function read(fields, known, inside = true, wallNs = clock.wall()) {
  /** @type {Reading} */
  let smallest = { word: "absent", leftNs: 0n, moments: [] };
  let malformed,
    moments = /** @type {bigint[]} */ ([]);
  for (const [anyCase, value] of fields) {
    const name = anyCase.toLowerCase();
    if (!Object.hasOwn(known, name) || (known[name] === "envoy-ms" && !inside)) continue;
    const said = parse(known[name], value, wallNs);
    moments = moments.concat(said.moments);
    if (said.word === "malformed") malformed ??= name;
    else if (said.word !== "absent" && (smallest.word === "absent" || said.leftNs < smallest.leftNs)) {
      smallest = { ...said, source: name };
    }
  }
  if (malformed) return { ...smallest, word: "malformed", leftNs: 0n, source: malformed, moments };
  return { ...smallest, moments };
}

/** Whether a sender's clock is suspected not to agree with ours [P10].
 * @param {Reading} reading @param {bigint} ceilingNs @param {bigint} [toleranceNs] */
export const skewed = (reading, ceilingNs, toleranceNs = SEC) =>
  reading.moments.some((moment) => moment > ceilingNs || moment < -toleranceNs);

// === Deadline: the moment after which a result is useless ===

/** No time is left, or too little. A local error: nothing the other side said [E3, X2]. */
export class OutOfTime extends Error {
  /** @param {string} what @param {Deadline} deadline @param {string} stage @param {unknown} [cause] */
  constructor(what, deadline, stage, outcome = "unknown", cause = undefined) {
    const ms = (/** @type {bigint} */ ns) => `${Math.round(Number(ns) / 1e6)}ms`;
    super(
      `${what}: out of time in stage ${stage} after ${ms(deadline.elapsedNs())} of ${ms(deadline.limitNs)} ` +
        `(bound: ${deadline.bound}), outcome: ${outcome.replace("_", " ")}`,
      { cause },
    );
    this.name = "OutOfTime";
    this.deadline = deadline;
    this.stage = stage;
    this.outcome = outcome;
  }
}

/** @type {AsyncLocalStorage<Deadline>} */
const storage = new AsyncLocalStorage();

/** The deadline of the request that this code works for. */
export const current = () => storage.getStore();

const toNs = (/** @type {number} */ ms) => BigInt(Math.floor(ms * 1e6));

/** A moment on the monotonic clock [K1, K2]. It can be brought forward, never pushed back [C1]. */
export class Deadline {
  /** @param {bigint} atNs @param {string} bound What made it. @param {bigint} limitNs Counted from the start.
   * @param {AbortSignal} [gone] Aborts when nobody waits any more. */
  constructor(atNs, bound, limitNs, gone) {
    this.atNs = atNs;
    this.bound = bound;
    this.limitNs = limitNs;
    this.gone = gone;
  }

  /** A new one, for work that nobody asked for by the network, and for detached work. @param {number} limitMs */
  static begin(limitMs, bound = "cap") {
    return new Deadline(clock.monotonic() + toNs(limitMs), bound, toNs(limitMs));
  }

  remainingNs() {
    const left = this.atNs - clock.monotonic();
    return left > 0n ? left : 0n;
  }

  elapsedNs() {
    return clock.monotonic() - (this.atNs - this.limitNs);
  }

  /** Ends work whose time is up. For loops: nobody can end those from outside. */
  checkpoint(what = "work", stage = "work", outcome = "unknown") {
    if (!this.remainingNs()) throw new OutOfTime(what, this, stage, outcome);
  }

  /** What one child may spend: min(remaining - reserve, cap) [C1, E5].
   * @param {{ what?: string, capMs?: number, reserveMs?: number, minUsefulMs?: number }} [ask] */
  child({ what = "call", capMs, reserveMs = 0, minUsefulMs = 5 } = {}) {
    if (capMs !== undefined && capMs < minUsefulMs) throw new RangeError(`${what}: the cap is below the least useful`);
    const now = clock.monotonic();
    const mostNs = this.atNs - toNs(Math.max(0, reserveMs));
    if (mostNs <= now || mostNs - now < toNs(minUsefulMs)) throw new OutOfTime(what, this, "work", "not_sent");
    const capNs = capMs === undefined ? mostNs - now : toNs(capMs); // after the minimum was compared
    if (now + capNs < mostNs) return new Deadline(now + capNs, "cap", capNs, this.gone);
    return new Deadline(mostNs, this.bound, mostNs - now, this.gone);
  }

  /** Runs this with it as the current one, or with the one around it if that ends earlier.
   * @template T @param {() => T} work */
  run(work) {
    const around = current();
    return storage.run(around && around.atNs < this.atNs ? around : this, work);
  }
}

// === Policy: what an arriving request may spend, or why it is refused ===

/** @type {Record<string, [number, string]>} */
export const REASONS = {
  deadline: [504, "the time budget ran out while working"],
  expired_before_start: [504, "the time budget was spent before the work began"],
  insufficient_budget: [504, "too little of the time budget was left to begin"],
  cap: [504, "a local time limit ran out"],
  malformed_deadline: [400, "a deadline field could not be read"],
  request_body: [408, "the request body did not arrive in time"],
};

/**
 * One service's limits. `count` gets what happened, and the field that made it happen, for metrics [P3, P10].
 * @param {{ whenAbsentMs?: number, ceilingMs?: number, minUsefulMs?: number, onMalformed?: "reject" | "clamp",
 *   known?: Conventions, count?: (what: string, field?: string) => void }} [limits]
 */
export function policy(limits = {}) {
  const {
    whenAbsentMs = 2_000, // nobody said anything; also the most that outsiders get
    ceilingMs = 10_000, // the most that anybody gets
    minUsefulMs = 5, // below it a request is refused before any side effect [C4, K4]
    onMalformed = "reject", // or "clamp" [P3]
    known = DEFAULT_SET,
    count = () => {},
  } = limits;
  if (!(0 < minUsefulMs && minUsefulMs <= whenAbsentMs && whenAbsentMs <= ceilingMs && ceilingMs < Infinity)) {
    throw new RangeError("these have to rise, from above zero: minUsefulMs, whenAbsentMs, ceilingMs");
  }
  if (
    !["reject", "clamp"].includes(onMalformed) ||
    !Object.values(known).every((kind) => Object.hasOwn(CODECS, kind))
  ) {
    throw new RangeError(`onMalformed is reject or clamp, and a field holds one of ${Object.keys(CODECS).join(", ")}`);
  }
  return Object.freeze({ whenAbsentMs, ceilingMs, minUsefulMs, onMalformed, known, count });
}

/** Counted from the arrival [K1]. Inside: min(caller, ceiling). Outside: min(caller, whenAbsent) [C2].
 * @param {ReturnType<typeof policy>} limits @param {Reading} reading @param {boolean} inside @param {bigint} arrivedNs
 * @returns {{ deadline: Deadline, refused?: string }} */
export function decide(limits, reading, inside, arrivedNs) {
  const [absentNs, ceilingNs] = [toNs(limits.whenAbsentMs), toNs(limits.ceilingMs)];
  if (skewed(reading, ceilingNs)) limits.count("skew", reading.source);
  if (reading.word === "malformed") {
    limits.count("malformed_deadline", reading.source);
    if (limits.onMalformed === "reject") {
      return { deadline: new Deadline(arrivedNs, "absent", 0n), refused: "malformed_deadline" };
    }
  }
  let [limitNs, bound] = [absentNs, "absent"];
  const askedNs = reading.atMostNs; // beside a malformed field: what was understood still shortens
  if (askedNs !== undefined && !(reading.word === "malformed" && askedNs >= absentNs)) {
    const [mostNs, by] = inside ? [ceilingNs, "ceiling"] : [absentNs, "absent"];
    [limitNs, bound] = askedNs > mostNs ? [mostNs, by] : [askedNs, "caller"];
  }
  const deadline = new Deadline(arrivedNs + limitNs, bound, limitNs);
  const leftNs = deadline.remainingNs();
  if (leftNs >= toNs(limits.minUsefulMs)) return { deadline };
  const refused = leftNs ? "insufficient_budget" : "expired_before_start";
  limits.count(refused, reading.source);
  return { deadline, refused };
}

/** The document of an answer in place of an answer (contract section 5). Outsiders learn nothing of our insides.
 * @param {string} reason @param {boolean} inside @param {Deadline} deadline @param {string} stage
 * @param {string} [detail] */
export function problem(reason, inside, deadline, stage, detail) {
  const [status, title] = REASONS[reason];
  const ms = (/** @type {bigint} */ ns) => Number(ns / US) / 1e3;
  const insight = inside && {
    bound: deadline.bound,
    stage,
    budget_ms: ms(deadline.limitNs),
    elapsed_ms: ms(deadline.elapsedNs()),
  };
  return { type: `urn:oneclock:${reason}`, title, status, ...(detail && { detail }), ...insight };
}

/** Calls back at the deadline, and gives a way to call that off. Timers fire early, late, and not beyond 24 days, so
 * the clock decides [K3]. @param {Deadline} deadline @param {() => void} work @returns {() => void} */
function at(deadline, work) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const look = () => {
    const left = deadline.remainingNs();
    if (left === 0n) return work();
    timer = setTimeout(look, Math.min(Math.ceil(Number(left) / 1e6), 2 ** 31 - 1));
  };
  look();
  return () => clearTimeout(timer);
}

// === Server: a handler for `http.createServer` ===

/** Name and value by turns, as pairs. @template T @param {T[]} flat */
const pairs = (flat) => flat.flatMap((name, index) => (index % 2 ? [] : [[name, flat[index + 1]]]));
const REASON = "oneclock-reason";
const DRAIN_MS = 1_000; // so long an upload may go on after its answer, so that this reaches whoever sends it [X9]

/**
 * Gives every request a deadline, or an answer without running the handler. At the deadline the request is answered, or
 * its answer is cut, whatever the handler does; its calls (`client`) end then, and when the caller leaves. What it
 * writes later goes nowhere. Trust belongs to the listener [C2].
 * @param {(req: import("node:http").IncomingMessage, res: import("node:http").ServerResponse) => unknown} handler
 * @param {ReturnType<typeof policy>} [limits]
 * @returns {(req: import("node:http").IncomingMessage, res: import("node:http").ServerResponse) => void}
 */
export function ingress(handler, limits = policy(), { inside = false } = {}) {
  return (req, res) => {
    const arrivedNs = clock.monotonic(); // the head was read
    const fields = /** @type {string[][]} */ (pairs(req.rawHeaders));
    const reading = read(fields, limits.known, inside);
    const { deadline, refused } = decide(limits, reading, inside, arrivedNs);
    if (refused) {
      const detail = refused === "malformed_deadline" ? `malformed ${reading.source}` : undefined;
      return answer(req, res, problem(refused, inside, deadline, "arrival", detail), refused);
    }
    // Read for shortening, then gone [C3]; a name that only this listener knows for everybody [E7].
    const gone = (/** @type {string} */ name) =>
      (!inside && (STALE.has(name) || RETRIES_AND_HEDGES.has(name))) ||
      (Object.hasOwn(limits.known, name) && !STALE.has(name));
    for (const headers of [req.headers, req.headersDistinct]) {
      // made of the raw ones when they are first looked at
      for (const name of Object.keys(headers)) if (gone(name)) delete headers[name];
    }
    req.rawHeaders = fields.filter(([name]) => !gone(name.toLowerCase())).flat();

    const left = new AbortController();
    deadline.gone = left.signal;
    let over = false;
    const stop = (/** @type {string} */ reason, /** @type {string} */ stage) => {
      if (over) return;
      over = true;
      if (res.writableFinished) return;
      answer(req, res, problem(reason, inside, deadline, stage), reason);
    };
    const expire = () => {
      const uploading = !req.complete && req.readableFlowing !== null; // and somebody waits for it
      if (uploading && !res.headersSent) stop("request_body", "body");
      else stop("deadline", res.headersSent ? "body" : "work");
    };
    const forget = at(deadline, expire);
    res.once("close", () => {
      over = true;
      forget();
      left.abort(new Error("nobody waits for this request any more"));
    });
    guard(res, deadline, expire, limits.count);
    deadline
      .run(async () => handler(req, res))
      .catch((error) => {
        if (over) return;
        if (error instanceof OutOfTime) {
          return stop(error.deadline.bound === "cap" && deadline.remainingNs() ? "cap" : "deadline", error.stage);
        }
        over = true;
        console.error(error);
        answer(req, res, { type: "about:blank", title: "this service failed", status: 500 });
      });
  };
}

/** The clock is asked before the head and each piece. A late answer is sent only if it is there as a whole [X1].
 * @param {any} res @param {Deadline} deadline @param {() => void} expire @param {(what: string) => void} count */
function guard(res, deadline, expire, count) {
  let whole = false;
  for (const method of ["writeHead", "write", "end"]) {
    const original = res[method];
    res[method] = (/** @type {any[]} */ ...given) => {
      const late = deadline.remainingNs() === 0n;
      if (late && method === "end" && !res.headersSent && !whole) {
        whole = true;
        count("late");
      }
      if (late && !whole) {
        expire();
        return method === "write" ? true : res;
      }
      if (method === "writeHead") {
        // callers build on our reason, so one that was copied from another answer goes
        res.removeHeader(REASON);
        const kept = (/** @type {any[]} */ list) => list.filter(([name]) => String(name).toLowerCase() !== REASON);
        given = given.map((one) => {
          if (Array.isArray(one)) return kept(pairs(one.flat())).flat();
          return one && typeof one === "object" ? Object.fromEntries(kept(Object.entries(one))) : one;
        });
      }
      return original.apply(res, given);
    };
  }
}

/** Answers in place of the handler, or cuts what it has begun, so that it never looks complete [X3].
 * @param {any} req @param {any} res @param {{ type: string, title: string, status: number }} document
 * @param {string} [reason] */
function answer(req, res, document, reason) {
  for (const method of ["writeHead", "write", "end"]) delete res[method]; // the guard
  if (res.headersSent) {
    res.socket?.resetAndDestroy();
  } else {
    for (const name of res.getHeaderNames()) res.removeHeader(name); // the handler's
    const body = JSON.stringify(document);
    const head = { "content-type": "application/problem+json", "content-length": Buffer.byteLength(body) };
    res.writeHead(document.status, STATUS_CODES[document.status], reason ? { ...head, [REASON]: reason } : head);
    res.end(body);
    if (!req.complete) {
      req.resume();
      const enough = setTimeout(() => req.socket.destroy(), DRAIN_MS);
      req.once("close", () => clearTimeout(enough));
    }
  }
  // A handler that goes on must not stumble over the answer that was given for it.
  for (const method of ["setHeader", "appendHeader", "removeHeader", "writeHead", "flushHeaders", "end"]) {
    res[method] = () => res;
  }
  res.write = () => true;
}

// === Client ===

/** @type {Conventions} */
export const PLAIN_HTTP = { "x-remaining-ms": "remaining-ms" };
const HOP_BY_HOP =
  "connection content-length host keep-alive proxy-connection te transfer-encoding upgrade expect".split(" ");

/**
 * One thing we call over HTTP, with its own limit and the fields that it understands. The answer is `fetch`'s; head and
 * body come within the same deadline. Outside of a request: the cap [C6].
 *
 * `fetch` fixes the fields before it has a connection, so a cold connect is not subtracted from what is written [E4]:
 * give `reserveMs` at least that. No redirect is followed, since `fetch` would carry the field on unreduced.
 * @param {string} name @param {string} base
 * @param {{ capMs: number, writes?: Conventions, minUsefulMs?: number }} limits
 */
export function client(name, base, { capMs, writes = PLAIN_HTTP, minUsefulMs = 5 }) {
  if (!(capMs >= minUsefulMs && capMs < Infinity)) throw new RangeError(`${name}: needs a cap, not below minUsefulMs`);
  /** @param {string} path @param {RequestInit & { reserveMs?: number }} [init] @returns {Promise<Response>} */
  return async function call(path, { reserveMs = 0, ...init } = {}) {
    if (!path.startsWith("/")) throw new TypeError(`${name}: a path begins with a slash`);
    const deadline = current()?.child({ what: name, capMs, reserveMs, minUsefulMs }) ?? Deadline.begin(capMs);
    const headers = new Headers(init.headers);
    for (const field of [...STALE, ...HOP_BY_HOP]) headers.delete(field);
    const [leftNs, wallNs] = [deadline.remainingNs(), clock.wall()];
    for (const [field, kind] of Object.entries(writes)) {
      const said = encode(kind, leftNs, wallNs);
      // Below one unit no call is made: the field is never left out, never zero, never rounded up [E2].
      if (said === null) throw new OutOfTime(name, deadline, "send", "not_sent");
      headers.set(field, said);
    }

    const controller = new AbortController();
    const finished = new AbortController();
    let stage = "wait";
    const forget = at(deadline, () => controller.abort(new OutOfTime(name, deadline, stage)));
    const finish = () => (forget(), finished.abort());
    for (const signal of [deadline.gone, init.signal]) {
      if (signal?.aborted) controller.abort(signal.reason);
      signal?.addEventListener("abort", () => controller.abort(signal.reason), { signal: finished.signal });
    }
    /** Past the deadline whatever went wrong is our own deadline [X2]. @param {unknown} error */
    const why = (error) => {
      if (error instanceof OutOfTime || deadline.remainingNs()) return error;
      return new OutOfTime(name, deadline, stage, "unknown", error);
    };
    try {
      const url = base.replace(/\/$/, "") + path;
      const response = await fetch(url, { ...init, headers, signal: controller.signal, redirect: "manual" });
      deadline.checkpoint(name, stage);
      stage = "body";
      const reader = response.body?.getReader();
      if (!reader) return (finish(), response);
      // The reading ends even where `fetch` has lost sight of its signal.
      controller.signal.addEventListener("abort", () => reader.cancel().catch(() => {}));
      const body = new ReadableStream(
        {
          async pull(sink) {
            try {
              deadline.checkpoint(name, stage); // the clock, before each piece [X1]
              const piece = await reader.read();
              controller.signal.throwIfAborted();
              if (!piece.done) return sink.enqueue(piece.value);
              finish();
              sink.close();
            } catch (error) {
              sink.error(why(error));
              controller.abort(error);
              finish();
            }
          },
          cancel(reason) {
            finish();
            return reader.cancel(reason);
          },
        },
        { highWaterMark: 0 },
      );
      return new Response(body, response);
    } catch (error) {
      controller.abort(error);
      finish();
      throw why(error);
    }
  };
}
