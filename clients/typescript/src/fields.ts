/**
 * What a server must list so that pages of other origins can keep a budget with it. Without `allow` the browser sends no
 * request; without `expose` the page cannot see why it was refused, nor when to come again.
 */
export const CORS = {
  /** For `access-control-allow-headers`. */
  allow: ["content-type", "idempotency-key", "x-remaining-ms"],
  /** For `access-control-expose-headers`. */
  expose: ["idempotent-replayed", "link", "oneclock-reason", "retry-after", "server-timing"],
} as const;

/**
 * An idempotency key: a UUID of version 7 (RFC 9562). The time in front of it tells a server that keeps records for a day
 * that a key of last week is too old, instead of running it again (contract M7).
 */
export function newKey(): string {
  const random = crypto.getRandomValues(new Uint8Array(9)); // `randomUUID` exists only where the page came over TLS
  const hex = Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
  const time = Date.now().toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7${hex.slice(0, 3)}-8${hex.slice(3, 6)}-${hex.slice(6)}`;
}
