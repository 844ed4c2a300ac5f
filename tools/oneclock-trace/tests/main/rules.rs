//! What is charged to whom, and what is claimed.

use oneclock_trace::{Certainty, Evidence, Own};
use serde_json::json;

use crate::support::{S, T0, line, ms, read, span, trace};

const LEFT: &str = "oneclock.deadline.remaining_ms.start";

/// The naive sum of what children took is more than their parent had.
#[test]
fn i13_parallel_children_charge_the_interval_that_they_cover_together() {
    let trace = trace(&[
        span(1, 0, "order", 2, 0.0, 100.0),
        span(2, 1, "order", 3, 10.0, 60.0),
        span(3, 1, "order", 3, 20.0, 90.0),
        span(4, 1, "order", 3, 30.0, 40.0),
    ]);
    let naive: u64 = trace.spans[1..].iter().map(|row| row.took_ns).sum();
    assert!(naive > trace.elapsed_ns, "otherwise this shows nothing");
    let charged: Vec<f64> = trace.spans.iter().map(|row| ms(row.charged_ns)).collect();
    assert_eq!(charged, [100.0, 10.0, 70.0, 0.0]);
    assert_eq!(ms(trace.spans[0].unaccounted_ns), 20.0);
}

#[test]
fn i14_on_one_clock_a_child_that_ran_on_is_told_exactly() {
    let trace = trace(&[span(1, 0, "order", 2, 0.0, 100.0), span(2, 1, "order", 1, 50.0, 130.5)]);
    let [zombie] = &trace.findings.zombies[..] else { panic!("{:?}", trace.findings) };
    assert_eq!((zombie.certainty, ms(zombie.after_ns), zombie.began_after), (Certainty::Exact, 30.5, false));
    assert_eq!(ms(trace.spans[1].charged_ns), 50.0, "its parent waited for no more than that");
}

/// Naively its end is 40 ms after its client's. But it fits into its client if its clock is 45 ms ahead.
#[test]
fn i14_what_clocks_that_are_apart_would_explain_is_not_claimed() {
    let trace = trace(&[span(1, 0, "order", 3, 0.0, 100.0), span(2, 1, "stock", 2, 50.0, 140.0)]);
    let [zombie] = &trace.findings.zombies[..] else { panic!("{:?}", trace.findings) };
    assert_eq!((zombie.certainty, ms(zombie.after_ns)), (Certainty::Unproven, 40.0));
    assert_eq!((trace.zombie_ns(), ms(trace.spans[1].charged_ns)), (0, 90.0), "on one clock it fits");
    let [skew] = &trace.skews[..] else { panic!("{:?}", trace.skews) };
    assert_eq!((skew.at_least_ns, skew.at_most_ns, skew.added_ns), (-50_000_000, Some(-40_000_000), -40_000_000));
}

/// It took longer than its client: whatever the clocks, it ran on for the difference.
#[test]
fn i14_what_no_offset_explains_is_claimed_with_the_least_that_it_can_be() {
    for ahead in [-500.0, -20.0, 0.0, 20.0, 500.0] {
        let server = span(2, 1, "stock", 2, 1000.0 + ahead, 1150.0 + ahead);
        let trace = trace(&[span(1, 0, "order", 3, 1000.0, 1100.0), server]);
        let [zombie] = &trace.findings.zombies[..] else { panic!("{ahead}: {:?}", trace.findings) };
        assert_eq!((zombie.certainty, ms(zombie.after_ns)), (Certainty::AtLeast, 50.0), "{ahead}");
    }
}

/// Other calls between the same two narrow the interval, and so prove what one call alone cannot.
#[test]
fn i14_other_calls_of_the_pair_narrow_the_interval() {
    let doubtful =
        [span(1, 0, "order", 2, 0.0, 300.0), span(2, 1, "order", 3, 0.0, 100.0), span(3, 2, "stock", 2, 30.0, 120.0)];
    assert_eq!(trace(&doubtful).zombie_ns(), 0);
    let tight = [span(4, 1, "order", 3, 200.0, 210.0), span(5, 4, "stock", 2, 201.0, 209.0)];
    let both: Vec<S> = doubtful.into_iter().chain(tight).collect();
    assert_eq!(
        ms(trace(&both).zombie_ns()),
        19.0,
        "20 ms as recorded, less the millisecond that the clocks may be apart"
    );
}

