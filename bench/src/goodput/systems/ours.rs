//! Ours: `serve`, `IngressLayer` with admission, and our `Client` between the tiers. Each tier keeps the budget it was told,
//! holds its place for its own work, and calls the next one with what is left.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, HeaderName, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use oneclock::{Admission, Operation};
use oneclock_core::admission::Settings;
use oneclock_core::retry::RetryPolicy;
use oneclock_core::{Policy, Trust};
use oneclock_http::{Client, IngressLayer, Problem, Route, ServeLimits, Upload, serve as accept};
use tokio::net::TcpListener;
use tower::{Layer as _, ServiceExt as _};

use super::Setting;
use crate::Failed;
use crate::meter::Meter;
use crate::system::System;
use crate::tag::{self, Tag};
use crate::tier::Tier;

/// More than any scenario has on the way at once.
const CONNECTIONS: usize = 20_000;

pub(super) fn serve(
    setting: &Setting,
    number: usize,
    meter: &Meter,
    next: Option<SocketAddr>,
    listener: TcpListener,
) -> Result<(), Failed> {
    let tier = Tier::new(number, setting.slots, setting.model, meter.clone(), None);
    let next = next.map(client).transpose()?;
    let longest = setting.longest;
    let layer = layer(setting, longest)?;
    let handler = tower::service_fn(move |request: Request<Upload<Incoming>>| {
        answer(Arc::clone(&tier), next.clone(), Tag::read(request.headers()))
    });
    let inner = layer.layer(handler);
    let meter = meter.clone();
    // Every attempt that arrives below the first tier is counted before anything is decided.
    let counted = tower::service_fn(move |request: Request<Incoming>| {
        if let (1.., Some(tag)) = (number, Tag::read(request.headers())) {
            meter.asked(number, tag.id);
        }
        inner.clone().oneshot(request)
    });
    tokio::spawn(async move {
        let limits = ServeLimits::default();
        accept(listener, counted).trust(Trust::Inside).limits(limits).max_connections(CONNECTIONS).await
    });
    Ok(())
}

/// What stands in front of each tier: it knows how many slots there are, if it is told, and nothing else.
fn layer(setting: &Setting, longest: Duration) -> Result<IngressLayer, Failed> {
    let policy = Policy::named("bench").when_absent(longest).ceiling(longest);
    let policy = policy.route("/cheap", |limits| limits).route("/costly", |limits| limits).build()?;
    let settings = match setting.system {
        System::OursFinds => Settings::adaptive(2), // the cores
        _ => Settings::fixed(u32::try_from(setting.slots)?),
    };
    let slots = Admission::to("slots", settings)?;
    Ok(IngressLayer::new(policy).trust(Trust::Inside).route_by(route).admission(&slots))
}

fn route<'r>(_: &'r Extensions, uri: &'r Uri) -> Option<Route<'r>> {
    Some(Route::Pattern(uri.path()))
}

fn client(next: SocketAddr) -> Result<Client, Failed> {
    let retry = RetryPolicy::new().attempts(3).build()?;
    Ok(Client::builder("next", format!("http://{next}"))
        .trust(Trust::Inside)
        .max_connections(1_000)
        .max_idle(1_000)
        .retry(retry)
        .build()?)
}

async fn answer(tier: Arc<Tier>, next: Option<Client>, tag: Option<Tag>) -> Result<Response<Full<Bytes>>, Infallible> {
    let done = async {
        let tag = tag.ok_or_else(Problem::failed)?;
        tier.work(tag).await;
        let Some(next) = next else { return Ok(()) };
        // From here on it waits for others.
        if let Some(op) = Operation::current() {
            op.vacate();
        }
        let mut request = Request::new(Full::<Bytes>::default());
        *request.uri_mut() = Uri::from_static("/work");
        request.headers_mut().insert(HeaderName::from_static(tag::FIELD), tag.written());
        let answer = next.request(request).await.map_err(Problem::of)?;
        let answer = oneclock_http::successful(answer).map_err(below)?;
        let _ = oneclock_http::collect(answer.into_body(), 1_024).await.map_err(Problem::of)?;
        Ok(())
    };
    let done: Result<(), Problem> = done.await;
    Ok(match done {
        Ok(()) => Response::new(Full::from("done\n")),
        Err(problem) => problem.to_response(Trust::Inside).map(Full::from),
    })
}

/// What the tier below said, said on.
fn below(error: oneclock_http::NotSuccessful) -> Problem {
    match error.reason {
        Some(reason) => Problem::new(reason),
        None => Problem::with_status(error.status, "the next tier gave no answer"),
    }
}
