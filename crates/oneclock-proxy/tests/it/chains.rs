//! Two of ours in a row (contract V12): whatever is said to the first, the service behind the second is told no more. Two real
//! processes, and a real Envoy before and behind one, are in `cargo xtask interop proxy`.

use std::time::Duration;

use http::StatusCode;
use oneclock_core::Trust;
use oneclock_test::caller::{Caller, H2Outcome};
use oneclock_test::peer::{self, Leaving, StreamResetAt};
use oneclock_test::{Protocol, Reason};
use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, TestRunner};

use crate::chain::{Apart, Chain, EVERY_TRUST, SPENT, WHEN_ABSENT, Want, field, says_at_most};
use crate::common::{BOTH, config, text, whole_h1};

/// Contract V12.
#[tokio::test]
async fn v12_whatever_is_said_to_two_in_a_row_the_service_is_told_no_more() {
    for protocol in BOTH {
        for trust in EVERY_TRUST {
            let service = peer::echo_headers(protocol).expect("a port");
            let chain = Chain::before(service.addr(), protocol, trust);
            let caller = Caller::h2(chain.first.addr).connect().await.expect("a connection");
            let far = "9999-12-31T23:59:59Z";
            let malformed = Want::Refused(StatusCode::BAD_REQUEST, "malformed_deadline");
            let expired = chain.no_more_than(0);
            let cases = [
                (vec![], chain.no_more_than(WHEN_ABSENT)),
                (vec![field("x-remaining-ms", 0)], expired),
                (vec![field("x-remaining-ms", "0000000000")], expired),
                (vec![field("grpc-timeout", "0S")], expired),
                (vec![field("x-envoy-expected-rq-timeout-ms", 0)], expired),
                (vec![field("x-request-deadline", "2001-01-01T00:00:00Z")], expired),
                (vec![field("x-remaining-ms", 1)], chain.no_more_than(1)),
                (vec![field("grpc-timeout", "1m")], chain.no_more_than(1)),
                (vec![field("x-envoy-expected-rq-timeout-ms", 1)], chain.no_more_than(1)),
                (vec![field("x-remaining-ms", 4)], chain.no_more_than(4)),
                (vec![field("x-remaining-ms", 60)], chain.no_more_than(60)),
                (vec![field("x-remaining-ms", 900)], chain.no_more_than(900)),
                (vec![field("x-remaining-ms", 3_500)], chain.no_more_than(3_500)),
                (vec![field("x-remaining-ms", 9_999_999_999_u64)], chain.no_more_than(u64::MAX)),
                (vec![field("grpc-timeout", "99999999H")], chain.no_more_than(u64::MAX)),
                (vec![field("grpc-timeout", "3500000u")], chain.no_more_than(3_500)),
                (vec![field("x-request-deadline", far)], chain.no_more_than(u64::MAX)),
                (vec![field("x-remaining-ms", "")], malformed),
                (vec![field("x-remaining-ms", "-1")], malformed),
                (vec![field("x-remaining-ms", "+5000")], malformed),
                (vec![field("x-remaining-ms", "1.5")], malformed),
                (vec![field("x-remaining-ms", "12345678901")], malformed),
                (vec![field("grpc-timeout", "123456789S")], malformed),
                (vec![field("grpc-timeout", "5")], malformed),
                (vec![field("x-request-deadline", "tomorrow")], malformed),
                // Several: the smallest counts, and none may be unreadable.
                (vec![field("x-remaining-ms", 9_000), field("x-request-timeout-ms", 3_500)], chain.no_more_than(3_500)),
                (vec![field("x-remaining-ms", 3_500), field("grpc-timeout", "9S")], chain.no_more_than(3_500)),
                (vec![field("x-remaining-ms", 5_000), field("x-remaining-ms", 700)], chain.no_more_than(700)),
                (vec![field("x-remaining-ms", 5_000), field("grpc-timeout", "0m")], expired),
                (vec![field("x-remaining-ms", 5_000), field("x-request-timeout-ms", "never")], malformed),
                (vec![field("x-remaining-ms", 5_000), field("x-remaining-ms", "soon")], malformed),
                // Zero is infinite for Envoy, and nothing here.
                (vec![field("x-envoy-upstream-rq-timeout-ms", 0)], chain.no_more_than(WHEN_ABSENT)),
                // Nobody has declared this one.
                (vec![field("x-timeout", 90)], chain.no_more_than(WHEN_ABSENT)),
            ];
            for (fields, want) in cases {
                let failed = |why| panic!("{protocol:?} {trust:?} {fields:?}: {want:?}, but {why}");
                chain.check(&service, &fields, want).await.unwrap_or_else(failed);
                chain.check_h2(&caller, &service, &fields, want).await.unwrap_or_else(failed);
            }
        }
    }
}

