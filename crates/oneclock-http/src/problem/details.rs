//! The details of a status, as gRPC and Connect carry them: `google.rpc.Status`.
//!
//! Decides that everybody is told the word that is the `type` of a problem document, since several of them have one status;
//! and only trusted callers what such a document tells them alone.
//!
//! | message | says | to |
//! |---|---|---|
//! | `google.rpc.ErrorInfo` | the word as `DEADLINE`, domain `oneclock` | everybody |
//! | its metadata | what a problem document says of bound, stage, times and outcome | trusted callers |
//! | `google.rpc.RetryInfo` | not before then, where coming again is welcome | trusted callers |
//! | `google.rpc.DebugInfo` | the ledger as JSON, unless it is too large for a header | trusted callers |

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD; // gRPC and Connect: without padding
use oneclock_core::Trust;
use prost::Message;

use super::Problem;
use super::document::{ledger_json, millis};

/// Headers are limited to 8 KiB as a whole at many peers; base64 takes a third more.
const LARGEST_LEDGER: usize = 3 * 1024;

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
    #[prost(btree_map = "string, string", tag = "3")]
    metadata: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Span>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
struct DebugInfo {
    #[prost(string, tag = "2")]
    detail: String,
}

impl Any {
    fn of(name: &str, message: &impl Message) -> Self {
        Self { type_url: format!("type.googleapis.com/google.rpc.{name}"), value: message.encode_to_vec() }
    }

    /// The name of the message, as Connect has it.
    pub(super) fn name(&self) -> &str {
        self.type_url.rsplit('/').next().unwrap_or_default()
    }

    /// The message, as Connect has it.
    pub(super) fn base64(&self) -> String {
        STANDARD_NO_PAD.encode(&self.value)
    }
}

impl Problem {
    /// The value of `grpc-status-details-bin`, if there is something to say to a caller of this trust.
    pub(super) fn status_details(&self, code: u8, message: &str, trust: Trust) -> Option<String> {
        let details = self.details(trust);
        if details.is_empty() {
            return None;
        }
        let status = Status { code: i32::from(code), message: message.to_owned(), details };
        Some(STANDARD_NO_PAD.encode(status.encode_to_vec()))
    }

    /// What a caller of this trust is told besides status and message.
    pub(super) fn details(&self, trust: Trust) -> Vec<Any> {
        let Some(word) = self.word else { return Vec::new() };
        let metadata = match trust {
            Trust::Inside => self.metadata(),
            Trust::Outside => BTreeMap::new(),
        };
        let info = ErrorInfo { reason: word.to_ascii_uppercase(), domain: "oneclock".to_owned(), metadata };
        let mut details = vec![Any::of("ErrorInfo", &info)];
        if trust == Trust::Outside {
            return details;
        }
        if let Some(wait) = self.come_again_after() {
            let seconds = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
            let nanos = i32::try_from(wait.subsec_nanos()).unwrap_or_default();
            details.push(Any::of("RetryInfo", &RetryInfo { retry_delay: Some(Span { seconds, nanos }) }));
        }
        if let Some((ledger, until)) = &self.ledger {
            let detail = ledger_json(ledger, *until).to_string();
            if detail.len() <= LARGEST_LEDGER {
                details.push(Any::of("DebugInfo", &DebugInfo { detail }));
            }
        }
        details
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        let text = |value: serde_json::Value| match value {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        [
            ("bound", self.bound.map(|bound| bound.by.as_str().into())),
            ("budget_ms", self.bound.map(|bound| millis(bound.limit))),
            ("stage", self.stage.map(|stage| stage.as_str().into())),
            ("elapsed_ms", self.elapsed.map(millis)),
            ("remaining_ms", self.remaining.map(millis)),
            ("outcome", self.outcome.map(|outcome| outcome.as_str().into())),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), text(value?))))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oneclock_core::{Bound, BoundBy, Reason};
    use std::time::Duration;

    #[test]
    fn what_was_written_can_be_read() {
        let bound = Bound { by: BoundBy::Caller, limit: Duration::from_millis(300) };
        let problem = Problem {
            bound: Some(bound),
            remaining: Some(Duration::from_millis(2_500)),
            ..Problem::new(Reason::Shutdown)
        };
        let read = |value: Option<String>| {
            let value = STANDARD_NO_PAD.decode(value.expect("details")).expect("base64");
            Status::decode(&*value).expect("a status")
        };
        let status = read(problem.status_details(14, "shutting down", Trust::Inside));
        assert_eq!((status.code, status.message.as_str()), (14, "shutting down"));
        let names: Vec<_> = status.details.iter().map(Any::name).collect();
        assert_eq!(names, ["google.rpc.ErrorInfo", "google.rpc.RetryInfo"]);
        let info = ErrorInfo::decode(&*status.details[0].value).expect("an ErrorInfo");
        assert_eq!((info.reason.as_str(), info.domain.as_str()), ("SHUTDOWN", "oneclock"));
        assert_eq!((info.metadata["bound"].as_str(), info.metadata["budget_ms"].as_str()), ("caller", "300"));
        let retry = RetryInfo::decode(&*status.details[1].value).expect("a RetryInfo");
        assert_eq!(retry.retry_delay, Some(Span { seconds: 1, nanos: 0 }));

        let outside = read(problem.status_details(14, "shutting down", Trust::Outside));
        let [word] = &*outside.details else { panic!("the word and nothing else: {outside:?}") };
        let info = ErrorInfo::decode(&*word.value).expect("an ErrorInfo");
        assert_eq!((info.reason.as_str(), info.metadata), ("SHUTDOWN", BTreeMap::new()));
        let own = Problem::with_status(http::StatusCode::NOT_FOUND, "no such cart");
        assert_eq!(own.status_details(5, "no such cart", Trust::Outside), None, "its status says it all");
    }
}
