/**
 * One operation, one clock: the oneclock contract for plain HTTP services in Node. No dependencies.
 *
 * Decides what deadline fields mean (`read`), what a request may spend (`policy`, `ingress`), what a call may spend and
 * is told (`Deadline.child`, `client`), and that a call ends in time, head and body. Rules in brackets are the
 * contract's (docs/contract.md). Times are nanoseconds as BigInt (`Ns`), milliseconds where people write them (`Ms`).
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { STATUS_CODES } from "node:http";

const [MS, SEC] = [1_000_000n, 1_000_000_000n];
const [U64, I64] = [2n ** 64n - 1n, 2n ** 63n - 1n];
const least = (a, b) => (a < b ? a : b);
const toNs = (ms) => BigInt(Math.floor(ms * 1e6));

/** Both clocks, to be replaced in tests. */
export const clock = { monotonic: () => process.hrtime.bigint(), wall: () => BigInt(Date.now()) * MS };

// === Spellings: what the value of one field says, and how one is written ===

const GRPC_UNITS = { n: 1n, u: 1_000n, m: MS, S: SEC, M: 60n * SEC, H: 3600n * SEC };
const L5D_UNITS = { ms: MS, s: SEC, m: 60n * SEC, h: 3600n * SEC, d: 86_400n * SEC };
const MS_PER_400_YEARS = 146_097n * 86_400_000n;
const LAST_EPOCH_MS = 253_402_300_799_999n; // 9999-12-31T23:59:59.999Z
const TEN_DIGITS = /^([0-9]{1,10})$/;
const RFC3339 =
  /^([0-9]{4})-([0-9]{2})-([0-9]{2})T([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9]|60)(?:\.([0-9]+))?(?:Z|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))$/;

const long = (digits) => least(BigInt(digits), U64);

/** More than nine digits are cut off, which is rounding down. */
const fraction = (digits) => BigInt((digits ?? "0").slice(0, 9).padEnd(9, "0"));

function readRfc3339(groups, wall) {
  const [year, month, day, hour, minute, second] = groups.slice(0, 6).map(Number);
  const [digits, sign, zoneHour = "0", zoneMinute = "0"] = groups.slice(6);
  // Years below 100 mean others to `Date`; the calendar repeats every 400 years.
  const midnight = new Date(Date.UTC(2000 + (year % 400), month - 1, day));
  if (midnight.getUTCMonth() !== month - 1 || midnight.getUTCDate() !== day) return undefined; // no such day
  const east = (Number(zoneHour) * 60 + Number(zoneMinute)) * (sign === "-" ? -1 : 1);
  const at = midnight.getTime() + ((hour * 60 + minute - east) * 60 + Math.min(second, 59)) * 1000;
  // A leap second is the last nanosecond before it, and only at the end of a month in UTC.
  if (second === 60 && !new Date(at + 1000).toISOString().endsWith("-01T00:00:00.000Z")) return undefined;
  const millis = BigInt(at) + (BigInt(Math.floor(year / 400)) - 5n) * MS_PER_400_YEARS;
  return millis * MS + (second === 60 ? SEC - 1n : fraction(digits)) - wall;
}

const readEpoch = ([millis], wall) => long(millis) * MS - wall;

function writeGrpc(left) {
  const finest = Object.entries(GRPC_UNITS).find(([, size]) => left / size <= 99_999_999n); // of eight digits [E1]
  if (left <= 0n) return null;
  return finest ? `${left / finest[1]}${finest[0]}` : "99999999H";
}

const whole = (unit, print, most) => (left) => (left < unit ? null : print(least(left / unit, most)));
const count = (unit, suffix = "") => whole(unit, (number) => `${number}${suffix}`, 9_999_999_999n);
const moment = (print) => (left, wall) => (left < MS ? null : print(least((wall + left) / MS, LAST_EPOCH_MS)));
const decimal = (millis) => `${millis / 1000n}.${String(millis % 1000n).padStart(3, "0")}`;

/**
 * Of each spelling: the grammar; its groups and the wall clock to what is left, where null says nothing and undefined is
 * malformed; back, where null is below one unit, not to be sent [E2]; and how far off the moment is, if it names one.
 */
