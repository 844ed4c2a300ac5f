//! A request with nothing left through the service's own stack.
//!
//! Decides what is sent; what the answers prove is `oneclock_core::readiness::judge`'s decision.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header};
use oneclock::{Shutdown, clock};
use oneclock_core::readiness::{Answer, Judged, Shown, judge, spent};
use oneclock_core::wire::{Conventions, names as wire};
use oneclock_core::{Reason, Trust};
use oneclock_http::{Arrival, BoxError, names};
use tower_service::Service;

use super::quiet;
use super::run::{Found, Run};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// What is the same for every run of a check.
struct Probe<S> {
    service: Mutex<S>, // services need not be `Sync`
    head: Parts,
    conventions: Conventions,
    of_this_process: AtomicBool, // shown once, since layers do not move
}

pub(super) fn check<S, B, A>(service: S, request: Request<B>, conventions: Conventions) -> Run
where
    S: Service<Request<B>, Response = Response<A>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Default + Send + 'static,
    A: Send + 'static,
{
    let (head, _) = request.into_parts();
    let probe =
        Arc::new(Probe { service: Mutex::new(service), head, conventions, of_this_process: AtomicBool::new(false) });
    Arc::new(move || {
        let probe = Arc::clone(&probe);
        Box::pin(quiet::probing(async move { probe.run().await }))
    })
}

impl<S> Probe<S> {
    async fn run<B, A>(&self) -> Found
    where
        S: Service<Request<B>, Response = Response<A>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: Default + Send,
        A: Send,
    {
        let mut refused = Vec::new();
        for convention in self.conventions.iter() {
            let Some(value) = spent(convention.codec(), clock::wall()) else { continue };
            let field = convention.name();
            let (Ok(name), Ok(value)) = (HeaderName::try_from(field.as_str()), HeaderValue::try_from(&*value)) else {
                return Found::new(Shown::Broken, format!("{field} is no name of a field"));
            };
            let head = match self.send(Some((name, value)), &Shutdown::new()).await {
                Ok(head) => head,
                Err(error) => return Found::new(Shown::Unclear, format!("{field}: the stack failed: {error}")),
            };
            match judge(head.answer()) {
                Judged::Refused => refused.push(field.as_str()),
                Judged::Broken(why) => return Found::new(Shown::Broken, format!("{field}: {why}")),
                Judged::Unclear(why) => return Found::new(Shown::Unclear, format!("{field}: {why}")),
            }
        }
        if !self.of_this_process.load(Ordering::Relaxed) {
            if let Err(found) = self.refused_by_us().await {
                return found;
            }
            self.of_this_process.store(true, Ordering::Relaxed);
        }
        Found::kept(format!("refused: {}", refused.join(", ")))
    }

    /// No peer is ever told of a listener's shutdown, so only a layer in this process can refuse for that.
    async fn refused_by_us<B, A>(&self) -> Result<(), Found>
    where
        S: Service<Request<B>, Response = Response<A>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: Default + Send,
        A: Send,
    {
        let shutting_down = Shutdown::new();
        shutting_down.signal();
        let head = self.send(None, &shutting_down).await;
        let head = head.map_err(|error| Found::new(Shown::Unclear, format!("the stack failed: {error}")))?;
        let answer = head.answer();
        match answer.reason.and_then(Reason::from_word) {
            Some(Reason::Shutdown) => Ok(()),
            Some(Reason::Shed) => Err(Found::new(Shown::Unclear, "it sheds load".to_owned())),
            _ if matches!(answer.status, 429 | 502 | 503) => {
                Err(Found::new(Shown::Unclear, format!("answered with {} before a layer of oneclock saw it", answer.status)))
            }
            _ => Err(Found::new(
                Shown::Broken,
                "requests with nothing left are refused, but not by this process: it has no layer of oneclock over this \
                 route, and passes on what a service behind it says; add the layer after the routes"
                    .to_owned(),
            )),
        }
    }

    async fn send<B, A>(&self, field: Option<(HeaderName, HeaderValue)>, shutdown: &Shutdown) -> Result<Head, BoxError>
    where
        S: Service<Request<B>, Response = Response<A>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: Default + Send,
        A: Send,
    {
        let mut head = self.head.clone();
        for name in wire::ALL {
            head.headers.remove(name);
        }
        for convention in self.conventions.iter() {
            head.headers.remove(convention.name().as_str());
        }
        head.headers.extend(field.map(|(name, value)| (Some(name), value)).into_iter().collect::<Vec<_>>());
        head.headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static("oneclock-readiness"));
        // As the accept loop does for a listener inside the trust boundary.
        head.extensions.insert(Arrival::new(clock::now(), Trust::Inside, None, shutdown.clone()));
        let mut service = self.service.lock().unwrap_or_else(PoisonError::into_inner).clone();
        poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
        let response = service.call(Request::from_parts(head, B::default())).await.map_err(Into::into)?;
        let (head, _) = response.into_parts(); // nothing reads its body
        Ok(Head { status: head.status.as_u16(), headers: head.headers })
    }
}

struct Head {
    status: u16,
    headers: HeaderMap,
}

impl Head {
    fn answer(&self) -> Answer<'_> {
        let text = |name: &HeaderName| self.headers.get(name)?.to_str().ok();
        Answer {
            status: self.status,
            reason: text(&names::REASON),
            grpc_status: text(&GRPC_STATUS),
            connect_stream: text(&header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/connect+")),
        }
    }
}
