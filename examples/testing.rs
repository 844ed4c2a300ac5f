//! What `oneclock-test` is for: does a service stop when its time is up? Here a good one and a naive one are asked.
//!
//! In a service of your own this is a test. It needs `oneclock-test` and tokio's `test-util` under `[dev-dependencies]`.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use axum::{Router, routing::get};
use oneclock_axum::{Policy, PolicyExt as _, Trust};
use oneclock_http::BoxError;
use oneclock_test::{Probe, assert_stops_at_deadline};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), BoxError> {
    let policy = Policy::named("order").when_absent(Duration::from_secs(1)).build()?;
    let probe = Probe::new();
    let entered = probe.clone();
    let handler = move || {
        let probe = entered.clone();
        async move {
            probe.never().await;
            "never"
        }
    };
    let naive: Router = Router::new().route("/", get(handler));
    let good = naive.clone().layer(policy.layer().trust(Trust::Inside));

    assert_stops_at_deadline(good, Request::get("/").body(Body::empty())?, &probe).await;
    println!("the good one stops at its deadline");

    println!("the naive one does not, so its assertion panics:");
    let naive = tokio::spawn(async move {
        assert_stops_at_deadline(naive, Request::get("/").body(Body::empty()).unwrap_or_default(), None).await;
    });
    println!("it did: {}", naive.await.is_err());
    Ok(())
}
