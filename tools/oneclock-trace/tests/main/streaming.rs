//! More traces than are held: bounded, counted, and told while the rest is still to come.

use std::io::{PipeWriter, Write, pipe};
use std::sync::mpsc;
use std::time::Duration;

use oneclock_trace::{Limits, Told, explain};

use crate::support::{line, read_within, span};

const TRACES: u64 = 5_000;

/// Twelve spans, in two lines, as two services would export them.
fn halves(trace: u64) -> [String; 2] {
    let spans: Vec<_> = (1..=12)
        .map(|id| {
            let service = if id <= 6 { "order" } else { "stock" };
            span(id, id / 2, service, 1, id as f64, 100.0 - id as f64).on("one").of(trace + 1)
        })
        .collect();
    [line(&spans[..6]), line(&spans[6..])]
}

/// The second half of each comes when the first halves of 30 others came between.
fn write(mut to: PipeWriter, first_told: &mpsc::Receiver<()>) {
    let mut waiting = std::collections::VecDeque::new();
    for trace in 0..TRACES {
        let [first, second] = halves(trace);
        writeln!(to, "{first}").unwrap();
        waiting.push_back(second);
        if waiting.len() > 30 {
            writeln!(to, "{}", waiting.pop_front().unwrap()).unwrap();
        }
        if trace == TRACES / 2 {
            // Nothing more comes until a trace was told: one that reads all before it tells anything ends here.
            first_told.recv_timeout(Duration::from_secs(60)).expect("a trace is told while the input is open");
        }
    }
    waiting.iter().for_each(|second| writeln!(to, "{second}").unwrap());
}

#[test]
fn five_thousand_traces_from_a_pipe_are_told_as_they_come_and_few_are_held() {
    let (from, to) = pipe().unwrap();
    let (told_one, first_told) = mpsc::channel();
    let writer = std::thread::spawn(move || write(to, &first_told));
    let limits = Limits { open_traces: 64, ..Limits::default() };
    let (mut traces, mut whole) = (0, 0);
    let total = explain(from, limits, |told| {
        if let Told::Trace(trace) = told {
            traces += 1;
            whole += u64::from(trace.spans.len() == 12 && trace.roots == 1);
            let _ = told_one.send(());
        }
    })
    .unwrap();
    writer.join().unwrap();
    assert_eq!((traces, whole, total.spans), (TRACES, TRACES, TRACES * 12), "none is torn");
    assert!(total.peak.open_traces <= 64 && total.peak.open_spans <= 64 * 12, "{:?}", total.peak);
    assert_eq!((total.dropped.late_spans, total.dropped.closed_early), (0, TRACES - 64));
}

#[test]
fn what_comes_after_its_trace_was_closed_is_counted() {
    let text: Vec<String> =
        [0, 1].into_iter().flat_map(|half| (0..10).map(move |trace| halves(trace)[half].clone())).collect();
    let (traces, total) = read_within(&text.join("\n"), Limits { open_traces: 4, ..Limits::default() });
    assert_eq!(traces.len(), 10);
    assert_eq!((total.dropped.closed_early, total.dropped.late_spans), (6, 36));
    assert_eq!(total.spans + total.dropped.late_spans, 120);
}

#[test]
fn each_bound_holds_and_says_what_it_cost() {
    let many: Vec<_> = (1..=50).map(|id| span(id, 0, "order", 1, 0.0, 1.0)).collect();
    let (traces, total) = read_within(&line(&many), Limits { spans_per_trace: 20, ..Limits::default() });
    assert_eq!((traces[0].spans.len(), traces[0].oddities.dropped, total.dropped.spans_beyond_trace), (20, 30, 30));

    let apart: Vec<String> = (0..40).map(|trace| line(&[span(1, 0, "order", 1, 0.0, 1.0).of(trace)])).collect();
    let (_, total) = read_within(&apart.join("\n"), Limits { open_spans: 10, ..Limits::default() });
    assert!(total.peak.open_spans <= 10 && total.dropped.closed_early == 30, "{:?}", total.peak);

    let names: Vec<_> =
        (1..=50).map(|id| span(id, 0, "order", 1, f64::from(id as u32), f64::from(id as u32) + 1.0)).collect();
    let (_, total) = read_within(&line(&names), Limits { names: 8, ..Limits::default() });
    assert_eq!(total.names.len(), 9);
    let others = total.names.last().unwrap();
    assert_eq!((others.name.as_str(), others.spans), ("others", 42));
    let sum: u64 = total.names.iter().map(|name| name.own_ns).sum();
    assert_eq!(sum, total.elapsed_ns);

    // A Jaeger document waits for its processes, so its spans are bounded where it is read.
    let jaeger: Vec<String> = (0..30)
        .map(|id| {
            format!(
                r#"{{"traceID":"1","spanID":"{id}","operationName":"x","startTime":1,"duration":1,"processID":"p"}}"#
            )
        })
        .collect();
    let text = format!(r#"{{"data":[{{"traceID":"1","spans":[{}],"processes":{{}}}}]}}"#, jaeger.join(","));
    let (traces, total) = read_within(&text, Limits { spans_per_trace: 20, ..Limits::default() });
    assert_eq!((traces[0].spans.len(), total.dropped.spans_beyond_trace), (20, 10));
}
