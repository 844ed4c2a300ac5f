//! Who got no place, and why; and what stands before the places, as it is at the scrape.

use oneclock::Admission;
use oneclock::events::{Event, Observer as _, Refusal};
use oneclock_core::admission::{self, Mode, Settings, Why};
use oneclock_telemetry::names::*;
use tower::{Layer as _, Service as _};

use crate::support::{Counted, answer, get, handler, ingress, ms};

const BUSY: u64 = 90;

/// Sends requests at once to a handler that takes 90 ms, each with so many milliseconds; the statuses.
async fn at_once<const N: usize>(counted: &Counted, admission: &Admission, budgets: [&'static str; N]) -> Vec<u16> {
    let service = ingress(counted).admission(admission).layer(handler(|| async {
        tokio::time::sleep(ms(BUSY)).await;
        answer()
    }));
    let answers = budgets.map(|budget| {
        let mut service = service.clone();
        let asked = service.call(get(&[("x-remaining-ms", budget)]));
        async move { asked.await.unwrap().status().as_u16() }
    });
    futures_util::future::join_all(answers).await
}

#[tokio::test(start_paused = true)]
async fn one_for_whom_there_is_no_room_is_refused_as_it_arrives() {
    let counted = Counted::new();
    let admission = Admission::to("pool", Settings::fixed(1).queue(0)).unwrap();
    assert_eq!(at_once(&counted, &admission, ["150", "150"]).await, [200, 503]);
    let seen = counted.seen();
    assert_eq!(seen.of(&NOT_ADMITTED, &["order", "/orders", "full", "arrival"]), 1.0);
    assert_eq!((seen.sum(&NOT_ADMITTED), seen.sum(&QUEUE_WAIT)), (1.0, 0.0));
    assert_eq!(seen.of(&ANSWERED, &["order", "/orders", "shed"]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn one_whose_turn_does_not_come_in_time_is_dropped_from_the_queue_and_its_wait_is_known() {
    let counted = Counted::new();
    let admission = Admission::to("pool", Settings::fixed(1)).unwrap();
    // Nothing is known of such work yet, so nobody is doomed: the second one runs out of time, the third gets its turn.
    assert_eq!(at_once(&counted, &admission, ["150", "80", "190"]).await, [200, 504, 200]);
    let seen = counted.seen();
    assert_eq!(seen.of(&NOT_ADMITTED, &["order", "/orders", "expired", "queue"]), 1.0);
    assert_eq!(seen.of(&QUEUE_WAIT, &["order", "/orders"]), 2.0);
    let sum = seen
        .text()
        .lines()
        .find_map(|line| line.strip_prefix(r#"oneclock_queue_wait_seconds_sum{operation="order",route="/orders"} "#));
    let waited: f64 = sum.unwrap().parse().unwrap();
    assert!((waited - 0.17).abs() < 0.001, "80 ms and 90 ms, not {waited}");
    assert_eq!(seen.sum(&NOT_ADMITTED), 1.0);
}

#[tokio::test(start_paused = true)]
async fn one_that_becomes_doomed_while_it_waits_is_counted_once() {
    let counted = Counted::new();
    let admission = Admission::to("pool", Settings::fixed(1)).unwrap();
    for _ in 0..40 {
        assert_eq!(at_once(&counted, &admission, ["150"]).await, [200]);
    }
    // The place is free after 90 ms, and such work needs about as much. Who has 140 could make it with luck, and is told once it
    // could not.
    assert_eq!(at_once(&counted, &admission, ["150", "140"]).await, [200, 504]);
    let seen = counted.seen();
    assert_eq!(seen.of(&NOT_ADMITTED, &["order", "/orders", "doomed", "queue"]), 1.0);
    assert_eq!(seen.sum(&NOT_ADMITTED), 1.0);
    assert_eq!(seen.of(&CANCELLED, &["order", "/orders", "shed", "queue"]), 1.0);
    // Who has 60 has no chance, and is not let in; but one of them now and then, to find out.
    assert_eq!(at_once(&counted, &admission, ["150", "60", "60", "60"]).await, [200, 504, 504, 504]);
    let seen = counted.seen();
    assert!(seen.of(&NOT_ADMITTED, &["order", "/orders", "doomed", "arrival"]) >= 1.0);
    assert_eq!(seen.sum(&NOT_ADMITTED), 4.0);
}

#[test]
fn what_is_optional_is_told_apart() {
    let counted = Counted::new();
    let why =
        |why| admission::Refusal { why, remaining: ms(80), needed: ms(90), waited: ms(0), wait: ms(30), places: 1 };
    for one in [Why::Optional, Why::Expired, Why::Full] {
        let refusal = Refusal::new("order".into(), why(one).reason(), ms(80), None).by_admission(why(one));
        counted.metrics.on(&Event::Refused(&refusal));
    }
    let seen = counted.seen();
    for one in ["optional", "expired", "full"] {
        assert_eq!(seen.of(&NOT_ADMITTED, &["order", "none", one, "arrival"]), 1.0, "{one}");
    }
}

#[tokio::test(start_paused = true)]
async fn in_shadow_nobody_is_refused_and_it_is_known_who_would_be() {
    let counted = Counted::new();
    let admission = Admission::to("pool", Settings::fixed(1).queue(0).mode(Mode::Shadow)).unwrap();
    assert_eq!(at_once(&counted, &admission, ["150", "150"]).await, [200, 200]);
    let seen = counted.seen();
    assert_eq!(seen.of(&WOULD_REFUSE, &["order", "/orders", "full"]), 1.0);
    assert_eq!((seen.sum(&WOULD_REFUSE), seen.sum(&NOT_ADMITTED)), (1.0, 0.0));
}

#[tokio::test(start_paused = true)]
async fn the_places_are_as_they_are_at_the_scrape() {
    let counted = Counted::new();
    let admission = Admission::to("pool", Settings::fixed(1)).unwrap();
    assert_eq!(counted.seen().series(&PLACES), 0, "nobody told of it");
    counted.metrics.watch_admission(&admission);
    counted.metrics.watch_admission(&admission); // twice is once
    let seen = counted.seen();
    assert_eq!((seen.series(&PLACES), seen.of(&PLACES, &["pool"])), (1, 1.0));
    assert_eq!((seen.series(&NEEDED), seen.series(&CUT_OFF)), (0, 0), "nothing is known yet");

    for _ in 0..40 {
        at_once(&counted, &admission, ["150"]).await;
    }
    let place = admission.ask(&wants(), oneclock::clock::now());
    let waits = admission.ask(&wants(), oneclock::clock::now());
    let seen = counted.seen();
    assert_eq!((seen.of(&PLACES_TAKEN, &["pool"]), seen.of(&WAITING, &["pool"])), (1.0, 1.0));
    assert_eq!((seen.series(&STANDING), seen.sum(&STANDING)), (1, 0.0));
    for (metric, values) in [(&HELD, &["pool"][..]), (&NEEDED, &["pool", "GET /orders"][..])] {
        let seconds = seen.of(metric, values);
        assert!((0.08..0.11).contains(&seconds), "{}: {seconds}", metric.name);
    }
    assert_eq!((seen.series(&CUT_OFF), seen.of(&CUT_OFF, &["pool", "GET /orders"])), (1, 0.0));
    drop((place, waits));
    let seen = counted.seen();
    assert_eq!((seen.of(&PLACES_TAKEN, &["pool"]), seen.of(&WAITING, &["pool"])), (0.0, 0.0));

    for mode in [Mode::Enforce, Mode::Shadow, Mode::Observe] {
        admission.set_mode(mode);
        let seen = counted.seen();
        assert_eq!(seen.of(&ADMISSION_MODE, &["pool", mode.as_str()]), 1.0, "{mode}");
        assert_eq!((seen.series(&ADMISSION_MODE), seen.sum(&ADMISSION_MODE)), (3, 1.0), "{mode}");
    }
}

fn wants() -> oneclock::admission::Wants<'static> {
    oneclock::admission::Wants {
        class: Some("GET /orders"),
        deadline: oneclock_core::Deadline::after(oneclock::clock::now(), ms(5_000)),
        importance: oneclock_core::Importance::Required,
        peer: 0,
    }
}
