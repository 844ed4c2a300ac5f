//! oneclock for reqwest: calls that spend from the current operation's budget.
//!
//! [`Budget`] is a middleware of `reqwest-middleware`. It decides nothing: what a call may spend, what the far side is
//! told and what is known of it afterwards are [`Destination`]'s decisions. Put it innermost, so that a retry middleware
//! around it begins a new call, with what is left then, for each attempt (contract E4):
//!
//! ```text
//! retries → tracing → Budget → reqwest (pool, redirects, connect, TLS, HTTP)
//! ```
//!
//! ```no_run
//! use std::time::Duration;
//! use oneclock::Operation;
//! use oneclock_http::Destination;
//! use oneclock_reqwest::Budget;
//! use reqwest_middleware::ClientBuilder;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let inventory = Destination::named("inventory").cap(Duration::from_millis(300)).build()?;
//! let client = ClientBuilder::new(reqwest::Client::new()).with(Budget::new(inventory)).build();
//!
//! let op = Operation::begin("order", Duration::from_millis(800));
//! let stock = op.run(async {
//!     match client.get("http://inventory:8080/stock/7").send().await {
//!         Ok(response) => Ok(response.bytes().await?), // ends at the same deadline
//!         Err(error) => match oneclock_reqwest::call_error(&error) {
//!             Some(call) => Err(format!("{call}; outcome: {}", call.outcome()).into()),
//!             None => Err(Box::<dyn std::error::Error>::from(error)),
//!         },
//!     }
//! }).await??;
//! # Ok(()) }
//! ```
//!
//! # What reqwest cannot tell
//! [`oneclock_http::Client`] can; where these matter, use that.
//! - Header fields are fixed before reqwest looks for a connection. The far side is told what was left then, and the
//!   time that pool, connect and TLS take on a cold connection is not taken off. reqwest does not say how long that was,
//!   so it cannot be foreseen either; where connecting is slow, give the destination a reserve
//!   ([`DestinationBuilder::reserve`](oneclock_http::DestinationBuilder::reserve)).
//! - Redirects and reqwest's own retries send the same fields again. All of them together end at the same deadline.
//! - In the ledger everything up to the head is one stage, `wait`, and a call that is cut off there has an unknown
//!   outcome.
//! - A refusal may be that of a redirect's second hop, after the first one did its work (`POST /orders` → 303 →
//!   `GET /orders/7` → 429), and reqwest does not tell the way. So an answer is a proven refusal
//!   ([`Outcome::Rejected`]) only where it comes from the URL that was asked, and was asked with a method that only reads;
//!   a connect that failed or a stream that was refused, which look the same on any hop, proves nothing. Where redirects
//!   are off, [`Budget::follows_no_redirects`] declares it, and all of these count.

use std::error::Error as StdError;
use std::future::poll_fn;
use std::task::Poll;

use http::Extensions;
use oneclock::Call;
use oneclock::events::Target;
use oneclock_core::effect::Seen;
use oneclock_core::{Outcome, Stage};
use oneclock_http::{BodyCutOff, BoundedBody, CallError, Destination, names};
use reqwest::{Method, Request, Response, ResponseBuilderExt, StatusCode, Url};
use reqwest_middleware::{Error, Middleware, Next};

/// Gives every request through it what its operation has left, and cuts it off there, on head and body.
///
/// The operation is the current one, else the one in the request's extensions (`RequestBuilder::with_extension`), else as
/// the destination's [`WithoutOperation`](oneclock_http::WithoutOperation) says. A timeout of the request's own can
/// shorten that, never extend it (invariant I3).
///
/// Every error is an [`Error::Middleware`] around a [`CallError`], which knows the outcome; [`call_error`] finds it, and
/// its source is reqwest's own error.
///
/// # Differences from `RequestBuilder::timeout`
/// That is a duration, counted anew for each attempt and each hop, and nobody else learns of it. This is the rest of one
/// budget, and the far side is told.
///
/// # Cancel safety
/// Dropping the request's future cancels it as reqwest does: HTTP/2 resets the stream, HTTP/1.1 closes the connection.
/// The call's event is sent from a guard.
#[derive(Clone, Debug)]
#[must_use = "a middleware does nothing until a client is built with it"]
pub struct Budget {
    destination: Destination,
    redirects: Redirects,
}

#[derive(Clone, Copy, Debug)]
enum Redirects {
    MayBeFollowed,
    Off,
}

/// What was asked of the first hop.
struct Asked {
    method: Method,
    url: Url,
}

/// The status of a later hop that refused.
struct Refused(StatusCode);

/// The error of a call that went through [`Budget`]: what stopped it, and what is known of the far side.
///
/// ```
/// # use oneclock_reqwest::call_error;
/// fn may_have_happened(error: &reqwest_middleware::Error) -> bool {
///     use oneclock_core::Outcome;
///     !matches!(call_error(error).map(|call| call.outcome()), Some(Outcome::NotSent | Outcome::Rejected))
/// }
/// # assert!(may_have_happened(&reqwest_middleware::Error::middleware(std::fmt::Error)));
/// ```
pub fn call_error(error: &Error) -> Option<&CallError> {
    match error {
        Error::Middleware(error) => error.downcast_ref(),
        Error::Reqwest(_) => None,
    }
}

