//! A service as one would write it: a policy for its routes, two clients, a handler that fans out and charges.
//!
//! `cargo run -p oneclock-examples --example order` starts it with stand-ins for its neighbours, places one order, and
//! shows the answer; then once more with too little time.

use std::time::Duration;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use oneclock_axum::{
    Client, Op, Operation, Policy, PolicyExt as _, Problem, Trust, collect, collect_json, serve, successful,
};
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

#[derive(Deserialize)]
struct Cart {
    article: u32,
}

#[derive(Serialize, Deserialize, Debug)]
struct Receipt {
    in_stock: u32,
    paid: f64,
    you_may_like: Result<Vec<u32>, String>,
}

async fn place(Op(op): Op, State(shop): State<Shop>, Json(cart): Json<Cart>) -> Result<Json<Receipt>, Problem> {
    let (in_stock, price, extras) = op
        .fan_out()
        .reserve(ms(150)) // for the charge, and for the way home
        .required("inventory", |_| ask::<u32>(&shop.inventory, format!("/stock/{}", cart.article)))
        .required("pricing", |_| ask::<f64>(&shop.pricing, format!("/price/{}", cart.article)))
        .optional("recommendations", |_| ask::<Vec<u32>>(&shop.recommendations, format!("/like/{}", cart.article)))
        .await?;
    // Runs to its end even if the caller leaves, so it owns what it uses; then the error says that the outcome is unknown.
    let paid = op.must_finish("charge", secs(5), charge(shop.payment.clone(), price)).await?;
    Ok(Json(Receipt { in_stock, paid, you_may_like: extras.map_err(|missing| missing.source.to_string()) }))
}

/// One call within the current operation's budget.
async fn ask<T: serde::de::DeserializeOwned>(client: &Client, path: String) -> Result<T, BoxError> {
    let answer = successful(client.get(&path).await?)?;
    Ok(collect_json(answer.into_body(), 64 * 1024).await?)
}

async fn charge(payment: Client, price: f64) -> Result<f64, BoxError> {
    successful(payment.post("/charge", price.to_string()).await?)?;
    Ok(price)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let neighbours = neighbours().await?;
    let shop = Shop {
        inventory: Client::builder("inventory", &*neighbours).trust(Trust::Inside).cap(ms(300)).build()?,
        pricing: Client::builder("pricing", &*neighbours).trust(Trust::Inside).cap(ms(300)).build()?,
        recommendations: Client::builder("recommendations", &*neighbours).cap(ms(100)).build()?,
        payment: Client::builder("payment", &*neighbours).trust(Trust::Inside).cap(secs(4)).build()?,
    };
    let clock = Policy::named("order")
        .when_absent(ms(800))
        .ceiling(secs(2))
        .min_useful(ms(20))
        .route("/reports/{id}", |limits| limits.ceiling(secs(30))) // decided once, by the matched route
        .build()?;
    let app = Router::new().route("/orders", post(place)).with_state(shop).layer(clock.layer());

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let visitor = visit(url); // a real service would wait for ctrl-c here
    // Its callers are services of ours, so they get what they ask for, and are told where the time went.
    serve(listener, app).trust(Trust::Inside).shutdown(visitor, secs(5)).await?;
    Ok(())
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
    let order = http::Request::post("/orders").header("content-type", "application/json");
    let answer = client.request(order.body(r#"{"article":7}"#.to_owned())?).await?;
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