export const CODECS = {
  grpc: [/^([0-9]{1,8})([HMSmun])$/, ([number, unit]) => BigInt(number) * GRPC_UNITS[unit], writeGrpc],
  "remaining-ms": [TEN_DIGITS, ([number]) => BigInt(number) * MS, count(MS)],
  // Envoy means "no limit" by zero, so zero says nothing here [P2]; only trusted peers are asked.
  "envoy-ms": [TEN_DIGITS, ([number]) => BigInt(number) * MS || null, count(MS)],
  "remaining-seconds": [TEN_DIGITS, ([number]) => BigInt(number) * SEC, count(SEC)],
  "decimal-seconds": [
    /^([0-9]+)(?:\.([0-9]+))?$/,
    ([seconds, digits]) => long(seconds) * SEC + fraction(digits),
    whole(MS, decimal, 9_999_999_999_999n),
  ],
  l5d: [/^([0-9]+)(ms|[smhd])$/, ([number, unit]) => least(long(number) * L5D_UNITS[unit], U64 * SEC), count(MS, "ms")],
  "epoch-ms": [/^([0-9]+)$/, readEpoch, moment(String), readEpoch],
  rfc3339: [RFC3339, readRfc3339, moment((at) => new Date(Number(at)).toISOString()), readRfc3339],
  finagle: [
    /^([0-9]+) ([0-9]+)$/,
    ([stamp, end], wall) => least(long(end) - wall, long(end) - long(stamp)), // what was left when written bounds it, too
    (left, wall) => (left > 0n && wall < I64 ? `${wall} ${least(wall + left, I64)}` : null),
    ([, end], wall) => long(end) - wall,
  ],
};

/**
 * The contract's table: field name, lower case, to a word of CODECS. `x-request-timeout` means two things in the wild,
 * so it is read only where its kind is declared: `{ known: { ...DEFAULT_SET, "x-request-timeout": "remaining-seconds" } }`.
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
/** What never travels on as it came [E7], and what outsiders have no say in beside that [C3]. */
const OTHERS = ["x-request-timeout", "x-envoy-attempt-count", "grpc-previous-rpc-attempts"];
export const STALE = new Set([...Object.keys(FIELDS), ...OTHERS]);
const RETRIES_AND_HEDGES = new Set(
  `grpc-retry-pushback-ms oneclock-retried x-envoy-is-timeout-retry l5d-request-timeout l5d-response-timeout
  l5d-retry-http l5d-retry-grpc l5d-retry-limit l5d-retry-timeout x-envoy-max-retries x-envoy-retry-on
  x-envoy-retry-grpc-on x-envoy-hedge-on-per-try-timeout`.split(/\s+/),
);

// === Fields: one request's, read together ===

/**
 * What one field's value says: `word` is absent, valid, expired or malformed [P2]. `atMostNs` is the least that was
 * understood, zero for expired. `moments`: how far off the moment is that was named, negative when past.
 */
export function parse(kind, value, wallNs = 0n) {
  const [grammar, reads, , names] = CODECS[kind];
  const groups = value.length <= 128 ? grammar.exec(value)?.slice(1) : undefined;
  const left = groups && reads(groups, wallNs);
  if (left === undefined) return { word: "malformed", leftNs: 0n, moments: [] };
  if (left === null) return { word: "absent", leftNs: 0n, moments: [] };
  const leftNs = left > 0n ? left : 0n;
  const moments = names ? [names(groups, wallNs)] : [];
  return { word: leftNs ? "valid" : "expired", leftNs, atMostNs: leftNs, moments };
}

/** The value that says so much is left: rounded down, saturating [E1, E6]. Null: make no call [E2, E3]. */
export const encode = (kind, leftNs, wallNs = 0n) => CODECS[kind][2](leftNs, wallNs);

/** The smallest wins; one malformed field makes the whole malformed [P8, P9]. `source` made it; of equals the first. */
export function read(fields, known, inside = true, wallNs = clock.wall()) {
  let smallest = { word: "absent", leftNs: 0n };
  let malformed;
  const moments = [];
  for (const [name, value] of fields) {
    const source = name.toLowerCase();
    if (!Object.hasOwn(known, source) || (known[source] === "envoy-ms" && !inside)) continue;
    const said = parse(known[source], value, wallNs);
    moments.push(...said.moments);
    if (said.word === "malformed") malformed ??= source;
    else if (said.word !== "absent" && !(said.leftNs >= smallest.atMostNs)) smallest = { ...said, source };
  }
  return { ...smallest, ...(malformed && { word: "malformed", leftNs: 0n, source: malformed }), moments };
}

