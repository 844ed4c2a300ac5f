// Calls the probe with @connectrpc/connect-node, in the Connect protocol.

import { createFileRegistry, fromBinary, toJson } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient, encodeBinaryHeader } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { Result, descriptors, pairsToText } from "./common.js";

const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, descriptors));
const service = registry.getService("oneclock.probe.v1.Probe");
const told = registry.getMessage("oneclock.probe.v1.Told");
const errorInfo = registry.getMessage("google.rpc.ErrorInfo");
const clients = new Map();

/** Calls as the command says (`over`: which codec and which HTTP); returns what cancels it. */
export function call({ n, method, target, ask, timeoutMs, metadata = [], over }) {
  const result = new Result(n);
  const leave = new AbortController();
  const headers = new Headers();
  run().then(
    () => result.end("OK"),
    (thrown) => {
      const error = ConnectError.from(thrown);
      const [info] = error.findDetails(errorInfo);
      result.end(code(error), error.rawMessage, {
        trailing: pairs(error.metadata),
        info: info ? toJson(errorInfo, info) : null,
      });
    },
  );
  return () => leave.abort();

  async function run() {
    for (const [key, value] of metadata) {
      headers.append(key, key.endsWith("-bin") ? encodeBinaryHeader(Buffer.from(value, "base64")) : value);
    }
    const options = {
      headers,
      signal: leave.signal,
      onHeader: (initial) => (result.line.initial = pairs(initial)),
      onTrailer: (trailing) => (result.line.trailing = pairs(trailing)),
    };
    if (timeoutMs != null) options.timeoutMs = timeoutMs;
    const client = clientOf(target, over);
    if (method === "Unary") {
      result.item(toJson(told, await client.unary(ask, options)));
    } else {
      for await (const item of client.serverStream(ask, options)) result.item(toJson(told, item));
    }
  }
}

function clientOf(target, { codec, http }) {
  const key = `${target} ${codec} ${http}`;
  if (!clients.has(key)) {
    const baseUrl = `http://${target}`;
    const transport = createConnectTransport({ baseUrl, httpVersion: http, useBinaryFormat: codec === "proto" });
    clients.set(key, createClient(service, transport));
  }
  return clients.get(key);
}

/** As gRPC spells it. */
function code(error) {
  const name = Code[error.code] ?? "Unknown";
  return name === "Canceled" ? "CANCELLED" : name.replace(/(?<!^)([A-Z])/g, "_$1").toUpperCase();
}

function pairs(headers) {
  return pairsToText([...headers]);
}
