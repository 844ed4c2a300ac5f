//! reqwest, unchanged but for a middleware: each call spends from the operation that makes it.

use std::time::Duration;

use axum::{Router, routing::get};
use oneclock::Operation;
use oneclock_http::{BoxError, Destination};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = slow_service().await?;
    let inventory = Destination::named("inventory").cap(Duration::from_secs(2)).build()?;
    let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
        .with(oneclock_reqwest::Budget::new(inventory))
        .build();

    let op = Operation::begin("order", Duration::from_millis(300));
    let answer = op.run(client.get(url).send()).await;
    match answer {
        Ok(Ok(answer)) => println!("{}", answer.status()),
        Ok(Err(error)) => println!("{error:#}"),
        Err(ended) => println!("{ended}"),
    }
    Ok(())
}

/// A service that takes ten seconds.
async fn slow_service() -> Result<String, BoxError> {
    let app = Router::new().route(
        "/",
        get(|| async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            "at last"
        }),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await }); // ends with the process
    Ok(url)
}