/** Whether a sender's clock is suspected not to agree with ours [P10]. */
export const skewed = ({ moments }, ceilingNs, toleranceNs = SEC) =>
  moments.some((moment) => moment > ceilingNs || moment < -toleranceNs);

// === Deadline: the moment after which a result is useless ===

/** No time is left, or too little. A local error: nothing the other side said [E3, X2]. */
export class OutOfTime extends Error {
  constructor(what, deadline, stage, outcome = "unknown", cause = undefined) {
    const [spent, limit] = [deadline.elapsedNs(), deadline.limitNs].map((ns) => `${Math.round(Number(ns) / 1e6)}ms`);
    const says = `${what}: out of time in stage ${stage} after ${spent} of ${limit} (bound: ${deadline.bound})`;
    super(`${says}, outcome: ${outcome.replace("_", " ")}`, { cause });
    Object.assign(this, { name: "OutOfTime", deadline, stage, outcome });
  }
}

const storage = new AsyncLocalStorage();

/** The deadline of the request that this code works for. */
export const current = () => storage.getStore();

/** A moment on the monotonic clock [K1, K2]. It can be brought forward, never pushed back [C1]. */
export class Deadline {
  /** `bound` made it, with a limit that is counted from the start. `gone` aborts when nobody waits any more. */
  constructor(atNs, bound, limitNs, gone) {
    Object.assign(this, { atNs, bound, limitNs, gone });
  }

  /** A new one, for work that nobody asked for by the network, and for detached work. */
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

  /** What one child may spend: min(remaining - reserve, cap) [C1, E5]. */
  child({ what = "call", capMs = Infinity, reserveMs = 0, minUsefulMs = 5 } = {}) {
    if (capMs < minUsefulMs) throw new RangeError(`${what}: the cap is below the least useful`);
    const now = clock.monotonic();
    const mostNs = this.atNs - toNs(Math.max(0, reserveMs)) - now;
    if (mostNs <= 0n || mostNs < toNs(minUsefulMs)) throw new OutOfTime(what, this, "work", "not_sent"); // before the cap
    if (capMs * 1e6 >= mostNs) return new Deadline(now + mostNs, this.bound, mostNs, this.gone);
    return new Deadline(now + toNs(capMs), "cap", toNs(capMs), this.gone);
  }

  /** Runs this with it as the current one, or with the one around it if that ends earlier. */
  run(work) {
    const around = current();
    return storage.run(around && around.atNs < this.atNs ? around : this, work);
  }

  /** Calls back at the deadline, and gives a way to call that off. Timers fire early, late, and not beyond 24 days, so
   * the clock decides [K3]. */
  atEnd(work) {
    let timer;
    const look = () => {
      const left = this.remainingNs();
      if (left === 0n) return work();
      timer = setTimeout(look, Math.min(Math.ceil(Number(left) / 1e6), 2 ** 31 - 1));
    };
    look();
    return () => clearTimeout(timer);
  }
}

// === Policy: what an arriving request may spend, or why it is refused ===

export const REASONS = {
  deadline: [504, "the time budget ran out while working"],
  expired_before_start: [504, "the time budget was spent before the work began"],
  insufficient_budget: [504, "too little of the time budget was left to begin"],
  cap: [504, "a local time limit ran out"],
  malformed_deadline: [400, "a deadline field could not be read"],
  request_body: [408, "the request body did not arrive in time"],
};

/** One service's limits. `count` gets what happened, and the field that made it happen, for metrics [P3, P10]. */
export function policy({
  whenAbsentMs = 2_000, // nobody said anything; also the most that outsiders get
  ceilingMs = 10_000, // the most that anybody gets
  minUsefulMs = 5, // below it a request is refused before any side effect [C4, K4]
  onMalformed = "reject", // or "clamp" [P3]
  known = DEFAULT_SET,
  count = () => {},
} = {}) {
  if (!(0 < minUsefulMs && minUsefulMs <= whenAbsentMs && whenAbsentMs <= ceilingMs && ceilingMs < Infinity)) {
    throw new RangeError("these have to rise, from above zero: minUsefulMs, whenAbsentMs, ceilingMs");
  }
  const areKinds = Object.values(known).every((kind) => Object.hasOwn(CODECS, kind));
  if (!["reject", "clamp"].includes(onMalformed) || !areKinds) {
    throw new RangeError(`onMalformed is reject or clamp, and a field holds one of ${Object.keys(CODECS).join(", ")}`);
  }
  return Object.freeze({ whenAbsentMs, ceilingMs, minUsefulMs, onMalformed, known, count });
}

