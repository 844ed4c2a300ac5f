//! A service as one would write it: a policy for its routes, a client for each neighbour, a handler that fans out and
//! charges. The README shows parts of it.
//!
//! `cargo run -p oneclock-examples --example order` starts it with stand-ins for its neighbours and places two orders. The
//! first has 800 ms and is answered. The second has 60 ms, and the handler keeps 150 ms for the charge: nothing useful is
//! left for a call, so none is made, and the answer is a 504 at once, after 0.2 ms and not after 60.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use oneclock::events::{Event, observe_globally};
use oneclock_axum::{Client, Op, Policy, PolicyExt as _, Problem, Trust, collect_json, serve, successful};
use oneclock_axum::{Operation, collect};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone)]
struct Shop {
    inventory: Client,
    pricing: Client,
    recommendations: Client,
    payment: Client,
}

#[derive(Deserialize, Serialize)]
struct Cart {
    article: u32,
}

#[derive(Serialize, Deserialize, Debug)]
struct Receipt {
    in_stock: u32,
    paid: f64,
    you_may_like: Option<Vec<u32>>,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    observe_globally(Arc::new(|event: &Event<'_>| show(event)))?;
    let url = neighbours().await?;
    let shop = Shop {
        inventory: Client::builder("inventory", &*url).trust(Trust::Inside).cap(ms(300)).build()?,
        pricing: Client::builder("pricing", &*url).trust(Trust::Inside).cap(ms(300)).build()?,
        recommendations: Client::builder("recommendations", &*url).trust(Trust::Inside).cap(ms(100)).build()?,
        payment: Client::builder("payment", &*url).trust(Trust::Inside).cap(secs(4)).build()?,
    };
    let clock = Policy::named("order")
        .when_absent(ms(800)) // for callers that say nothing; also the most that outsiders get
        .ceiling(secs(2)) // the most that anybody gets
        .route("/reports/{id}", |limits| limits.when_absent(secs(5)).ceiling(secs(30))) // others for one route
        .build()?;
    let app = Router::new().route("/orders", post(place)).with_state(shop).layer(clock.layer());

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let signal = visit(format!("http://{}", listener.local_addr()?)); // a real service waits for SIGTERM and ctrl-c
    serve(listener, app).trust(Trust::Inside).shutdown(signal, secs(5)).await?;
    Ok(())
}

async fn place(Op(op): Op, State(shop): State<Shop>, Json(cart): Json<Cart>) -> Result<Json<Receipt>, Problem> {
    let (in_stock, price, extras) = op
        .fan_out()
        .reserve(ms(150)) // the parts get what is left but this: it is for the charge, and for the answer
        .required("inventory", |_| ask::<u32>(&shop.inventory, format!("/stock/{}", cart.article)))
        .required("pricing", |_| ask::<f64>(&shop.pricing, format!("/price/{}", cart.article)))
        .optional("recommendations", |_| ask::<Vec<u32>>(&shop.recommendations, format!("/like/{}", cart.article)))
        .await?; // all at once; `extras` is an error if they are late, the others are needed
    if in_stock == 0 {
        return Err(Problem::with_status(StatusCode::CONFLICT, "out of stock"));
    }
    // Runs to its end even if the caller leaves, so it owns what it uses. If the wait for it ends first, the error says
    // that the outcome is unknown.
    let paid = op.must_finish("charge", secs(5), charge(shop.payment.clone(), price)).await?;
    Ok(Json(Receipt { in_stock, paid, you_may_like: extras.ok() }))
}

/// One call within what the current part of the operation has.
async fn ask<T: serde::de::DeserializeOwned>(client: &Client, path: String) -> Result<T, BoxError> {
    let answer = successful(client.get(&path).await?)?; // 4xx and 5xx are errors
    Ok(collect_json(answer.into_body(), 64 * 1024).await?) // at most 64 KiB, in the same budget
}

async fn charge(payment: Client, price: f64) -> Result<f64, BoxError> {
    successful(payment.post("/charge", price.to_string()).await?)?;
    Ok(price)
}

/// What happens, but for what the stand-ins say of themselves.
fn show(event: &Event<'_>) {
    let line = event.to_string();
    if !line.starts_with("neighbours") {
        println!("    {line}");
    }
}

/// The caller: one order with enough time, one without.
async fn visit(url: String) {
    for budget in [ms(800), ms(60)] {
        let tap = Operation::begin("tap", budget);
        let answer = tap.run(place_one(&url)).await;
        match answer {
            Ok(Ok(text)) => println!("with {budget:?}: {text}"),
            Ok(Err(error)) => println!("with {budget:?}: {error}"),
            Err(ended) => println!("with {budget:?}: {ended}"),
        }
    }
}

async fn place_one(url: &str) -> Result<String, BoxError> {
    let client = Client::builder("order", url).trust(Trust::Inside).build()?;
    let answer = client.ask(Method::POST, "/orders").json(&Cart { article: 7 }).send().await?;
    let status = answer.status();
    let text = collect(answer.into_body(), 64 * 1024).await?;
    Ok(format!("{status} {}", String::from_utf8_lossy(&text)))
}

/// Stand-ins for the services that this one depends on. The recommendations take longer than anybody waits.
async fn neighbours() -> Result<String, BoxError> {
    let slow = |takes: Duration, answer: &'static str| {
        move || async move {
            tokio::time::sleep(takes).await;
            answer
        }
    };
    let app = Router::new()
        .route("/stock/{article}", get(slow(ms(20), "3")))
        .route("/price/{article}", get(slow(ms(30), "12.9")))
        .route("/like/{article}", get(slow(secs(60), "[8,9]")))
        .route("/charge", post(slow(ms(40), "ok")));
    let clock = Policy::named("neighbours").build()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let server = serve(listener, app.layer(clock.layer())).trust(Trust::Inside);
    tokio::spawn(server.into_future()); // ends with the process
    Ok(url)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}
