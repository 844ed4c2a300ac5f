//! Two hundred requests at once, over both protocols, each with a budget of its own: what each was told, and when each was
//! cut off.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use oneclock::clock;
use oneclock_core::Tick;
use oneclock_proxy::config::Config;
use oneclock_test::Protocol;
use oneclock_test::caller::Caller;
use serde_json::Value;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::{AMPLE, BOTH, Upstream, address, body, config, ms, start, told, whole_h1, whole_h2};

const AT_ONCE: u64 = 200;

/// In no order of size, so that no request's neighbour has a budget like its own. Prime to [`AT_ONCE`]: each comes once.
const STRIDE: u64 = 73;

/// What the upstream saw of one request.
#[derive(Clone, Copy, Debug)]
struct Seen {
    told: u64,
    ended: Option<Tick>,
}

#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<HashMap<String, Seen>>>);

/// Writes down when the work for a request was over, however it ended.
struct AtWork {
    log: Log,
    path: String,
}

/// One call, from its caller.
struct Called {
    given: u64,
    path: String,
    sent: Tick,
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Log {
    fn begins(&self, request: &Request<Incoming>) -> AtWork {
        let path = request.uri().path().to_owned();
        let seen = Seen { told: told(request.headers()), ended: None };
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path.clone(), seen);
        assert!(before.is_none(), "{path} came twice");
        AtWork { log: self.clone(), path }
    }

    #[track_caller]
    fn of(&self, path: &str) -> Seen {
        self.find(path).unwrap_or_else(|| panic!("{path} never came"))
    }

    fn find(&self, path: &str) -> Option<Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).copied()
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let mut all = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = all.get_mut(&self.path) {
            seen.ended = Some(clock::now());
        }
    }
}

/// More connections than there are requests: what is waited for here is nobody's turn.
fn roomy(upstream: SocketAddr, protocol: Protocol) -> Config {
    let mut config = config(upstream, protocol);
    for upstream in config.upstreams.values_mut() {
        upstream.max_connections = 256;
    }
    for route in &mut config.routes {
        route.ceiling = Duration::from_secs(3_600);
    }
    config
}

/// Half of them over HTTP/1.1, each on a connection of its own; half over HTTP/2, all on one.
async fn all_at_once(proxy: SocketAddr, given: impl Fn(u64) -> u64) -> Vec<Called> {
    let http2 = Arc::new(Caller::h2(proxy).connect().await.expect("a connection"));
    let mut calls = JoinSet::new();
    for nth in 0..AT_ONCE {
        let (given, path) = (given(nth * STRIDE % AT_ONCE), format!("/{nth}"));
        let http2 = Arc::clone(&http2);
        calls.spawn(async move {
            let (said, sent) = (given.to_string(), clock::now());
            let (status, headers, body) = if nth % 2 == 0 {
                let call = Caller::h1(proxy).get(path.clone()).header("x-remaining-ms", said);
                whole_h1(call.answer().await.expect("sent"))
            } else {
                let call = http2.get(path.clone()).header("x-remaining-ms", said).send().await.expect("sent");
                let (status, headers, body, _) = whole_h2(call.answer().await);
                (status, headers, body)
            };
            Called { given, path, sent, status, headers, body }
        });
    }
    let called = calls.join_all().await;
    assert_eq!(called.len() as u64, AT_ONCE);
    called
}

/// Budgets so far apart that whoever was told another's was told too much, or far too little.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_is_told_what_is_left_of_its_own_budget() {
    const APART: u64 = 10_000;
    for protocol in BOTH {
        let log = Log::default();
        // Nobody is answered before all are there, so that all are under way at once.
        let all_there = Arc::new(Barrier::new(usize::try_from(AT_ONCE).expect("it fits")));
        let at_work = log.clone();
        let upstream = Upstream::of(move |request| {
            let (at_work, all_there) = (at_work.begins(&request), Arc::clone(&all_there));
            async move {
                timeout(AMPLE, all_there.wait()).await.expect("all at once");
                drop(at_work);
                Response::new(body(Full::<Bytes>::default()))
            }
        })
        .await;
        let proxy = start(roomy(upstream.addr, protocol)).await;
        for called in all_at_once(address(&proxy), |nth| (nth + 2) * APART).await {
            assert_eq!(called.status, StatusCode::OK, "{}: {:?}", called.path, called.headers);
            let told = log.of(&called.path).told;
            assert!(told < called.given && told + APART > called.given, "{}: {told} of {}", called.path, called.given);
        }
        proxy.shutdown().await;
    }
}

/// Were two budgets exchanged, one of the two requests would end before its own is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_is_cut_off_at_its_own_deadline_and_none_at_anothers() {
    for protocol in BOTH {
        let log = Log::default();
        let at_work = log.clone();
        let upstream = Upstream::of(move |request| {
            let at_work = at_work.begins(&request);
            async move {
                let _at_work = at_work;
                std::future::pending().await
            }
        })
        .await;
        let proxy = start(roomy(upstream.addr, protocol)).await;
        let called = all_at_once(address(&proxy), |nth| 1_000 + nth * 10).await;
        for called in called {
            let Called { given, path, .. } = &called;
            assert_eq!(called.status, StatusCode::GATEWAY_TIMEOUT, "{path}: {:?}", called.headers);
            let problem: Value = serde_json::from_slice(&called.body).expect("a problem document");
            let granted = problem["budget_ms"].as_f64().expect("a number");
            assert!(granted.ceil() <= *given as f64, "{path}: {problem:#}");
            assert_eq!(problem["bound"], "caller", "{path}: {problem:#}");
            let seen = log.find(path).unwrap_or_else(|| panic!("{path} never came: {problem:#}"));
            assert!(seen.told < *given, "{path}: {} of {given}", seen.told);
            let after = ended(&log, path).await.since(called.sent);
            assert!(after >= ms(*given), "{path}: it was cut off after {after:?} of {given} ms");
        }
        proxy.shutdown().await;
    }
}

/// When the upstream's work for this was over.
async fn ended(log: &Log, path: &str) -> Tick {
    let over = async {
        loop {
            if let Some(ended) = log.of(path).ended {
                return ended;
            }
            tokio::time::sleep(ms(1)).await; // hyper drops it, and tells nobody
        }
    };
    timeout(AMPLE, over).await.unwrap_or_else(|_| panic!("{path} is still worked on"))
}