/** What a request has, from its arrival [K1], and why it is refused, if it is. Then nothing of it has begun.
 * Inside: min(caller, ceiling). Outside: min(caller, whenAbsent) [C2]. */
export function decide(limits, reading, inside, arrivedNs) {
  const { word, source, atMostNs } = reading;
  if (skewed(reading, toNs(limits.ceilingMs))) limits.count("skew", source);
  if (word === "malformed") {
    limits.count("malformed_deadline", source);
    if (limits.onMalformed === "reject") {
      return { deadline: new Deadline(arrivedNs, "absent", 0n), refused: "malformed_deadline" };
    }
  }
  const believed = inside && (word === "valid" || word === "expired");
  let [limitNs, bound] = believed ? [toNs(limits.ceilingMs), "ceiling"] : [toNs(limits.whenAbsentMs), "absent"];
  if (atMostNs <= limitNs) [limitNs, bound] = [atMostNs, "caller"]; // also beside a malformed field
  const deadline = new Deadline(arrivedNs + limitNs, bound, limitNs);
  const leftNs = deadline.remainingNs();
  if (leftNs >= toNs(limits.minUsefulMs)) return { deadline };
  const refused = leftNs ? "insufficient_budget" : "expired_before_start";
  limits.count(refused, source);
  return { deadline, refused };
}

/** The document of an answer in place of an answer (contract section 5). Outsiders learn nothing of our insides. */
export function problem(reason, inside, deadline, stage, field) {
  const [status, title] = REASONS[reason];
  const document = { type: `urn:oneclock:${reason}`, title, status };
  if (reason === "malformed_deadline" && field) document.detail = `malformed ${field}`;
  if (!inside) return document;
  const [budget_ms, elapsed_ms] = [deadline.limitNs, deadline.elapsedNs()].map((ns) => Number(ns / 1_000n) / 1e3);
  return { ...document, bound: deadline.bound, stage, budget_ms, elapsed_ms };
}

// === Server: a handler for `http.createServer` ===

/** Name and value by turns, as pairs. */
const pairs = (flat) => flat.flatMap((name, index) => (index % 2 ? [] : [[name, flat[index + 1]]]));
const REASON = "oneclock-reason";
const DRAIN_MS = 1_000; // so long an upload may go on after its answer, so that this reaches whoever sends it [X9]

/**
 * Gives every request a deadline, or an answer without running the handler. At the deadline the request is answered, or
 * its answer is cut, whatever the handler does; its calls (`client`) end then, and when the caller leaves. What it
 * writes later goes nowhere. Trust belongs to the listener [C2].
 */
export function ingress(handler, limits = policy(), { inside = false } = {}) {
  return (req, res) => {
    const arrivedNs = clock.monotonic(); // the head was read
    const fields = pairs(req.rawHeaders);
    const reading = read(fields, limits.known, inside);
    const { deadline, refused } = decide(limits, reading, inside, arrivedNs);
    let over = false;
    const stop = (reason, stage) => {
      const document = problem(reason, inside, deadline, stage, reading.source);
      if (!over && !res.writableFinished) answer(req, res, document, reason);
      over = true;
    };
    if (refused) return stop(refused, "arrival");
    // Read for shortening, then gone [C3]; a name that only this listener knows for everybody [E7].
    const isGone = (name) =>
      STALE.has(name) ? !inside : Object.hasOwn(limits.known, name) || (!inside && RETRIES_AND_HEDGES.has(name));
    for (const headers of [req.headers, req.headersDistinct]) {
      for (const name of Object.keys(headers).filter(isGone)) delete headers[name];
    }
    req.rawHeaders = fields.filter(([name]) => !isGone(name.toLowerCase())).flat(); // last: the others are made of it

    const left = new AbortController();
    deadline.gone = left.signal;
    const expire = () => {
      const isUpload = !req.complete && req.readableFlowing !== null; // and somebody waits for it
      if (res.headersSent) stop("deadline", "body");
      else if (isUpload) stop("request_body", "body");
      else stop("deadline", "work");
    };
    const forget = deadline.atEnd(expire);
    res.once("close", () => {
      over = true;
      forget();
      left.abort(new Error("nobody waits for this request any more"));
    });
    guard(res, deadline, expire, limits.count);
    const failed = (error) => {
      if (over) return;
      if (error instanceof OutOfTime) {
        return stop(error.deadline.bound === "cap" && deadline.remainingNs() ? "cap" : "deadline", error.stage);
      }
      over = true;
      console.error(error);
      answer(req, res, { type: "about:blank", title: "this service failed", status: 500 });
    };
    deadline.run(async () => handler(req, res)).catch(failed);
  };
}

