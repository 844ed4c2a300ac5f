//! Header names of ours that are not deadlines; those stand in `oneclock_core::wire::names`.

use http::HeaderName;

/// On an answer of ours: the [`Reason`](oneclock_core::Reason)'s word. Callers inside the trust boundary may build on it
/// (contract R8); it is sent to everybody, since it says no more than the problem document does.
pub const REASON: HeaderName = HeaderName::from_static(oneclock_core::wire::names::ONECLOCK_REASON);