#[test]
fn i14_what_nobody_waits_for_is_no_zombie_and_has_a_ledger_of_its_own() {
    let parent = || span(1, 0, "order", 2, 0.0, 100.0);
    let detached = span(2, 1, "order", 1, 50.0, 200.0).with("oneclock.detached", json!(true));
    let publish = span(2, 1, "order", 4, 50.0, 200.0);
    let work = span(2, 1, "mailer", 5, 50.0, 200.0).on("order");
    for (child, own) in [(detached, Some(Own::Declared)), (publish, None), (work, Some(Own::Message))] {
        let trace = trace(&[parent(), child]);
        assert_eq!((trace.findings.zombies.len(), trace.spans[1].own), (0, own));
        assert_eq!(ms(trace.elapsed_ns), 100.0);
    }
    // The same without being declared.
    assert_eq!(ms(trace(&[parent(), span(2, 1, "order", 1, 50.0, 200.0)]).zombie_ns()), 100.0);
}

#[test]
fn work_that_a_producer_or_a_consumer_leaves_running_is_its_own_operation() {
    let spans = [span(1, 0, "mailer", 5, 0.0, 0.1), span(2, 1, "mailer", 1, 0.05, 90.0)];
    let trace = trace(&spans);
    assert_eq!((trace.findings.zombies.len(), trace.spans[1].own), (0, Some(Own::Message)));
    assert_eq!(ms(trace.spans[1].charged_ns), 89.95);
}

#[test]
fn what_began_when_its_parent_had_ended_was_not_abandoned() {
    let trace = trace(&[span(1, 0, "order", 2, 0.0, 100.0), span(2, 1, "order", 1, 150.0, 170.0)]);
    assert_eq!((trace.zombie_ns(), trace.spans[1].own), (0, Some(Own::BegunAfter)));
    let [zombie] = &trace.findings.zombies[..] else { panic!("{:?}", trace.findings) };
    assert!(zombie.began_after);
    assert_eq!(ms(zombie.after_ns), 20.0, "it worked for no longer, however late it began");
}

#[test]
fn a_wait_that_is_told_as_an_attribute_is_an_entry() {
    let work = span(2, 1, "order", 1, 40.0, 90.0);
    let waited = span(1, 0, "order", 2, 0.0, 100.0).with("oneclock.queue_wait_ms", json!(30));
    let trace = trace(&[waited, work]);
    let names: Vec<_> = trace.spans.iter().map(|row| (row.name.as_str(), ms(row.charged_ns))).collect();
    assert_eq!(names, [("op-1", 100.0), ("queue wait", 30.0), ("op-2", 50.0)]);
    assert_eq!(ms(trace.spans[0].unaccounted_ns), 20.0);
}

#[test]
fn a_retry_says_what_it_had_left_when_it_began() {
    let caller = || span(1, 0, "order", 2, 0.0, 500.0);
    let first = || span(2, 1, "order", 3, 10.0, 200.0).name("GET /price").failed();
    let again = || span(3, 1, "order", 3, 250.0, 480.0).name("GET /price");
    let trace_of = |caller: S, first: S, again: S| trace(&[caller, first, again]).findings.retries;

    let [retry] = &trace_of(caller().with(LEFT, json!(400)), first(), again())[..] else { panic!("one retry") };
    assert_eq!((retry.attempt, retry.waited_ns.map(ms), retry.left_ns.map(ms)), (2, Some(50.0), Some(150.0)));
    // Nobody tells a budget: until the parent ended.
    let [retry] = &trace_of(caller(), first(), again())[..] else { panic!("one retry") };
    assert_eq!((retry.left_ns, ms(retry.until_parent_ended_ns)), (None, 250.0));
    // What did not fail before it is a loop, unless it says that it is a retry.
    let fine = || span(2, 1, "order", 3, 10.0, 200.0).name("GET /price");
    assert_eq!(trace_of(caller(), fine(), again()).len(), 0);
    for (key, value, attempt) in [("http.request.resend_count", 2, 3), ("oneclock.attempt", 2, 2)] {
        let [retry] = &trace_of(caller(), fine(), again().with(key, json!(value)))[..] else { panic!("{key}") };
        assert_eq!(retry.attempt, attempt, "{key}");
    }
    // Two at the same time are a fan-out, or a hedge.
    assert_eq!(trace_of(caller(), first(), span(3, 1, "order", 3, 100.0, 300.0).name("GET /price")).len(), 0);
}

