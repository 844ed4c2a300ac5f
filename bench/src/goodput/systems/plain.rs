//! Services without a deadline of their own, alone or behind Envoy, and what tower puts around them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::load_shed::error::Overloaded;
use tower::timeout::error::Elapsed;
use tower::{Service, ServiceBuilder, ServiceExt as _};
use tower_resilience_adaptive::{AdaptiveLimiterLayer, Vegas};

use super::{Setting, ask_next, told_until};
use crate::Failed;
use crate::caller::Came;
use crate::system::System;
use crate::tag::Tag;
use crate::tier::Tier;

type Answer = Response<Full<Bytes>>;

pub(super) fn serve(setting: &Setting, tier: Arc<Tier>, listener: TcpListener) {
    let timeout = setting.longest;
    // A limit counts whoever waits for the tiers below, too: this is as many as keep all slots below busy.
    let limit = setting.slots * (setting.tiers - tier.number);
    match setting.system {
        System::None => {
            let handler = tower::service_fn(move |request| {
                let work = tokio::spawn(answer(Arc::clone(&tier), request, timeout));
                async move { work.await? }
            });
            tokio::spawn(accept(listener, handler));
        }
        System::HopsShort | System::HopsLong => {
            let hop = setting.system.per_try().unwrap_or(timeout);
            let stack = ServiceBuilder::new().timeout(hop).service(handler(tier, timeout));
            tokio::spawn(accept(listener, stack));
        }
        System::Tower => {
            let stack = ServiceBuilder::new()
                .timeout(timeout)
                .load_shed()
                .layer(GlobalConcurrencyLimitLayer::new(limit))
                .service(handler(tier, timeout));
            tokio::spawn(accept(listener, stack));
        }
        System::Resilience => {
            let Ok(vegas) = Vegas::builder().initial_limit(10).build() else { return }; // its defaults
            let stack = ServiceBuilder::new()
                .timeout(timeout)
                .load_shed()
                .layer(AdaptiveLimiterLayer::new(vegas))
                .service(tower::util::BoxCloneSyncService::new(handler(tier, timeout)));
            tokio::spawn(accept(listener, stack));
        }
        _ => {
            tokio::spawn(accept(listener, handler(tier, timeout)));
        }
    }
}

fn handler(
    tier: Arc<Tier>,
    otherwise: Duration,
) -> impl Service<Request<Incoming>, Response = Answer, Error = Failed, Future: Send + 'static> + Clone + Send + Sync + 'static
{
    tower::service_fn(move |request| answer(Arc::clone(&tier), request, otherwise))
}

/// The work of this tier, then the next one. Envoy tells it how much is left; without Envoy nobody does.
fn answer(
    tier: Arc<Tier>,
    request: Request<Incoming>,
    otherwise: Duration,
) -> impl Future<Output = Result<Answer, Failed>> + Send + 'static {
    let told = request.headers().get("x-envoy-expected-rq-timeout-ms").and_then(|field| field.to_str().ok());
    let until = told_until(told, otherwise);
    let tag = Tag::read(request.headers());
    async move {
        let tag = tag.ok_or("a request of nobody's")?;
        tier.work(tag).await;
        Ok(said(ask_next(&tier, tag, until).await.status()))
    }
}

fn said(status: StatusCode) -> Answer {
    let mut answer = Response::new(Full::from(if status == StatusCode::OK { "done\n" } else { "" }));
    *answer.status_mut() = status;
    answer
}

/// hyper's own loop. A caller that leaves drops the handler.
async fn accept<S>(listener: TcpListener, service: S)
where
    S: Service<Request<Incoming>, Response = Answer> + Clone + Send + Sync + 'static,
    S::Error: Into<Failed>,
    S::Future: Send + 'static,
{
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let service = service.clone();
        let service = service_fn(move |request| {
            let call = service.clone().oneshot(request);
            async move { Ok::<_, std::convert::Infallible>(call.await.unwrap_or_else(|error| said(status(&error.into())))) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

fn status(error: &Failed) -> StatusCode {
    if error.is::<Overloaded>() {
        Came::Refused.status()
    } else if error.is::<Elapsed>() {
        Came::TimedOut.status()
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    }
}
