//! Idempotency keys: what a route's configuration makes of the library's layer, and what stands on its two sides.
//!
//! Decides nothing that the contract's section 10 decides: the claim, the run that goes on when its caller leaves, the replay
//! and every refusal are [`oneclock_idempotency`]'s. Decided here is
//!
//! - whose a key is: a hash of the field that the configuration names, never the field itself, which may be a credential;
//! - what one exchange with the upstream proves. It is all that a run does, so that what is known of the call is known of the
//!   whole: one that was never sent, or was refused by one of ours before it began, left nothing behind (M4, R8);
//! - that runs count as live for as long as they take, whoever has left.
//!
//! ```text
//! ingress (deadline, admission) → Keys: claim, run, record → Sends → client → upstream
//! ```

mod body;
mod store;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{HeaderMap, HeaderName};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use oneclock::Operation;
use oneclock::events::Observer;
use oneclock_core::effect::{self, Seen};
use oneclock_core::{Name, Outcome, Trust};
use oneclock_http::{CallError, NothingHappened, Problem, Protocol, Upload, grpc};
use oneclock_idempotency::{BadIdempotency, Idempotency, IdempotencyBuilder, IdempotencyKey, Monitor, Once, Store};
use tower_layer::Layer as _;
use tower_service::Service;

use crate::answer::Forwarded;
use crate::config::{self, Principal};
use crate::digest::Digest;
use crate::live::{Entry, Kind};
use crate::to::To;

pub(crate) use body::Sent;
pub(crate) use store::{KeyStore, Opened, Opens, Stores, Trusted, tend, trusted};

/// The keys of one route. All clones share their runs, also over reloads that say the same of them.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    layer: Idempotency<KeyStore>,
    monitor: Option<Arc<str>>,
}

/// A route with keys.
#[derive(Debug)]
pub(crate) struct Keyed {
    once: Once<Sends, KeyStore>,
    monitor: Option<(Arc<str>, Monitor<KeyStore>)>,
}

/// What a run does: one exchange with the upstream, its retries included.
#[derive(Clone, Debug)]
pub(crate) struct Sends(Arc<To>);

/// The layer of a route with this name, which is part of its keys' scope.
pub(crate) fn builder<St: Store>(route: Name, store: St, says: &config::Idempotency) -> IdempotencyBuilder<St> {
    let mut layer = Idempotency::builder(route, store)
        .execution(says.execution)
        .retention(says.retention)
        .request_bytes(says.max_request)
        .answer_bytes(says.max_answer);
    layer = match &says.principal {
        Principal::Everybody => layer.one_principal(),
        Principal::Field(field) => {
            let field = field.clone();
            let known_by = format!("the field {field}, which has to be there once and to hold something");
            layer.principal(move |head| principal(&field, head)).known_by(known_by)
        }
    };
    if let Some(lease) = says.lease {
        layer = layer.lease(lease);
    }
    if says.require {
        layer = layer.required();
    }
    for field in &says.replays {
        layer = layer.replays(field.clone());
    }
    if let Some(path) = &says.monitor {
        layer = layer.monitor_at(path);
    }
    layer
}

/// Who sent it. `None` without the field, or with two of them: two hops could take two different ones.
fn principal(field: &HeaderName, head: &Parts) -> Option<String> {
    let mut said = head.headers.get_all(field).iter();
    let (Some(value), None) = (said.next(), said.next()) else { return None };
    if value.is_empty() {
        return None;
    }
    Some(format!("{field}:{}", Digest::of([value.as_bytes()])))
}

/// Whether this request is the work of a run, and not on its way past the layer.
pub(crate) fn is_run(extensions: &http::Extensions) -> bool {
    IdempotencyKey::of(extensions).is_some()
}

/// Why the upstream gave no answer to a run, where any other request would be told this.
pub(crate) fn told(error: &CallError, problem: Problem) -> Problem {
    if is_nothing(error.outcome()) { problem.nothing_happened() } else { problem }
}

/// The problem that a run came to, all of it: it is given to whoever waits for the run.
pub(crate) fn whole(problem: &Problem, protocol: Protocol) -> Response<Forwarded> {
    let mut answer = problem.to_answer(protocol, Trust::Outside);
    answer.extensions_mut().insert(problem.clone()); // for the one that began it, by its trust
    if problem.says_nothing_happened() {
        answer.extensions_mut().insert(NothingHappened);
    }
    answer.map(|bytes| Forwarded::once(Full::from(bytes).map_err(|never| match never {}).boxed_unsync(), None))
}

/// Whether this outcome of a run's only call proves that nothing happened.
fn is_nothing(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::NotSent | Outcome::Rejected)
}

