//! Several fields, one answer: the smallest wins, and one malformed field makes the whole malformed. Contract P8, P9.
//!
//! Whether a convention is believed from this peer is decided before its fields come here
//! ([`Convention::only_from_trusted`]).

use std::fmt;
use std::time::Duration;

use super::{Convention, Read, Wall, Why};
use crate::Name;

/// Where a [`Reader`] gets the wall clock's reading when a field speaks of a moment.
///
/// A [`Wall`] that is already known, or a closure that reads the clock. It is asked at most once per request, and not at
/// all by the usual one, whose fields are all relative.
pub trait WallClock {
    /// What the wall clock says.
    fn wall(&mut self) -> Wall;
}

/// Reads the deadline fields of one request, one by one. Does not allocate.
///
/// ```
/// # use oneclock_core::wire::{Convention, Read, Reader, Wall}; use std::time::Duration;
/// let (grpc, http) = (Convention::GRPC_TIMEOUT, Convention::X_REMAINING_MS);
/// let mut reader = Reader::new(Wall::from_nanos(0));
/// reader.field(&grpc, b"5S");
/// reader.field(&grpc, b"100m"); // the same field twice: the smaller one (P8)
/// assert_eq!(reader.finish().read, Read::Valid(Duration::from_millis(100)));
///
/// let mut reader = Reader::new(Wall::from_nanos(0));
/// reader.field(&http, b"300");
/// reader.field(&grpc, b"+5S"); // malformed, whatever the other says (P9)
/// let malformed = reader.finish().malformed.map(|field| field.to_string());
/// assert_eq!(malformed.as_deref(), Some("malformed grpc-timeout: only digits belong here: no sign, no space, no point"));
/// ```
#[derive(Debug)]
pub struct Reader<'a, W = Wall> {
    clock: W,
    wall: Option<Wall>,
    least: Option<(Duration, &'a Name)>,
    malformed: Option<MalformedField<'a>>,
    earliest: Option<Absolute<'a>>,
    latest: Option<Absolute<'a>>,
}

/// What all deadline fields of one request say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading<'a> {
    /// The result: the smallest, or malformed if any field is.
    pub read: Read,
    /// The field that made the result; of equals the first. `None` when nothing was said.
    pub source: Option<&'a Name>,
    /// The first malformed field. `Some` exactly when `read` is malformed.
    pub malformed: Option<MalformedField<'a>>,
    /// The smallest of the fields that could be read, zero for expired, also when another one was malformed: a policy
    /// that carries on with its own value must not exceed what was understood.
    pub at_most: Option<Duration>,
    /// Of the fields that named a moment, the earliest.
    pub earliest: Option<Absolute<'a>>,
    /// Of the fields that named a moment, the latest.
    pub latest: Option<Absolute<'a>>,
}

/// A field that could not be read. Its text names the field and the reason, never the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed {field}: {why}")]
pub struct MalformedField<'a> {
    /// Which field.
    pub field: &'a Name,
    /// What is wrong with it.
    pub why: Why,
}

/// A field that named a moment, and how far that was from the wall clock on arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absolute<'a> {
    /// Which field.
    pub field: &'a Name,
    /// How far off.
    pub offset: Offset,
}

/// The distance of a moment from now. Ordered: what is longer ago comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// The moment is now (zero) or was this long ago.
    Behind(Duration),
    /// The moment comes after this span, which is not zero.
    Ahead(Duration),
}

// === WallClock ===

impl WallClock for Wall {
    fn wall(&mut self) -> Wall {
        *self
    }
}

impl<F: FnMut() -> Wall> WallClock for F {
    fn wall(&mut self) -> Wall {
        self()
    }
}

// === Reader ===

impl<'a, W: WallClock> Reader<'a, W> {
    /// Nothing read yet. `wall` is a [`Wall`], or a closure that reads the clock should a field need it.
    pub const fn new(wall: W) -> Self {
        Self { clock: wall, wall: None, least: None, malformed: None, earliest: None, latest: None }
    }

    /// Takes one field of `convention` with this value. A field sent twice is two calls.
    pub fn field(&mut self, convention: &'a Convention, value: &[u8]) {
        let name = convention.name();
        let read = if convention.codec().is_absolute() {
            self.moment(convention, value)
        } else {
            convention.codec().parse(value, Wall::default())
        };
        match read {
            Read::Absent => {}
            Read::Valid(span) => self.shorten(span, name),
            Read::Expired => self.shorten(Duration::ZERO, name),
            Read::Malformed(why) => {
                self.malformed.get_or_insert(MalformedField { field: name, why });
            }
        }
    }

