//! tonic's own server: it reads `grpc-timeout` and stops the handler then. The tier passes on what is left.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::tonic::server::{Grpc, NamedService, UnaryService};
use ::tonic::transport::Server;
use ::tonic::transport::server::TcpIncoming;
use ::tonic::{Code, Request, Response, Status};
use tokio::net::TcpListener;
use tonic_prost::ProstCodec;
use tower::Service;

use super::{ask_next, told_until};
use crate::caller::Came;
use crate::tag::Tag;
use crate::tier::Tier;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pub(super) fn serve(tier: Arc<Tier>, listener: TcpListener) {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    tokio::spawn(Server::builder().add_service(Work(tier)).serve_with_incoming(incoming));
}

/// `bench.Work`, whose one method takes and gives an empty message.
#[derive(Clone)]
struct Work(Arc<Tier>);

impl NamedService for Work {
    const NAME: &'static str = "bench.Work";
}

impl Service<http::Request<::tonic::body::Body>> for Work {
    type Response = http::Response<::tonic::body::Body>;
    type Error = Infallible;
    type Future = Boxed<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<::tonic::body::Body>) -> Self::Future {
        let work = self.clone();
        Box::pin(async move { Ok(Grpc::new(ProstCodec::<(), ()>::default()).unary(work, request).await) })
    }
}

impl UnaryService<()> for Work {
    type Response = ();
    type Future = Boxed<Result<Response<()>, Status>>;

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let tier = Arc::clone(&self.0);
        Box::pin(async move {
            let fields = request.metadata().as_ref();
            let told = fields.get("grpc-timeout").and_then(|told| told.to_str().ok());
            let until = told_until(told, Duration::from_secs(1));
            let tag = Tag::read(fields).ok_or_else(|| Status::invalid_argument("a request of nobody's"))?;
            tier.work(tag).await;
            match ask_next(&tier, tag, until).await {
                Came::InTime => Ok(Response::new(())),
                Came::Refused => Err(Status::resource_exhausted("below")),
                Came::TimedOut | Came::GivenUp => Err(Status::deadline_exceeded("below")),
                _ => Err(Status::new(Code::Internal, "below")),
            }
        })
    }
}
