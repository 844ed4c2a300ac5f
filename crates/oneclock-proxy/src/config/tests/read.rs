//! What is read, and what holds where nothing is written.

use std::time::Duration;

use http::Method;
use oneclock_core::admission::Mode;
use oneclock_core::ingress::{Coverage, OnMalformed};
use oneclock_core::{Name, Trust};

use super::{EVERYTHING, read, with_route};
use crate::config::{
    AccessLog, Concurrency, Config, DEFAULT_ADMIN, DEFAULT_LISTENER, IdempotencyStore, LogTo, Share, UpstreamProtocol,
};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn what_is_not_written_is_safe() {
    let config = read(&with_route(""));
    let [listener] = &config.listeners[..] else { panic!("{config}") };
    assert_eq!((listener.address, listener.trust), (DEFAULT_LISTENER, Trust::Outside));
    assert!(listener.address.ip().is_loopback() && DEFAULT_ADMIN.ip().is_loopback());
    assert_eq!((config.admin, config.shutdown_grace), (Some(DEFAULT_ADMIN), ms(10_000)));
    let [route] = &config.routes[..] else { panic!("{config}") };
    assert_eq!((route.when_absent, route.ceiling, route.min_useful), (ms(2_000), ms(10_000), ms(5)));
    assert_eq!((&route.retry, route.mode, route.concurrency), (&None, Mode::Shadow, Concurrency::Adaptive));
    assert!(route.limits().check().is_ok() && route.admission(2).check().is_ok());
}

#[test]
fn every_key_is_read() {
    let config = read(EVERYTHING);
    let [public, inside] = &config.listeners[..] else { panic!("{config}") };
    let tls = public.tls.as_ref().unwrap();
    assert_eq!(tls.client_ca.as_deref().unwrap().to_str(), Some("/etc/oneclock/clients.crt"));
    assert_eq!((public.reads.iter().count(), public.max_connections), (2, 5_000));
    assert_eq!((&*inside.name.to_string(), inside.trust), ("http-2", Trust::Inside));

    let app = &config.upstreams[&Name::from("app")];
    assert_eq!((app.protocol, app.cap, app.max_connections), (UpstreamProtocol::Http1, Some(ms(5_000)), 32));
    assert_eq!(app.tells.as_ref().unwrap().iter().count(), 2);
    let payment = &config.upstreams[&Name::from("payment")];
    assert_eq!(payment.url.scheme_str(), Some("https"));
    let tls = payment.tls.as_ref().unwrap();
    assert_eq!(
        (tls.ca.as_deref().unwrap().to_str(), &*tls.server_name.clone().unwrap()),
        (Some("/etc/oneclock/ca.crt"), "payment.internal")
    );
    assert_eq!(config.files().len(), 7, "{:?}", config.files());

    let [reports, events, pay] = &config.routes[..] else { panic!("{config}") };
    assert_eq!((reports.when_absent, reports.ceiling), (ms(30_000), ms(30_000)));
    assert_eq!((reports.backend_request, reports.reserve), (Some(ms(10_000)), ms(100)));
    assert_eq!((reports.on_malformed, reports.trust), (OnMalformed::Clamp, Some(Trust::Outside)));
    assert_eq!((reports.concurrency, reports.queue, reports.mode), (Concurrency::Fixed(8), 100, Mode::Shadow));
    let retry = reports.retry_policy().unwrap().unwrap();
    assert_eq!((retry.attempts(), retry.per_try()), (3, Some(ms(10_000))), "Gateway API does not count the first one");
    assert!(retry.retries_status(503) && !retry.retries_status(504));
    assert_eq!(events.kind, Coverage::Streaming { idle: ms(30_000), total: ms(5_400_000) });
    assert_eq!((pay.when_absent, pay.ceiling, pay.backend_request), (ms(800), ms(2_000), None));
    assert!(matches!(pay.idempotency.as_ref().unwrap().store, IdempotencyStore::Postgres { .. }));
    let log = &config.access_log;
    assert_eq!(log.to, LogTo::File("/var/log/oneclock.json".into()));
    assert_eq!((log.sample.millionths(), log.refusals), (10_000, 20));
    let at = |text: &str| Some(text.parse().unwrap());
    assert_eq!((config.admin, config.probes), (at("127.0.0.1:9910"), at("0.0.0.0:9903")));
    assert_eq!(config.shutdown_grace, ms(20_000));
}

#[test]
fn the_admin_pages_can_be_said_in_one_word_or_with_what_probes_are_answered_by() {
    let at = |text: &str| Some(text.parse().unwrap());
    for (lines, admin, probes) in [
        ("admin: none", None, None),
        ("admin: 127.0.0.1:9910", at("127.0.0.1:9910"), None),
        ("admin: { probes: 0.0.0.0:9903 }", Some(DEFAULT_ADMIN), at("0.0.0.0:9903")),
        ("admin: { pages: none, probes: '[::]:80' }", None, at("[::]:80")),
        ("admin: { pages: 127.0.0.1:9910, probes: none }", at("127.0.0.1:9910"), None),
    ] {
        let config = read(&format!("{lines}\n{}", with_route("")));
        assert_eq!((config.admin, config.probes), (admin, probes), "{lines}");
        let again = read(&config.to_string());
        assert_eq!((again.admin, again.probes), (admin, probes), "{config}");
    }
}

