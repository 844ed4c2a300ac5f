//! Taking the current operation along when a request moves to another task.
//!
//! The current operation follows futures, not tasks. A layer that hands requests to a worker (`tower::buffer`, a queue of
//! one's own) leaves it behind; put this layer outside of such a one.

use std::task::{Context, Poll};

use http::Request;
use oneclock::Operation;
use tower_layer::Layer;
use tower_service::Service;

/// Puts the current operation into the request's extensions, where [`EgressLayer`](crate::EgressLayer),
/// [`Client`](crate::Client) and the extractors of `oneclock-axum` look where none is current.
///
/// ```text
/// CarryLayer → Buffer, or whatever moves requests to another task → EgressLayer → client
/// ```
///
/// ```
/// use oneclock::Operation;
/// use oneclock_http::CarryLayer;
/// use http::{Request, Response};
/// use std::{convert::Infallible, time::Duration};
/// use tower::{ServiceBuilder, ServiceExt};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let service = ServiceBuilder::new().layer(CarryLayer).service_fn(|request: Request<()>| async move {
///     let carried = request.extensions().get::<Operation>().is_some();
///     Ok::<_, Infallible>(Response::new(carried))
/// });
/// let op = Operation::begin("order", Duration::from_millis(800));
/// let carried = op.run(service.oneshot(Request::new(()))).await.unwrap().unwrap();
/// assert!(carried.into_body());
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CarryLayer;

/// The service of a [`CarryLayer`].
#[derive(Clone, Debug)]
pub struct Carry<S>(S);

impl<S> Layer<S> for CarryLayer {
    type Service = Carry<S>;

    fn layer(&self, inner: S) -> Carry<S> {
        Carry(inner)
    }
}

impl<S, B> Service<Request<B>> for Carry<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        if let Some(operation) = Operation::current() {
            request.extensions_mut().insert(operation);
        }
        self.0.call(request)
    }
}
