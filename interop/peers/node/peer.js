// The Node peers, one by its name: `grpc` serves and calls the probe with @grpc/grpc-js, `connect` calls it with
// @connectrpc/connect-node, `raw` does both with node:http2 alone. Driven by JSON lines on stdin.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { say } from "./common.js";

const [name] = process.argv.slice(2);
const { call, serve: ownServe } = await import(`./${name}.js`);
const serve = name === "grpc" ? (await import("./serve.js")).serve : ownServe;

const PACKAGES = { grpc: "@grpc/grpc-js", connect: "@connectrpc/connect-node" };

function version(name) {
  const { version } = JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url)));
  return `${name} ${version}`;
}

const server = await serve?.();
const is = PACKAGES[name] ? version(PACKAGES[name]) : `node:http2 ${process.version}`;
say({ listening: server?.address ?? "", is });

const running = new Map();
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  if (command.do === "cancel") running.get(command.n)?.();
  else running.set(command.n, call(command));
}
server?.close();
process.exit(0);
