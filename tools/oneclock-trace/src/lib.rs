//! Traces in, ledgers out: where the time of an operation went, and what ran on after nobody waited for it.
//!
//! Reads OTLP JSON (a document, or lines as the collector's file exporter writes them), Jaeger JSON and Zipkin JSON, from
//! anybody's system, told apart by content. Nothing need be instrumented by us: our attributes are read where they are.
//! Traces are explained as soon as they are complete, and forgotten: memory is bounded by [`Limits`], and what does not fit
//! is counted. The rules:
//!
//! 1. Each moment of an operation is charged to one entry. Of children that ran at the same time, to the one that ended
//!    last. What no child covers is unaccounted. These sums hold for every trace, and are checked on each (invariant I13).
//! 2. Work for a message, `FOLLOWS_FROM`, what says `oneclock.detached` and what began when its parent had ended is not waited
//!    for: an operation of its own.
//! 3. A span that ran on after its parent is a zombie (invariant I14) if both had one clock, or if no offset of their clocks
//!    that the trace allows would make it fit. Everything else is not claimed.
//!
//! ```
//! let zipkin = r#"[{"traceId":"7","id":"1","name":"buy","timestamp":1000000,"duration":300000,
//!                   "localEndpoint":{"serviceName":"order"}},
//!                  {"traceId":"7","id":"2","parentId":"1","name":"charge","timestamp":1100000,"duration":500000,
//!                   "localEndpoint":{"serviceName":"order"}}]"#;
//! let mut traces = Vec::new();
//! let total = oneclock_trace::explain(zipkin.as_bytes(), oneclock_trace::Limits::default(), |told| {
//!     if let oneclock_trace::Told::Trace(trace) = told { traces.push(trace); }
//! })?;
//! assert_eq!(traces[0].elapsed_ns, 300_000_000);
//! assert_eq!(traces[0].spans[1].charged_ns, 200_000_000);
//! assert_eq!(total.zombies.ns, 300_000_000, "it ran on for 300 ms after nobody waited for it");
//! # Ok::<(), std::io::Error>(())
//! ```

mod account;
mod findings;
mod fingerprint;
mod open;
pub mod page;
mod read;
mod skew;
mod span;
mod total;
mod trace;
mod tree;

use std::io;

pub use findings::{Certainty, Evidence, Findings, Reset, Retry, Unrecorded, Zombie};
pub use fingerprint::Fingerprint;
pub use open::{Dropped, Limits, Peak};
pub use read::{Format, Place, Problem};
pub use skew::Skew;
pub use span::{Facts, Kind, Process, Span};
pub use total::{Count, Hop, NameTotal, SkewTotal, Total};
pub use trace::{Row, Share, Trace};
pub use tree::{Oddities, Own};

use open::{Collected, Open};
use total::Adding;

/// What [`explain`] tells while it reads.
#[derive(Debug)]
pub enum Told {
    /// A trace, complete and explained.
    Trace(Box<Trace>),
    /// So many bytes were read. For a progress bar.
    Read(u64),
}

/// Reads all of `input` and tells each trace as soon as it is complete. Works from a pipe.
///
/// What cannot be read is in [`Total::problems`], with its place; everything else counts.
///
/// # Errors
/// The system's, when the input cannot be read.
pub fn explain(input: impl io::Read, limits: Limits, tell: impl FnMut(Told)) -> io::Result<Total> {
    let mut explaining = Explaining { tell, open: Open::new(limits), adding: Adding::new(limits) };
    read::read(input, limits.spans_per_trace, &mut explaining)?;
    while let Some(collected) = explaining.open.next() {
        explaining.explained(collected);
    }
    let Explaining { open, adding, .. } = explaining;
    Ok(adding.end(open.dropped, open.peak))
}

/// The most telling traces: those with most time spent after nobody waited, then those in which most else was found, then
/// the longest.
#[derive(Debug)]
pub struct Telling {
    most: usize,
    traces: Vec<Trace>,
}

impl Telling {
    /// Keeps at most so many.
    pub const fn new(most: usize) -> Self {
        Self { most, traces: Vec::new() }
    }

    /// Takes one in, and drops the least telling if there are too many.
    pub fn take(&mut self, trace: Trace) {
        let telling = trace.telling();
        let at = self.traces.partition_point(|other| other.telling() >= telling);
        if at < self.most {
            self.traces.insert(at, trace);
            self.traces.truncate(self.most);
        }
    }

    /// The most telling first.
    pub fn traces(&self) -> &[Trace] {
        &self.traces
    }
}

struct Explaining<F> {
    tell: F,
    open: Open,
    adding: Adding,
}

impl<F: FnMut(Told)> Explaining<F> {
    fn explained(&mut self, collected: Collected) {
        let trace = Trace::of(collected);
        self.adding.trace(&trace);
        (self.tell)(Told::Trace(Box::new(trace)));
    }
}

impl<F: FnMut(Told)> read::Receiver for Explaining<F> {
    fn span(&mut self, trace: &str, span: Span, format: Format) {
        self.adding.read(format);
        if let Some(closed) = self.open.take(trace, span) {
            self.explained(closed);
        }
    }

    fn complete(&mut self, trace: &str) {
        if let Some(closed) = self.open.close(trace) {
            self.explained(closed);
        }
    }

    fn dropped(&mut self, spans: u64) {
        self.open.dropped.spans_beyond_trace += spans;
    }

    fn problem(&mut self, problem: Problem) {
        self.adding.problem(problem);
    }

    fn read(&mut self, bytes: u64) {
        self.adding.bytes(bytes);
        (self.tell)(Told::Read(bytes));
    }
}