/// Why the body of an answer was cut off, if it was our own deadline or operation that did it and not the connection.
///
/// ```
/// # async fn f(response: reqwest::Response) {
/// if let Err(error) = response.bytes().await {
///     match oneclock_reqwest::body_cut_off(&error) {
///         Some(cut_off) => println!("{cut_off}"),
///         None => println!("the connection failed: {error}"),
///     }
/// }
/// # }
/// ```
pub fn body_cut_off(error: &reqwest::Error) -> Option<&BodyCutOff> {
    chain(error).find_map(|error| error.downcast_ref())
}

// === Budget ===

impl Budget {
    /// For requests to `destination`. Requests that go elsewhere need a client with another one: limits, trust and what
    /// the far side understands belong to one destination.
    pub fn new(destination: Destination) -> Self {
        Self { destination, redirects: Redirects::MayBeFollowed }
    }

    /// Declares that the client below was built with `redirect::Policy::none()`, and repeats nothing that was answered. Then
    /// a connect that failed is proof that nothing was sent: [`Outcome::NotSent`], and a refusal (429, a reason of ours, a
    /// stream that was refused) is proof that nothing was done: [`Outcome::Rejected`]. Otherwise it may be that of a later
    /// hop, and the outcome is unknown (contract R8).
    ///
    /// ```
    /// # use {oneclock_http::Destination, oneclock_reqwest::Budget};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
    /// let payment = Budget::new(Destination::named("payment").build()?).follows_no_redirects();
    /// let client = reqwest_middleware::ClientBuilder::new(client).with(payment).build();
    /// # Ok(()) }
    /// ```
    pub fn follows_no_redirects(mut self) -> Self {
        self.redirects = Redirects::Off;
        self
    }

    async fn send(
        &self,
        mut call: Call,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response, CallError> {
        if let Err(not_begun) = self.destination.write_head(&call, request.headers_mut()) {
            call.close(Outcome::NotSent);
            return Err(not_begun.into());
        }
        let remaining = call.remaining();
        let timeout = request.timeout_mut();
        *timeout = Some(timeout.map_or(remaining, |own| own.min(remaining)));
        let asked = Asked { method: request.method().clone(), url: request.url().clone() };
        call.enter(Stage::Wait); // reqwest does not say where it is
        match call.run(next.run(request, extensions)).await? {
            Ok(response) => self.answered(call, &asked, response).await,
            Err(error) => Err(self.destination.failed(call, self.seen(&error), error)),
        }
    }

    /// What a failure says of the far side.
    fn seen(&self, error: &Error) -> Seen {
        let Error::Reqwest(error) = error else { return Seen::CutOff { stage: Stage::Wait } };
        match self.redirects {
            Redirects::Off if error.is_builder() || error.is_connect() => Seen::NoConnection,
            Redirects::Off if oneclock_http::is_refused_stream(error) => Seen::RefusedStream,
            Redirects::Off | Redirects::MayBeFollowed => Seen::CutOff { stage: Stage::Wait },
        }
    }

    /// The same response, with its body under the same deadline.
    async fn answered(&self, call: Call, asked: &Asked, response: Response) -> Result<Response, CallError> {
        let url = response.url().clone(); // lost on the way through `http::Response` otherwise
        let mut response = http::Response::<reqwest::Body>::from(response);
        let refused = match self.redirects {
            Redirects::MayBeFollowed if !asked.is_first(&url) => Refused::by_a_later_hop(&mut response),
            Redirects::MayBeFollowed | Redirects::Off => None,
        };
        let mut once = Some((call, response));
        let bounded: http::Response<BoundedBody<reqwest::Body>> = poll_fn(|cx| match once.take() {
            Some((call, response)) => Poll::Ready(self.destination.answered(call, &asked.method, response, cx)),
            None => Poll::Pending, // ready at its first poll
        })
        .await?;
        let (mut head, body) = bounded.into_parts();
        if let Some(refused) = refused {
            head.status = refused.0;
        }
        if let Ok(carrier) = http::Response::builder().url(url).body(()) {
            head.extensions.extend(carrier.into_parts().0.extensions);
        }
        Ok(http::Response::from_parts(head, reqwest::Body::wrap(body)).into())
    }
}

// === Redirects ===

impl Asked {
    /// Whether the answer from `url` is certainly that of the first hop. reqwest tells the URL, not the way to it: what
    /// comes from the same one may be the answer to another method (`POST /orders` → 303 → `GET /orders`), unless the
    /// first only read as well.
    fn is_first(&self, url: &Url) -> bool {
        let only_reads = matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS);
        only_reads && without_fragment(url) == without_fragment(&self.url)
    }
}

impl Refused {
    /// Has a refusal by a later hop judged as what it is to the first one, which had the request: the failure of something
    /// behind it. A success and a definite error stay what they are.
    fn by_a_later_hop<B>(response: &mut http::Response<B>) -> Option<Self> {
        response.headers_mut().remove(names::REASON);
        if response.status() != StatusCode::TOO_MANY_REQUESTS {
            return None;
        }
        Some(Self(std::mem::replace(response.status_mut(), StatusCode::BAD_GATEWAY)))
    }
}

#[async_trait::async_trait]
impl Middleware for Budget {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response, Error> {
        let operation = Destination::operation_of(extensions);
        let call =
            self.destination.begin(operation).map_err(|not_begun| Error::middleware(CallError::from(not_begun)))?;
        let url = request.url();
        call.addressed(&Target::new(request.method().as_str(), url.host_str(), url.port_or_known_default()));
        self.send(call, request, extensions, next).await.map_err(Error::middleware)
    }
}

/// What is sent of it.
fn without_fragment(url: &Url) -> Option<&str> {
    url.as_str().split('#').next()
}

fn chain<'e>(error: &'e (dyn StdError + 'static)) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}
