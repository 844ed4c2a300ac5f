//! What no well-meaning client sends, as bytes on the wire. Each is answered clearly, costs no handler, and leaves nothing
//! behind (contract section 1).
//!
//! The wall clock of the machine cannot be stepped by a test (V8). What is shown instead: a moment is converted once, on
//! arrival; after that the deadline is a point of the monotonic clock that does not move, calls are told remaining
//! time and no moment, and the end comes by that clock; a caller whose own clock is an hour off is clamped and counted.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::any;
use bytes::Bytes;
use oneclock::{live_operations, running_unguarded};
use oneclock_axum::{Op, Problem};
use oneclock_core::wire::{Convention, Conventions, Read, Wall};
use oneclock_core::{BoundBy, Cause, Policy, Reason};
use oneclock_http::Client;
use oneclock_test::caller::{Caller, H1Outcome, H2Outcome, How};
use oneclock_test::{Baseline, Probe, Protocol, peer};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::service::Service;
use crate::told::Said;
use crate::{NOTICED, alone, ms, now};

const CEILING: Duration = Duration::from_secs(2);
const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

/// An answer, over whichever protocol.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

/// A request with these fields, byte for byte; `None` if there was no answer.
async fn send(service: &Service, protocol: Protocol, target: &str, fields: &[(&str, &[u8])]) -> Option<Answer> {
    match protocol {
        Protocol::Http1 => {
            let request = Caller::h1(service.addr).get(target);
            let request = fields.iter().fold(request, |request, (name, value)| request.header(name, value));
            match request.answer().await.unwrap() {
                H1Outcome::Complete { status, headers, body } => {
                    Some(Answer { status: status.as_u16(), headers, body })
                }
                _ => None,
            }
        }
        Protocol::Http2 => {
            let caller = Caller::h2(service.addr).connect().await.unwrap();
            let request = fields.iter().fold(caller.get(target), |request, (name, value)| request.header(name, value));
            match request.send().await.unwrap().answer().await {
                H2Outcome::Complete { status, headers, body, .. } => {
                    Some(Answer { status: status.as_u16(), headers, body })
                }
                _ => None,
            }
        }
    }
}

impl Answer {
    #[track_caller]
    fn is_problem(&self, status: u16, reason: &str) {
        let said = self.headers.get("oneclock-reason").map(|reason| reason.to_str().unwrap());
        assert_eq!((self.status, said), (status, Some(reason)), "{self:?}");
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let document: Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(document["status"], status);
    }
}

/// `/limit` tells the handler's limit, in milliseconds; whatever the contract names is read.
async fn limits(probe: &Probe) -> Service {
    let seen = probe.clone();
    let limit = move |Op(op): Op| async move {
        seen.enter().finish();
        op.bound().limit.as_millis().to_string()
    };
    let policy = Policy::named("order").when_absent(ms(800)).ceiling(CEILING).build().unwrap();
    let all = Conventions::new(Convention::ALL).unwrap();
    let app = Router::new().route("/limit", any(limit));
    Service::with(app, policy, Duration::ZERO, |layer| layer.reads(all), |serve| serve).await
}

// === Vectors ===

struct Vector {
    field: String,
    value: Vec<u8>,
}

/// The values of a file that are to be malformed.
fn malformed(file: &str) -> Vec<Vector> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../conformance").join(file);
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let cases = file["decode"].as_array().unwrap().iter();
    let of = |case: &Value| {
        let value = match (case["value"].as_str(), case["value_hex"].as_str()) {
            (Some(text), None) => text.as_bytes().to_vec(),
            (None, Some(hex)) => {
                (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
            }
            _ => panic!("{case}"),
        };
        Vector { field: case["field"].as_str().unwrap().to_owned(), value }
    };
    cases.filter(|case| case["want"] == "malformed" && case["declared"].is_null()).map(of).collect()
}

/// HTTP/1.1 takes spaces around a value away before anybody sees it (RFC 9112, 5.1); HTTP/2 does not.
fn as_seen(protocol: Protocol, value: &[u8]) -> &[u8] {
    if protocol == Protocol::Http1 { value.trim_ascii() } else { value }
}

