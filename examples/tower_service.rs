//! The layers alone: `IngressLayer` around any tower service, `EgressLayer` around any tower client, without axum and
//! without our client. Here the one calls the other directly, in memory; the caller has 200 ms.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use oneclock::Operation;
use oneclock_core::{Policy, Trust};
use oneclock_http::{BoxError, Destination, EgressLayer, IngressLayer, Upload};
use tower::{ServiceBuilder, ServiceExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let policy = Policy::named("pricing").when_absent(Duration::from_secs(1)).build()?;
    let pricing = ServiceBuilder::new().layer(IngressLayer::new(policy).trust(Trust::Inside)).service_fn(
        |request: Request<Upload<Full<Bytes>>>| async move {
            let slow = request.uri().path() == "/slow";
            tokio::time::sleep(Duration::from_millis(if slow { 500 } else { 5 })).await;
            let left = oneclock::remaining().unwrap_or_default();
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(format!("12.90, with {left:.0?} left\n"))))
        },
    );

    let destination = Destination::named("pricing").trust(Trust::Inside).build()?;
    let client = ServiceBuilder::new().layer(EgressLayer::new(destination)).service(pricing);

    let op = Operation::begin("order", Duration::from_millis(200));
    for path in ["/fast", "/slow"] {
        let call = client.clone().oneshot(Request::get(path).body(Full::<Bytes>::default())?);
        match op.run(call).await? {
            Ok(answer) => {
                let status = answer.status();
                let text = answer.into_body().collect().await?.to_bytes();
                print!("{path}: {status} {}", String::from_utf8_lossy(&text));
            }
            Err(error) => println!("{path}: {error}"),
        }
    }
    Ok(())
}
