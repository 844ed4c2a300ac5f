//! The names of the fields that carry a deadline, lower case as HTTP/2 sends them. Contract section 1.
//!
//! Fields about retries and hedges carry none; those that we write or read stand here as well.

/// gRPC, and gRPC-Web.
pub const GRPC_TIMEOUT: &str = "grpc-timeout";
/// The Connect protocol.
pub const CONNECT_TIMEOUT_MS: &str = "connect-timeout-ms";
/// Ours: what we write on plain HTTP.
pub const X_REMAINING_MS: &str = "x-remaining-ms";
/// Remaining milliseconds, widespread.
pub const X_REQUEST_TIMEOUT_MS: &str = "x-request-timeout-ms";
/// Milliseconds at some senders, seconds at others: read only where its kind is declared.
pub const X_REQUEST_TIMEOUT: &str = "x-request-timeout";
/// A moment, as RFC 3339 writes it.
pub const X_REQUEST_DEADLINE: &str = "x-request-deadline";
/// What Envoy tells the service behind it.
pub const X_ENVOY_EXPECTED_RQ_TIMEOUT_MS: &str = "x-envoy-expected-rq-timeout-ms";
/// What a caller asks of Envoy for the whole request. Zero means "no limit" there.
pub const X_ENVOY_UPSTREAM_RQ_TIMEOUT_MS: &str = "x-envoy-upstream-rq-timeout-ms";
/// What a caller asks of Envoy for each attempt. Zero means "no limit" there.
pub const X_ENVOY_UPSTREAM_RQ_PER_TRY_TIMEOUT_MS: &str = "x-envoy-upstream-rq-per-try-timeout-ms";
/// Palantir's Dialogue and Conjure: decimal seconds.
pub const EXPECT_WITHIN: &str = "expect-within";
/// YARPC and Cadence.
pub const CONTEXT_TTL_MS: &str = "context-ttl-ms";
/// Finagle: when it was written and when it ends, both since the Unix epoch.
pub const FINAGLE_DEADLINE: &str = "finagle-ctx-com.twitter.finagle.deadline";
/// Linkerd.
pub const L5D_TIMEOUT: &str = "l5d-timeout";

/// Every name above, for tables, tests and whoever has to strip them all (contract C3, E7).
pub const ALL: [&str; 13] = [
    GRPC_TIMEOUT,
    CONNECT_TIMEOUT_MS,
    X_REMAINING_MS,
    X_REQUEST_TIMEOUT_MS,
    X_REQUEST_TIMEOUT,
    X_REQUEST_DEADLINE,
    X_ENVOY_EXPECTED_RQ_TIMEOUT_MS,
    X_ENVOY_UPSTREAM_RQ_TIMEOUT_MS,
    X_ENVOY_UPSTREAM_RQ_PER_TRY_TIMEOUT_MS,
    EXPECT_WITHIN,
    CONTEXT_TTL_MS,
    FINAGLE_DEADLINE,
    L5D_TIMEOUT,
];

/// Connect: the version of the protocol. It carries no time; a request that has it speaks Connect.
pub const CONNECT_PROTOCOL_VERSION: &str = "connect-protocol-version";

/// gRPC: how many attempts were made before this one. We write it on retries to whoever speaks gRPC.
pub const GRPC_PREVIOUS_RPC_ATTEMPTS: &str = "grpc-previous-rpc-attempts";
/// gRPC, on an answer: how long to wait before another attempt; negative means that there should be none.
pub const GRPC_RETRY_PUSHBACK_MS: &str = "grpc-retry-pushback-ms";
/// Which attempt this is, one for the first, as Envoy counts. We write it on retries over plain HTTP, and read it from those
/// that we trust: what serves a retry retries nothing itself (contract R9).
pub const X_ENVOY_ATTEMPT_COUNT: &str = "x-envoy-attempt-count";
/// Ours: whether whoever waits needs the answer, `required` or `optional`. We write it to those inside the trust boundary, where
/// it is optional; what is optional is shed first (contract C7).
pub const ONECLOCK_IMPORTANCE: &str = "oneclock-importance";
/// Ours, on an answer: this hop, or one below it, has made so many attempts and gave up. Callers inside the trust boundary do
/// not try again (contract R9).
pub const ONECLOCK_RETRIED: &str = "oneclock-retried";

/// Ours, on an answer: the word of the [`Reason`](crate::Reason) for which there is no proper one. It is sent to everybody, since
/// it says no more than a problem document does; it is built on where those inside the trust boundary gave it (contract R8).
pub const ONECLOCK_REASON: &str = "oneclock-reason";
/// Ours, between two layers of one process: the status speaks of something that the service called. It never travels.
pub const ONECLOCK_PART: &str = "oneclock-part";

/// What only we say in an answer: from outside the trust boundary it counts for nothing, and it goes no further.
pub const OURS_TO_SAY: [&str; 2] = [ONECLOCK_REASON, ONECLOCK_RETRIED];

/// What an answer says of the one call that it answers: why, whether to come again and when, where the time went. Whoever makes an
/// answer of their own out of it, at once or later, leaves it out: it would say what is not so of the work around that call
/// (contract R8, R9, M7).
pub const OF_ONE_CALL: [&str; 5] =
    [ONECLOCK_REASON, ONECLOCK_RETRIED, ONECLOCK_PART, GRPC_RETRY_PUSHBACK_MS, super::server_timing::SERVER_TIMING];

/// Fields that speak of attempts, retries and hedges. Outsiders have no say in those either (contract C3).
pub const RETRIES_AND_HEDGES: [&str; 15] = [
    GRPC_PREVIOUS_RPC_ATTEMPTS,
    GRPC_RETRY_PUSHBACK_MS,
    X_ENVOY_ATTEMPT_COUNT,
    ONECLOCK_RETRIED,
    "x-envoy-is-timeout-retry",
    "l5d-request-timeout",
    "l5d-response-timeout",
    "l5d-retry-http",
    "l5d-retry-grpc",
    "l5d-retry-limit",
    "l5d-retry-timeout",
    "x-envoy-max-retries",
    "x-envoy-retry-on",
    "x-envoy-retry-grpc-on",
    "x-envoy-hedge-on-per-try-timeout",
];
