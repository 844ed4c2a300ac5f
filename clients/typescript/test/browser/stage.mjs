// A browser, a page of another origin, and the shop it taps on.
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const SHOP = process.env.ONECLOCK_SHOP_URL?.replace(/\/$/, "");
const BROWSER = process.env.ONECLOCK_CHROMIUM ?? "/usr/bin/chromium";
const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];
const FILES = new Map([
  ["/", ["text/html; charset=utf-8", new URL("page.html", import.meta.url)]],
  ...["index", "budget", "error", "rules", "fields"].map((name) => [
    `/dist/${name}.js`, ["text/javascript", new URL(`../../dist/${name}.js`, import.meta.url)],
  ]),
]);
/** The bound of every wait. */
const BOUND_MS = 60_000;

/** Opens everything; `close` it. */
export async function setTheStage() {
  // Missing pieces are failures: a test that did not run has shown nothing.
  if (!SHOP) throw new Error("ONECLOCK_SHOP_URL is not set: `cargo run -p oneclock-checkout --example browser_shop` prints it");
  if (!existsSync(BROWSER)) throw new Error(`no browser at ${BROWSER}: install chromium, or set ONECLOCK_CHROMIUM`);

  const pages = createServer((request, response) => {
    const file = FILES.get(new URL(request.url, "http://localhost").pathname);
    if (!file) return void response.writeHead(404).end();
    response.writeHead(200, { "content-type": file[0] }).end(readFileSync(file[1]));
  });
  pages.listen(0, "127.0.0.1");
  await once(pages, "listening");
  const profile = mkdtempSync(join(tmpdir(), "oneclock-browser-"));
  const browser = await chromium.launchPersistentContext(profile, { executablePath: BROWSER, headless: true, args: FLAGS });
  const origin = `http://127.0.0.1:${pages.address().port}`;

  return {
    shop: SHOP,
    async open(budget = 1_500) {
      const page = await browser.newPage();
      await page.goto(`${origin}/?shop=${encodeURIComponent(SHOP)}&budget=${budget}`);
      await page.waitForFunction(() => window.isReady);
      return page;
    },
    async close() {
      await browser.close();
      pages.closeAllConnections();
      pages.close();
      rmSync(profile, { recursive: true, force: true });
    },
  };
}

/** Makes this the trouble of a service, in both shops. */
export async function trouble(service, what) {
  const answer = await fetch(`${SHOP}/control/${service}`, { method: "PUT", body: JSON.stringify(what) });
  if (!answer.ok) throw new Error(`the shop refused: ${answer.status}`);
}

/** How often each service of each shop has finished its work, since `before`. */
export async function finishedSince(before = undefined) {
  const shops = await (await fetch(`${SHOP}/witness`)).json();
  if (before) {
    for (const [name, services] of Object.entries(shops)) for (const each in services) services[each] -= before[name][each];
  }
  return shops;
}

/** Asks until it is so; what it never becomes is a failure. */
export async function until(says, isSo) {
  for (const began = performance.now(); performance.now() - began < BOUND_MS; ) {
    if (await isSo()) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`it did not happen within ${BOUND_MS} ms: ${says}`);
}
