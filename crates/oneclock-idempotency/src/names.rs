//! Header names of this crate.

use http::HeaderName;

/// On a request: the key of its operation.
pub const KEY: HeaderName = HeaderName::from_static(oneclock_core::idempotency::FIELD);

/// On an answer that is a replay.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
