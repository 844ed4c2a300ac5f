//! I10: an unsafe call is repeated only with a key at a destination declared to enforce keys. Contract R7, R8.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::Full;
use oneclock::Operation;
use oneclock_core::retry::RetryPolicy;
use oneclock_core::{Outcome, Trust};
use oneclock_http::{CallError, Client};
use oneclock_test::peer;

use crate::out::plain_reqwest;
use crate::shop::{Shop, ample, ms};

/// A payment that charges, and whose first answer does not come. It knows keys that it has seen.
#[derive(Clone, Default)]
struct Payment {
    asked: Arc<AtomicUsize>,
    charged: Arc<AtomicUsize>,
    keys: Arc<Mutex<BTreeSet<String>>>,
}

impl Payment {
    fn app(&self) -> Router {
        let payment = self.clone();
        Router::new().route("/charges", post(move |headers: HeaderMap| async move { payment.charge(&headers).await }))
    }

    async fn charge(&self, headers: &HeaderMap) -> &'static str {
        let first = self.asked.fetch_add(1, Ordering::SeqCst) == 0;
        let key = headers.get("idempotency-key").map(|key| key.to_str().unwrap().to_owned());
        let known = key.is_some_and(|key| !self.keys.lock().unwrap().insert(key));
        if !known {
            self.charged.fetch_add(1, Ordering::SeqCst);
        }
        if first {
            std::future::pending::<()>().await;
        }
        "receipt"
    }

    /// Whether the customer pays once.
    fn charged_once(&self) -> Result<(), String> {
        match self.charged.load(Ordering::SeqCst) {
            1 => Ok(()),
            times => Err(format!("charged {times} times")),
        }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn client(shop: &Shop, addr: SocketAddr, enforces_keys: bool) -> Client {
    let policy = RetryPolicy::new().attempts(3).per_try(ms(500)).backoff(ms(0), ms(0)).build().unwrap();
    let builder = shop.client("payment", addr).trust(Trust::Inside).retry(policy);
    if enforces_keys { builder.enforces_keys().build() } else { builder.build() }.unwrap()
}

async fn charge(client: &Client, key: Option<&str>) -> Result<u16, CallError> {
    let request =
        key.into_iter().fold(Request::post("/charges"), |request, key| request.header("idempotency-key", key));
    let op = Operation::begin("order", ms(10_000));
    let answer = client.request_in(&op, request.body(Full::<Bytes>::from("7 EUR")).unwrap()).await?;
    Ok(answer.status().as_u16())
}

over_every_way_in! {
    async fn a_charge_without_a_key_is_made_once_and_its_outcome_is_unknown(shop: Shop) {
        for (key, enforces_keys) in [(None, true), (Some("tap-7"), false)] {
            let payment = Payment::default();
            let addr = shop.open(ample("payment"), payment.app()).await;
            match charge(&client(&shop, addr, enforces_keys), key).await {
                Err(error) => assert!(matches!(error.outcome(), Outcome::Unknown { .. }), "{error}"),
                Ok(status) => assert_eq!(status, 504, "its own clock was a little faster"),
            }
            assert_eq!(payment.asked(), 1, "{key:?}");
            payment.charged_once().expect("once");
        }
    }

    async fn a_charge_with_a_key_that_is_enforced_is_asked_for_again_and_made_once(shop: Shop) {
        let payment = Payment::default();
        let addr = shop.open(ample("payment"), payment.app()).await;
        let status = charge(&client(&shop, addr, true), Some("tap-7")).await.expect("an answer");
        assert_eq!((status, payment.asked()), (200, 2));
        payment.charged_once().expect("once");
    }

    async fn the_naive_way_of_a_timeout_and_a_loop_charges_twice(shop: Shop) {
        let payment = Payment::default();
        let addr = shop.open_naively(payment.app()).await;
        let (client, url) = (plain_reqwest(shop.way()), format!("http://{addr}/charges"));
        for _ in 0..3 {
            if client.post(&url).body("7 EUR").timeout(ms(500)).send().await.is_ok() {
                break;
            }
        }
        payment.charged_once().expect_err("the first charge went through as well");
    }

    /// Proof that nothing was done is as good as a key.
    async fn what_was_never_sent_is_repeated_without_a_key(shop: Shop) {
        let refuses = peer::refuse().unwrap();
        let client = client(&shop, refuses.addr(), false);
        let error = charge(&client, None).await.expect_err("nobody is there");
        let CallError::GaveUp(gave_up) = &error else { panic!("{error}") };
        assert_eq!((gave_up.attempts, error.outcome()), (3, Outcome::NotSent));
    }
}
