//! W3C trace context, as it travels.
//!
//! Decides what of it is well formed, and which one a call takes along: that of its own span, else what arrived, untouched, and
//! never in place of another trace that the application itself had begun.

use oneclock::events::{Fields, Head};
use tracing::Span;

pub(super) const TRACEPARENT: &str = "traceparent";
pub(super) const TRACESTATE: &str = "tracestate";

/// The longest fields that are passed on. The recommendation asks for 512 bytes of state at least.
const LONGEST_PARENT: usize = 256;
const LONGEST_STATE: usize = 4096;

/// A trace context that came with a request, and is well formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Incoming {
    pub(super) parent: String,
    pub(super) state: Option<String>,
}

impl Incoming {
    /// `None` if there is none, if there are several, or if it is malformed: then the trace begins here. State that cannot be
    /// passed on is left behind.
    pub(super) fn of(fields: &dyn Head) -> Option<Self> {
        let parent = parent_in(fields)?.to_owned();
        let states = fields.all(TRACESTATE);
        let states: Option<Vec<&str>> = states.into_iter().map(|state| text(state).map(str::trim)).collect();
        let state = states.unwrap_or_default().into_iter().filter(|state| !state.is_empty()).collect::<Vec<_>>();
        let state = Some(state.join(",")).filter(|state| !state.is_empty() && state.len() <= LONGEST_STATE);
        Some(Self { parent, state })
    }

    /// 32 hexadecimal digits.
    pub(super) fn trace(&self) -> &str {
        trace_of(&self.parent)
    }
}

/// The parent, under the same conditions.
fn parent_in(fields: &dyn Head) -> Option<&str> {
    let &[parent] = &*fields.all(TRACEPARENT) else { return None };
    text(parent).filter(|parent| is_parent(parent))
}

/// The trace that the fields of a request say it belongs to: 32 hexadecimal digits, not all of them zero. `None` if they say
/// nothing, contradict themselves, or are malformed. For who logs and does not trace.
pub fn trace_in(fields: &dyn Head) -> Option<&str> {
    parent_in(fields).map(trace_of)
}

/// The value of a field, if it is text of the visible kind.
fn text(value: &[u8]) -> Option<&str> {
    let is_text = value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
    std::str::from_utf8(value).ok().filter(|_| is_text)
}

/// Sets what a call of `span` takes along. Without a tracer `span` has no context, and what arrived goes on.
pub(super) fn write(span: &Span, incoming: Option<&Incoming>, fields: &mut dyn Fields) {
    let present = fields.get(TRACEPARENT).filter(|parent| is_parent(parent)).map(trace_of);
    #[cfg(feature = "opentelemetry")]
    if let Some(outgoing) = super::otel::outgoing(span) {
        if present.is_none_or(|trace| trace == outgoing.trace()) {
            set(&outgoing, fields);
        }
        return;
    }
    #[cfg(not(feature = "opentelemetry"))]
    let _ = span;
    if let (Some(incoming), None) = (incoming, present) {
        set(incoming, fields);
    }
}

fn set(context: &Incoming, fields: &mut dyn Fields) {
    fields.set(TRACEPARENT, &context.parent);
    match &context.state {
        Some(state) => fields.set(TRACESTATE, state),
        None => fields.remove(TRACESTATE), // of another parent
    }
}

