//! Header names of durable work.
//!
//! `expirytime` is an attribute of CloudEvents, which each transport spells with a prefix of its own; the others are ours and
//! have none.

/// When the work expires: CloudEvents' attribute, RFC 3339.
pub const EXPIRY: &str = "expirytime";
/// What becomes of it then: `discard`, `dead-letter` or `must-complete`.
pub const POLICY: &str = "deadline-policy";
/// Who answers for it. Required for `must-complete`.
pub const OWNER: &str = "deadline-owner";
/// When it was first put into a queue, RFC 3339. Never rewritten.
pub const FIRST_ENQUEUED: &str = "deadline-first-enqueued";
/// The key under which it has one effect.
pub const KEY: &str = crate::idempotency::FIELD;
/// For whom the work is: an account or a tenant.
pub const PRINCIPAL: &str = "deadline-principal";
/// By how many milliseconds its producer's clock may be wrong.
pub const UNCERTAINTY: &str = "deadline-epsilon";
/// How many times somebody has put it back.
pub const REDRIVES: &str = "deadline-redrives";
/// What fields of dead letters begin with: a redrive leaves them out.
pub const DEAD: &str = "deadline-dead-";
/// Of a dead letter: why.
pub const DEAD_REASON: &str = "deadline-dead-reason";
/// Of a dead letter: when, RFC 3339.
pub const DEAD_AT: &str = "deadline-dead-at";
/// Of a dead letter: what its handler said.
pub const DEAD_DETAIL: &str = "deadline-dead-detail";
/// Of a dead letter: how many times it had been delivered.
pub const DEAD_ATTEMPTS: &str = "deadline-dead-attempts";

/// How transports spell an attribute of CloudEvents: HTTP and NATS, Kafka, AMQP (two ways).
pub const PREFIXES: [&str; 4] = ["ce-", "ce_", "cloudEvents:", "cloudEvents_"];

/// The attribute that `name` spells, without its transport's prefix.
pub fn attribute(name: &str) -> &str {
    let cut = |prefix: &&str| {
        name.get(..prefix.len()).filter(|head| head.eq_ignore_ascii_case(prefix)).and_then(|_| name.get(prefix.len()..))
    };
    PREFIXES.iter().find_map(cut).unwrap_or(name)
}
