// What the parts of the Node peer share: the probe's types, the log, and what is written on stdout.

import { readFileSync } from "node:fs";
import * as protoLoader from "@grpc/proto-loader";

export const ECHOED = "x-probe-";

const definitions = protoLoader.loadSync(process.env.INTEROP_PROTO, { defaults: true });
export const probe = definitions["oneclock.probe.v1.Probe"];

// The descriptors that `cargo xtask interop` makes: the probe's, and google.rpc's. Fields are named as in the .proto here.
export const descriptors = readFileSync(process.env.INTEROP_DESCRIPTORS);
const google = protoLoader.loadFileDescriptorSetFromBuffer(descriptors, { defaults: true });
const rpcStatus = google["google.rpc.Status"];
const errorInfo = google["google.rpc.ErrorInfo"];
const ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo";

/** One JSON object a line. */
export function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

export function sleep(milliseconds, then) {
  return milliseconds > 0 ? setTimeout(then, milliseconds) : setImmediate(then);
}

/** google.rpc.Status with an ErrorInfo, as a failure that was asked for has it. */
export function failureDetails(code) {
  const value = errorInfo.serialize({ reason: "PROBE", domain: "probe.example" });
  return rpcStatus.serialize({ code, message: "as asked", details: [{ type_url: ERROR_INFO, value }] });
}

/** The ErrorInfo in the bytes of `grpc-status-details-bin`. */
export function infoOf(bytes) {
  if (!bytes) return null;
  const detail = rpcStatus.deserialize(bytes).details.find(({ type_url }) => type_url === ERROR_INFO);
  return detail ? errorInfo.deserialize(detail.value) : null;
}

/** The calls of this service, as they saw themselves. */
export class Log {
  #lines = [];

  begin(method, id, { grpcTimeout = "", leftMs = Infinity } = {}) {
    const line = new Line(method, id, grpcTimeout, leftMs);
    this.#lines.push(line);
    return line;
  }

  told(id) {
    return { entries: this.#lines.filter((line) => line.entry.id === id).map((line) => line.now()) };
  }
}

class Line {
  constructor(method, id, grpcTimeout, leftMs) {
    this.began = performance.now();
    const hasDeadline = Number.isFinite(leftMs);
    this.entry = {
      id,
      method,
      grpcTimeout,
      hasDeadline,
      leftMs: hasDeadline ? Math.max(0, Math.ceil(leftMs)) : 0,
      ended: "",
      items: 0,
      read: 0,
    };
  }

  told(item = 0) {
    const { id, grpcTimeout, leftMs, hasDeadline } = this.entry;
    return { id, item, grpcTimeout, leftMs, hasDeadline };
  }

  end(how) {
    if (this.entry.ended) return;
    this.entry.afterMs = this.#afterMs();
    this.entry.ended = how;
  }

  now() {
    return { ...this.entry, afterMs: this.entry.afterMs ?? this.#afterMs() };
  }

  #afterMs() {
    return Math.floor(performance.now() - this.began);
  }
}

/** How a call came out; said once. */
export class Result {
  #began = performance.now();
  #said = false;

  constructor(number) {
    this.line = { n: number, items: 0, told: null, initial: [], trailing: [], info: null };
  }

  item(told) {
    this.line.items += 1;
    this.line.told = told;
  }

  end(code, message, more = {}) {
    if (this.#said) return;
    this.#said = true;
    say({ ...this.line, code, message: message ?? "", afterMs: Math.floor(performance.now() - this.#began), ...more });
  }

  /** The library refused the call. */
  refuse(error) {
    this.end("REFUSED", `${error.name}: ${error.message}`);
  }
}

export function pairsToText(pairs) {
  return pairs.map(([key, value]) => [key, Buffer.isBuffer(value) ? value.toString("base64") : value]);
}
