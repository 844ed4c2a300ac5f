//! I10: an unsafe call is repeated only with a key at a destination declared to enforce keys. Contract R7, R8.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::post;
use http::{HeaderMap, HeaderName, Method};
use oneclock::Operation;
use oneclock_core::Outcome;
use oneclock_core::retry::RetryPolicy;
use oneclock_test::peer;

use crate::out::{Fault, Out, Reply, Terms};
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

fn client(shop: &Shop, addr: SocketAddr, enforces_keys: bool) -> Out {
    let policy = RetryPolicy::new().attempts(3).per_try(ms(500)).backoff(ms(0), ms(0)).build().unwrap();
    let terms = Terms { name: "payment", retry: Some(policy), enforces_keys, ..Terms::default() };
    shop.out(shop.way_out(), addr, terms)
}

async fn charge(client: &Out, key: Option<&str>) -> Result<Reply, Fault> {
    let key = key.map(|key| (HeaderName::from_static("idempotency-key"), key.parse().unwrap()));
    let op = Operation::begin("order", ms(10_000));
    op.scope(client.ask(Method::POST, "/charges", key.into_iter().collect(), "7 EUR".into())).await
}

over_every_way_in! {
    async fn a_charge_without_a_key_is_made_once_and_its_outcome_is_unknown(shop: Shop) {
        for (key, enforces_keys) in [(None, true), (Some("tap-7"), false)] {
            let payment = Payment::default();
            let addr = shop.open(ample("payment"), payment.app()).await;
            match charge(&client(&shop, addr, enforces_keys), key).await {
                Err(fault) => assert!(matches!(fault.outcome, Outcome::Unknown { .. }), "{fault:?}"),
                Ok(reply) => assert_eq!(reply.status, 504, "its own clock was a little faster"),
            }
            assert_eq!(payment.asked(), 1, "{key:?}");
            payment.charged_once().expect("once");
        }
    }

    async fn a_charge_with_a_key_that_is_enforced_is_asked_for_again_and_made_once(shop: Shop) {
        let payment = Payment::default();
        let addr = shop.open(ample("payment"), payment.app()).await;
        let reply = charge(&client(&shop, addr, true), Some("tap-7")).await.expect("an answer");
        assert_eq!(reply.status, 200);
        assert_eq!(payment.asked(), 2);
        payment.charged_once().expect("once");
    }

    without_a_sidecar:

    async fn the_naive_way_of_a_timeout_and_a_loop_charges_twice(shop: Shop) {
        let payment = Payment::default();
        let addr = shop.open_naively(payment.app()).await;
        let client = shop.plain(addr);
        for _ in 0..3 {
            if client.post("/charges", "7 EUR", Some(ms(500))).await.is_ok() {
                break;
            }
        }
        payment.charged_once().expect_err("the first charge went through as well");
    }

    /// Proof that nothing was done is as good as a key.
    async fn what_was_never_sent_is_repeated_without_a_key(shop: Shop) {
        let refuses = peer::refuse().unwrap();
        let client = client(&shop, refuses.addr(), false);
        let fault = charge(&client, None).await.expect_err("nobody is there");
        assert_eq!((fault.attempts, fault.outcome), (Some(3), Outcome::NotSent), "{fault:?}");
    }
}
