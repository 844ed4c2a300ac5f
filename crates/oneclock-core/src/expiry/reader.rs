//! What the headers of a message say of its end.
//!
//! Decides which fields are believed, which of several counts, and what is wrong with them (contract P1, P2, Q1). The moment is
//! `expirytime`; the fields of JMS and Celery are read as well, since their producers have no other. Of several moments the
//! earliest counts; one that cannot be read makes the whole unreadable, which is not the same as nothing. What is wrong is a
//! [`Fault`], to be counted: a message never ends because of how it was written without somebody being told.

use std::sync::Arc;
use std::time::Duration;

use super::{Expires, Policy, Stamp, Unreadable, WORRYING, names};
use crate::idempotency::Key;
use crate::wire::{self, Wall, Why};

/// The most bytes of a value that are looked at.
const LONGEST: usize = 256;

/// 2001-09-09T01:46:40Z, which is 1 000 000 000 seconds after 1970, and as milliseconds in 1970: what lies before it was never
/// anybody's expiry.
const FIRST: Wall = Wall::from_nanos(1_000_000_000_000_000_000);

/// Further off than this nobody plans.
const FARTHEST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Every field that says something of a message's end.
const KNOWN: [&str; 10] = [
    names::EXPIRY,
    names::POLICY,
    names::OWNER,
    names::FIRST_ENQUEUED,
    names::KEY,
    names::UNCERTAINTY,
    names::REDRIVES,
    "expires",
    "JMSExpiration",
    "absolute-expiry-time",
];

/// Reads the fields of one message, one after the other.
///
/// ```
/// use oneclock_core::expiry::*;
/// use oneclock_core::wire::Wall;
///
/// let mut reader = Reader::new(Wall::from_nanos(1_700_000_000_000_000_000));
/// reader.field("ce-expirytime", b"2023-11-14T22:13:30Z");
/// reader.field("deadline-policy", b"discard");
/// let reading = reader.finish();
/// assert_eq!(reading.stamp.policy, Policy::Discard);
/// assert_eq!(reading.stamp.expires.at(), Some(Wall::from_nanos(1_700_000_010_000_000_000)));
/// assert!(reading.faults.is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct Reader {
    now: Wall,
    stamp: Stamp,
    moments: u32,
    policies: u32,
    faults: Vec<Fault>,
}

/// What a message says of its end, and what is wrong with how it says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What it says.
    pub stamp: Stamp,
    /// What is wrong. At most one of each.
    pub faults: Vec<Fault>,
}

/// Something about a message's fields that is wrong, or that its consumer had to assume. Counted by its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// It does not say when it expires.
    ExpiryMissing,
    /// It says so in a way that cannot be understood.
    ExpiryUnreadable,
    /// It says several moments. The earliest counts.
    ExpiryConflict,
    /// It expires, and does not say what then: read as dead-letter.
    PolicyMissing,
    /// It says something else than one of the three: read as dead-letter.
    PolicyUnreadable,
    /// It has to be completed, and nobody answers for it.
    OwnerMissing,
    /// When it was first put into a queue cannot be understood.
    FirstEnqueuedUnreadable,
    /// It was first put into a queue later than now, beyond what our clock may be wrong by: somebody's clock is.
    FromTheFuture,
    /// Its key cannot be understood.
    KeyUnreadable,
    /// It has neither a key nor an id of its own, where work is to have one effect for each: nothing tells it from a second one.
    KeyMissing,
}

// === Reader ===

impl Reader {
    /// For a message that is read at `now`.
    pub fn new(now: Wall) -> Self {
        Self { now, stamp: Stamp::default(), moments: 0, policies: 0, faults: Vec::new() }
    }

