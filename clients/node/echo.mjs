// The last hop of a chain of languages: says what it was told and what it has. For `clients/python/chain.py`.
// Prints its URL and serves until its standard input ends.
import { createServer } from "node:http";

import { current, ingress, policy } from "./oneclock.mjs";

const echo = (req, res) => {
  res.setHeader("content-type", "application/json");
  const hasUs = Number((current()?.remainingNs() ?? 0n) / 1_000n);
  res.end(JSON.stringify({ hop: "node", told_ms: Number(req.headers["x-remaining-ms"]), had_us: hasUs }));
};
const server = createServer(ingress(echo, policy(), { inside: true })).listen(0, "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}`);
});
process.stdin.resume().on("end", () => process.exit(0));
