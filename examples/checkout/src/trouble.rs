//! What can be wrong with a service, and the control endpoint that makes it so.
//!
//! Every service has `GET` and `PUT /control`, outside of its limits, the same with independent timeouts and with one
//! budget:
//!
//! ```text
//! curl -X PUT -H 'content-type: application/json' -d '{"slow_ms": 600, "one_in": 3}' http://127.0.0.1:4711/control
//! ```

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};

use crate::BoxError;
use crate::purchase::Try;

/// What is wrong with a service. The default: nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Trouble {
    /// Its statement takes this many milliseconds; a minute at most, since nothing ends it with independent timeouts.
    pub slow_ms: Option<u64>,
    /// Its answers stop after the head.
    pub stall: bool,
    /// The bodies of its answers come a byte every 50 ms.
    pub trickle: bool,
    /// It answers 500, and does nothing.
    pub fail: bool,
    /// It forwards nothing: neither what its caller has left, nor that its caller has gone.
    pub forward_nothing: bool,
    /// One article in this many meets the trouble.
    pub one_in: u32,
}

/// The trouble of one service, as it is now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Control(Arc<Mutex<Trouble>>);

const SLOWEST_MS: u64 = 60_000;
const TRICKLE: Duration = Duration::from_millis(50);

// === Trouble ===

impl Default for Trouble {
    fn default() -> Self {
        Self { slow_ms: None, stall: false, trickle: false, fail: false, forward_nothing: false, one_in: 1 }
    }
}

impl Trouble {
    /// A statement that takes this long.
    pub fn slow(takes: Duration) -> Self {
        Self { slow_ms: u64::try_from(takes.as_millis()).ok(), ..Self::default() }
    }

    /// For one article in this many.
    #[must_use]
    pub fn one_in(self, one_in: u32) -> Self {
        Self { one_in, ..self }
    }

    /// The body of an answer that says `text`, as this trouble lets it out.
    pub(crate) fn body(self, text: String) -> Body {
        if !self.stall && !self.trickle {
            return Body::from(text);
        }
        let bytes = stream::iter(text.into_bytes()).then(move |byte| async move {
            if self.stall {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(TRICKLE).await;
            Ok::<_, BoxError>(Bytes::from(vec![byte]))
        });
        Body::from_stream(bytes)
    }

    /// Waits as long as this trouble holds back a message of `bytes`, which is seen whole or not at all.
    pub(crate) async fn holds_back(self, bytes: usize) {
        if self.stall {
            std::future::pending::<()>().await;
        }
        if self.trickle {
            tokio::time::sleep(TRICKLE * u32::try_from(bytes).unwrap_or(u32::MAX)).await;
        }
    }
}

// === Control ===

impl Control {
    /// The trouble that a request for this article meets.
    pub(crate) fn trouble_for(&self, of: Try) -> Trouble {
        let trouble = self.now();
        if of.article.is_multiple_of(trouble.one_in.max(1)) { trouble } else { Trouble::default() }
    }

    /// Whether the service as a whole forwards nothing; it does not look at articles for that.
    pub(crate) fn forwards_nothing(&self) -> bool {
        self.now().forward_nothing
    }

    /// `/control`.
    pub(crate) fn routes(&self) -> Router {
        let show = async |State(control): State<Self>| Json(control.now());
        let set = async |State(control): State<Self>, Json(trouble): Json<Trouble>| {
            let trouble = Trouble { slow_ms: trouble.slow_ms.map(|slow| slow.min(SLOWEST_MS)), ..trouble };
            *control.lock() = trouble;
            Json(trouble)
        };
        Router::new().route("/control", get(show).put(set)).with_state(self.clone())
    }

    fn now(&self) -> Trouble {
        *self.lock()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Trouble> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use oneclock::clock;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_comes_whole_trickles_or_stalls() -> Result<(), axum::Error> {
        let body = |trouble: Trouble| trouble.body("12.90".to_owned()).collect();
        assert_eq!(body(Trouble::default()).await?.to_bytes(), "12.90");
        let began = clock::now();
        assert_eq!(body(Trouble { trickle: true, ..Trouble::default() }).await?.to_bytes(), "12.90");
        assert_eq!(clock::now().since(began), TRICKLE * 5);
        let stalled = timeout(Duration::from_secs(3_600), body(Trouble { stall: true, ..Trouble::default() }));
        assert!(stalled.await.is_err());
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_is_held_back_as_long_as_its_bytes_would_be() {
        let began = clock::now();
        Trouble::default().holds_back(5).await;
        assert_eq!(clock::now().since(began), Duration::ZERO);
        Trouble { trickle: true, ..Trouble::default() }.holds_back(5).await;
        assert_eq!(clock::now().since(began), TRICKLE * 5);
        let stalled = Trouble { stall: true, ..Trouble::default() };
        assert!(timeout(Duration::from_secs(3_600), stalled.holds_back(5)).await.is_err());
    }
}
