//! One span of anybody's system, and what its attributes say about time.
//!
//! Decides which attributes mean what: our own (`oneclock.*`), the semantic conventions of OpenTelemetry, and deadline
//! fields that an instrumentation recorded as attributes, read by the same grammar as on the wire.

use std::sync::Arc;
use std::time::Duration;

use oneclock_core::wire::{Convention, Read, Wall};
use serde::Serialize;
use serde_json::Value;

/// What a span stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Not said. Counts as internal.
    #[default]
    Unspecified,
    /// A step inside one process.
    Internal,
    /// The work for a call.
    Server,
    /// Waiting for a call.
    Client,
    /// Handing a message over.
    Producer,
    /// Working on a message. Nobody waits for it.
    Consumer,
}

/// Which process a span was recorded in, as far as it says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Process {
    /// The service's name; empty where none is said.
    pub service: String,
    /// What tells it from others of the same service: instance, pod, process number, address. Empty where nothing is said.
    pub instance: String,
    /// The machine. Processes of one machine have one clock.
    pub host: Option<String>,
}

/// One span, as recorded: wall clock, nanoseconds since 1970.
#[derive(Clone, Debug, Default)]
pub struct Span {
    /// Its id, unique in its trace but for the two sides of one call (Zipkin).
    pub id: String,
    /// Whose child it is.
    pub parent: Option<String>,
    /// Caused by its parent, which does not wait for it (`FOLLOWS_FROM`).
    pub follows: bool,
    /// What was done.
    pub name: String,
    /// Where.
    pub process: Arc<Process>,
    /// What it stands for.
    pub kind: Kind,
    /// When it began and ended. `None` where the record lacks one of them.
    pub time: Option<(u64, u64)>,
    /// The end was recorded before the beginning; it was set to the beginning.
    pub negative: bool,
    /// The grain of the recorded times, in nanoseconds.
    pub grain: u64,
    /// It failed.
    pub error: bool,
    /// What its attributes say about time.
    pub facts: Facts,
}

/// What the attributes of a span say about time. Everything may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// What was left of the operation's budget when the span began.
    pub left_at_start: Option<Duration>,
    /// The same at its end.
    pub left_at_end: Option<Duration>,
    /// What a client was told to spend at most: a timeout, which may be longer than what its caller has left.
    pub given: Option<Duration>,
    /// What made the deadline what it was.
    pub bound: Option<String>,
    /// Why it ended early.
    pub cause: Option<String>,
    /// Where it was then.
    pub stage: Option<String>,
    /// What is known of the far side of a call.
    pub outcome: Option<String>,
    /// How long it waited before work began.
    pub queue_wait: Option<Duration>,
    /// Which attempt it is; the first is 1.
    pub attempt: Option<u32>,
    /// Declared not to be waited for.
    pub detached: bool,
    /// Whom it called.
    pub peer: Option<String>,
}

/// The longest text that is kept of a name or a value.
const LONGEST: usize = 200;

// === Kind ===

impl Kind {
    /// The word of OTLP, Jaeger or Zipkin, in any case.
    pub(crate) fn named(word: &str) -> Self {
        let word = word.strip_prefix("SPAN_KIND_").unwrap_or(word);
        match word.to_ascii_lowercase().as_str() {
            "internal" => Self::Internal,
            "server" => Self::Server,
            "client" => Self::Client,
            "producer" => Self::Producer,
            "consumer" => Self::Consumer,
            _ => Self::Unspecified,
        }
    }

    /// The number of OTLP.
    pub(crate) fn numbered(number: u64) -> Self {
        match number {
            1 => Self::Internal,
            2 => Self::Server,
            3 => Self::Client,
            4 => Self::Producer,
            5 => Self::Consumer,
            _ => Self::Unspecified,
        }
    }

    /// As it is printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unspecified => "",
            Self::Internal => "internal",
            Self::Server => "server",
            Self::Client => "client",
            Self::Producer => "producer",
            Self::Consumer => "consumer",
        }
    }
}

// === Process ===

impl Process {
    /// A process of this service, of which nothing else is known yet.
    pub(crate) fn of(service: &str) -> Self {
        let mut service = service.to_owned();
        cut(&mut service);
        Self { service, ..Self::default() }
    }

    /// Takes in one attribute of the process.
    pub(crate) fn attribute(&mut self, key: &str, value: &Value) {
        let Some(text) = text(value) else { return };
        match key {
            "service.name" => self.service = text,
            "host.name" | "hostname" | "host.id" => {
                self.also(&text);
                self.host.get_or_insert(text);
            }
            "service.instance.id"
            | "process.pid"
            | "k8s.pod.name"
            | "k8s.pod.uid"
            | "container.id"
            | "pod.name"
            | "ip" => {
                self.also(&text);
            }
            _ => {}
        }
    }

    /// Something more that tells it from others of the same service.
    pub(crate) fn also(&mut self, text: &str) {
        if !self.instance.is_empty() {
            self.instance.push('/');
        }
        self.instance.push_str(text);
        cut(&mut self.instance);
    }
}

// === Span ===