/// Whether the head of an answer from an upstream with this trust proves that.
pub(crate) fn says_nothing_happened(status: StatusCode, headers: &HeaderMap, trust: Trust) -> bool {
    let reason = oneclock_http::reason(headers, trust);
    let seen = match grpc::status(headers) {
        Some(status) => Seen::GrpcAnswer { status, reason },
        None => Seen::Answer { status: status.as_u16(), reason },
    };
    is_nothing(effect::outcome(seen, false))
}

// === Keys ===

impl Keys {
    /// The keys of `route` in `store`.
    pub(crate) fn of(
        route: Name,
        store: KeyStore,
        says: &config::Idempotency,
        observer: Option<&Arc<dyn Observer>>,
    ) -> Result<Self, BadIdempotency> {
        let mut layer = builder(route, store, says);
        if let Some(observer) = observer {
            layer = layer.observed_by(Arc::clone(observer));
        }
        Ok(Self { layer: layer.build()?, monitor: says.monitor.as_deref().map(Into::into) })
    }

    /// Their route, before this upstream.
    pub(crate) fn before(&self, to: To) -> Keyed {
        let monitor = self.monitor.clone().map(|path| (path, self.layer.monitor()));
        Keyed { once: self.layer.layer(Sends(Arc::new(to))), monitor }
    }
}

// === Keyed ===

impl Keyed {
    pub(crate) async fn answer(&self, request: Request<Upload<Incoming>>) -> Response<Forwarded> {
        let entry = request.extensions().get::<Entry>().cloned();
        if let (Some(entry), Some(operation)) = (&entry, Operation::current()) {
            entry.is(Kind::Call, operation.deadline()); // a run that it begins says more
        }
        let answered = match self.monitor_for(&request) {
            Some(mut monitor) => monitor.call(request).await,
            None => self.once.clone().call(request.map(Sent::from)).await,
        };
        let Ok(answer) = answered;
        answer.map(|body| Forwarded::once(body, entry))
    }

    /// For `<its path>/<one segment>`.
    fn monitor_for<B>(&self, request: &Request<B>) -> Option<Monitor<KeyStore>> {
        let (path, monitor) = self.monitor.as_ref()?;
        let segment = request.uri().path().strip_prefix(&**path)?.strip_prefix('/')?;
        let asks = matches!(*request.method(), Method::GET | Method::HEAD);
        (asks && !segment.is_empty() && !segment.contains('/')).then(|| monitor.clone())
    }
}

// === Sends ===

impl Service<Request<Sent>> for Sends {
    type Response = Response<Forwarded>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Forwarded>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Sent>) -> Self::Future {
        let to = Arc::clone(&self.0);
        Box::pin(async move { Ok(to.answer(request).await) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn head(fields: &[(&'static str, &'static str)]) -> Parts {
        let mut head = Request::post("/").body(()).expect("a request").into_parts().0;
        for (name, value) in fields {
            head.headers.append(*name, HeaderValue::from_static(value));
        }
        head
    }

    #[test]
    fn m8_a_principal_is_known_by_a_hash_and_by_one_field() {
        let field = HeaderName::from_static("authorization");
        let of = |fields| principal(&field, &head(fields));
        let bearer = of(&[("authorization", "Bearer s3cret")]).expect("a principal");
        assert!(bearer.starts_with("authorization:") && bearer.len() == "authorization:".len() + 64, "{bearer}");
        assert!(!bearer.contains("s3cret"));
        assert_eq!(of(&[("authorization", "Bearer s3cret")]).as_deref(), Some(&*bearer));
        assert_ne!(of(&[("authorization", "Bearer other")]).expect("a principal"), bearer);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("authorization", "")]), None);
        assert_eq!(of(&[("authorization", "Bearer a"), ("authorization", "Bearer b")]), None, "whose of the two?");
    }

    #[test]
    fn m4_only_what_did_not_begin_is_nothing() {
        let said = |status, fields: &[(&'static str, &'static str)], trust| {
            says_nothing_happened(StatusCode::from_u16(status).expect("a status"), &head(fields).headers, trust)
        };
        let shed = [("oneclock-reason", "shed")];
        assert!(said(503, &shed, Trust::Inside));
        assert!(!said(503, &shed, Trust::Outside), "anybody can write that");
        assert!(!said(200, &shed, Trust::Inside), "copied from another answer");
        assert!(said(429, &[], Trust::Outside));
        assert!(!said(503, &[], Trust::Inside) && !said(500, &[], Trust::Inside));
        assert!(!said(504, &[("oneclock-reason", "deadline")], Trust::Inside), "it had begun");
        assert!(!said(200, &[("grpc-status", "8")], Trust::Inside), "RESOURCE_EXHAUSTED is said midway as well");
    }
}
