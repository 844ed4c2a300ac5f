//! What one would write without us, for the tests that have to fail there.

use std::time::Duration;

use axum::Router;
use axum::error_handling::HandleErrorLayer;
use http::StatusCode;
use tower::ServiceBuilder;
use tower_http::timeout::TimeoutLayer;

/// How long a check waits for something to end that should have ended after `budget`: ten times that.
pub(crate) const fn ten_times(budget: Duration) -> Duration {
    budget.saturating_mul(10)
}

/// `app` under tower-http's `TimeoutLayer`.
pub(crate) fn under_a_timeout_layer(app: Router, limit: Duration) -> Router {
    app.layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, limit))
}

/// `app`, one request at a time, each under tower's `Timeout`. The limit is inside of the queue, where most put it.
pub(crate) fn one_at_a_time_under_a_timeout(app: Router, limit: Duration) -> Router {
    app.layer(
        ServiceBuilder::new()
            .layer(HandleErrorLayer::new(|_: tower::BoxError| async { StatusCode::GATEWAY_TIMEOUT }))
            .layer(tower::limit::GlobalConcurrencyLimitLayer::new(1))
            .timeout(limit),
    )
}