async fn every_malformed_value_is_refused(file: &str, at_least: usize) {
    let vectors = malformed(file);
    assert!(vectors.len() >= at_least, "{} in {file}", vectors.len());
    let probe = Probe::new();
    let service = limits(&probe).await;
    let (mut refused, mut readable, mut begun) = (0, 0, 0);
    for protocol in BOTH {
        for Vector { field, value } in &vectors {
            let shown = String::from_utf8_lossy(value);
            let answer = send(&service, protocol, "/limit", &[(field, value)]).await;
            let answer = answer.unwrap_or_else(|| panic!("{protocol:?} {field}: {shown:?}: no answer"));
            let convention = Convention::ALL.into_iter().find(|known| known.name().as_str() == field).unwrap();
            if matches!(convention.codec().parse(as_seen(protocol, value), Wall::default()), Read::Malformed(_)) {
                answer.is_problem(400, "malformed_deadline");
                refused += 1;
            } else {
                // Readable, though perhaps too little to begin with.
                assert!([200, 504].contains(&answer.status), "{protocol:?} {field}: {shown:?}: {answer:?}");
                readable += 1;
                begun += usize::from(answer.status == 200);
            }
        }
    }
    let spaced = vectors.iter().filter(|vector| vector.value.trim_ascii().len() < vector.value.len()).count();
    assert_eq!((refused + readable, readable), (2 * vectors.len(), spaced), "only spaces make a difference");
    assert_eq!(probe.started_count(), begun, "no handler began for a malformed field");
    service.lives().await;
    let told = service.stop().await;
    let counted = |said: &Said| matches!(said, Said::Refused { reason: Reason::Malformed, field: Some(_) });
    assert_eq!(told.count(counted), refused, "counted per field (P3)");
}

#[tokio::test]
async fn p3_every_malformed_grpc_timeout_is_refused_as_bytes_on_the_wire() {
    every_malformed_value_is_refused("grpc-timeout.json", 15).await;
}

#[tokio::test]
async fn p3_every_malformed_number_of_milliseconds_is_refused_as_bytes_on_the_wire() {
    every_malformed_value_is_refused("milliseconds.json", 60).await;
}

// === Duplicates, far away, not ASCII ===

#[tokio::test]
async fn p8_the_same_field_twice() {
    let probe = Probe::new();
    let service = limits(&probe).await;
    for protocol in BOTH {
        let answer = send(&service, protocol, "/limit", &[("grpc-timeout", b"5S"), ("grpc-timeout", b"100m")]).await;
        assert_eq!(&answer.unwrap().body[..], b"100", "the smallest wins");
        let answer = send(&service, protocol, "/limit", &[("grpc-timeout", b"100m"), ("grpc-timeout", b"5s")]).await;
        answer.unwrap().is_problem(400, "malformed_deadline");
        let answer = send(&service, protocol, "/limit", &[("x-remaining-ms", b"250"), ("x-remaining-ms", b"0")]).await;
        answer.unwrap().is_problem(504, "expired_before_start");
    }
    assert_eq!(probe.started_count(), 2);
    service.stop().await;
}

#[tokio::test]
async fn p9_several_fields_and_one_of_them_malformed() {
    let probe = Probe::new();
    let service = limits(&probe).await;
    for protocol in BOTH {
        let fields: [(&str, &[u8]); 3] =
            [("grpc-timeout", b"1S"), ("x-remaining-ms", b"90"), ("expect-within", b"7.5")];
        assert_eq!(&send(&service, protocol, "/limit", &fields).await.unwrap().body[..], b"90");
        let fields: [(&str, &[u8]); 2] = [("x-remaining-ms", b"90"), ("expect-within", b"1e3")];
        send(&service, protocol, "/limit", &fields).await.unwrap().is_problem(400, "malformed_deadline");
    }
    assert_eq!(probe.started_count(), 2);
    service.stop().await;
}

#[tokio::test]
async fn p6_deadlines_centuries_away_are_held_by_the_ceiling() {
    const FAR: [(&str, &[u8]); 6] = [
        ("grpc-timeout", b"99999999H"),
        ("connect-timeout-ms", b"9999999999"),
        ("x-request-deadline", b"9999-12-31T23:59:59Z"),
        ("x-request-deadline", b"2525-01-01T00:00:00+14:00"),
        ("expect-within", b"99999999999999999999"),
        ("l5d-timeout", b"100000d"),
    ];
    let probe = Probe::new();
    let service = limits(&probe).await;
    for protocol in BOTH {
        for far in FAR {
            let answer = send(&service, protocol, "/limit", &[far]).await.unwrap();
            let limit = (answer.status, String::from_utf8_lossy(&answer.body).into_owned());
            assert_eq!(limit, (200, CEILING.as_millis().to_string()), "{protocol:?} {}", far.0);
        }
    }
    let told = service.stop().await;
    let held = |said: &Said| matches!(said, Said::Arrived { bound: BoundBy::Ceiling, clamped: true, .. });
    assert_eq!(told.count(held), 2 * FAR.len());
    let skewed = |said: &Said| matches!(said, Said::Arrived { skew_suspected: true, .. });
    assert_eq!(told.count(skewed), 2 * 2, "moments that far off are no deadlines, but clocks that differ (P10)");
}

