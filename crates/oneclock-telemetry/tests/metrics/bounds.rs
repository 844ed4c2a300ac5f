//! What a scrape can grow to: labels are bounded, samples are folded, and nothing is lost to either.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneclock::Operation;
use oneclock::events::{Event, Observer};
use oneclock_core::{Name, Policy, Reason, Trust};
use oneclock_http::{IngressLayer, Route};
use oneclock_telemetry::Metrics;
use oneclock_telemetry::names::*;
use tower::{Layer as _, Service as _};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

use crate::support::{Counted, Seen, answer, get, handler, ms};

fn with_names(most: usize) -> Counted {
    let (metrics, scrape) = Metrics::builder().names(most).build().unwrap();
    Counted { metrics, scrape }
}

/// Names that a scanner, or a mistake, makes up.
#[test]
fn past_the_limit_there_is_one_more_series_and_no_count_is_lost() {
    let counted = with_names(10);
    for n in 0..300 {
        let job = Operation::begin(format!("made-up-{n}"), ms(1_000)).observed_by(counted.observer());
        drop(job);
        let call = Name::from(format!("host-{n}"));
        let event = Event::NotCalled { operation: &"job".into(), call: &call, reason: Reason::Cap };
        counted.metrics.on(&event);
    }
    let seen = counted.seen();
    for metric in [OPERATIONS, OPERATION_SECONDS, NOT_CALLED] {
        assert_eq!(seen.series(&metric), 11, "{}", metric.name);
        assert_eq!(seen.sum(&metric), 300.0, "{}", metric.name);
    }
    assert_eq!(seen.of(&OPERATIONS, &["overflow", "overflow", "none"]), 290.0);
    assert_eq!(seen.of(&NOT_CALLED, &["overflow", "cap"]), 290.0);
    assert_eq!(seen.of(&OPERATIONS, &["made-up-3", "none", "none"]), 1.0, "what came first keeps its own");
}

/// A series that is known goes on, however many others there were since.
#[test]
fn a_known_series_is_not_moved_to_the_overflow() {
    let counted = with_names(1);
    for name in ["a", "b", "a"] {
        drop(counted.begin(name, ms(1_000)));
    }
    let seen = counted.seen();
    assert_eq!(seen.of(&OPERATIONS, &["a", "none", "none"]), 2.0);
    assert_eq!(seen.of(&OPERATIONS, &["overflow", "overflow", "none"]), 1.0);
}

/// A service of few routes keeps them all, however many words each comes with.
#[test]
fn words_do_not_use_up_the_names() {
    let counted = with_names(2);
    let reasons = [Reason::Cap, Reason::Shed, Reason::Deadline, Reason::Shutdown];
    for host in ["a", "b", "c", "d"] {
        for reason in reasons {
            let event = Event::NotCalled { operation: &"job".into(), call: &host.into(), reason };
            counted.metrics.on(&event);
        }
    }
    let seen = counted.seen();
    for reason in reasons {
        assert_eq!(seen.of(&NOT_CALLED, &["a", reason.as_str()]), 1.0);
        assert_eq!(seen.of(&NOT_CALLED, &["b", reason.as_str()]), 1.0);
        assert_eq!(seen.of(&NOT_CALLED, &["overflow", reason.as_str()]), 2.0);
    }
    assert_eq!(seen.series(&NOT_CALLED), 3 * reasons.len());
}

/// What is no longer told apart is said, once for each metric, and with the way out.
#[test]
fn the_first_overflow_of_a_metric_is_logged_once() {
    let said = Said::default();
    let counted = with_names(1);
    let not_called = |host: &'static str, reason| {
        counted.metrics.on(&Event::NotCalled { operation: &"job".into(), call: &host.into(), reason });
    };
    tracing::subscriber::with_default(said.clone(), || {
        for reason in [Reason::Cap, Reason::Shed] {
            not_called("a", reason);
        }
        assert_eq!(said.lines(), Vec::<String>::new());
        for host in ["b", "c", "d"] {
            for reason in [Reason::Cap, Reason::Shed] {
                not_called(host, reason);
            }
            let event = Event::Detached { from: &host.into(), operation: &"later".into(), reason: "test" };
            counted.metrics.on(&event);
        }
    });
    let lines = said.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, metric) in lines.iter().zip([NOT_CALLED, DETACHED]) {
        assert!(line.contains(&format!("metric=\"{}\"", metric.name)), "{line}");
        assert!(line.contains("limit=1") && line.contains("MetricsBuilder::names"), "{line}");
    }
}

/// The warnings that were logged, as `field=value` in order.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Said {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!("{}={value:?} ", field.name()));
    }
}

