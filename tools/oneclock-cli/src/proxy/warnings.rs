//! What the libraries below warn of while the proxy runs, on standard error: an upstream that fails, a store that is away.
//!
//! Decides that whoever warns waits for nobody: a line has a place in a short queue, or is lost, which the next one says.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::set_global_default;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

use super::tell;

/// How many lines wait to be written.
const QUEUE: usize = 256;

struct Warnings {
    lines: SyncSender<String>,
    lost: AtomicU64,
}

/// One line of an event: what it says, and its fields behind that.
#[derive(Default)]
struct Line {
    says: String,
    fields: String,
}

/// Has them told from now on.
pub(super) fn told() {
    let (lines, told) = sync_channel::<String>(QUEUE);
    // It ends with the process: whoever warns last is nobody to wait for.
    let writes = std::thread::Builder::new().name("warnings".to_owned());
    if writes.spawn(move || told.iter().for_each(|line| tell(&line))).is_err() {
        return tell("warnings are told to nobody: there is no thread for them");
    }
    let warnings = Warnings { lines, lost: AtomicU64::new(0) };
    // Another one would be there already, which nobody sets in this program.
    let _ = set_global_default(tracing_subscriber::registry().with(LevelFilter::WARN).with(warnings));
}

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            line.field("lost", &lost);
        }
        if self.lines.try_send(line.to_string()).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

impl Line {
    fn field(&mut self, name: &str, value: &dyn fmt::Display) {
        let comma = if self.fields.is_empty() { "" } else { ", " };
        let _ = write!(self.fields, "{comma}{name}: {value}"); // a string takes everything
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.says = format!("{value:?}"),
            name => self.field(name, &format_args!("{value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.field(field.name(), &value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.field(field.name(), &super::said(value));
    }
}

/// On one line, whatever is in it.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { says, fields } = self;
        let whole = if fields.is_empty() { says.clone() } else { format!("{says} ({fields})") };
        whole
            .chars()
            .try_for_each(|c| if c.is_control() { write!(f, "{}", c.escape_default()) } else { f.write_char(c) })
    }
}