/// The same for what nobody thought of: any number of fields, with any values.
#[test]
fn v12_of_any_fields_the_smallest_is_never_lengthened() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let any_value = prop_oneof![0..20_u64, 20..3_000_u64, 3_000..20_000_u64, Just(9_999_999_999_u64)];
    let any_field = (0..FIELDS.len(), any_value);
    for trust in EVERY_TRUST {
        let (service, chain, caller) = runtime.block_on(async {
            let service = peer::echo_headers(Protocol::Http2).expect("a port");
            let chain = Chain::before(service.addr(), Protocol::Http2, trust);
            let caller = Caller::h2(chain.first.addr).connect().await.expect("a connection");
            (service, chain, caller)
        });
        let mut runner = TestRunner::new(Runs { cases: 64, failure_persistence: None, ..Runs::default() });
        let run = runner.run(&prop::collection::vec(any_field.clone(), 1..5), |said| {
            let fields: Vec<_> = said.iter().map(|(name, ms)| written(*name, *ms)).collect();
            let smallest = said.iter().map(|(_, ms)| *ms).min().unwrap_or(u64::MAX);
            let checked = chain.check_h2(&caller, &service, &fields, chain.no_more_than(smallest));
            runtime.block_on(checked).map_err(|why| TestCaseError::fail(format!("{fields:?}: {why}")))
        });
        run.unwrap_or_else(|why| panic!("{trust:?}: {why}"));
    }
}

/// Fields that everybody may say.
const FIELDS: [&str; 4] = ["x-remaining-ms", "x-request-timeout-ms", "x-envoy-expected-rq-timeout-ms", "grpc-timeout"];

fn written(name: usize, ms: u64) -> (&'static str, String) {
    match FIELDS[name] {
        "grpc-timeout" if ms > 99_999_999 => field("grpc-timeout", format!("{}S", ms / 1_000)),
        "grpc-timeout" => field("grpc-timeout", format!("{ms}m")),
        name => field(name, ms),
    }
}

/// The check tells a chain that lengthens: what a proxy does that passes fields on, and gives a route's time to all.
#[tokio::test]
async fn the_check_notices_a_field_that_says_more() {
    let service = peer::echo_headers(Protocol::Http1).expect("a port");
    let here = Chain::before(service.addr(), Protocol::Http1, EVERY_TRUST[0]);
    let said = [field("x-remaining-ms", 3_500)];
    here.check(&service, &said, Want::AtMost(3_500)).await.expect("as it is");
    here.check(&service, &said, Want::AtMost(1_600)).await.expect_err("told more than that");
    here.check(&service, &said, here.no_more_than(0)).await.expect_err("it arrived");
    let mut seen = service.await_requests(1).await.expect("a request").headers;
    seen.insert("x-envoy-expected-rq-timeout-ms", "15000".parse().expect("a value"));
    says_at_most(&seen, 3_500).expect_err("as Envoy writes it");
}

#[tokio::test]
async fn both_end_with_the_callers_deadline_and_with_its_leaving() {
    for protocol in BOTH {
        let service = peer::stall(protocol).expect("a port");
        let chain = Chain::before(service.addr(), protocol, EVERY_TRUST[0]);
        let call = Caller::h1(chain.first.addr).get("/stock").header("x-remaining-ms", "400");
        let (status, headers, _) = whole_h1(call.answer().await.expect("sent"));
        assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(text(&headers, "content-type"), "application/problem+json");
        let at_its_deadline = service.caller_left().await.expect("it is told").how;

        let caller = Caller::h2(chain.first.addr).connect().await.expect("a connection");
        let call = caller.get("/stock").header("x-remaining-ms", "9000").send().await.expect("sent");
        service.await_requests(2).await.expect("a request");
        call.reset(Reason::CANCEL);
        let left = service.callers_left(2).await.expect("it is told").how;
        let want = match protocol {
            Protocol::Http1 => Leaving::Closed,
            Protocol::Http2 => Leaving::StreamReset(Reason::CANCEL),
        };
        assert_eq!((at_its_deadline, left), (want, want), "{protocol:?}");
    }
}

