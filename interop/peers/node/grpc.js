// Calls the probe with @grpc/grpc-js.

import { readFileSync } from "node:fs";
import * as grpc from "@grpc/grpc-js";
import { Result, infoOf, pairsToText, probe } from "./common.js";

const Probe = grpc.makeGenericClientConstructor(probe, "Probe");
const clients = new Map();
const NAMES = Object.fromEntries(Object.entries(grpc.status).map(([name, number]) => [number, name]));

/** Calls as the command says; returns what cancels it. */
export function call({ n, method, target, tls, ask, timeoutMs, metadata = [], send = {} }) {
  const result = new Result(n);
  let call;
  try {
    if (!clients.has(target)) clients.set(target, new Probe(target, credentials(tls)));
    const client = clients.get(target);
    const fields = new grpc.Metadata();
    for (const [key, value] of metadata) fields.add(key, key.endsWith("-bin") ? Buffer.from(value, "base64") : value);
    const options = timeoutMs == null ? {} : { deadline: Date.now() + timeoutMs };
    const { requestStream, responseStream } = probe[method];
    const request = requestStream ? [] : [ask];
    const answer = responseStream ? [] : [(error, told) => told && result.item(told)];
    call = client[method](...request, fields, options, ...answer);
    if (responseStream) call.on("data", (told) => result.item(told));
    // The status says the same.
    call.on("error", () => {});
    call.on("metadata", (initial) => (result.line.initial = pairs(initial)));
    call.on("status", ({ code, details, metadata }) => {
      const info = infoOf(metadata.get("grpc-status-details-bin")[0]);
      // A unary answer is handed on after its status.
      setImmediate(() => result.end(NAMES[code], details, { trailing: pairs(metadata), info }));
    });
    if (requestStream) upload(call, ask, send);
  } catch (error) {
    result.refuse(error);
  }
  return () => call?.cancel();
}

function credentials(tls) {
  return tls ? grpc.credentials.createSsl(readFileSync(tls)) : grpc.credentials.createInsecure();
}

function upload(call, ask, { items = 0, everyMs = 0, open = false }) {
  let over = false;
  call.on("status", () => (over = true));
  call.write(ask);
  const next = (left) => {
    if (over) return;
    if (left > 0) {
      setTimeout(() => {
        if (over) return;
        call.write(ask);
        next(left - 1);
      }, everyMs);
    } else if (!open) call.end();
  };
  next(items);
}

function pairs(metadata) {
  const keys = Object.keys(metadata.getMap());
  return pairsToText(keys.flatMap((key) => metadata.get(key).map((value) => [key, value])));
}
