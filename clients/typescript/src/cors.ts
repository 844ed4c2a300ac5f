/**
 * What a server must list so that pages of other origins can keep a budget with it. Without the first list the browser
 * sends no request; without the second the page cannot see why it was refused, nor when to come again.
 */
export const CORS = {
  /** For `access-control-allow-headers`. */
  allow: ["content-type", "idempotency-key", "x-remaining-ms"],
  /** For `access-control-expose-headers`. */
  expose: ["idempotent-replayed", "link", "oneclock-reason", "retry-after", "server-timing"],
} as const;
