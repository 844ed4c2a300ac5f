//! A real scrape over a real socket: promtool finds nothing to say, and a real Prometheus has what was counted.

use std::future::IntoFuture as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use oneclock::events::{Delivered, Downstream, Event, Keyed, Late, Observer as _, RanOn, Refusal, TriedAgain};
use oneclock::{Admission, Health, Operation};
use oneclock_axum::{Op, PolicyExt as _};
use oneclock_core::admission::{self, Settings};
use oneclock_core::breaker::Change;
use oneclock_core::retry::Stop;
use oneclock_core::{Cause, Name, Outcome, Policy, Reason, Trust, expiry};
use oneclock_telemetry::names::METRICS;
use oneclock_telemetry::{Readiness, Scrape};
use oneclock_test::caller::{Caller, H1Outcome};
use tokio::net::TcpListener;

use crate::programs::{Prometheus, program};
use crate::support::{Counted, ms};

/// A service with `/orders`, `/hang` and `/metrics`, on our accept loop.
async fn service(counted: &Counted) -> SocketAddr {
    let policy = Policy::named("order").when_absent(ms(50)).ceiling(ms(2_000)).build().unwrap();
    let scrape = counted.scrape.clone();
    let app = Router::new()
        .route("/orders/{id}", get(place))
        .route("/hang", get(std::future::pending::<()>))
        .layer(policy.layer().observed_by(counted.observer()))
        .route("/metrics", get(move || async move { ([(CONTENT_TYPE, Scrape::CONTENT_TYPE)], scrape.render()) }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(oneclock_http::serve(listener, app).trust(Trust::Inside).into_future());
    addr
}

async fn place(Op(op): Op) -> &'static str {
    let call = op.grant("inventory").cap(ms(300)).to(Downstream::Database).call().unwrap();
    call.close(Outcome::Applied);
    "placed"
}

async fn body(addr: SocketAddr, target: &str) -> (u16, String, String) {
    match Caller::h1(addr).get(target).answer().await.unwrap() {
        H1Outcome::Complete { status, headers, body } => {
            let media = headers.get(CONTENT_TYPE).map(|media| media.to_str().unwrap().to_owned()).unwrap_or_default();
            (status.as_u16(), media, String::from_utf8(body.to_vec()).unwrap())
        }
        other => panic!("{target}: {other:?}"),
    }
}

/// Something in every metric.
async fn everything(counted: &Counted, addr: SocketAddr) {
    assert_eq!(body(addr, "/orders/7").await.0, 200);
    assert_eq!(body(addr, "/hang").await.0, 504);
    for (remaining, status) in [("0", 504), ("soon", 400), ("90000", 200)] {
        let request = Caller::h1(addr).get("/orders/7").header("x-remaining-ms", remaining);
        assert!(matches!(request.answer().await.unwrap(), H1Outcome::Complete { status: said, .. } if said == status));
    }
    let ago = Caller::h1(addr).get("/orders/7").header("x-request-deadline", "2001-01-01T00:00:00Z");
    assert!(matches!(ago.answer().await.unwrap(), H1Outcome::Complete { .. }));
    let job = counted.begin("job", ms(60_000));
    let mut call = job.grant("inventory").cap(Duration::from_nanos(1)).min_useful(Duration::ZERO).call().unwrap();
    call.run(std::future::pending::<()>()).await.unwrap_err();
    drop(call);
    let (order, stock): (Name, Name) = ("order".into(), "inventory".into());
    let (operation, call, work) = (&order, &stock, &stock);
    let refusal = admission::Refusal {
        why: admission::Why::Doomed,
        remaining: ms(80),
        needed: ms(90),
        waited: ms(0),
        wait: ms(30),
        places: 1,
    };
    let mut delivered = Delivered::new("orders".into(), "charge".into(), "7", expiry::Policy::MustComplete, 1);
    (delivered.waited, delivered.faults) = (Some(ms(40)), vec![expiry::Fault::OwnerMissing]);
    for event in [
        Event::NotCalled { operation, call, reason: Reason::InsufficientBudget },
        Event::TriedAgain { operation, call, attempt: 2, because: TriedAgain::Retry },
        Event::GaveUp {
            operation,
            call,
            attempts: 1,
            why: Stop::OutOfTime { remaining: ms(3), wait: ms(9), min_useful: ms(5) },
        },
        Event::Breaker { destination: call, change: Change::Opened },
        Event::Late { operation, result: Late::Answer, route: None, by: ms(3) },
        Event::RanOn { operation, work, because: RanOn::Blocking, for_: ms(3_000) },
        Event::Detached { from: operation, operation: work, reason: "a test" },
        Event::Keyed { route: operation, what: Keyed::Ran },
        Event::WouldRefuse { operation, route: None, refusal: &refusal },
        Event::Refused(&Refusal::new(order.clone(), refusal.reason(), ms(80), None).by_admission(refusal)),
        Event::Panicked { operation, work },
        Event::Delivered(&delivered),
    ] {
        counted.metrics.on(&event);
    }
    let readiness = Readiness::builder().without_stack().start(&oneclock::Shutdown::new()).unwrap();
    counted.metrics.tell_readiness(&readiness);
    places(counted, &job).await;
    job.end(Cause::CalledOff);
    drop(job);
    drop(Operation::begin("nobody-looks", ms(1)));
}

/// Work before scarce places, so much of it that there is an estimate, and one that had to wait.
async fn places(counted: &Counted, job: &Operation) {
    let pool = Admission::to("pool", Settings::fixed(1)).unwrap();
    counted.metrics.watch_admission(&pool);
    counted.metrics.watch_health(&Health::of("inventory").build());
    for _ in 0..100 {
        let place = pool.enter_in(job, "monthly").await.unwrap();
        tokio::task::yield_now().await;
        drop(place);
    }
    let place = pool.enter_in(job, "monthly").await.unwrap();
    let (next, ()) = tokio::join!(pool.enter_in(job, "monthly"), async {
        tokio::task::yield_now().await;
        drop(place);
    });
    drop(next.unwrap());
}

#[tokio::test]
async fn promtool_has_nothing_to_say_about_a_scrape_with_every_metric_in_it() {
    let counted = Counted::new();
    let addr = service(&counted).await;
    everything(&counted, addr).await;
    let (status, media, text) = body(addr, "/metrics").await;
    assert_eq!((status, media.as_str()), (200, "text/plain; version=0.0.4; charset=utf-8"));
    for metric in METRICS {
        let line = format!("\n# HELP {} {}\n", metric.name, metric.help);
        assert!(format!("\n{text}").contains(&line), "{} is not in the scrape with its help:\n{text}", metric.name);
    }
    assert_eq!(said_by_promtool(&text), (true, String::new()));
}

/// What it would find: the check can fail.
#[test]
fn promtool_does_find_a_counter_without_its_suffix() {
    let (fine, said) = said_by_promtool("# HELP oneclock_late Late.\n# TYPE oneclock_late counter\noneclock_late 1\n");
    assert!(!fine && said.contains("_total"), "{said}");
}

fn said_by_promtool(text: &str) -> (bool, String) {
    let mut promtool = Command::new(program("promtool", "ONECLOCK_PROMTOOL"))
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[tokio::test]
async fn a_real_prometheus_has_what_was_counted() {
    let counted = Counted::new();
    let addr = service(&counted).await;
    everything(&counted, addr).await;
    let prometheus = Prometheus::scraping(addr);
    for (query, want) in [
        (r#"oneclock_operations_total{operation="order",route="/hang",cause="deadline"}"#, "1"),
        (r#"oneclock_operations_total{operation="order",route="/orders/{id}",cause="none"}"#, "2"),
        (r#"oneclock_expired_before_processing_total{route="/orders/{id}",stage="arrival"}"#, "2"),
        (r#"sum(oneclock_dependency_calls_total{dependency="inventory"})"#, "3"),
        (r#"oneclock_operation_duration_seconds_bucket{route="/hang",le="+Inf"}"#, "1"),
        ("count(oneclock_zombie_work)", "3"),
        (r#"count({__name__=~"oneclock_.*"}) > bool 0"#, "1"),
    ] {
        assert_eq!(answer(&prometheus, query).await, want, "{query}\n{}", prometheus.log());
    }
}

/// Asked until it has scraped, which it does every second.
async fn answer(prometheus: &Prometheus, query: &str) -> String {
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let target = format!("/api/v1/query?query={encoded}");
    let mut said = String::new();
    let asked = async {
        loop {
            match ask(prometheus.addr, &target).await {
                Ok(value) => return value,
                Err(instead) => said = instead,
            }
            tokio::time::sleep(ms(50)).await;
        }
    };
    let patience = Duration::from_secs(30); // it has a log to open and a first interval to wait for
    let value = tokio::time::timeout(patience, asked).await;
    value.unwrap_or_else(|_| panic!("{query}: {said}\n{}", prometheus.log()))
}

async fn ask(addr: SocketAddr, target: &str) -> Result<String, String> {
    let outcome = Caller::h1(addr).get(target).answer().await.map_err(|e| e.to_string())?;
    let H1Outcome::Complete { body, .. } = outcome else { return Err(format!("{outcome:?}")) };
    let answer: serde_json::Value = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
    let value = answer.pointer("/data/result/0/value/1").and_then(serde_json::Value::as_str);
    value.map(str::to_owned).ok_or_else(|| answer.to_string())
}
