//! Names of attributes: ours come from [`names::attributes`](crate::names::attributes), these are OpenTelemetry's, of its
//! semantic conventions 1.44, and what only spans have.

pub use crate::names::attributes::*;

/// All the time that what made the deadline gave, in milliseconds.
pub const LIMIT: &str = "oneclock.deadline.limit_ms";
/// What sort of thing a call went to: `service`, `database` or `queue`.
pub const LAYER: &str = "oneclock.layer";
/// What a callee of ours told of where its time went, as text.
pub const BELOW: &str = "oneclock.below";
/// True where the span must not be lost to sampling: its work ran out of time. For a collector's tail sampling, and for
/// `KeepEnded` of the feature `opentelemetry`.
pub const KEEP: &str = "oneclock.keep";
/// One where the span must not be lost to sampling, as OpenTracing spells it, which several backends still read.
pub const SAMPLING_PRIORITY: &str = "sampling.priority";

/// The reason of the contract's that the answer gave.
pub const REASON: &str = "oneclock.reason";

/// The method of the request; `_OTHER` for what is no method of HTTP's.
pub const HTTP_METHOD: &str = "http.request.method";
/// What the request was matched to.
pub const HTTP_ROUTE: &str = "http.route";
/// The status of the answer, if there was one.
pub const HTTP_STATUS: &str = "http.response.status_code";
/// The host that a call goes to.
pub const SERVER_ADDRESS: &str = "server.address";
/// The port there.
pub const SERVER_PORT: &str = "server.port";
/// The how-manieth further attempt it is; absent on the first.
pub const HTTP_RESEND_COUNT: &str = "http.request.resend_count";
/// `grpc`, for requests that are calls of it.
pub const RPC_SYSTEM: &str = "rpc.system.name";
/// The service and the method of a call.
pub const RPC_METHOD: &str = "rpc.method";
/// The status of a call, by its name.
pub const RPC_STATUS: &str = "rpc.response.status_code";
/// Why it is an error, in one word; absent where it is none.
pub const ERROR_TYPE: &str = "error.type";