    /// Reads one field. Names are compared without their case, attributes of CloudEvents without their transport's prefix. What
    /// is none of ours changes nothing. Returns whether it [is one](Self::knows).
    pub fn field(&mut self, name: &str, value: &[u8]) -> bool {
        let name = names::attribute(name);
        let is = |field: &str| name.eq_ignore_ascii_case(field);
        if is(names::EXPIRY) || is("expires") {
            if value == b"null" && !is(names::EXPIRY) {
                return true; // Celery's word for none
            }
            let read = if value.len() > LONGEST { Err(Why::TooLong) } else { wire::moment(value) };
            self.expires(read.map_err(Unreadable::Malformed));
        } else if is("JMSExpiration") || is("absolute-expiry-time") {
            self.millis(value);
        } else if is(names::POLICY) {
            self.policy(value);
        } else if is(names::OWNER) {
            self.stamp.owner = text(value).filter(|owner| !owner.is_empty()).map(Arc::from).or(self.stamp.owner.take());
        } else if is(names::FIRST_ENQUEUED) {
            match wire::moment(value) {
                // Of several the earliest is the one that nobody has rewritten.
                Ok(first) => {
                    self.stamp.first_enqueued = Some(self.stamp.first_enqueued.map_or(first, |other| other.min(first)));
                }
                Err(_) => self.fault(Fault::FirstEnqueuedUnreadable),
            }
        } else if is(names::KEY) {
            match Key::parse(value) {
                Ok(key) if self.stamp.key.as_ref().is_none_or(|other| *other == key) => self.stamp.key = Some(key),
                Ok(_) | Err(_) => self.fault(Fault::KeyUnreadable),
            }
        } else if is(names::UNCERTAINTY) {
            // Beyond what a clock is ever lived with it is a fault of whoever says so: it would hold work for as long as it likes.
            let said = number(value).map(|said| Duration::from_millis(said).min(WORRYING));
            self.stamp.uncertainty = self.stamp.uncertainty.max(said.unwrap_or_default());
        } else if is(names::REDRIVES) {
            let said = number(value).map(|said| u32::try_from(said).unwrap_or(u32::MAX));
            self.stamp.redrives = self.stamp.redrives.max(said.unwrap_or_default());
        } else {
            return false;
        }
        true
    }

    /// Whether a field of this name says something of its message's end.
    pub fn knows(&self, name: &str) -> bool {
        let name = names::attribute(name);
        KNOWN.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Reads a moment that a transport carries as one and not as text.
    pub fn moment(&mut self, expires: Wall) {
        self.expires(Ok(expires));
    }

    /// What all fields say together.
    pub fn finish(mut self) -> Reading {
        match self.stamp.expires {
            Expires::Never => self.fault(Fault::ExpiryMissing),
            Expires::Unreadable(_) => self.fault(Fault::ExpiryUnreadable),
            Expires::At(_) => {}
        }
        if self.moments > 1 {
            self.fault(Fault::ExpiryConflict);
        }
        if self.stamp.expires != Expires::Never && self.policies == 0 {
            self.fault(Fault::PolicyMissing);
        }
        if self.stamp.policy == Policy::MustComplete && self.stamp.owner.is_none() {
            self.fault(Fault::OwnerMissing);
        }
        if self.faults.contains(&Fault::KeyUnreadable) {
            self.stamp.key = None; // of two keys neither is the one
        }
        Reading { stamp: self.stamp, faults: self.faults }
    }

    fn expires(&mut self, read: Result<Wall, Unreadable>) {
        let read = read.and_then(|at| match at {
            at if at < FIRST => Err(Unreadable::LooksLikeSeconds),
            at if at.since(self.now) > FARTHEST => Err(Unreadable::TooFar),
            at => Ok(at),
        });
        self.stamp.expires = match (self.stamp.expires, read) {
            (Expires::Never, Ok(at)) => Expires::At(at),
            (Expires::At(one), Ok(other)) => Expires::At(one.min(other)),
            (Expires::Unreadable(why), _) | (_, Err(why)) => Expires::Unreadable(why),
        };
        self.moments += 1;
    }

    /// Milliseconds since 1970, of which zero means never.
    fn millis(&mut self, value: &[u8]) {
        match number(value) {
            Some(0) => {}
            Some(millis) => self.expires(Ok(Wall::from_nanos(millis.saturating_mul(1_000_000)))),
            None => self.expires(Err(Unreadable::Malformed(Why::NotDigits))),
        }
    }

    fn policy(&mut self, value: &[u8]) {
        let said = text(value).and_then(Policy::parse);
        let policy = said.unwrap_or_default();
        self.stamp.policy = match self.policies {
            0 => policy,
            _ if policy == self.stamp.policy => policy,
            _ => Policy::DeadLetter, // two that disagree: somebody looks at it
        };
        self.policies += 1;
        if said.is_none() {
            self.fault(Fault::PolicyUnreadable);
        }
    }

    fn fault(&mut self, fault: Fault) {
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }
}

fn text(value: &[u8]) -> Option<&str> {
    if value.len() > LONGEST { None } else { std::str::from_utf8(value).ok().map(str::trim) }
}

/// Digits and nothing else; too many saturate.
fn number(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > LONGEST || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(value.iter().fold(0, add))
}

// === Reading ===

impl Reading {
    /// The same, with what only its receiver can see: that it comes from the future by more than our clock may be wrong, which
    /// proves that somebody's clock is.
    #[must_use]
    pub fn received(mut self, now: Wall, ours: Duration) -> Self {
        let uncertainty = self.stamp.uncertainty(ours);
        if self.stamp.first_enqueued.is_some_and(|first| first.since(now) > uncertainty) {
            self.faults.push(Fault::FromTheFuture);
        }
        self
    }
}

// === Fault ===

impl Fault {
    /// Every fault, for tables and tests.
    pub const ALL: [Self; 10] = [
        Self::ExpiryMissing,
        Self::ExpiryUnreadable,
        Self::ExpiryConflict,
        Self::PolicyMissing,
        Self::PolicyUnreadable,
        Self::OwnerMissing,
        Self::FirstEnqueuedUnreadable,
        Self::FromTheFuture,
        Self::KeyUnreadable,
        Self::KeyMissing,
    ];