#[tokio::test]
async fn p2_bytes_that_are_not_ascii() {
    let probe = Probe::new();
    let service = limits(&probe).await;
    for protocol in BOTH {
        for (field, value) in [("grpc-timeout", &b"5\xffS"[..]), ("x-remaining-ms", "２５０".as_bytes())] {
            send(&service, protocol, "/limit", &[(field, value)]).await.unwrap().is_problem(400, "malformed_deadline");
        }
        let all: Vec<u8> = (0x80..=0xff).collect();
        let answer = send(&service, protocol, "/limit", &[("x-anything", &all)]).await.unwrap();
        assert_eq!(answer.status, 200, "what is no deadline is the handler's affair");
    }
    assert_eq!(probe.started_count(), 2);
    service.lives().await;
    service.stop().await;
}

// === Too much ===

/// 431 or 400, or no answer at all; never the handler's.
async fn is_too_much(service: &Service, fields: &[(&str, &[u8])]) {
    for protocol in BOTH {
        if let Some(answer) = send(service, protocol, "/limit", fields).await {
            assert!([400, 431].contains(&answer.status), "{protocol:?}: {answer:?}");
        }
    }
}

async fn ten_thousand_fields(service: &Service) {
    let names: Vec<_> = (0..10_000).map(|n| format!("x-field-{n}")).collect();
    let fields: Vec<_> = names.iter().map(|name| (name.as_str(), &b"v"[..])).collect();
    is_too_much(service, &fields).await;
    let fields = vec![("x-remaining-ms", &b"100"[..]); 10_000];
    is_too_much(service, &fields).await;
}

async fn values_of_a_megabyte(service: &Service) {
    let large = vec![b'1'; 1 << 20];
    for name in ["x-large", "x-remaining-ms", "grpc-timeout"] {
        is_too_much(service, &[(name, &large)]).await;
    }
    // The largest that gets through is read, and is no number of milliseconds.
    for protocol in BOTH {
        let answer = send(service, protocol, "/limit", &[("x-remaining-ms", &large[..16 * 1024])]).await;
        answer.unwrap().is_problem(400, "malformed_deadline");
    }
}

#[tokio::test]
async fn ten_thousand_header_fields_are_refused() {
    let probe = Probe::new();
    let service = limits(&probe).await;
    ten_thousand_fields(&service).await;
    assert_eq!(probe.started_count(), 0);
    service.lives().await;
    service.stop().await;
}

#[tokio::test]
async fn values_of_a_megabyte_are_refused() {
    let probe = Probe::new();
    let service = limits(&probe).await;
    values_of_a_megabyte(&service).await;
    assert_eq!(probe.started_count(), 0);
    service.lives().await;
    service.stop().await;
}

// === The wall clock ===

/// RFC 3339, of a moment after 1970.
fn rfc3339(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Days to a date, after Howard Hinnant's `civil_from_days`.
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (h, m, s, milli) = (second / 3_600, second / 60 % 60, second % 60, since.subsec_millis());
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{milli:03}Z")
}

#[test]
fn the_helper_writes_moments_as_rfc_3339_does() {
    let at = |seconds| rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
    assert_eq!(at(1_769_860_800), "2026-01-31T12:00:00.000Z");
    assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000Z");
}

#[allow(clippy::disallowed_methods, reason = "the caller's wall clock, which is its own affair")]
fn callers_clock() -> SystemTime {
    SystemTime::now()
}

