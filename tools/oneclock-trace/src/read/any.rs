//! Any JSON value, searched for spans as it is read. One visitor for every level, so that a wrapper around a known format, or
//! a line that was swallowed by a broken one before it, costs nothing.

use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::convert::{self, Found};
use super::{Format, Problem, Reader};
use crate::span::{Process, Span, cut};

/// A value somewhere in a document.
pub(super) struct Any<'r, 'a, 'h> {
    reader: &'r mut Reader<'a>,
    holder: &'h mut Holder,
    /// How many arrays and objects it stands in.
    depth: usize,
}

/// What spans of one resource (OTLP) or of one trace (Jaeger) wait in until their process is known.
#[derive(Default)]
struct Holder {
    of: Of,
    process: Option<Arc<Process>>,
    waiting: Vec<Waiting>,
    dropped: u64,
    /// The trace of the last span, for arrays that are one trace each.
    last_trace: String,
}

/// What a holder stands for.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Of {
    /// All that is read: spans that wait for nothing.
    #[default]
    Document,
    /// One resource of OTLP.
    Resource,
    /// One trace of Jaeger.
    Trace,
}

struct Waiting {
    trace: String,
    span: Span,
    format: Format,
    process: Option<String>,
}

impl<'r, 'a, 'h> Any<'r, 'a, 'h> {
    /// Reads a whole document.
    pub(super) fn outermost(reader: &'r mut Reader<'a>) -> Outermost<'r, 'a> {
        Outermost(reader)
    }
}

pub(super) struct Outermost<'r, 'a>(&'r mut Reader<'a>);

impl<'de> DeserializeSeed<'de> for Outermost<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let mut holder = Holder::new(Of::Document);
        Any { reader: self.0, holder: &mut holder, depth: 0 }.deserialize(deserializer)
    }
}

impl<'de> DeserializeSeed<'de> for Any<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Any<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let Self { reader, holder, depth } = self;
        if depth == 1 {
            holder.last_trace.clear(); // an array in an array: one trace
        }
        let mut none = true;
        while elements.next_element_seed(Any { reader, holder, depth: depth + 1 })?.is_some() {
            none = false;
            reader.mark.element_ended();
        }
        if depth == 0 && none {
            reader.recognised = true; // Zipkin's way to say that there are no traces
        }
        if depth == 1 && !holder.last_trace.is_empty() {
            reader.receiver.complete(&holder.last_trace);
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<(), A::Error> {
        let Self { reader, holder, depth } = self;
        let mut own = Object::default();
        // What was read before an error counts.
        let read = own.read(reader, holder, depth, fields);
        own.end(reader, holder);
        reader.mark.element_ended();
        read
    }
}

/// One object while it is read.
#[derive(Default)]
struct Object {
    /// The fields of a span.
    span: Map<String, Value>,
    /// Made when it turns out to have spans of its own.
    own: Option<Holder>,
    /// Jaeger's processes of one trace.
    processes: Option<Value>,
}

