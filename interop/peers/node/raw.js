// Calls and serves the probe with node:http2 alone: it sends the fields that it is told to, keeps no deadline and never
// cancels, so it shows what the other side does by itself.

import { readFileSync } from "node:fs";
import http2 from "node:http2";
import { Log, Result, probe, sleep } from "./common.js";

// By their numbers.
const NAMES =
  "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED RESOURCE_EXHAUSTED " +
  "FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED";

/** Calls as the command says; ends when the answer does, or after `giveUpMs`. Returns what cancels it. */
export function call({ n, method, target, tls, ask, metadata = [], send = {}, giveUpMs }) {
  const result = new Result(n);
  const session = tls ? http2.connect(`https://${target}`, { ca: readFileSync(tls) }) : http2.connect(`http://${target}`);
  let pace;
  const done = (code, message, more) => {
    clearTimeout(patience);
    clearInterval(pace);
    result.end(code, message, more);
    session.destroy();
  };
  const patience = setTimeout(() => done("OPEN", `no end after ${giveUpMs} ms`), giveUpMs);
  session.on("error", (error) => done("CONNECTION", error.message));
  // Bodies of strings and arrays, so that a field may come twice.
  const headers = { ":method": "POST", ":path": probe[method].path, "content-type": "application/grpc", te: "trailers" };
  for (const [key, value] of metadata) headers[key] = key in headers ? [headers[key], value].flat() : value;
  const stream = session.request(headers);
  const frame = () => stream.write(framed(probe[method].requestSerialize(ask)));
  frame();
  let left = send.items ?? 0;
  const sent = () => {
    clearInterval(pace);
    if (!send.open) stream.end();
  };
  if (left > 0) pace = setInterval(() => (left-- > 0 ? frame() : sent()), send.everyMs);
  else sent();
  let head = {};
  let trailers = null;
  let body = Buffer.alloc(0);
  stream.on("response", (fields) => {
    head = fields;
  });
  stream.on("trailers", (fields) => (trailers = fields));
  stream.on("data", (piece) => {
    body = Buffer.concat([body, piece]);
    while (body.length >= 5 && body.length >= 5 + body.readUInt32BE(1)) {
      const end = 5 + body.readUInt32BE(1);
      result.item(probe[method].responseDeserialize(body.subarray(5, end)));
      body = body.subarray(end);
    }
  });
  stream.on("error", () => {}); // its close says it
  stream.on("close", () => {
    const status = trailers?.["grpc-status"] ?? head["grpc-status"];
    const where = trailers?.["grpc-status"] ? "trailers" : "trailers-only";
    if (status != null) done(NAMES.split(" ")[status] ?? `${status}`, `HTTP ${head[":status"]}, ${where}`, { partial: body.length });
    else done("RESET", `HTTP ${head[":status"] ?? "-"}, reset with ${stream.rstCode}`, { partial: body.length });
  });
  return () => stream.close(http2.constants.NGHTTP2_CANCEL);
}

const log = new Log();

/** Serves `Unary` and `Log`: the field that arrived is told as it is. */
export async function serve() {
  const server = http2.createServer();
  server.on("stream", (stream, headers) => {
    const name = headers[":path"].split("/").at(-1);
    let body = Buffer.alloc(0);
    stream.on("data", (piece) => (body = Buffer.concat([body, piece])));
    stream.on("error", () => {});
    stream.on("end", () => {
      if (!(name in probe) || body.length < 5) return stream.close(http2.constants.NGHTTP2_REFUSED_STREAM);
      const ask = probe[name].requestDeserialize(body.subarray(5));
      if (name === "Log") return answer(stream, name, log.told(ask.id));
      const line = log.begin(name, ask.id, { grpcTimeout: headers["grpc-timeout"] });
      stream.on("close", () => line.end("cancelled"));
      sleep(ask.workMs, () => {
        if (stream.destroyed || ask.stall) return;
        line.end("finished");
        answer(stream, name, line.told());
      });
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { address: `127.0.0.1:${server.address().port}`, close: () => server.close() };
}

function answer(stream, method, message) {
  stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
  stream.end(framed(probe[method].responseSerialize(message)));
}

function framed(message) {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}