    /// The word for labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ExpiryMissing => "expiry_missing",
            Self::ExpiryUnreadable => "expiry_unreadable",
            Self::ExpiryConflict => "expiry_conflict",
            Self::PolicyMissing => "policy_missing",
            Self::PolicyUnreadable => "policy_unreadable",
            Self::OwnerMissing => "owner_missing",
            Self::FirstEnqueuedUnreadable => "first_enqueued_unreadable",
            Self::FromTheFuture => "from_the_future",
            Self::KeyUnreadable => "key_unreadable",
            Self::KeyMissing => "key_missing",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Wall = Wall::from_nanos(1_769_860_800_000_000_000); // 2026-01-31T12:00:00Z

    fn read(fields: &[(&str, &str)]) -> Reading {
        let mut reader = Reader::new(NOW);
        for (name, value) in fields {
            reader.field(name, value.as_bytes());
        }
        reader.finish()
    }

    fn at(secs: u64) -> Expires {
        Expires::At(NOW + Duration::from_secs(secs))
    }

    #[test]
    fn the_attribute_is_found_under_every_transports_prefix() {
        for name in [
            "expirytime",
            "ce-expirytime",
            "CE-ExpiryTime",
            "ce_expirytime",
            "cloudEvents:expirytime",
            "cloudEvents_expirytime",
        ] {
            assert_eq!(read(&[(name, "2026-01-31T12:00:10Z")]).stamp.expires, at(10), "{name}");
        }
        assert_eq!(read(&[("x-expirytime", "2026-01-31T12:00:10Z")]).stamp.expires, Expires::Never);
    }

    #[test]
    fn other_producers_have_fields_of_their_own() {
        assert_eq!(read(&[("JMSExpiration", "1769860810000")]).stamp.expires, at(10));
        assert_eq!(read(&[("JMSExpiration", "0")]).stamp.expires, Expires::Never, "JMS: zero means never");
        assert_eq!(read(&[("absolute-expiry-time", "1769860810000")]).stamp.expires, at(10));
        assert_eq!(
            read(&[("expires", "2026-01-31T13:00:10.500000+01:00")]).stamp.expires.at(),
            Some(NOW + Duration::from_millis(10_500))
        );
        assert_eq!(read(&[("expires", "null")]).stamp.expires, Expires::Never, "Celery: not set");
    }

    #[test]
    fn what_cannot_be_read_is_never_the_same_as_nothing_and_nobody_guesses() {
        let cases = [
            ("expirytime", "2026-01-31T12:00:10", Unreadable::Malformed(Why::NotARfc3339Time)), // whose noon?
            ("expires", "2026-01-31T12:00:10.123456", Unreadable::Malformed(Why::NotARfc3339Time)), // Celery, without a zone
            ("expirytime", "1769860810", Unreadable::Malformed(Why::NotARfc3339Time)),
            ("expirytime", "", Unreadable::Malformed(Why::Empty)),
            ("expirytime", "2026-02-30T12:00:00Z", Unreadable::Malformed(Why::NoSuchTime)),
            ("JMSExpiration", "1769860810", Unreadable::LooksLikeSeconds),
            ("JMSExpiration", "1769860810000000", Unreadable::TooFar),
            ("JMSExpiration", "1769860810000000000", Unreadable::TooFar),
            ("JMSExpiration", "-1", Unreadable::Malformed(Why::NotDigits)),
            ("expirytime", "1970-01-01T00:00:00Z", Unreadable::LooksLikeSeconds),
            ("expirytime", "9999-12-31T23:59:59Z", Unreadable::TooFar),
        ];
        for (name, value, why) in cases {
            let reading = read(&[(name, value), ("deadline-policy", "discard")]);
            assert_eq!(reading.stamp.expires, Expires::Unreadable(why), "{name}: {value}");
            assert_eq!(reading.faults, [Fault::ExpiryUnreadable], "{name}: {value}");
        }
    }