impl Subscriber for Said {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Many threads, of which each adds series while the others write.
#[test]
fn nothing_is_counted_twice_or_lost_when_many_write() {
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
    let counted = with_names(3);
    std::thread::scope(|scope| {
        for first in 0..8 {
            let counted = &counted;
            scope.spawn(move || {
                for n in 0..2_000 {
                    drop(counted.begin(NAMES[(first + n) % NAMES.len()], ms(1_000)));
                }
            });
        }
    });
    let seen = counted.seen();
    assert_eq!(seen.sum(&OPERATIONS), 16_000.0);
    assert_eq!(seen.sum(&OPERATION_SECONDS), 16_000.0, "also those that were folded between scrapes");
    assert_eq!(seen.series(&OPERATIONS), 4);
}

/// The exporter keeps every sample until somebody reads: 600 000 of them would be 10 MB, and those of a day all there is.
#[cfg(target_os = "linux")]
#[test]
fn a_process_that_nobody_scrapes_does_not_grow() {
    const KIB: u64 = 1024;
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * KIB
    };
    let counted = Counted::new();
    let begin = |times| (0..times).for_each(|_| drop(counted.begin("job", ms(1_000))));
    begin(10_000);
    let before = resident();
    begin(600_000);
    let grown = resident().saturating_sub(before);
    assert!(grown < 5_000 * KIB, "{grown} bytes");
    assert_eq!(counted.seen().sum(&OPERATION_SECONDS), 610_000.0);
}

/// Most services have no route for what scanners ask for: that is one value, never the path.
#[test]
fn what_matched_no_route_is_none() {
    let counted = Counted::new();
    drop(counted.begin("job", ms(1_000)));
    assert_eq!(counted.seen().of(&OPERATIONS, &["job", NONE, NONE]), 1.0);
}

/// Callers choose the paths of remote procedures: only what the policy lists is a value, so a caller cannot make one up, not
/// even one that begins like a listed service.
#[tokio::test(start_paused = true)]
async fn a_remote_procedure_is_labelled_as_the_policy_lists_it() {
    let counted = Counted::new();
    let policy = Policy::named("shop")
        .when_absent(ms(100))
        .route("/shop.Pricing/Price", |limits| limits)
        .route("/shop.Stock", |limits| limits)
        .build()
        .unwrap();
    let layer = IngressLayer::new(policy)
        .trust(Trust::Inside)
        .route_by(|_, uri| Some(Route::Method(uri.path())))
        .observed_by(counted.observer());
    for (path, spent) in [
        ("/shop.Pricing/Price", false),
        ("/shop.Pricing/Price", true), // refused: told by another event
        ("/shop.Pricing/made-up", false),
        ("/shop.Stock/Reserve", false),
        ("/shop.Stock/made-up", true),
    ] {
        let mut request = get(if spent { &[("x-remaining-ms", "0")] } else { &[] });
        *request.uri_mut() = path.parse().unwrap();
        let answered = layer.layer(handler(async || answer())).call(request).await.unwrap();
        drop(answered.into_body());
    }
    let seen = counted.seen();
    for (route, done, refused) in [("/shop.Pricing/Price", 1.0, 1.0), ("/shop.Stock", 1.0, 1.0), (NONE, 1.0, 0.0)] {
        assert_eq!(seen.of(&MISSING, &["shop", route]), done, "{route}");
        assert_eq!(seen.of(&ANSWERED, &["shop", route, "expired_before_start"]), refused, "{route}");
    }
    assert_eq!(seen.series(&MISSING), 3);
}

/// A timeout between two standard edges: without an edge of its own, what was cut off looks like what was just in time.
#[tokio::test(start_paused = true)]
async fn what_was_cut_off_at_a_timeout_stands_apart_from_what_was_in_time() {
    let policy = Policy::named("order").when_absent(ms(800)).ceiling(ms(800)).build().unwrap();
    let (metrics, scrape) = Metrics::builder().policy(&policy).build().unwrap();
    let (standard, standard_scrape) = Metrics::builder().build().unwrap();
    for metrics in [metrics, standard] {
        for takes in [790, 900] {
            let job = Operation::begin("order", ms(800)).observed_by(Arc::new(metrics.clone()));
            let _ = job.run(tokio::time::sleep(ms(takes))).await;
            tokio::time::advance(Duration::from_micros(300)).await; // a timer is a little late
            drop(job);
        }
    }
    // Whatever they ended with: a handler that reports its own timeout has done its work.
    let edges = |text: String| {
        let prefix = format!("{}_bucket", OPERATION_SECONDS.name);
        let mut counts = std::collections::BTreeMap::<String, u32>::new();
        for line in text.lines().filter(|line| line.starts_with(&prefix)) {
            let (edge, count) = line.split_once("le=\"").unwrap().1.split_once("\"} ").unwrap();
            *counts.entry(edge.to_owned()).or_default() += count.parse::<u32>().unwrap();
        }
        counts.into_iter().map(|(edge, count)| format!("{edge} {count}")).collect::<Vec<_>>()
    };
    let cut = edges(scrape.render());
    assert!(cut.contains(&"0.75 0".to_owned()) && cut.contains(&"0.8 1".to_owned()), "{cut:?}");
    let standard = edges(standard_scrape.render());
    assert!(!standard.iter().any(|edge| edge.starts_with("0.8 ")), "{standard:?}");
    assert!(standard.contains(&"0.75 0".to_owned()) && standard.contains(&"1 2".to_owned()), "{standard:?}");
}

/// Names come from code, and yet a quote must not end a label.
#[test]
fn a_name_with_a_quote_stays_one_value() {
    let counted = Counted::new();
    let job = Operation::begin("a\"b\nc", ms(1_000)).observed_by(counted.observer());
    drop(job);
    let seen: Seen = counted.seen();
    assert!(seen.text().contains("operation=\"a\\\"b\\nc\",route"), "{}", seen.text());
}
