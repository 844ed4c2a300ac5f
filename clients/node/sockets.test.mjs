// The client's behaviour over real sockets. What matters is also done once the naive way, which has to fail.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, request } from "node:http";
import net from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Worker } from "node:worker_threads";

import {
  DEFAULT_SET,
  Deadline,
  FIELDS,
  OutOfTime,
  STALE,
  client,
  clock,
  current,
  encode,
  ingress,
  parse,
  policy,
} from "./oneclock.mjs";

const PLENTY = 5_000; // milliseconds: ten times what anything here is given
const MS = 1_000_000n;

/** Runs `use` with the base URL of a server, then ends the server and every connection. */
async function serving(listener, use) {
  const server = createServer(listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    return await use(`http://127.0.0.1:${server.address().port}`);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

/** The same with a peer that reads a head and then leaves the connection to `answer(socket, head)`. */
async function peer(answer, use) {
  const sockets = new Set();
  const server = net
    .createServer((socket) => {
      let head = "";
      sockets.add(socket);
      socket.on("error", () => {}).on("close", () => sockets.delete(socket));
      socket.on("data", (piece) => {
        const before = head.includes("\r\n\r\n");
        head += piece.toString("latin1");
        if (!before && head.includes("\r\n\r\n")) answer(socket, head);
      });
    })
    .listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    return await use(`http://127.0.0.1:${server.address().port}`);
  } finally {
    for (const socket of sockets) socket.destroy();
    server.close();
  }
}

/** Without any budget of ours. */
async function get(url, headers = []) {
  const call = request(url, { headers: ["host", "a", ...headers.flat()], agent: false }).end();
  const [answer] = await once(call, "response", { signal: AbortSignal.timeout(PLENTY) });
  let body = "";
  for await (const piece of answer) body += piece;
  return { status: answer.statusCode, reason: answer.headers["oneclock-reason"], headers: answer.headers, body };
}

/** A handler that notes what each request was told and what it has. */
function seeing(then = (req, res) => res.end("ok")) {
  const handler = (req, res) => {
    handler.told.push(req.headers["x-remaining-ms"]);
    handler.had.push(current());
    handler.heads.push(req);
    return then(req, res);
  };
  return Object.assign(handler, { told: [], had: [], heads: [] });
}

async function outOfTime(work) {
  const error = await Promise.resolve(work).then(
    () => assert.fail("nothing was cut"),
    (error) => error,
  );
  assert.ok(error instanceof OutOfTime, String(error?.stack));
  return error;
}

// === Hops in a row ===

/** Each hop was told, and has, at most what the one before had been told and had, less what that had spent. */
function reduced({ told, had }, spentMs) {
  assert.ok(had[1].limitNs <= had[0].limitNs - BigInt(spentMs) * MS, "B has less than A had");
  for (const [index, below] of told.slice(1).entries()) {
    assert.ok(Number(below) <= Number(told[index]) - spentMs && Number(below) > 0, `told ${told}`);
  }
}

/** caller → A → B, 40 ms of work in A; what each was told and has. */
async function chain(forward) {
  const b = seeing();
  return serving(ingress(b, policy(), { inside: true }), async (urlB) => {
    const a = seeing(async (req, res) => {
      const began = performance.now();
      while (performance.now() - began < 41) await sleep(5); // work
      await forward(urlB, req);
      res.end("ok");
    });
    return serving(ingress(a, policy(), { inside: true }), async (urlA) => {
      const answer = await Deadline.begin(3_000).run(() => client("a", urlA, { capMs: 9_000 })("/"));
      assert.equal(answer.status, 200);
      await answer.text();
      assert.ok(Number(a.told[0]) <= 3_000);
      return { told: [...a.told, ...b.told], had: [...a.had, ...b.had] };
    });
  });
}

test("V12 hops in a row never lengthen", async () => {
  const stale = { headers: { "x-remaining-ms": "9000" } };
  reduced(await chain((url) => client("b", url, { capMs: 15_000 })("/", stale)), 40);
});

test("the naive forward of the field lengthens", async () => {
  const naive = await chain((url, req) => get(url, [["x-remaining-ms", req.headers["x-remaining-ms"]]]));
  assert.throws(() => reduced(naive, 40), assert.AssertionError);
});

test("E7 a redirect does not carry the field on", async () => {
  const told = [];
  const redirects = (req, res) => {
    told.push(req.headers["x-remaining-ms"]);
    if (req.url === "/") res.writeHead(302, { location: "/elsewhere" });
    res.end();
  };
  await serving(redirects, async (url) => {
    assert.equal((await client("a", url, { capMs: 1_000 })("/")).status, 302);
    assert.equal(told.length, 1);
    await assert.rejects(client("a", url, { capMs: 1_000 })("@elsewhere/"), TypeError);
    await fetch(url, { headers: { "x-remaining-ms": "1000" } }); // the naive way
    assert.deepEqual(told.slice(1), ["1000", "1000"]);
  });
});

// === What arrives ===

test("P4 expired is answered and the handler does not run", async () => {
  const seen = seeing();
  await serving(ingress(seen), async (url) => {
    for (const [field, value, reason] of [
      ["x-remaining-ms", "0", "expired_before_start"],
      ["grpc-timeout", "0n", "expired_before_start"],
      ["x-request-deadline", "2020-01-01T00:00:00Z", "expired_before_start"],
      ["x-remaining-ms", "4", "insufficient_budget"],
    ]) {
      const got = await get(url, [[field, value]]);
      assert.deepEqual([got.status, got.reason], [504, reason]);
      assert.equal(got.headers["content-type"], "application/problem+json");
      assert.equal(JSON.parse(got.body).type, `urn:oneclock:${reason}`);
    }
  });
  assert.equal(seen.had.length, 0);
});

test("P3 malformed is rejected or clamped and never unlimited", async () => {
  const [seen, counted] = [seeing(), []];
  await serving(ingress(seen, policy({ count: (...what) => counted.push(what) })), async (url) => {
    const got = await get(url, [["x-remaining-ms", "+5000"]]);
    assert.deepEqual([got.status, got.reason], [400, "malformed_deadline"]);
    assert.equal(JSON.parse(got.body).detail, "malformed x-remaining-ms");
    assert.deepEqual(counted, [["malformed_deadline", "x-remaining-ms"]]);
    assert.equal((await get(url, [["x-remaining-ms", "5\u00b2"]])).status, 400, "non-ASCII");
    assert.equal(seen.had.length, 0);
  });
  for (const inside of [false, true]) {
    await serving(ingress(seen, policy({ onMalformed: "clamp" }), { inside }), async (url) => {
      const malformed = ["grpc-timeout", "5s"];
      await get(url, [malformed, ["x-remaining-ms", "300"]]); // what was understood still shortens
      assert.equal(seen.had.at(-1).limitNs, 300n * MS);
      await get(url, [malformed, ["x-remaining-ms", "9000"]]);
      assert.equal(seen.had.at(-1).limitNs, 2_000n * MS);
    });
  }
});

test("C2 absent, ceiling and trust", async () => {
  const [limits, seen] = [policy({ whenAbsentMs: 800, ceilingMs: 2_000 }), seeing()];
  for (const [inside, asked, limitMs, bound] of [
    [false, undefined, 800n, "absent"],
    [false, "5000", 800n, "absent"],
    [false, "300", 300n, "caller"],
    [true, undefined, 800n, "absent"],
    [true, "1500", 1_500n, "caller"],
    [true, "5000", 2_000n, "ceiling"],
  ]) {
    await serving(ingress(seen, limits, { inside }), (url) => get(url, asked ? [["x-remaining-ms", asked]] : []));
    assert.deepEqual([seen.had.at(-1).limitNs, seen.had.at(-1).bound], [limitMs * MS, bound]);
  }
});

test("C3 what outsiders send is read and stripped", async () => {
  const sent = [
    ["X-Remaining-Ms", "500"],
    ["grpc-timeout", "400m"],
    ["x-envoy-max-retries", "9"],
    ["x-mine", "1"],
  ];
  const limits = policy({ known: { ...DEFAULT_SET, "x-mine": "remaining-seconds" } });
  for (const [inside, kept] of [
    [false, []],
    [true, ["x-remaining-ms", "grpc-timeout", "x-envoy-max-retries"]],
  ]) {
    const seen = seeing();
    await serving(ingress(seen, limits, { inside }), (url) => get(url, sent));
    assert.equal(seen.had[0].limitNs, 400n * MS);
    const names = sent.map(([name]) => name.toLowerCase());
    const [{ headers, headersDistinct, rawHeaders }] = seen.heads;
    for (const left of [
      Object.keys(headers),
      Object.keys(headersDistinct),
      rawHeaders.map((one) => one.toLowerCase()),
    ]) {
      assert.deepEqual(
        names.filter((name) => left.includes(name)),
        kept,
      );
    }
  }
});

test("Envoy is believed from trusted peers only", async () => {
  const seen = seeing();
  for (const [inside, limitMs] of [
    [true, 100n],
    [false, 2_000n],
  ]) {
    const asked = [["x-envoy-upstream-rq-timeout-ms", "100"]];
    await serving(ingress(seen, policy({ known: FIELDS }), { inside }), (url) => get(url, asked));
    assert.equal(seen.had.at(-1).limitNs, limitMs * MS);
  }
});

test("P8 the same field twice", async () => {
  const seen = seeing();
  await serving(ingress(seen), async (url) => {
    await get(url, [
      ["grpc-timeout", "5S"],
      ["grpc-timeout", "100m"],
    ]);
    assert.equal(seen.had[0].limitNs, 100n * MS);
    assert.equal(
      (
        await get(url, [
          ["grpc-timeout", "5S"],
          ["grpc-timeout", "5s"],
        ])
      ).status,
      400,
    );
  });
});

// === What is sent ===

test("E7 every convention the same deadline and no stale copy", async () => {
  let seen;
  await serving(
    (req, res) => res.end(((seen = req), "ok")),
    async (url) => {
      const incoming = Object.fromEntries([...STALE, "x-mine", "content-length", "host"].map((name) => [name, "1"]));
      const writes = { "x-remaining-ms": "remaining-ms", "grpc-timeout": "grpc", "x-mine": "remaining-seconds" };
      const call = client("peer", url, { capMs: 2_000, writes });
      const headers = { ...incoming, connection: "x-remaining-ms", "X-Remaining-Ms": "9000", "x-other": "7" };
      const answer = await Deadline.begin(3_000).run(() => call("/", { headers }));
      assert.equal(await answer.text(), "ok");
      const sent = Object.keys(seen.headers).filter((name) => STALE.has(name) || name.startsWith("x-"));
      assert.deepEqual(sent.sort(), ["grpc-timeout", "x-mine", "x-other", "x-remaining-ms"]);
      assert.equal(seen.headers.connection, "keep-alive");
      const said = (name) => parse(writes[name], seen.headers[name]).leftNs;
      const apart = said("grpc-timeout") - said("x-remaining-ms");
      assert.ok(apart >= 0n && apart < MS && said("grpc-timeout") < 2_000n * MS);
      assert.equal(said("x-mine"), 1_000n * MS, "rounded down in its own unit");
    },
  );
});

test("V5 what cannot be written is not sent", async () => {
  let calls = 0;
  const monotonic = clock.monotonic;
  await serving(
    (req, res) => res.end(`${calls++}`),
    async (url) => {
      clock.monotonic = () => 7_000_000_000n; // time stands still
      try {
        const operation = new Deadline(7_000_600_000n, "caller", 600_000n);
        const call = client("peer", url, { capMs: 1, minUsefulMs: 0 });
        assert.equal((await outOfTime(operation.run(() => call("/")))).outcome, "not_sent");
        assert.equal(encode("remaining-ms", operation.remainingNs()), null);
        const naive = Math.max(1, Math.round(Number(operation.remainingNs()) / 1e6));
        assert.ok(BigInt(naive) * MS > operation.remainingNs(), "told more than there is");
      } finally {
        clock.monotonic = monotonic;
      }
      assert.equal(await (await client("peer", url, { capMs: 2_000 })("/")).text(), "0", "the first call that came");
    },
  );
});

// === How a call ends ===

test("V3 connecting spends the budget", async () => {
  // A listener whose thread sleeps accepts nobody: what does not fit its queue hangs in its connect.
  const asleep = new Int32Array(new SharedArrayBuffer(4));
  const listens = `
    const { parentPort, workerData } = require("node:worker_threads");
    const server = require("node:net").createServer().listen({ port: 0, host: "127.0.0.1", backlog: 1 }, () => {
      parentPort.postMessage(server.address().port);
      Atomics.wait(workerData, 0, 0);
    });`;
  const worker = new Worker(listens, { eval: true, workerData: asleep });
  const [port] = await once(worker, "message");
  const held = Array.from({ length: 8 }, () => net.connect(port, "127.0.0.1").on("error", () => {}));
  try {
    const began = performance.now();
    await outOfTime(Deadline.begin(200).run(() => client("full", `http://127.0.0.1:${port}`, { capMs: 9_000 })("/")));
    assert.ok(performance.now() - began < PLENTY);
    assert.ok(
      held.some((socket) => socket.connecting),
      "its queue is full",
    );
  } finally {
    for (const socket of held) socket.destroy();
    Atomics.store(asleep, 0, 1);
    Atomics.notify(asleep, 0);
    await worker.terminate();
  }
});

test("V14 a stalled body is cut", async () => {
  const stalls = (socket) => socket.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfive!");
  await peer(stalls, (url) =>
    Deadline.begin(300).run(async () => {
      const answer = await client("stalls", url, { capMs: 9_000 })("/");
      assert.equal(answer.status, 200);
      const began = performance.now();
      const error = await outOfTime(answer.text());
      assert.deepEqual([error.stage, error.outcome], ["body", "unknown"]);
      assert.ok(performance.now() - began < PLENTY - 1_000);
    }),
  );
});

test("the naive limit on the head leaves the body stalled", async () => {
  const stalls = (socket) => socket.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfive!");
  await peer(stalls, async (url) => {
    const limit = new AbortController();
    const timer = setTimeout(() => limit.abort(), 300);
    const answer = await fetch(url, { signal: limit.signal });
    clearTimeout(timer);
    const reading = answer.text().catch(() => "ended with the peer");
    assert.equal(await Promise.race([reading, sleep(600, "still waiting")]), "still waiting");
  });
});

test("V14 also after the garbage collector ran", async () => {
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc");
  const stalls = (socket) => socket.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfive!");
  await peer(stalls, (url) =>
    Deadline.begin(300).run(async () => {
      const cut = outOfTime((await client("stalls", url, { capMs: 9_000 })("/")).text());
      for (let round = 0; round < 5; round++) {
        await sleep(10);
        gc();
      }
      await cut;
    }),
  );
});

test("an upload that nobody takes is cut", async () => {
  await peer(
    (socket) => socket.pause(),
    async (url) => {
      const upload = { method: "POST", body: Buffer.alloc(50_000_000) };
      await outOfTime(Deadline.begin(300).run(() => client("full", url, { capMs: 9_000 })("/", upload)));
    },
  );
});

test("S3 pieces in time do not make a whole in time", async () => {
  const trickles = async (socket, head) => {
    const text = `HTTP/1.1 200 OK\r\nx-a: ${"a".repeat(40)}\r\ncontent-length: 40\r\n\r\n${"b".repeat(40)}`;
    const fast = head.startsWith("GET /head") ? 10 : text.indexOf("\r\n\r\n") + 4;
    socket.write(text.slice(0, fast));
    for (const letter of text.slice(fast)) {
      await sleep(30);
      if (socket.destroyed) return;
      socket.write(letter);
    }
  };
  await peer(trickles, async (url) => {
    for (const path of ["/head", "/body"]) {
      const call = client("trickles", url, { capMs: 9_000 });
      await outOfTime(Deadline.begin(400).run(() => call(path).then((answer) => answer.text())));
    }
    // The naive way, a limit on each wait, sees nothing.
    const began = performance.now();
    const naive = request(`${url}/body`, { agent: false, timeout: 400 }).end();
    naive.on("timeout", () => naive.destroy(new Error("cut")));
    const [answer] = await once(naive, "response");
    let body = "";
    for await (const piece of answer) body += piece;
    assert.equal(body, "b".repeat(40));
    assert.ok(performance.now() - began > 1_100, "it took three times what it was given");
  });
});

test("V6 a reset once the clock has passed is our deadline", async () => {
  const monotonic = clock.monotonic;
  let shift = 0n;
  clock.monotonic = () => monotonic() + shift;
  const resets = (socket, head) => {
    if (head.startsWith("GET /late")) shift = 10_000n * MS;
    socket.resetAndDestroy();
  };
  try {
    await peer(resets, async (url) => {
      const call = client("resets", url, { capMs: 5_000 });
      const error = await call("/in-time").catch((error) => error);
      assert.ok(error instanceof Error && !(error instanceof OutOfTime), String(error));
      assert.equal((await outOfTime(call("/late"))).stage, "wait");
    });
  } finally {
    clock.monotonic = monotonic;
  }
});

test("V8 the wall clock has no say", () => {
  const [deadline, wall] = [Deadline.begin(1_000), clock.wall];
  clock.wall = () => wall() + 3_600_000n * MS;
  try {
    assert.ok(deadline.remainingNs() > 0n && deadline.remainingNs() <= 1_000n * MS);
  } finally {
    clock.wall = wall;
  }
});

test("V10 an error names the bound that made the deadline", async () => {
  await peer(
    () => {},
    async (urlC) => {
      const c = client("c", urlC, { capMs: 3_000 });
      let failed;
      const b = (req, res) => (failed = outOfTime(c("/"))); // nothing of it is answered here: the deadline does
      await serving(ingress(b, policy(), { inside: true }), async (urlB) => {
        const got = await get(urlB, [["x-remaining-ms", "300"]]);
        assert.deepEqual([got.status, got.reason], [504, "deadline"]);
        const document = JSON.parse(got.body);
        assert.deepEqual([document.bound, document.budget_ms], ["caller", 300]);
        assert.ok(document.elapsed_ms >= 300);
        assert.equal((await failed).deadline.bound, "caller");
      });
    },
  );
});

test("a cap is told apart while the caller has time", async () => {
  await peer(
    () => {},
    async (urlC) => {
      const c = client("c", urlC, { capMs: 100 });
      await serving(
        ingress(async (req, res) => res.end(await c("/"))),
        async (urlB) => {
          const got = await get(urlB, [["x-remaining-ms", "1900"]]);
          assert.deepEqual([got.status, got.reason], [504, "cap"]);
          assert.deepEqual(Object.keys(JSON.parse(got.body)).sort(), ["status", "title", "type"]);
        },
      );
    },
  );
});

test("V11 detached work has its own deadline", () => {
  const parent = Deadline.begin(100);
  const detached = parent.run(() => Deadline.begin(500));
  assert.ok(detached.atNs > parent.atNs);
  parent.run(() => detached.run(() => assert.equal(current(), parent))); // as current one, it would be a child
});

// === How a request ends ===

test("X3 a handler that does not answer is answered for, and stumbles over nothing", async () => {
  let went;
  const done = new Promise((resolve) => {
    went = resolve;
  });
  const slow = (req, res) =>
    void setTimeout(() => {
      res.setHeader("x-late", "1");
      res.writeHead(200);
      res.write("a");
      res.end("late");
      went();
    }, 400);
  await serving(ingress(slow), async (url) => {
    const got = await get(url, [["x-remaining-ms", "200"]]);
    assert.deepEqual([got.status, got.reason], [504, "deadline"]);
    await done;
    assert.equal((await get(url, [["x-remaining-ms", "0"]])).status, 504, "the server is still there");
  });
});

test("X1 what comes too late is not sent unless it is whole", async () => {
  const counted = [];
  const late = (req, res) => {
    res.setHeader("oneclock-reason", "shed");
    while (current().remainingNs()); // work that lets no timer fire
    if (req.url === "/parts") res.write("a");
    res.end("whole");
  };
  await serving(ingress(late, policy({ count: (...what) => counted.push(what) })), async (url) => {
    const parts = await get(`${url}/parts`, [["x-remaining-ms", "100"]]);
    assert.deepEqual([parts.status, parts.reason], [504, "deadline"]);
    const whole = await get(`${url}/whole`, [["x-remaining-ms", "100"]]);
    assert.deepEqual([whole.status, whole.body, counted], [200, "whole", [["late"]]]);
    assert.equal(whole.reason, undefined, "a copied reason is none of ours");
  });
});

test("X3 after the head an answer is cut and does not look complete", async () => {
  for (const version of ["1.1", "1.0"]) {
    // with 1.0 an answer ends where the connection does
    let closed;
    const streams = (req, res) => {
      closed = once(res, "close", { signal: AbortSignal.timeout(PLENTY) });
      res.write("first");
      const timer = setInterval(() => res.write("."), 10);
      res.on("close", () => clearInterval(timer));
    };
    await serving(ingress(streams), async (url) => {
      const socket = net.connect(new URL(url).port, "127.0.0.1");
      socket.write(`GET / HTTP/${version}\r\nhost: a\r\nx-remaining-ms: 300\r\n\r\n`);
      let got = "";
      socket.on("data", (piece) => (got += piece));
      const [error] = await once(socket, "error", { signal: AbortSignal.timeout(PLENTY) });
      assert.equal(error.code, "ECONNRESET");
      assert.ok(got.includes("first") && !got.includes("\r\n0\r\n"), got);
      await closed; // the handler learns of it
    });
  }
});

test("X9 a body that does not come is 408, and one that nobody reads does not swallow the answer", async () => {
  const reads = async (req, res) => {
    for await (const piece of req) void piece;
    res.end("all");
  };
  const ignores = () => {};
  for (const [handler, status, reason] of [
    [reads, 408, "request_body"],
    [ignores, 504, "deadline"],
  ]) {
    await serving(ingress(handler), async (url) => {
      const socket = net.connect(new URL(url).port, "127.0.0.1");
      socket.on("error", () => {});
      socket.write("POST / HTTP/1.1\r\nhost: a\r\nx-remaining-ms: 200\r\ncontent-length: 100\r\n\r\nsome");
      const [piece] = await once(socket, "data", { signal: AbortSignal.timeout(PLENTY) });
      assert.ok(String(piece).startsWith(`HTTP/1.1 ${status}`) && String(piece).includes(reason), String(piece));
      if (!socket.destroyed) await once(socket, "close", { signal: AbortSignal.timeout(PLENTY) }); // bounded
    });
  }
});

test("I6 when the caller leaves, calls end", async () => {
  let arrived, ended;
  const atC = new Promise((resolve) => {
    arrived = resolve;
  });
  const gone = new Promise((resolve) => {
    ended = resolve;
  });
  await peer(
    (socket) => (arrived(), socket.on("close", ended)),
    async (urlC) => {
      const c = client("c", urlC, { capMs: 9_000 });
      await serving(
        ingress((req, res) => c("/").then(() => res.end()), policy({ whenAbsentMs: 9_000 })),
        async (urlB) => {
          const leaving = net.connect(new URL(urlB).port, "127.0.0.1");
          leaving.write("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
          await atC;
          leaving.destroy();
          await Promise.race([gone, sleep(PLENTY, null, { ref: false }).then(() => assert.fail("the call went on"))]);
        },
      );
    },
  );
});

test("a handler's own failure is 500 and says nothing", async (context) => {
  const logged = context.mock.method(console, "error", () => {});
  await serving(
    ingress(() => {
      throw new Error("secret");
    }),
    async (url) => {
      const got = await get(url);
      assert.deepEqual([got.status, got.reason, got.body.includes("secret")], [500, undefined, false]);
    },
  );
  assert.equal(logged.mock.callCount(), 1);
});

// === Grants and limits ===

test("C6 outside of a request a call has its cap", async () => {
  await peer(
    () => {},
    async (url) => {
      const error = await outOfTime(client("silent", url, { capMs: 100 })("/"));
      assert.deepEqual([error.deadline.bound, error.deadline.limitNs], ["cap", 100n * MS]);
      assert.match(
        error.message,
        /^silent: out of time in stage wait after \d+ms of 100ms \(bound: cap\), outcome: unknown$/,
      );
    },
  );
});

test("C1 grants", () => {
  const parent = Deadline.begin(800, "caller");
  assert.equal(parent.child({ capMs: 300 }).bound, "cap");
  assert.equal(parent.child({ capMs: 900 }).atNs, parent.atNs);
  assert.equal(parent.child({ reserveMs: -150 }).atNs, parent.atNs, "never extended");
  assert.equal(parent.child({ reserveMs: 150 }).atNs, parent.atNs - 150n * MS);
  for (const refused of [{ reserveMs: 797 }, { reserveMs: 800 }, { minUsefulMs: 900 }]) {
    assert.throws(() => parent.child(refused), { name: "OutOfTime", outcome: "not_sent" });
  }
  assert.throws(() => parent.child({ capMs: 4 }), RangeError);
});

test("limits that contradict are refused at construction", () => {
  for (const wrong of [
    { whenAbsentMs: 0 },
    { whenAbsentMs: 3_000, ceilingMs: 2_000 },
    { minUsefulMs: 2_001 },
    { ceilingMs: Infinity },
    { onMalformed: "ignore" },
    { known: { "x-mine": "milliseconds" } },
  ])
    assert.throws(() => policy(wrong), RangeError);
  for (const wrong of [{ capMs: 4 }, {}, { capMs: Infinity }])
    assert.throws(() => client("a", "http://a", wrong), RangeError);
});