    #[test]
    fn of_several_the_earliest_counts_and_one_unreadable_spoils_all() {
        let both = read(&[
            ("expirytime", "2026-01-31T12:00:20Z"),
            ("JMSExpiration", "1769860810000"),
            ("deadline-policy", "discard"),
        ]);
        assert_eq!((both.stamp.expires, both.faults), (at(10), vec![Fault::ExpiryConflict]));
        let spoiled = read(&[("expirytime", "2026-01-31T12:00:20Z"), ("JMSExpiration", "soon")]);
        assert!(matches!(spoiled.stamp.expires, Expires::Unreadable(_)));
    }

    #[test]
    fn q5_a_policy_that_nobody_understands_loses_nothing() {
        let stamped = |policies: &[&str]| {
            let fields: Vec<_> = policies.iter().map(|policy| ("deadline-policy", *policy)).collect();
            read(&fields).stamp.policy
        };
        assert_eq!(stamped(&[]), Policy::DeadLetter);
        assert_eq!(stamped(&["discrad"]), Policy::DeadLetter);
        assert_eq!(stamped(&["discard", "discard"]), Policy::Discard);
        assert_eq!(stamped(&["discard", "must-complete"]), Policy::DeadLetter);
        assert_eq!(read(&[("deadline-policy", "must-complete")]).faults, [Fault::ExpiryMissing, Fault::OwnerMissing]);
    }

    #[test]
    fn of_two_keys_neither_is_the_one() {
        assert_eq!(read(&[("idempotency-key", "a"), ("Idempotency-Key", "\"a\"")]).stamp.key.unwrap().as_str(), "a");
        let two = read(&[("idempotency-key", "a"), ("idempotency-key", "b")]);
        assert!(two.stamp.key.is_none() && two.faults.contains(&Fault::KeyUnreadable));
    }

    #[test]
    fn a_message_from_the_future_proves_that_a_clock_is_wrong() {
        let reading = read(&[("deadline-first-enqueued", "2026-01-31T12:00:02Z"), ("deadline-epsilon", "400")]);
        let ms = Duration::from_millis;
        assert!(!reading.clone().received(NOW, ms(1_600)).faults.contains(&Fault::FromTheFuture));
        assert!(reading.received(NOW, ms(1_500)).faults.contains(&Fault::FromTheFuture));
    }

    fn stamps() -> impl Strategy<Value = Stamp> {
        let moment = 1_000_000_000_000_u64..1_900_000_000_000;
        let (owner, key) = ("[a-z@.]{1,20}", "[ -~]{1,30}");
        (
            proptest::option::of(moment.clone()),
            0_usize..3,
            proptest::option::of(owner),
            proptest::option::of(moment),
            proptest::option::of(key),
            0_u64..5_000,
            0_u32..9,
        )
            .prop_map(|(expires, policy, owner, first, key, uncertainty, redrives)| {
                let wall = |millis: u64| Wall::from_nanos(millis * 1_000_000);
                let expires = expires.map_or(Expires::Never, |at| Expires::At(wall(at)));
                Stamp {
                    policy: Policy::ALL[policy],
                    expires,
                    owner: owner.map(Arc::from),
                    first_enqueued: first.map(wall),
                    key: key.map(|key| Key::new(&key).unwrap()),
                    uncertainty: Duration::from_millis(uncertainty),
                    redrives,
                }
            })
    }

    proptest! {
        #[test]
        fn q1_what_is_written_reads_back_unchanged_however_often(stamp in stamps(), prefix in 0_usize..4) {
            let mut copy = stamp.clone();
            for _ in 0..3 {
                let mut reader = Reader::new(NOW);
                copy.write(|name, value| {
                    let prefix = if name == names::EXPIRY { names::PREFIXES[prefix] } else { "" };
                    reader.field(&format!("{prefix}{name}"), value.as_bytes());
                });
                copy = reader.finish().stamp;
                prop_assert_eq!(&copy, &stamp);
            }
        }

        #[test]
        fn any_bytes_are_read(fields in proptest::collection::vec(("(expirytime|ce-expirytime|expires|JMSExpiration|deadline-[a-z-]{1,15}|idempotency-key)", proptest::collection::vec(any::<u8>(), 0..40)), 0..8)) {
            let mut reader = Reader::new(NOW);
            for (name, value) in &fields {
                reader.field(name, value);
            }
            let _ = reader.finish();
        }
    }
}