    /// What the fields say together.
    pub fn finish(self) -> Reading<'a> {
        let (read, source) = match (self.malformed, self.least) {
            (Some(MalformedField { field, why }), _) => (Read::Malformed(why), Some(field)),
            (None, Some((span, name))) => (Read::remaining(span), Some(name)),
            (None, None) => (Read::Absent, None),
        };
        Reading {
            read,
            source,
            malformed: self.malformed,
            at_most: self.least.map(|(span, _)| span),
            earliest: self.earliest,
            latest: self.latest,
        }
    }

    fn shorten(&mut self, span: Duration, name: &'a Name) {
        if self.least.is_none_or(|(least, _)| span < least) {
            self.least = Some((span, name));
        }
    }

    #[cold] // most requests carry relative fields only
    fn moment(&mut self, convention: &'a Convention, value: &[u8]) -> Read {
        let wall = *self.wall.get_or_insert_with(|| self.clock.wall());
        let (read, offset) = convention.codec().parse_moment(value, wall);
        if let Some(offset) = offset {
            let this = Absolute { field: convention.name(), offset };
            if self.earliest.is_none_or(|known| offset < known.offset) {
                self.earliest = Some(this);
            }
            if self.latest.is_none_or(|known| offset > known.offset) {
                self.latest = Some(this);
            }
        }
        read
    }
}

// === Reading ===

impl<'a> Reading<'a> {
    /// The field whose sender's clock is suspected not to agree with ours (contract P10): it names a moment further
    /// ahead than `ceiling`, or longer ago than `tolerance`.
    pub fn suspected_skew(&self, ceiling: Duration, tolerance: Duration) -> Option<Absolute<'a>> {
        let behind = self.earliest.filter(|field| matches!(field.offset, Offset::Behind(span) if span > tolerance));
        let ahead = self.latest.filter(|field| matches!(field.offset, Offset::Ahead(span) if span > ceiling));
        behind.or(ahead)
    }
}

// === Offset ===

impl Offset {
    /// From signed nanoseconds: positive is ahead. Saturates.
    pub(super) fn from_nanos(nanos: i128) -> Self {
        const NANOS_PER_SEC: u128 = 1_000_000_000;
        let magnitude = nanos.unsigned_abs();
        let span = match u64::try_from(magnitude / NANOS_PER_SEC) {
            Ok(secs) => Duration::new(secs, (magnitude % NANOS_PER_SEC) as u32),
            Err(_) => Duration::MAX,
        };
        if nanos > 0 { Self::Ahead(span) } else { Self::Behind(span) }
    }

    /// What is left until the moment: nothing when it is now or past.
    pub const fn remaining(self) -> Duration {
        match self {
            Self::Ahead(span) => span,
            Self::Behind(_) => Duration::ZERO,
        }
    }
}

