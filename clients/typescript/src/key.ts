/**
 * An idempotency key: a UUID of version 7 (RFC 9562). The time in front of it tells a server that keeps records for a day
 * that a key of last week is too old, instead of running it again (contract M7).
 */
export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16)); // `randomUUID` exists only where the page came over TLS
  const made = Date.now();
  for (let i = 0; i < 6; i++) bytes[i] = Math.floor(made / 2 ** (40 - 8 * i)) & 0xff;
  bytes[6] = (bytes[6]! & 0x0f) | 0x70;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}