/// `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`. Later versions may say more behind that.
fn is_parent(parent: &str) -> bool {
    let bytes = parent.as_bytes();
    let hex = |from: usize, to: usize| {
        bytes.get(from..to).is_some_and(|digits| digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')))
    };
    let not_zero = |from: usize, to: usize| bytes[from..to].iter().any(|digit| *digit != b'0');
    let dash = |at: usize| bytes.get(at) == Some(&b'-');
    let shaped = hex(0, 2)
        && dash(2)
        && hex(3, 35)
        && dash(35)
        && hex(36, 52)
        && dash(52)
        && hex(53, 55)
        && !parent.starts_with("ff");
    let ends = if parent.starts_with("00") { bytes.len() == 55 } else { bytes.len() == 55 || dash(55) };
    shaped && ends && bytes.len() <= LONGEST_PARENT && not_zero(3, 35) && not_zero(36, 52)
}

/// Of a parent that is well formed.
fn trace_of(parent: &str) -> &str {
    parent.get(3..35).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue};

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[derive(Default)]
    struct Sent(HeaderMap);

    impl Fields for Sent {
        fn get(&self, name: &str) -> Option<&str> {
            self.0.get(name)?.to_str().ok()
        }

        fn set(&mut self, name: &'static str, value: &str) {
            self.0.insert(name, HeaderValue::from_str(value).unwrap());
        }

        fn remove(&mut self, name: &'static str) {
            self.0.remove(name);
        }
    }

    struct Came(HeaderMap);

    impl Head for Came {
        fn get(&self, name: &str) -> Option<&str> {
            self.0.get(name)?.to_str().ok()
        }

        fn all(&self, name: &str) -> Vec<&[u8]> {
            self.0.get_all(name).iter().map(HeaderValue::as_bytes).collect()
        }
    }

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    fn came(fields: &[(&'static str, &str)]) -> Came {
        Came(headers(fields))
    }

    #[test]
    fn what_is_well_formed_is_taken_along_as_it_came() {
        for parent in [
            PARENT,
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", // not sampled
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-the-future-brings",
        ] {
            let arrived = headers(&[(TRACEPARENT, parent), (TRACESTATE, "a=1"), (TRACESTATE, "b=2")]);
            let incoming = Incoming::of(&Came(arrived)).unwrap();
            assert_eq!(incoming.trace(), "0af7651916cd43dd8448eb211c80319c");
            assert_eq!(trace_in(&came(&[(TRACEPARENT, parent)])), Some(incoming.trace()));
            let mut sent = Sent::default();
            write(&Span::none(), Some(&incoming), &mut sent);
            assert_eq!((sent.get(TRACEPARENT), sent.get(TRACESTATE)), (Some(parent), Some("a=1,b=2")));
        }
    }

    #[test]
    fn what_is_malformed_or_hostile_is_as_good_as_none() {
        for parent in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
            "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01more",
            "00-0af7651916cd43dd8448eb211c8031é-b7ad6b7169203331-01",
            &format!("cc{}-{}", &PARENT[2..], "x".repeat(LONGEST_PARENT)),
        ] {
            assert_eq!(Incoming::of(&came(&[(TRACEPARENT, parent)])), None, "{parent}");
        }
        assert_eq!(Incoming::of(&came(&[(TRACEPARENT, PARENT), (TRACEPARENT, PARENT)])), None, "two of them");
        let long = "a=".to_owned() + &"x".repeat(LONGEST_STATE);
        let incoming = Incoming::of(&came(&[(TRACEPARENT, PARENT), (TRACESTATE, &long)])).unwrap();
        assert_eq!((incoming.parent.as_str(), incoming.state), (PARENT, None), "the trace goes on without its state");
    }

    #[test]
    fn a_trace_of_the_applications_own_stays() {
        let incoming = Incoming::of(&came(&[(TRACEPARENT, PARENT), (TRACESTATE, "a=1")])).unwrap();
        let own = "00-11111111111111111111111111111111-2222222222222222-01";
        let mut sent = Sent(headers(&[(TRACEPARENT, own), (TRACESTATE, "mine=1")]));
        write(&Span::none(), Some(&incoming), &mut sent);
        assert_eq!((sent.get(TRACEPARENT), sent.get(TRACESTATE)), (Some(own), Some("mine=1")));
        let mut sent = Sent(headers(&[(TRACEPARENT, "nonsense"), (TRACESTATE, "mine=1")]));
        write(&Span::none(), Some(&incoming), &mut sent);
        assert_eq!((sent.get(TRACEPARENT), sent.get(TRACESTATE)), (Some(PARENT), Some("a=1")));
    }
}