#[tokio::test]
async fn v8_a_moment_is_converted_once_on_arrival_and_nothing_depends_on_the_wall_clock_after_that() {
    let echo = peer::echo_headers(Protocol::Http1).unwrap();
    let client = Client::builder("inventory", echo.url()).build().unwrap();
    let handler = |Op(op): Op, State(client): State<Client>| async move {
        let at = op.deadline();
        let answer = client.get("/stock").await?;
        let seen = oneclock_http::collect(answer.into_body(), 64 * 1024).await.map_err(Problem::of)?;
        let seen: Value = serde_json::from_slice(&seen).map_err(Problem::of)?;
        tokio::time::sleep(ms(100)).await;
        let same = op.deadline() == at;
        let expected = at.remaining(oneclock::clock::now());
        Ok::<_, Problem>(
            serde_json::json!({
                "same": same,
                "remaining_agrees": op.remaining() <= expected,
                "told": seen["headers"]["x-remaining-ms"][0],
                "moment_passed_on": seen["headers"].get("x-request-deadline").is_some(),
            })
            .to_string(),
        )
    };
    let app = Router::new()
        .route("/echo", any(handler))
        .route("/hang", any(|| async { std::future::pending::<()>().await }))
        .with_state(client);
    let service = Service::of(app, CEILING).await;
    for protocol in BOTH {
        let moment = rfc3339(callers_clock() + ms(1_500));
        let answer = send(&service, protocol, "/echo", &[("x-request-deadline", moment.as_bytes())]).await.unwrap();
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((&body["same"], &body["remaining_agrees"]), (&Value::Bool(true), &Value::Bool(true)), "{body}");
        assert_eq!(body["moment_passed_on"], false, "calls are told remaining time (E7)");
        let told: u64 = body["told"].as_str().unwrap().parse().unwrap();
        assert!((500..=1_500).contains(&told), "{body}");

        let (moment, since) = (rfc3339(callers_clock() + ms(400)), now());
        let answer = send(&service, protocol, "/hang", &[("x-request-deadline", moment.as_bytes())]).await.unwrap();
        answer.is_problem(504, "deadline");
        let after = now() - since;
        assert!(after >= ms(300) && after <= ms(400) + NOTICED, "by the monotonic clock: {after:?}");
    }
    drop(echo);
    service.stop().await;
}

#[tokio::test]
async fn p10_a_caller_whose_clock_is_an_hour_off() {
    let probe = Probe::new();
    let service = limits(&probe).await;
    let hour = Duration::from_secs(3_600);
    for protocol in BOTH {
        let ahead = rfc3339(callers_clock() + hour + ms(500));
        let answer = send(&service, protocol, "/limit", &[("x-request-deadline", ahead.as_bytes())]).await.unwrap();
        assert_eq!(&answer.body[..], CEILING.as_millis().to_string().as_bytes());
        let behind = rfc3339(callers_clock() - hour + ms(500));
        let answer = send(&service, protocol, "/limit", &[("x-request-deadline", behind.as_bytes())]).await.unwrap();
        answer.is_problem(504, "expired_before_start");
    }
    assert_eq!(probe.started_count(), 2);
    let told = service.stop().await;
    assert_eq!(told.count(|said| matches!(said, Said::Arrived { skew_suspected: true, .. })), 2);
}

// === After all that ===

/// Bytes that are no HTTP, or break off, or lie about their length.
async fn garbage(service: &Service) {
    let garbage: [&[u8]; 8] = [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET /limit HTTP/9.9\r\n\r\n",
        b"GET /limit HTTP/1.1\r\nx-remaining-ms : 100\r\n\r\n",
        b"GET /limit HTTP/1.1\r\nx-remaining-ms: 1\x0000\r\n\r\n",
        b"GET /limit HTTP/1.1\r\nhost: a\r\nx-remaining-ms: 10",
        b"POST /limit HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999999999999\r\n\r\n",
        b"POST /limit HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff0\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x05\x01\x05\x00\x00\x00\x01\xff\xff\xff\xff\xff",
    ];
    for bytes in garbage {
        let mut socket = TcpStream::connect(service.addr).await.unwrap();
        socket.write_all(bytes).await.unwrap();
        drop(socket);
    }
}

#[tokio::test]
async fn after_everything_hostile_tasks_connections_and_operations_are_back_at_the_baseline() {
    if !alone::or_elsewhere(
        "hostile::after_everything_hostile_tasks_connections_and_operations_are_back_at_the_baseline",
    ) {
        return;
    }
    let outside = Baseline::take();
    let probe = Probe::new();
    let service = limits(&probe).await;
    service.lives().await;
    let live = live_operations();
    let before = Baseline::take();

    ten_thousand_fields(&service).await;
    values_of_a_megabyte(&service).await;
    garbage(&service).await;
    for Vector { field, value } in malformed("grpc-timeout.json") {
        for protocol in BOTH {
            send(&service, protocol, "/limit", &[(&field, &value)]).await;
        }
    }
    let mut gone = Vec::new();
    for how in [How::Reset, How::Pipelined, How::WithUnreadUpload(50_000), How::HalfClose, How::StopsReading] {
        gone.push(
            Caller::h1(service.addr).post("/limit", "").header("x-remaining-ms", "300").leave(how).await.unwrap(),
        );
    }
    drop(gone);

    service.lives().await;
    before.assert_back().await;
    assert_eq!((live_operations(), running_unguarded()), (live, 0));
    let told = service.stop().await;
    assert_eq!(live_operations(), 0);
    outside.assert_back().await;
    let ended: Vec<_> = told.endings().into_iter().filter(|(_, cause)| *cause == Some(Cause::Deadline)).collect();
    assert!(ended.is_empty(), "{ended:?}");
}