#[test]
fn the_access_log_can_be_said_in_one_word_or_in_full() {
    let log = |lines: &str| read(&format!("{lines}\n{}", with_route(""))).access_log;
    let to = |to| AccessLog { to, ..AccessLog::default() };
    let file = || LogTo::File("/var/log/a.json".into());
    assert_eq!(log("accessLog: none"), to(LogTo::Nowhere));
    assert_eq!(log("accessLog: stdout"), to(LogTo::Stdout));
    assert_eq!(log("accessLog: /var/log/a.json"), to(file()));
    assert_eq!(log("accessLog: { to: /var/log/a.json }"), to(file()), "every request, and a hundred refusals");
    for (written, millionths) in
        [("0", 0), ("1", 1_000_000), ("1.0", 1_000_000), ("0.01", 10_000), ("0.000001", 1), ("0.5", 500_000)]
    {
        let sample = Share::of_millionths(millionths).unwrap();
        let said = log(&format!("accessLog: {{ to: stdout, sample: {written}, refusals: 0 }}"));
        assert_eq!(said, AccessLog { to: LogTo::Stdout, sample, refusals: 0 }, "{written}");
    }
}

#[test]
fn a_request_timeout_is_both_limits_and_each_can_be_said_alone() {
    #[track_caller]
    fn limits(lines: &str, when_absent: u64, ceiling: u64) {
        let config = read(&with_route(lines));
        assert_eq!((config.routes[0].when_absent, config.routes[0].ceiling), (ms(when_absent), ms(ceiling)), "{lines}");
    }
    limits("timeouts: { request: 3s }", 3_000, 3_000);
    limits("timeouts: { request: 3s }\nwhenAbsent: 1s", 1_000, 3_000);
    limits("timeouts: { request: 3s }\nceiling: 30s", 3_000, 30_000);
    limits("ceiling: 1s", 1_000, 1_000);
    limits("whenAbsent: 1m", 60_000, 60_000);
    limits("whenAbsent: 500ms\nceiling: 1s", 500, 1_000);
}

#[test]
fn who_writes_a_number_means_it_and_nobody_else_is_refused_for_one() {
    let mode = |lines: &str| read(&with_route(lines)).routes[0].mode;
    assert_eq!(mode(""), Mode::Shadow);
    assert_eq!(mode("concurrency: 10"), Mode::Enforce);
    assert_eq!(mode("queue: 0"), Mode::Enforce);
    assert_eq!(mode("concurrency: 10\nmode: observe"), Mode::Observe);
    assert_eq!(read(&with_route("concurrency: 10")).routes[0].concurrency, Concurrency::Fixed(10));
}

#[test]
fn the_route_that_says_most_is_taken_whatever_the_order() {
    let routes = "
upstreams: { app: { url: http://127.0.0.1:3000 } }
routes:
- { name: all, upstream: app }
- { name: orders, upstream: app, matches: [{ path: { value: /orders/ } }] }
- { name: post, upstream: app, matches: [{ path: { value: /orders }, method: POST }] }
- { name: mine, upstream: app, matches: [{ path: { value: /orders/mine } }] }
- { name: exact, upstream: app, matches: [{ path: { type: Exact, value: /orders/mine } }] }
";
    let config = read(routes);
    let takes =
        |method: Method, path: &str| config.route_for(path, &method).map(|route| route.name.to_string()).unwrap();
    for (path, name) in [
        ("/", "all"),
        ("/orders", "orders"),
        ("/orders/", "orders"),
        ("/orders/7", "orders"),
        ("/orders-old", "all"),
        ("/Orders", "all"),
        ("/orders/mine/7", "mine"),
        ("/orders/mine", "exact"),
        ("*", "all"),
    ] {
        assert_eq!(takes(Method::GET, path), name, "{path}");
    }
    assert_eq!(takes(Method::POST, "/orders/7"), "post");
    assert_eq!(takes(Method::POST, "/orders/mine"), "exact", "the path says more than the method");

    let only = read(&with_route("matches: [{ path: { type: Exact, value: /a }, method: GET }]"));
    assert!(only.route_for("/b", &Method::GET).is_none() && only.route_for("/a", &Method::PUT).is_none());
}

#[test]
fn without_a_file_one_upstream_is_enough() {
    let listen = "0.0.0.0:8080".parse().unwrap();
    let config = Config::simple(listen, "http://127.0.0.1:3000").unwrap();
    assert_eq!(config.listeners[0].address, listen);
    assert_eq!(&*config.route_for("/any", &Method::GET).unwrap().upstream.to_string(), "app");
    let refused = Config::simple(listen, "127.0.0.1:3000").unwrap_err().to_string();
    assert!(refused.starts_with("`127.0.0.1:3000` has no scheme"), "{refused}");
    assert!(Config::simple(DEFAULT_ADMIN, "http://127.0.0.1:3000").is_err());
}

#[test]
fn anchors_work_and_values_may_be_quoted() {
    let config = read(
        "
upstreams: { app: { url: http://127.0.0.1:3000, maxConnections: '7' } }
routes:
- { upstream: app, timeouts: &usual { request: 3s }, matches: [{ path: { value: /a } }] }
- { upstream: app, timeouts: *usual, matches: [{ path: { value: /b } }] }
",
    );
    assert_eq!(config.routes[1].ceiling, ms(3_000));
    assert_eq!(config.upstreams[&Name::from("app")].max_connections, 7);
}
