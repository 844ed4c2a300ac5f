//! Work that a request has accepted and does not wait for: its record, and the answer that says where to ask.
//!
//! Decides whose the work is (the request's principal, whatever else is said), under which key, and what the 202 says. Putting the
//! work into a queue is somebody else's, after the record.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use oneclock::events::Keyed;
use oneclock_core::Name;
use oneclock_core::idempotency::{Enqueue, Enqueued, Fence, Fingerprint, Owner, Refusal, Scope, State};
use oneclock_core::wire::{Wall, utc};
use oneclock_http::Problem;
use serde_json::json;

use crate::body::{Body, whole};
use crate::endpoint::{Below, Endpoint};
use crate::layer::Idempotency;
use crate::refuse::{self, MonitorLink};
use crate::request::key_of;
use crate::store::{Settle, Settled, Store, StoreError};
use crate::{Answer, IdempotencyKey};

/// Whose operation a request is.
#[derive(Debug)]
#[non_exhaustive]
pub struct Caller {
    /// Its principal.
    pub principal: Arc<str>,
    /// Its key, if it has one: of this principal, method and route.
    pub key: Option<IdempotencyKey>,
}

/// Work whose record stands as queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// The number under which it was accepted.
    pub fence: Fence,
    /// When it was asked for first, and what time it is: on the store's clock.
    pub first_seen: Wall,
    /// See [`first_seen`](Self::first_seen).
    pub now: Wall,
    /// Whether this request made it so. Else whether it was put into a queue is not known.
    pub is_new: bool,
}

/// What is known of work that was to be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepting {
    /// Put it into the queue.
    Queued(Queued),
    /// It was before, and was begun or is settled.
    Stands {
        /// How it stands.
        state: State,
        /// When it was asked for first, on the store's clock.
        first_seen: Wall,
    },
}

impl<St: Store> Idempotency<St> {
    /// Whose operation a request is, by its head, whether or not it came through this layer.
    ///
    /// # Errors
    /// 401 without a principal, 400 with a key that is malformed or, where one is [required](crate::IdempotencyBuilder::required),
    /// missing.
    #[expect(clippy::result_large_err, reason = "a handler returns it as it is, and only where it refuses")]
    pub fn caller(&self, head: &Parts) -> Result<Caller, Problem> {
        let config = &self.0;
        let principal = (config.principal)(head).ok_or_else(|| refuse::no_principal(config.known_by.as_deref()))?;
        if let Some(key) = IdempotencyKey::of(&head.extensions) {
            return Ok(Caller { principal, key: Some(key) });
        }
        let Endpoint { route, called } = Endpoint::of(config, Below::Anything, head);
        let key = key_of(config, head).map_err(|(refusal, why)| {
            config.tell(&called, Keyed::Refused(refusal));
            refuse::problem(refusal, why.map(|why| why.to_string()), Duration::ZERO)
        })?;
        let of = |key| Scope {
            principal: Arc::clone(&principal),
            method: head.method.as_str().to_owned().into(),
            route,
            key,
        };
        let key = key.map(|key| IdempotencyKey::of_scope(of(key)));
        Ok(Caller { principal, key })
    }

    /// Keeps that this work was accepted, before it is put into a queue. What claims it later asks for the same scope and
    /// fingerprint, in this store, and keeps its record as long.
    ///
    /// # Errors
    /// The refusal: 422 if the key was used for other work, 412 and 400 for one that is too old or from the future, 503 if the store
    /// cannot be asked. The work must not be put into a queue.
    ///
    /// # Cancel safety
    /// Dropped, it may have been kept.
    pub async fn accept(&self, scope: &Scope, fingerprint: Fingerprint) -> Result<Accepting, Problem> {
        let limits = self.0.limits;
        let owner = Owner(uuid::Uuid::now_v7().as_u128());
        let ask = Enqueue { fingerprint, owner, made: scope.key.made(), retention: limits.retention };
        let refused = |refusal, why: Option<&str>| {
            self.0.tell(&scope.route, Keyed::Refused(refusal));
            refuse::problem(refusal, why.map(str::to_owned), Duration::ZERO)
        };
        match tokio::time::timeout(limits.claim_within, self.store().enqueue(scope, &ask)).await {
            Ok(Ok(Enqueued::Queued { fence, first_seen, now, is_new })) => {
                Ok(Accepting::Queued(Queued { fence, first_seen, now, is_new }))
            }
            Ok(Ok(Enqueued::Stands { state, first_seen })) => Ok(Accepting::Stands { state, first_seen }),
            Ok(Ok(Enqueued::OtherFingerprint)) => Err(refused(Refusal::OtherFingerprint, None)),
            Ok(Ok(Enqueued::KeyTooOld)) => Err(refused(Refusal::KeyTooOld, None)),
            Ok(Ok(_)) => Err(refused(Refusal::KeyMalformed, Some("it says that it was made in the future"))),
            Ok(Err(error)) => {
                tracing::warn!(%scope, error = &error as &dyn std::error::Error, "no record, so nothing was accepted");
                Err(refused(Refusal::StoreUnreachable, None))
            }
            Err(_) => Err(refused(Refusal::StoreUnreachable, None)),
        }
    }

    /// Says of work that was accepted that it is in no queue, and why. Whoever asks again may try again. One that was begun meanwhile
    /// is left alone.
    ///
    /// # Errors
    /// [`StoreError`]: whether it was written is not known.
    ///
    /// # Cancel safety
    /// Dropped, it may have been written.
    pub async fn set_aside(&self, scope: &Scope, queued: &Queued, why: Answer) -> Result<Settled, StoreError> {
        self.store().settle(scope, queued.fence, Settle::SetAside(why)).await
    }

    /// The answer for work that was accepted: 202, its monitor in `Location` and `Link`, when to look there, and its state.
    pub fn accepted(&self, scope: &Scope, state: State, expires: Option<Wall>, look_in: Duration) -> Response<Body> {
        let mut document = json!({ "state": state.as_str() });
        if let Some(expires) = expires {
            document["expires"] = utc(expires.as_nanos() / 1_000_000).as_str().into();
        }
        let link = MonitorLink { at: self.monitor_path(), scope };
        let mut response = link.add_to(Response::new(whole(document.to_string())));
        *response.status_mut() = StatusCode::ACCEPTED;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(RETRY_AFTER, HeaderValue::from(look_in.as_secs() + u64::from(look_in.subsec_nanos() > 0)));
        if let Some(Ok(location)) = link.address().map(HeaderValue::try_from) {
            headers.insert(LOCATION, location);
        }
        response
    }

    /// Where the [monitor](Self::monitor) shows this record, if it is said where that is [mounted](Self::monitor_path).
    pub fn monitor_of(&self, scope: &Scope) -> Option<String> {
        MonitorLink { at: self.monitor_path(), scope }.address()
    }

    /// Where the monitor is mounted, as [said](crate::IdempotencyBuilder::monitor_at).
    pub fn monitor_path(&self) -> Option<&str> {
        self.0.monitor.as_deref()
    }

    /// What it is called.
    pub fn name(&self) -> &Name {
        &self.0.name
    }
}