/** The clock is asked before the head and each piece. A late answer is sent only if it is there as a whole [X1]. */
function guard(res, deadline, expire, count) {
  let whole = false;
  for (const method of ["writeHead", "write", "end"]) {
    const original = res[method];
    res[method] = (...given) => {
      if (!whole && !deadline.remainingNs()) {
        whole = method === "end" && !res.headersSent;
        if (!whole) {
          expire();
          return method === "write" ? true : res;
        }
        count("late");
      }
      if (method !== "writeHead") return original.apply(res, given);
      res.removeHeader(REASON);
      return original.apply(res, given.map(withoutReason));
    };
  }
}

/** Callers build on our reason, so one that was copied from another answer goes. */
function withoutReason(given) {
  const kept = (list) => list.filter(([name]) => String(name).toLowerCase() !== REASON);
  if (Array.isArray(given)) return kept(pairs(given.flat())).flat();
  return given && typeof given === "object" ? Object.fromEntries(kept(Object.entries(given))) : given;
}

/** Answers in place of the handler, or cuts what it has begun, so that it never looks complete [X3]. */
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

export const PLAIN_HTTP = { "x-remaining-ms": "remaining-ms" };
const HOP_BY_HOP =
  "connection content-length host keep-alive proxy-connection te transfer-encoding upgrade expect".split(" ");

/**
 * One thing we call over HTTP, with its own limit and the fields that it understands. The answer is `fetch`'s; head and
 * body come within the same deadline. Outside of a request: the cap [C6].
 *
 * `fetch` fixes the fields before it has a connection, so a cold connect is not subtracted from what is written [E4]:
 * give `reserveMs` at least that. No redirect is followed, since `fetch` would carry the field on unreduced.
 */
export function client(name, base, { capMs, writes = PLAIN_HTTP, minUsefulMs = 5 }) {
  if (!(capMs >= minUsefulMs && capMs < Infinity)) throw new RangeError(`${name}: needs a cap, not below minUsefulMs`);
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

    let stage = "wait";
    const ends = new AbortController();
    const forget = deadline.atEnd(() => ends.abort(new OutOfTime(name, deadline, stage)));
    for (const signal of [deadline.gone, init.signal]) {
      if (signal?.aborted) ends.abort(signal.reason);
      signal?.addEventListener("abort", () => ends.abort(signal.reason), { signal: ends.signal });
    }
    /** The call is over. Past the deadline whatever went wrong is our own deadline [X2]. */
    const finish = (error) => {
      forget();
      ends.abort(error);
      if (error instanceof OutOfTime || deadline.remainingNs()) return error;
      return new OutOfTime(name, deadline, stage, "unknown", error);
    };
    try {
      const url = base.replace(/\/$/, "") + path;
      const response = await fetch(url, { ...init, headers, signal: ends.signal, redirect: "manual" });
      deadline.checkpoint(name, stage);
      stage = "body";
      const reader = response.body?.getReader();
      if (!reader) return (finish(), response);
      // The reading ends even where `fetch` has lost sight of its signal.
      ends.signal.addEventListener("abort", () => reader.cancel().catch(() => {}));
      const pull = async (sink) => {
        try {
          deadline.checkpoint(name, stage); // the clock, before each piece [X1]
          const piece = await reader.read();
          ends.signal.throwIfAborted();
          if (!piece.done) return sink.enqueue(piece.value);
          sink.close();
          finish();
        } catch (error) {
          sink.error(finish(error));
        }
      };
      return new Response(new ReadableStream({ pull, cancel: finish }, { highWaterMark: 0 }), response);
    } catch (error) {
      throw finish(error);
    }
  };
}
