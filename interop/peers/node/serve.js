// The probe as @grpc/grpc-js serves it.

import * as grpc from "@grpc/grpc-js";
import { ECHOED, Log, failureDetails, probe, sleep } from "./common.js";

const log = new Log();

/** Listens on a free port; its address. */
export async function serve() {
  const server = new grpc.Server();
  server.addService(probe, {
    Unary: unary,
    ServerStream: serverStream,
    ClientStream: clientStream,
    Bidi: bidi,
    Log: (call, answer) => answer(null, log.told(call.request.id)),
  });
  const credentials = grpc.ServerCredentials.createInsecure();
  const port = await new Promise((resolve, reject) =>
    server.bindAsync("127.0.0.1:0", credentials, (error, port) => (error ? reject(error) : resolve(port))),
  );
  return { address: `127.0.0.1:${port}`, close: () => server.forceShutdown() };
}

function begin(method, id, call) {
  const deadline = call.getDeadline();
  const line = log.begin(method, id, { leftMs: deadline - Date.now() });
  call.on("cancelled", () => line.end("cancelled"));
  return line;
}

/** The metadata that goes back with the head, and with a failure. */
function echo(call) {
  const back = new grpc.Metadata();
  for (const key of Object.keys(call.metadata.getMap()).filter((key) => key.startsWith(ECHOED))) {
    for (const value of call.metadata.get(key)) back.add(key, value);
  }
  return back;
}

function failure(ask, call) {
  const metadata = echo(call);
  metadata.set("grpc-status-details-bin", failureDetails(ask.fail));
  return { code: ask.fail, details: "as asked", metadata };
}

function unary(call, answer) {
  const ask = call.request;
  const line = begin("Unary", ask.id, call);
  call.sendMetadata(echo(call));
  sleep(ask.workMs, () => end(ask, call, line, answer, line.told()));
}

/** Ends a call that has one answer. */
function end(ask, call, line, answer, told) {
  if (call.cancelled || ask.stall) return;
  line.end("finished");
  if (ask.fail) answer(failure(ask, call));
  else answer(null, told);
}

function serverStream(call) {
  const ask = call.request;
  const line = begin("ServerStream", ask.id, call);
  call.sendMetadata(echo(call));
  const next = () => {
    if (call.cancelled) return;
    if (line.entry.items < ask.items) {
      line.entry.items += 1;
      call.write(line.told(line.entry.items));
      sleep(ask.everyMs, next);
    } else if (!ask.stall) {
      line.end("finished");
      if (ask.fail) call.emit("error", failure(ask, call));
      else call.end();
    }
  };
  sleep(ask.workMs, next);
}

function clientStream(call, answer) {
  let ask, line;
  call.on("data", (message) => {
    if (!line) {
      ask = message;
      line = begin("ClientStream", ask.id, call);
      call.sendMetadata(echo(call));
    }
    line.entry.read += 1;
  });
  call.on("error", () => line?.end("cancelled"));
  call.on("end", () => sleep(ask.workMs, () => end(ask, call, line, answer, line.told(line.entry.read))));
}

function bidi(call) {
  let line;
  // The end of the messages can come while the last of them is worked on.
  let working = false;
  let ended = false;
  const finish = () => {
    line?.end("finished");
    call.end();
  };
  call.on("data", (ask) => {
    if (!line) {
      line = begin("Bidi", ask.id, call);
      call.sendMetadata(echo(call));
    }
    line.entry.read += 1;
    call.pause();
    working = true;
    sleep(ask.workMs, () => {
      if (call.cancelled || ask.stall) return;
      working = false;
      if (ask.fail) {
        line.end("finished");
        call.emit("error", failure(ask, call));
        return;
      }
      line.entry.items += 1;
      call.write(line.told(line.entry.items));
      if (ended) finish();
      else call.resume();
    });
  });
  call.on("error", () => line?.end("cancelled"));
  call.on("end", () => {
    ended = true;
    if (!working) finish();
  });
}