impl Span {
    /// Sets the time. An end before the beginning becomes the beginning, and is remembered as such.
    pub(crate) fn took_place(&mut self, began: u64, ended: u64, grain: u64) {
        self.negative = ended < began;
        self.time = Some((began, ended.max(began)));
        self.grain = grain;
    }

    /// Takes in one attribute.
    pub(crate) fn attribute(&mut self, key: &str, value: &Value) {
        let facts = &mut self.facts;
        match key {
            "oneclock.deadline.remaining_ms.start" => facts.left_at_start = millis(value),
            "oneclock.deadline.remaining_ms.end" => facts.left_at_end = millis(value),
            "oneclock.bound" => facts.bound = text(value),
            "oneclock.cause" => facts.cause = text(value),
            "oneclock.stage" => facts.stage = text(value),
            "oneclock.outcome" => facts.outcome = text(value),
            "oneclock.queue_wait_ms" => facts.queue_wait = millis(value),
            "oneclock.attempt" => facts.attempt = count(value),
            "oneclock.detached" => facts.detached = truth(value),
            "http.request.resend_count" | "http.resend_count" => {
                facts.attempt = facts.attempt.or(count(value).map(|resent| resent.saturating_add(1)));
            }
            "rpc.request.timeout" | "rpc.request.deadline" => facts.given = facts.given.or(budget(value, self.time)),
            "peer.service" | "server.address" | "net.peer.name" | "peer.hostname" | "rpc.service" | "db.system"
            | "db.system.name" | "upstream_cluster" => {
                if facts.peer.is_none() || key == "peer.service" {
                    facts.peer = text(value);
                }
            }
            "span.kind" => {
                if let Value::String(word) = value {
                    self.kind = Kind::named(word);
                }
            }
            "error" => self.error = self.error || failed(value),
            "otel.status_code" => self.error = self.error || value.as_str() == Some("ERROR"),
            _ => {
                if let Some(field) = key
                    .strip_prefix("http.request.header.")
                    .or_else(|| key.strip_prefix("rpc.request.metadata."))
                    .or_else(|| key.strip_prefix("rpc.grpc.request.metadata."))
                {
                    facts.given = facts.given.or(recorded_field(field, value, self.time));
                }
            }
        }
    }

    /// Names are at most so long.
    pub(crate) fn cut(&mut self) {
        cut(&mut self.name);
        cut(&mut self.id);
        if let Some(parent) = &mut self.parent {
            cut(parent);
        }
    }
}

/// A deadline field as an attribute: a text, or the list of texts that the conventions ask for.
fn recorded_field(field: &str, value: &Value, time: Option<(u64, u64)>) -> Option<Duration> {
    let field = field.replace('_', "-"); // older conventions wrote them so
    let convention = Convention::ALL.into_iter().find(|convention| convention.name().as_str() == field)?;
    let value = match value {
        Value::Array(values) => values.first()?,
        value => value,
    };
    let value = text(value)?;
    match convention.codec().parse(value.as_bytes(), Wall::from_nanos(time.map_or(0, |(began, _)| began))) {
        Read::Valid(span) => Some(span),
        Read::Expired => Some(Duration::ZERO),
        _ => None,
    }
}

/// Milliseconds as a number or text, or a number with its unit; an absolute time in nanoseconds, which no budget is.
fn budget(value: &Value, time: Option<(u64, u64)>) -> Option<Duration> {
    const YEAR_MS: f64 = 366.0 * 86_400_000.0;
    if let Some(number) = number(value) {
        if (0.0..YEAR_MS).contains(&number) {
            return Some(Duration::from_secs_f64(number / 1e3));
        }
        let (began, _) = time?;
        // Absolute, in milliseconds, microseconds or nanoseconds: whichever is near the span itself.
        return [1e6, 1e3, 1.0].into_iter().find_map(|unit| {
            let left = number * unit - began as f64;
            (0.0..YEAR_MS * 1e6).contains(&left).then(|| Duration::from_secs_f64(left / 1e9))
        });
    }
    let text = value.as_str()?;
    let (digits, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
    let number: f64 = digits.trim().parse().ok()?;
    let seconds = match unit {
        "ns" => number / 1e9,
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

fn millis(value: &Value) -> Option<Duration> {
    Duration::try_from_secs_f64(number(value)?.max(0.0) / 1e3).ok()
}

fn count(value: &Value) -> Option<u32> {
    let number = number(value)?;
    (0.0..1e6).contains(&number).then_some(number as u32)
}

fn truth(value: &Value) -> bool {
    matches!(value, Value::Bool(true)) || value.as_str().is_some_and(|text| text.eq_ignore_ascii_case("true"))
}

/// Zipkin's `error` says why; some instrumentations write `false`.
fn failed(value: &Value) -> bool {
    match value {
        Value::Bool(failed) => *failed,
        Value::String(text) => !text.eq_ignore_ascii_case("false"),
        Value::Null => false,
        _ => true,
    }
}

fn text(value: &Value) -> Option<String> {
    let mut text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        _ => return None,
    };
    cut(&mut text);
    Some(text)
}

/// No text that is kept is longer than that.
pub(crate) fn cut(text: &mut String) {
    if text.len() > LONGEST {
        let at = (0..=LONGEST).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(at);
        text.push('…');
    }
}
