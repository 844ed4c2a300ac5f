//! The messages of proto/probe.proto, by hand. Decides nothing; the fields are explained there.
//!
//! In JSON as protobuf's mapping has them: camel case, and what has its default may be missing.

use serde::{Deserialize, Serialize};

/// What one call is to do.
#[derive(Clone, PartialEq, Deserialize, Serialize, prost::Message)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Ask {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(uint32, tag = "2")]
    pub(crate) work_ms: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) fail: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) items: u32,
    #[prost(uint32, tag = "5")]
    pub(crate) every_ms: u32,
    #[prost(bool, tag = "6")]
    pub(crate) stall: bool,
    #[prost(string, tag = "7")]
    pub(crate) next: String,
    #[prost(message, optional, boxed, tag = "8")]
    pub(crate) next_ask: Option<Box<Ask>>,
}

/// What the service was told of time.
#[derive(Clone, PartialEq, Deserialize, Serialize, prost::Message)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Told {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(uint32, tag = "2")]
    pub(crate) item: u32,
    #[prost(string, tag = "3")]
    pub(crate) grpc_timeout: String,
    #[prost(string, tag = "4")]
    pub(crate) connect_timeout_ms: String,
    #[prost(uint32, tag = "5")]
    pub(crate) left_ms: u32,
    #[prost(bool, tag = "6")]
    pub(crate) has_deadline: bool,
    #[prost(uint32, tag = "7")]
    pub(crate) left_before_next_ms: u32,
    #[prost(message, optional, boxed, tag = "8")]
    pub(crate) next: Option<Box<Told>>,
    #[prost(uint32, tag = "9")]
    pub(crate) next_code: u32,
}

/// Asks for what is known of a call.
#[derive(Clone, PartialEq, Deserialize, Serialize, prost::Message)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LogAsk {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
}

/// What is known of it.
#[derive(Clone, PartialEq, Deserialize, Serialize, prost::Message)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LogTold {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<Entry>,
}

/// One call as its service saw it.
#[derive(Clone, PartialEq, Deserialize, Serialize, prost::Message)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Entry {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) method: String,
    #[prost(string, tag = "3")]
    pub(crate) grpc_timeout: String,
    #[prost(string, tag = "4")]
    pub(crate) connect_timeout_ms: String,
    #[prost(uint32, tag = "5")]
    pub(crate) left_ms: u32,
    #[prost(bool, tag = "6")]
    pub(crate) has_deadline: bool,
    #[prost(string, tag = "7")]
    pub(crate) ended: String,
    #[prost(uint32, tag = "8")]
    pub(crate) after_ms: u32,
    #[prost(uint32, tag = "9")]
    pub(crate) items: u32,
    #[prost(uint32, tag = "10")]
    pub(crate) read: u32,
}

/// `google.rpc.Status`, as it stands in `grpc-status-details-bin`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Any {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

/// `google.rpc.ErrorInfo`, without its metadata.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ErrorInfo {
    #[prost(string, tag = "1")]
    pub(crate) reason: String,
    #[prost(string, tag = "2")]
    pub(crate) domain: String,
}

/// The type of [`ErrorInfo`] in an [`Any`].
pub(crate) const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