impl Object {
    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        reader: &mut Reader<'_>,
        outer: &mut Holder,
        depth: usize,
        mut fields: A,
    ) -> Result<(), A::Error> {
        while let Some(key) = fields.next_key::<String>()? {
            if depth == 0 && reader.outermost.len() < 5 {
                reader
                    .outermost
                    .push(key.chars().take(40).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect());
            }
            match key.as_str() {
                "resourceSpans" | "resource_spans" | "batches" | "data" | "traces" => {
                    reader.recognised = reader.recognised || key != "data" && key != "traces";
                    fields.next_value_seed(Any { reader, holder: outer, depth: depth + 2 })?;
                }
                "scopeSpans" | "scope_spans" | "instrumentationLibrarySpans" | "instrumentation_library_spans" => {
                    reader.recognised = true;
                    let holder = self.own.get_or_insert_with(|| Holder::new(Of::Resource));
                    fields.next_value_seed(Any { reader, holder, depth: depth + 2 })?;
                }
                // In a scope the spans are the resource's, else they are those of this trace.
                "spans" if outer.of == Of::Resource => {
                    fields.next_value_seed(Any { reader, holder: outer, depth: depth + 2 })?;
                }
                "spans" => {
                    reader.recognised = true;
                    let holder = self.own.get_or_insert_with(|| Holder::new(Of::Trace));
                    fields.next_value_seed(Any { reader, holder, depth: depth + 2 })?;
                }
                "resource" => {
                    let process = convert::resource(&fields.next_value()?);
                    self.own.get_or_insert_with(|| Holder::new(Of::Resource)).process = Some(Arc::new(process));
                }
                "processes" => self.processes = Some(fields.next_value()?),
                "events" | "logs" | "annotations" | "links" | "warnings" => {
                    fields.next_value::<IgnoredAny>()?;
                }
                name if convert::FIELDS.contains(&name) => {
                    let value = fields.next_value()?;
                    self.span.insert(key, value);
                }
                _ => fields.next_value_seed(Any { reader, holder: outer, depth: depth + 2 })?,
            }
        }
        Ok(())
    }

    fn end(self, reader: &mut Reader<'_>, outer: &mut Holder) {
        if let Some(own) = self.own {
            let id = self.span.get("traceID").or(self.span.get("traceId")).and_then(Value::as_str);
            let mut id = id.unwrap_or("unnamed").to_owned();
            cut(&mut id);
            let of_trace = own.waiting.first().filter(|_| own.of == Of::Trace);
            let trace = of_trace.map(|waiting| waiting.of(&id).to_owned());
            own.flush(reader, &id, self.processes.as_ref());
            if let Some(trace) = trace {
                reader.receiver.complete(&trace);
            }
        }
        if self.span.is_empty() {
            return;
        }
        match convert::span(&self.span) {
            Found::Span { trace, span, format, process } => {
                outer.take(reader, Waiting { trace, span: *span, format, process });
            }
            Found::Nothing => {}
            Found::Broken(why) => {
                reader.recognised = true;
                reader
                    .receiver
                    .problem(Problem { place: reader.mark.last(), text: format!("a span is left out: {why}") });
            }
        }
    }
}

// === Holder ===

impl Holder {
    fn new(of: Of) -> Self {
        Self { of, process: (of == Of::Document).then(Arc::default), ..Self::default() }
    }

    fn take(&mut self, reader: &mut Reader<'_>, mut found: Waiting) {
        reader.recognised = true;
        if self.last_trace != found.trace {
            self.last_trace.clone_from(&found.trace);
        }
        if let Some(process) = &self.process {
            if self.of == Of::Resource {
                found.span.process = Arc::clone(process);
            }
            found.hand_on(reader);
        } else if self.waiting.len() < reader.most_pending {
            self.waiting.push(found);
        } else {
            self.dropped += 1;
        }
    }

    /// All that waited, with their processes.
    fn flush(self, reader: &mut Reader<'_>, trace: &str, processes: Option<&Value>) {
        let known = convert::processes(processes);
        for mut waiting in self.waiting {
            let of_trace = waiting.process.as_ref().and_then(|id| known.get(id));
            if let Some(process) = of_trace.or(self.process.as_ref()) {
                waiting.span.process = Arc::clone(process);
            }
            waiting.trace = waiting.of(trace).to_owned();
            waiting.hand_on(reader);
        }
        if self.dropped > 0 {
            reader.receiver.dropped(self.dropped);
        }
    }
}

// === Waiting ===

impl Waiting {
    /// Its trace; in Jaeger's documents the id may stand at the trace alone.
    fn of<'a>(&'a self, document: &'a str) -> &'a str {
        if self.trace.is_empty() { document } else { &self.trace }
    }

    fn hand_on(self, reader: &mut Reader<'_>) {
        reader.spans += 1;
        if reader.spans % 64 == 1 {
            reader.receiver.read(reader.mark.place().byte);
        }
        reader.receiver.span(&self.trace, self.span, self.format);
    }
}