/// Neither waits for the other to be told: the second has less, and both give up.
#[tokio::test]
async fn the_second_has_no_more_than_the_first_and_both_keep_a_reserve() {
    let service = peer::echo_headers(Protocol::Http1).expect("a port");
    let mut last = config(service.addr(), Protocol::Http1);
    last.routes[0].reserve = Duration::from_millis(200);
    let second = Apart::start(last);
    let mut outer = config(second.addr, Protocol::Http1);
    outer.routes[0].reserve = Duration::from_millis(300);
    let first = Apart::start(outer);
    let call = Caller::h1(first.addr).get("/stock").header("x-remaining-ms", "5000");
    let (status, ..) = whole_h1(call.answer().await.expect("sent"));
    assert_eq!(status, StatusCode::OK);
    let told = crate::common::told(&service.await_request().await.expect("a request").headers);
    assert!(told <= 5_000 - 500 && told > 5_000 - 500 - SPENT, "{told}");
}

/// What the second refused before it began is told as that by the first, to whom the second belongs: it may be repeated. A
/// stranger's word is not passed on.
#[tokio::test]
async fn the_reason_of_the_second_is_passed_on_if_it_is_one_of_ours() {
    let service = peer::echo_headers(Protocol::Http1).expect("a port");
    let mut last = config(service.addr(), Protocol::Http1);
    last.routes[0].min_useful = Duration::from_secs(8);
    last.routes[0].when_absent = Duration::from_secs(9);
    let second = Apart::start(last);
    for (trust, reason) in [(Trust::Inside, Some("insufficient_budget")), (Trust::Outside, None)] {
        for protocol in BOTH {
            let mut outer = config(second.addr, protocol);
            outer.upstreams.values_mut().for_each(|upstream| upstream.trust = trust);
            let first = Apart::start(outer);
            let call = Caller::h1(first.addr).get("/stock").header("x-remaining-ms", "5000");
            let (status, headers, _) = whole_h1(call.answer().await.expect("sent"));
            let said = headers.get("oneclock-reason").map(|reason| reason.to_str().expect("text"));
            assert_eq!((status, said), (StatusCode::GATEWAY_TIMEOUT, reason), "{trust:?} {protocol:?}");
        }
    }
    assert_eq!(service.requests(), 0);
}

/// Whatever code the service gives: a status of gRPC's that is a failure, none at all, or a reset. Nothing says that it went well.
#[tokio::test]
async fn a_call_of_grpc_that_the_service_resets_fails_through_both() {
    for at in [StreamResetAt::BeforeHead, StreamResetAt::MidBody] {
        for code in [Reason::CANCEL, Reason::INTERNAL_ERROR, Reason::REFUSED_STREAM, Reason::NO_ERROR] {
            let service = peer::grpc::reset_stream(at, code).expect("a port");
            let chain = Chain::before(service.addr(), Protocol::Http2, EVERY_TRUST[0]);
            let caller = Caller::h2(chain.first.addr).connect().await.expect("a connection");
            let call = caller.grpc("/shop.Pricing/Price", "cart 7").header("grpc-timeout", "5S");
            match call.send().await.expect("sent").answer().await {
                H2Outcome::Complete { status, headers, trailers, .. } => {
                    let said = trailers.as_ref().unwrap_or(&headers).get("grpc-status");
                    let said = said.map(|status| status.to_str().expect("text"));
                    let failed = said.is_some_and(|status| status != "0" && status != "4");
                    assert!(status == StatusCode::OK && failed, "{at:?} {code:?}: {status} {said:?}");
                }
                outcome => assert!(matches!(outcome, H2Outcome::Reset { .. }), "{at:?} {code:?}: {outcome:?}"),
            }
        }
    }
}
