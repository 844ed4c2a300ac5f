//! Traces out of text: OTLP JSON, Jaeger JSON, Zipkin JSON, one document or a line each, told apart by their fields.
//!
//! Decides what is a span, whose process it belongs to, and what becomes of text that is none: it is reported with its
//! place, and reading goes on at the next line that begins with `{` or `[`. Nothing is held but what is open: a span is
//! handed on as soon as its process is known.

mod any;
mod convert;
mod source;

use std::io::{self, Read};

use serde::Serialize;
use serde::de::DeserializeSeed as _;

pub use source::Place;

use crate::span::Span;
use source::{Mark, Source};

/// The format a span was written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// OpenTelemetry's, as the collector's file exporter and Tempo write it.
    Otlp,
    /// Jaeger's, as its query service writes it.
    Jaeger,
    /// Zipkin's second.
    Zipkin,
}

/// A part of the input that could not be read, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where it was noticed.
    pub place: Place,
    /// What is wrong, and what became of it.
    pub text: String,
}

/// What reading comes upon.
pub(crate) trait Receiver {
    /// A span of the trace `trace`.
    fn span(&mut self, trace: &str, span: Span, format: Format);
    /// This trace has no more spans: its document is complete.
    fn complete(&mut self, trace: &str);
    /// Spans of one document beyond its bound were dropped.
    fn dropped(&mut self, spans: u64);
    /// Something could not be read.
    fn problem(&mut self, problem: Problem);
    /// How many bytes were read so far. Told often.
    fn read(&mut self, bytes: u64);
}

/// What all levels of a document share.
pub(crate) struct Reader<'a> {
    receiver: &'a mut dyn Receiver,
    mark: std::rc::Rc<Mark>,
    most_pending: usize,
    spans: u64,
    /// A container of spans was seen, though it may have been empty.
    recognised: bool,
    /// The first fields of the outermost object, for the message when nothing was recognised.
    outermost: Vec<String>,
}

/// Reads everything. At most `most_pending` spans wait for their process, which may be written behind them.
///
/// # Errors
/// The system's, when the input cannot be read. What is wrong inside it goes to the receiver.
pub(crate) fn read(input: impl Read, most_pending: usize, receiver: &mut dyn Receiver) -> io::Result<()> {
    let mut source = Source::new(input);
    let mark = source.mark();
    let problem = |place: Place, text: String| Problem { place, text };
    let beginning = source.beginning();
    if let Some(what) = not_text(&beginning) {
        receiver.problem(problem(mark.place(), what.to_owned()));
        return Ok(());
    }
    if beginning.starts_with(b"\xef\xbb\xbf") {
        source.by_ref().take(3).read_to_end(&mut Vec::new())?;
    }
    let mut broken = false;
    loop {
        // Behind an error the separators of what was cut off may be left.
        let skipped = |byte: u8| {
            matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x1e) || broken && matches!(byte, b',' | b']' | b'}')
        };
        if source.peek_behind(skipped).is_none() {
            break;
        }
        let began = mark.place();
        let mut reader = Reader {
            receiver: &mut *receiver,
            mark: mark.clone(),
            most_pending,
            spans: 0,
            recognised: false,
            outermost: Vec::new(),
        };
        let mut json = serde_json::Deserializer::from_reader(&mut source);
        let read = any::Any::outermost(&mut reader).deserialize(&mut json);
        let Reader { recognised, outermost, .. } = reader;
        match read {
            Ok(()) if recognised => {}
            Ok(()) => receiver.problem(problem(began, not_recognised(&outermost))),
            Err(error) => {
                if let Some(error) = source.failure() {
                    return Err(error);
                }
                broken = true;
                let place = if error.is_eof() { mark.place() } else { mark.last() };
                receiver.problem(problem(place, format!("{}, in what began at line {}", bare(&error), began.line)));
                source.skip_to_next_line(began);
            }
        }
        receiver.read(mark.place().byte);
    }
    match source.failure() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// What is plainly another kind of file.
fn not_text(beginning: &[u8]) -> Option<&'static str> {
    match beginning {
        [0x1f, 0x8b, ..] => Some("this is compressed: try `gunzip -c FILE | oneclock explain -`"),
        [0x28, 0xb5, 0x2f, 0xfd] => Some("this is compressed: try `zstd -dc FILE | oneclock explain -`"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some("this is UTF-16; JSON is UTF-8"),
        [0x0a, byte, ..] if *byte < 0x80 && !matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'{' | b'[') => {
            Some("this looks like OTLP in protobuf; only its JSON form is read")
        }
        _ => None,
    }
}

fn not_recognised(fields: &[String]) -> String {
    if fields.is_empty() {
        return "no span in it".to_owned();
    }
    format!("no span in it: neither OTLP, Jaeger nor Zipkin; it has the fields {}", fields.join(", "))
}

/// The message without serde_json's own place, which counts from the value and not from the file.
fn bare(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}
