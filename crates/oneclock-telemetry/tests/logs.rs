//! One line for each operation that is over, and the ring of those that ran out of time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use oneclock::Operation;
use oneclock_core::wire::server_timing::Account;
use oneclock_core::{Outcome, Policy, Stage, Trust};
use oneclock_http::{IngressLayer, Problem, Upload};
use oneclock_telemetry::trace::{SpanLayer, Spans};
use oneclock_telemetry::{Logs, Ring, Several};
use tower::{ServiceBuilder, ServiceExt as _};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

type Line = BTreeMap<String, String>;

/// Keeps the lines of our target, down to a level.
#[derive(Clone)]
struct Kept {
    lines: Arc<Mutex<Vec<(Level, Line)>>>,
    down_to: Level,
}

struct Fields(Line);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl Subscriber for Kept {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == oneclock_telemetry::logs::TARGET && *metadata.level() <= self.down_to
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(Line::new());
        event.record(&mut fields);
        self.lines.lock().unwrap().push((*event.metadata().level(), fields.0));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Kept {
    fn down_to(down_to: Level) -> (Self, DefaultGuard) {
        let kept = Self { lines: Arc::default(), down_to };
        let guard = tracing::subscriber::set_default(kept.clone());
        (kept, guard)
    }

    fn lines(&self) -> Vec<(Level, Line)> {
        self.lines.lock().unwrap().clone()
    }
}

#[track_caller]
fn says(line: &(Level, Line), level: Level, fields: &[(&str, &str)]) {
    let want: Line = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    assert_eq!(*line, (level, want));
}

/// Asks `handler` under our layers, with 800 ms unless `fields` says otherwise.
async fn ask<F>(ring: &Ring, fields: &[(&str, &str)], handler: impl Fn() -> F + Clone) -> StatusCode
where
    F: Future<Output = Response<Full<bytes::Bytes>>>,
{
    let all = Several::new().and(Spans::new()).and(Logs::new()).and(ring.clone());
    let policy = Policy::named("order").when_absent(ms(800)).build().unwrap();
    let service = ServiceBuilder::new()
        .layer(IngressLayer::new(policy).trust(Trust::Inside).observed_by(Arc::new(all)))
        .layer(SpanLayer::new())
        .service_fn(move |_: Request<Upload<Full<bytes::Bytes>>>| {
            let answer = handler();
            async { Ok::<_, std::convert::Infallible>(answer.await) }
        });
    let request = fields.iter().fold(Request::get("/orders"), |request, (name, value)| request.header(*name, *value));
    service.oneshot(request.body(Full::default()).unwrap()).await.unwrap().status()
}

fn done() -> Response<Full<bytes::Bytes>> {
    Response::new(Full::default())
}

/// 180 ms in a queue, 20 ms of its own, and a call that is told 620 ms later where the time went.
async fn work() {
    let op = Operation::current().unwrap();
    {
        let _queue = op.spend("turn", Stage::Queue);
        tokio::time::sleep(ms(180)).await;
    }
    tokio::time::sleep(ms(20)).await;
    let mut stock = op.grant("inventory").call().unwrap();
    tokio::time::sleep(ms(100)).await;
    stock.tell_below(
        Account::parse(b"oneclock;desc=inventory;dur=98, rows;dur=90, unaccounted;dur=8, left;dur=2").unwrap(),
    );
    stock.close(Outcome::Applied);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_ran_out_of_time_is_a_warning_with_what_was_left_at_each_boundary() {
    let (kept, _guard) = Kept::down_to(Level::INFO);
    let ring = Ring::new();
    let fields = [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")];
    let status = ask(&ring, &fields, || async {
        work().await;
        std::future::pending::<()>().await;
        done()
    });
    assert_eq!(status.await, 504);
    let lines = kept.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let below = "inventory 98ms: rows 90ms, unaccounted 8ms, left 2ms";
    says(
        &lines[0],
        Level::WARN,
        &[
            ("message", "order: out of time in stage work (bound: absent)"),
            ("operation", "order"),
            ("kind", "request"),
            ("bound", "absent"),
            ("budget_ms", "800.0"),
            ("elapsed_ms", "800.0"),
            ("remaining_ms", "0.0"),
            ("queue_ms", "180.0"),
            ("unaccounted_ms", "520.0"),
            ("cause", "deadline"),
            ("stage", "work"),
            ("answered", "deadline"),
            ("spent", &format!("turn 180ms at 800ms left, inventory 100ms at 600ms left ({below})")),
            ("trace_id", "0af7651916cd43dd8448eb211c80319c"),
        ],
    );

    assert_eq!(
        ring.to_string(),
        format!(
            "order: out of time in stage work (bound: absent) after 800ms of 800ms; spent: turn 180ms, inventory 100ms \
             ({below}); unaccounted 520ms; trace 0af7651916cd43dd8448eb211c80319c\n"
        )
    );
    let mut json = ring.to_json();
    let one = json["operations"][0].as_object_mut().unwrap();
    assert!(one.remove("at_unix_ms").unwrap().is_u64());
    let want = serde_json::json!({
        "operation": "order",
        "kind": "request",
        "bound": "absent",
        "budget_ms": 800.0,
        "elapsed_ms": 800.0,
        "cause": "deadline",
        "stage": "work",
        "answered": "deadline",
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "ledger": {
            "entries": [
                { "name": "turn", "stage": "queue", "at_ms": 0, "took_ms": 180 },
                { "name": "inventory", "stage": "arrival", "at_ms": 200, "took_ms": 100, "there": {
                    "operation": "inventory",
                    "took_ms": 98,
                    "entries": [{ "name": "rows", "took_ms": 90 }],
                    "unaccounted_ms": 8,
                    "left_ms": 2,
                } },
            ],
            "unaccounted_ms": 520,
        },
    });
    assert_eq!(serde_json::Value::Object(one.clone()), want);
}

/// They have no span of their own, and serve the request that has.
#[tokio::test(start_paused = true)]
async fn what_outlives_a_request_and_what_is_refused_have_its_trace() {
    let (kept, _guard) = Kept::down_to(Level::TRACE);
    let ring = Ring::new();
    let parent = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
    let outlives = || async {
        let op = Operation::current().unwrap();
        op.must_finish("charge", ms(5_000), async { Ok::<_, ()>(()) }).await.unwrap();
        let mail = op.detach("mail", ms(50), "it may be slow");
        tokio::spawn(async move { mail.run(std::future::pending::<()>()).await.unwrap_err() }).await.unwrap();
        done()
    };
    assert_eq!(ask(&ring, &[parent], outlives).await, 200);
    assert_eq!(ask(&ring, &[parent, ("x-remaining-ms", "0")], || async { done() }).await, 504);
    let lines = kept.lines();
    let said: Vec<_> = lines.iter().map(|(_, line)| (line["operation"].as_str(), line["trace_id"].as_str())).collect();
    let trace = "0af7651916cd43dd8448eb211c80319c";
    assert_eq!(said, [("charge", trace), ("mail", trace), ("order", trace), ("order", trace)]);
    let recent = ring.recent();
    assert_eq!((recent[0].operation.as_str(), recent[0].trace.as_deref()), ("mail", Some(trace)));
}

#[tokio::test(start_paused = true)]
async fn how_loud_a_line_is_follows_from_how_the_operation_ended() {
    let (kept, _guard) = Kept::down_to(Level::TRACE);
    let ring = Ring::new();
    assert_eq!(ask(&ring, &[], || async { done() }).await, 200);
    // A handler whose part was out of time: done, and answered so.
    let answered = || async {
        let op = Operation::current().unwrap();
        let part = op.grant("pricing").cap(ms(50)).operation().unwrap();
        let ended = part.run(std::future::pending::<()>()).await.unwrap_err();
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
        response.extensions_mut().insert(Problem::from(ended));
        response
    };
    assert_eq!(ask(&ring, &[], answered).await, 504);
    let never = || async {
        std::future::pending::<()>().await;
        done()
    };
    tokio::time::timeout(ms(100), ask(&ring, &[], never)).await.unwrap_err(); // its caller leaves
    assert_eq!(ask(&ring, &[("x-remaining-ms", "0")], || async { done() }).await, 504);
    let op = Operation::begin("nightly", ms(100)).observed_by(Arc::new(Logs::new()));
    op.detach("mail", ms(50), "it may be slow");
    op.call_off();
    drop(op);

    let lines = kept.lines();
    let said: Vec<_> = lines
        .iter()
        .map(|(level, line)| {
            let word = |name: &str| line.get(name).map_or("-", String::as_str);
            (*level, format!("{} {} {} {}", word("operation"), word("kind"), word("cause"), word("answered")))
        })
        .collect();
    assert_eq!(
        said,
        [
            (Level::DEBUG, "order request - -".to_owned()),
            (Level::WARN, "order request - cap".to_owned()),
            (Level::INFO, "order request caller_gone -".to_owned()),
            (Level::DEBUG, "order - - expired_before_start".to_owned()),
            (Level::DEBUG, "mail detached - -".to_owned()),
            (Level::INFO, "nightly begun called_off -".to_owned()),
        ]
    );
    let recent = ring.recent();
    let ring: Vec<_> = recent.iter().map(|one| (one.operation.as_str(), one.kind, one.answered.is_some())).collect();
    assert_eq!(ring, [("order", "request", true), ("pricing", "child", false)], "parts have no line, but their ledger");
}

#[tokio::test(start_paused = true)]
async fn the_ring_keeps_the_newest_and_no_more_than_it_has_room_for() {
    let never = || async {
        std::future::pending::<()>().await;
        done()
    };
    let (ring, none) = (Ring::with_room(3), Ring::with_room(0));
    for n in 0..5_u64 {
        let left = (20 + n).to_string();
        ask(&ring, &[("x-remaining-ms", &left)], never).await;
        ask(&none, &[("x-remaining-ms", &left)], never).await;
    }
    let kept: Vec<_> = ring.recent().iter().map(|one| one.bound.limit).collect();
    assert_eq!((kept, ring.seen()), (vec![ms(24), ms(23), ms(22)], 5));
    assert_eq!((none.recent().len(), none.seen()), (0, 5));
    let silent = Ring::new();
    for _ in 0..200 {
        ask(&silent, &[("x-remaining-ms", "20")], never).await;
    }
    assert_eq!(silent.recent().len(), oneclock_telemetry::ring::ROOM);
}