impl PartialOrd for Offset {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Offset {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        match (self, other) {
            (Self::Ahead(a), Self::Ahead(b)) => a.cmp(b),
            (Self::Behind(a), Self::Behind(b)) => b.cmp(a),
            (Self::Behind(_), Self::Ahead(_)) => std::cmp::Ordering::Less,
            (Self::Ahead(_), Self::Behind(_)) => std::cmp::Ordering::Greater,
        }
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ahead(span) => write!(f, "{span:?} ahead"),
            Self::Behind(span) => write!(f, "{span:?} ago"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{names, properties};
    use proptest::prelude::*;

    const NOON: Wall = Wall::from_nanos(1_769_860_800_000_000_000); // 2026-01-31T12:00:00Z
    const MS_300: Read = Read::Valid(Duration::from_millis(300));
    const GRPC: &Convention = &Convention::GRPC_TIMEOUT;
    const REMAINING: &Convention = &Convention::X_REMAINING_MS;
    const DEADLINE: &Convention = &Convention::X_REQUEST_DEADLINE;
    const UPSTREAM: &Convention = &Convention::X_ENVOY_UPSTREAM_RQ_TIMEOUT_MS;

    fn read<'a>(fields: &[(&'a Convention, &str)]) -> Reading<'a> {
        let mut reader = Reader::new(NOON);
        for (convention, value) in fields {
            reader.field(convention, value.as_bytes());
        }
        reader.finish()
    }

    #[track_caller]
    fn reads(fields: &[(&Convention, &str)], want: Read, source: Option<&str>) {
        let reading = read(fields);
        assert_eq!(reading.read, want, "{fields:?}");
        assert_eq!(reading.source.map(Name::as_str), source, "{fields:?}");
        assert_eq!(reading.malformed.is_some(), matches!(reading.read, Read::Malformed(_)), "{fields:?}");
    }

    #[test]
    fn p2_nothing_said_is_absent() {
        reads(&[], Read::Absent, None);
        reads(&[(UPSTREAM, "0")], Read::Absent, None);
    }

    #[test]
    fn p8_the_same_field_twice_is_the_smaller() {
        for pair in [["5S", "100m"], ["100m", "5S"]] {
            let want = Read::Valid(Duration::from_millis(100));
            reads(&pair.map(|value| (GRPC, value)), want, Some(names::GRPC_TIMEOUT));
        }
    }

    #[test]
    fn p8_one_malformed_of_two_is_malformed() {
        for pair in [["5S", "5s"], ["5s", "5S"], ["0S", "5s"], ["5s", "0S"]] {
            reads(&pair.map(|v| (GRPC, v)), Read::Malformed(Why::UnknownUnit), Some(names::GRPC_TIMEOUT));
        }
    }

    #[test]
    fn p9_the_smallest_convention_wins_and_is_named() {
        reads(&[(GRPC, "5S"), (REMAINING, "300")], MS_300, Some(names::X_REMAINING_MS));
        reads(&[(REMAINING, "300"), (GRPC, "5S")], MS_300, Some(names::X_REMAINING_MS));
        reads(&[(REMAINING, "300"), (GRPC, "300m")], MS_300, Some(names::X_REMAINING_MS));
        reads(&[(REMAINING, "300"), (GRPC, "0n")], Read::Expired, Some(names::GRPC_TIMEOUT));
        reads(&[(DEADLINE, "2026-01-31T12:00:00.3Z"), (GRPC, "5S")], MS_300, Some(names::X_REQUEST_DEADLINE));
        reads(&[(UPSTREAM, "0"), (REMAINING, "300")], MS_300, Some(names::X_REMAINING_MS));
    }

    #[test]
    fn p9_any_malformed_makes_it_malformed_whatever_the_others_say() {
        let fields = [(REMAINING, "300"), (GRPC, "")];
        reads(&fields, Read::Malformed(Why::Empty), Some(names::GRPC_TIMEOUT));
        assert_eq!(read(&fields).at_most, Some(Duration::from_millis(300)), "what was understood still bounds");
    }

    #[test]
    fn p10_a_moment_too_far_off_is_suspected_skew() {
        let (ceiling, tolerance) = (Duration::from_secs(2), Duration::from_millis(500));
        let suspect = |values: &[&str]| {
            let fields: Vec<_> = values.iter().map(|value| (DEADLINE, *value)).collect();
            read(&fields).suspected_skew(ceiling, tolerance).map(|field| field.offset)
        };
        let secs = Duration::from_secs;
        assert_eq!(suspect(&[]), None);
        assert_eq!(suspect(&["2026-01-31T12:00:02Z"]), None);
        assert_eq!(suspect(&["2026-01-31T11:59:59.5Z"]), None);
        assert_eq!(suspect(&["2026-01-31T12:00:03Z"]), Some(Offset::Ahead(secs(3))));
        assert_eq!(suspect(&["2026-01-31T11:59:59Z"]), Some(Offset::Behind(secs(1))));
        assert_eq!(suspect(&["2026-01-31T12:00:01Z", "2026-01-31T11:59:59Z"]), Some(Offset::Behind(secs(1))));
        assert_eq!(suspect(&["2026-01-31T12:00:03Z", "2026-01-31T12:00:01Z"]), Some(Offset::Ahead(secs(3))));
    }

    #[test]
    fn k1_the_wall_clock_is_asked_once_and_only_for_a_moment() {
        let count = |fields: &[(&Convention, &str)]| {
            let mut asked = 0;
            let mut reader = Reader::new(|| {
                asked += 1;
                NOON
            });
            for (convention, value) in fields {
                reader.field(convention, value.as_bytes());
            }
            reader.finish();
            asked
        };
        assert_eq!(count(&[(GRPC, "5S"), (REMAINING, "300"), (UPSTREAM, "9")]), 0);
        assert_eq!(count(&[(DEADLINE, "2026-01-31T12:00:01Z"), (DEADLINE, "2026-01-31T12:00:02Z")]), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_048))]

        #[test]
        fn p9_many_fields_are_the_smallest_in_any_order_unless_one_is_malformed(
            sent in prop::collection::vec(
                (
                    prop::sample::select(Convention::ALL.to_vec()),
                    prop_oneof![
                        8 => "[0-9]{1,8}",
                        8 => "[0-9]{1,8}[HMSmun]",
                        4 => "2026-01-31T1[0-9]:00:0[0-9]Z",
                        2 => "17698608000000000[0-9]{2} 17698608000000000[0-9]{2}",
                        1 => "[ -~]{0,12}",
                    ],
                ),
                0..6,
            ),
        ) {
            let sent: Vec<_> = sent.iter().map(|(convention, value)| (convention, value.as_bytes())).collect();
            properties::fields(&sent, NOON);
            // Most random mixtures are malformed somewhere; what can be read must hold for itself as well.
            let readable = |field: &(&Convention, &[u8])| !matches!(field.0.codec().parse(field.1, NOON), Read::Malformed(_));
            properties::fields(&sent.into_iter().filter(readable).collect::<Vec<_>>(), NOON);
        }
    }
}
