// A plain HTTP server that answers as a test says, and remembers what it was asked.
import { once } from "node:events";
import { createServer } from "node:http";

/** `answer(request, response, number)` is called once a request has arrived whole. Closes with the test. */
export async function serverFor(test, answer) {
  const seen = [];
  const server = createServer(async (request, response) => {
    const asked = { at: performance.now(), method: request.method, headers: request.headers, body: "" };
    seen.push(asked);
    const number = seen.length;
    asked.left = new Promise((resolve) => response.on("close", () => resolve(performance.now())));
    request.setEncoding("utf8");
    try {
      for await (const piece of request) asked.body += piece;
    } catch {
      return; // it left while it was sending
    }
    answer(request, response, number);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${server.address().port}/`, seen };
}

/** What `promise` was rejected with. */
export async function errorOf(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("it did not fail");
}