#[test]
fn a_hop_that_gives_more_than_was_left_reset_the_clock() {
    let caller = || span(1, 0, "order", 3, 0.0, 500.0).with(LEFT, json!(500));
    let served = |left: u64| span(2, 1, "price", 2, 200.0, 400.0).on("order").with(LEFT, json!(left));
    for (left, reset) in [(2_000, true), (320, true), (300, false), (250, false)] {
        let resets = trace(&[caller(), served(left)]).findings.resets;
        assert_eq!(!resets.is_empty(), reset, "{left}: {resets:?}");
    }
    let [reset] = &trace(&[caller(), served(2_000)]).findings.resets[..] else { panic!("one reset") };
    assert_eq!(reset.evidence, Evidence::GivenMore { given_ns: 2_000_000_000, left_ns: 300_000_000 });
    // A field that an instrumentation recorded, and the conventions of others.
    for (key, value) in [
        ("http.request.header.x-remaining-ms", json!("2000")),
        ("rpc.grpc.request.metadata.grpc-timeout", json!("2S")),
        ("rpc.request.timeout", json!("2s")),
        ("rpc.request.deadline", json!((T0 / 1_000_000 + 200 + 2_000).to_string())),
    ] {
        let served = span(2, 1, "price", 2, 200.0, 400.0).on("order").with(key, value);
        let [reset] = &trace(&[caller(), served]).findings.resets[..] else { panic!("{key}") };
        assert_eq!(reset.evidence, Evidence::GivenMore { given_ns: 2_000_000_000, left_ns: 300_000_000 }, "{key}");
    }
}

/// On another clock the time that passed is not known, so the least of it counts.
#[test]
fn a_reset_is_not_claimed_from_clocks_that_are_apart() {
    let caller = span(1, 0, "order", 3, 0.0, 500.0).with(LEFT, json!(500));
    let served = span(2, 1, "price", 2, 200.0, 400.0).with(LEFT, json!(480)); // 20 ms on the way, and a clock 180 ms ahead
    assert_eq!(trace(&[caller, served]).findings.resets, []);
}

#[test]
fn a_call_that_outlived_its_caller_on_a_round_time_of_its_own_reset_the_clock() {
    let own = |took: f64| {
        let resets = trace(&[span(1, 0, "order", 2, 0.0, 800.0), span(2, 1, "order", 3, 5.0, 5.0 + took).failed()]);
        resets.findings.resets.iter().map(|reset| reset.evidence).collect::<Vec<_>>()
    };
    assert_eq!(own(3_001.2), [Evidence::OwnRoundTime { round_ns: 3_000_000_000 }]);
    assert_eq!(own(3_210.0), []);
    assert_eq!(own(2_999.9), [], "a timer is never early");
    assert_eq!(own(500.1), [], "it did not outlive its caller");
}

#[test]
fn a_failed_call_that_ended_with_its_caller_waited_on_something_that_was_never_recorded() {
    let cut_off = |ended: f64, below: Option<S>| {
        let spans = [span(1, 0, "order", 2, 0.0, 1_000.0).failed(), span(2, 1, "order", 3, 100.0, ended)];
        let spans: Vec<S> = spans.into_iter().chain(below).collect();
        trace(&spans).findings.unrecorded.iter().map(|found| ms(found.waited_ns)).collect::<Vec<_>>()
    };
    assert_eq!(cut_off(999.8, None), [899.8]);
    assert_eq!(cut_off(700.0, None), Vec::<f64>::new());
    assert_eq!(cut_off(999.8, Some(span(3, 2, "price", 2, 110.0, 990.0))), Vec::<f64>::new(), "it is recorded");
}

#[test]
fn many_equal_durations_at_a_round_number_look_like_a_timeout() {
    let traces = |took: fn(u64) -> f64| {
        let text: Vec<String> = (0..40)
            .map(|n| {
                let call = span(2, 1, "order", 3, 0.0, took(n)).of(n).name("POST /charge").failed();
                line(&[span(1, 0, "order", 2, 0.0, 20_000.0 + n as f64 * 317.0).of(n), call])
            })
            .collect();
        read(&text.join("\n")).1.timeouts
    };
    let often = traces(|n| if n % 4 == 0 { 15_001.0 + n as f64 / 10.0 } else { 900.0 + n as f64 * 37.0 });
    let [timeout] = &often[..] else { panic!("{often:?}") };
    assert_eq!((ms(timeout.round_ns), timeout.spans, timeout.of, timeout.traces), (15_000.0, 10, 40, 10));
    assert_eq!((timeout.failed, timeout.name.as_str()), (10, "POST /charge"));
    // Spread evenly over the round number there are as many just above it, and more around it.
    assert_eq!(traces(|n| 14_900.0 + n as f64 * 7.0), []);
    assert_eq!(traces(|_| 14_990.0), [], "a timer is never early");
}

#[test]
fn what_was_recorded_before_its_root_keeps_its_place() {
    let early = span(2, 1, "order", 5, 10.0, 30.0);
    let work = [span(3, 2, "order", 1, 12.0, 16.0), span(4, 2, "order", 1, 20.0, 24.0)];
    let [first, second] = work;
    let trace = trace(&[span(1, 0, "order", 2, 50.0, 100.0), early, first, second]);
    let began: Vec<f64> = trace.spans.iter().map(|row| ms(row.began_ns)).collect();
    assert_eq!(began, [40.0, 0.0, 2.0, 10.0]);
}
