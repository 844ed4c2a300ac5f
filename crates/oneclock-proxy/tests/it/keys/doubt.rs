//! What an upstream leaves behind: nothing that is known, or proof that it did nothing.

use http::{Response, StatusCode};
use http_body_util::Full;
use oneclock_core::Trust;
use oneclock_proxy::config::Config;
use oneclock_test::peer::{self, ResetAt};

use super::{Till, charge, file, is_replay, keyed, problem, told};
use crate::common::{Upstream, address, body, start, text};

fn with_retries(mut config: Config) -> Config {
    let retry = "upstreams: { app: { url: http://127.0.0.1:1 } }\nroutes:\n- { upstream: app, retry: { attempts: 3, backoff: 1ms } }";
    config.routes[0].retry.clone_from(&Config::parse(retry).expect("a configuration").routes[0].retry);
    config
}

/// Contract M3, R7: nobody knows whether it charged, so it is not asked again, by a retry or by whoever comes with the key.
#[tokio::test]
async fn an_upstream_that_was_cut_off_is_unknown_and_never_asked_again() {
    for at in [ResetAt::RequestRead, ResetAt::MidBody] {
        let (_folder, store) = file();
        let broken = peer::reset(at).expect("a port");
        let proxy = start(with_retries(keyed(broken.addr(), &store))).await;
        let (status, headers, _) = told(charge(address(&proxy), "tap-7", "499")).await;
        assert!(status.is_server_error(), "{at:?}: {status}");
        assert!(text(&headers, "link").contains("rel=\"monitor\""), "{at:?}");
        for _ in 0..2 {
            let (status, headers, body) = told(charge(address(&proxy), "tap-7", "499")).await;
            assert_eq!((status, &*problem(&body)), (StatusCode::CONFLICT, "outcome_unknown"), "{at:?}");
            assert!(!headers.contains_key("retry-after"), "trying again finds out nothing");
        }
        proxy.shutdown().await;
        let proxy = start(keyed(broken.addr(), &store)).await;
        let (status, ..) = told(charge(address(&proxy), "tap-7", "499")).await;
        assert_eq!((status, broken.requests()), (StatusCode::CONFLICT, 1), "{at:?}: nor after a restart");
    }
}

/// Cut off by the run's own bound: the same.
#[tokio::test]
async fn a_run_that_outlasts_its_execution_is_unknown() {
    let ((_folder, store), till) = (file(), Till::closed().await);
    let mut config = keyed(till.addr, &store);
    let route = &mut config.routes[0];
    (route.when_absent, route.ceiling) = (crate::common::ms(200), crate::common::ms(200));
    route.idempotency.as_mut().expect("keys").execution = crate::common::ms(300);
    let proxy = start(config).await;
    loop {
        let (status, _, body) = told(charge(address(&proxy), "tap-7", "499")).await;
        match (status, &*problem(&body)) {
            (StatusCode::GATEWAY_TIMEOUT, _) | (StatusCode::CONFLICT, "in_progress") => {}
            (StatusCode::CONFLICT, "outcome_unknown") => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(till.asked(), 1);
}

/// Contract M4, R8: an upstream that was never reached did nothing. The next request with the key runs.
#[tokio::test]
async fn what_was_never_sent_lets_the_key_go() {
    let ((_folder, store), till) = (file(), Till::open().await);
    let refusing = peer::refuse().expect("a port");
    let mut proxy = start(with_retries(keyed(refusing.addr(), &store))).await;
    let (status, _, body) = told(charge(address(&proxy), "tap-7", "499")).await;
    assert_eq!((status, &*problem(&body)), (StatusCode::BAD_GATEWAY, "call_failed"));
    let mut config = keyed(till.addr, &store);
    config.listeners.clone_from(&proxy.config().listeners);
    proxy.reload(config).await.expect("it is taken");
    let (status, headers, _) = told(charge(address(&proxy), "tap-7", "499")).await;
    assert_eq!((status, is_replay(&headers), till.charges()), (StatusCode::CREATED, false, 1));
}

/// Contract R8: one of ours that says that it did not begin is believed; anybody else's 503 is not.
#[tokio::test]
async fn a_refusal_of_ours_lets_the_key_go_and_somebody_elses_does_not() {
    for (trust, then) in [(Trust::Inside, StatusCode::SERVICE_UNAVAILABLE), (Trust::Outside, StatusCode::CONFLICT)] {
        let (_folder, store) = file();
        let shedding = Upstream::of(|_| async {
            let mut answer = Response::new(body(Full::default()));
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            answer.headers_mut().insert("oneclock-reason", http::HeaderValue::from_static("shed"));
            answer
        })
        .await;
        let mut config = keyed(shedding.addr, &store);
        config.upstreams.values_mut().for_each(|upstream| upstream.trust = trust);
        let proxy = start(config).await;
        let (status, ..) = told(charge(address(&proxy), "tap-7", "499")).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        let (status, ..) = told(charge(address(&proxy), "tap-7", "499")).await;
        assert_eq!(status, then, "{trust:?}");
    }
}
