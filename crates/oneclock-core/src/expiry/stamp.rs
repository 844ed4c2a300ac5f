//! What a message says of its own end, and how that is written.

use std::sync::Arc;
use std::time::Duration;

use super::{Policy, Zone, names, zone};
use crate::idempotency::Key;
use crate::wire::{Wall, Why, utc};

/// What a message says of its own end. Copied unchanged by whatever delivers it again (contract Q1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// When it expires.
    pub expires: Expires,
    /// What becomes of it then.
    pub policy: Policy,
    /// Who answers for it.
    pub owner: Option<Arc<str>>,
    /// When it was first put into a queue, by its producer's clock.
    pub first_enqueued: Option<Wall>,
    /// The key under which it has one effect.
    pub key: Option<Key>,
    /// By how much its producer's clock may be wrong; zero if it did not say.
    pub uncertainty: Duration,
    /// How many times somebody has put it back.
    pub redrives: u32,
}

/// When work expires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expires {
    /// Nothing was said: it does not.
    #[default]
    Never,
    /// At this moment.
    At(Wall),
    /// Something was said and cannot be understood. Never the same as nothing, and nobody's guess either.
    Unreadable(Unreadable),
}

/// Why an expiry is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unreadable {
    /// It is not of the shape that its field has.
    Malformed(Why),
    /// It lies before anybody had a queue: seconds where milliseconds belong, most likely.
    LooksLikeSeconds,
    /// It lies further off than anybody plans: micro- or nanoseconds where milliseconds belong, most likely.
    TooFar,
}

// === Stamp ===

impl Stamp {
    /// By how much our clock and the producer's may differ together.
    pub fn uncertainty(&self, ours: Duration) -> Duration {
        ours.saturating_add(self.uncertainty)
    }

    /// In which zone it is. What never expires is live; what cannot be read is uncertain for ever.
    pub fn zone(&self, now: Wall, ours: Duration) -> Zone {
        match self.expires {
            Expires::Never => Zone::Live,
            Expires::At(at) => zone(at, now, self.uncertainty(ours)),
            Expires::Unreadable(_) => Zone::Uncertain,
        }
    }

    /// The fields that say so, without the prefix that a transport has for attributes of CloudEvents: only
    /// [`EXPIRY`](names::EXPIRY) is one. What is unreadable is not written: whoever copies a message copies its own fields.
    ///
    /// ```
    /// # use oneclock_core::{expiry::*, wire::Wall};
    /// let stamp = Stamp { expires: Expires::At(Wall::from_nanos(1_700_000_000_123_456_789)), ..Stamp::default() };
    /// let mut fields = Vec::new();
    /// stamp.write(|name, value| fields.push(format!("{name}: {value}")));
    /// assert_eq!(fields, ["expirytime: 2023-11-14T22:13:20.123Z", "deadline-policy: dead-letter"]);
    /// ```
    pub fn write(&self, mut field: impl FnMut(&'static str, &str)) {
        let millis = |wall: Wall| utc(wall.as_nanos() / 1_000_000);
        if let Expires::At(at) = self.expires {
            field(names::EXPIRY, millis(at).as_str());
        }
        if self.expires != Expires::Never || self.policy != Policy::default() {
            field(names::POLICY, self.policy.as_str());
        }
        if let Some(owner) = &self.owner {
            field(names::OWNER, owner);
        }
        if let Some(first) = self.first_enqueued {
            field(names::FIRST_ENQUEUED, millis(first).as_str());
        }
        if let Some(key) = &self.key {
            field(names::KEY, &key.to_field());
        }
        if !self.uncertainty.is_zero() {
            // Rounded up: what is said to be more certain than it is would be wrong.
            let millis = self.uncertainty.as_nanos().div_ceil(1_000_000);
            field(names::UNCERTAINTY, &millis.to_string());
        }
        if self.redrives > 0 {
            field(names::REDRIVES, &self.redrives.to_string());
        }
    }
}

// === Expires ===

impl Expires {
    /// The moment, if it is known.
    pub const fn at(self) -> Option<Wall> {
        match self {
            Self::At(at) => Some(at),
            Self::Never | Self::Unreadable(_) => None,
        }
    }
}

// === Unreadable ===

impl Unreadable {
    /// The word for labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed(why) => why.as_str(),
            Self::LooksLikeSeconds => "looks_like_seconds",
            Self::TooFar => "too_far",
        }
    }
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(why) => why.fmt(f),
            Self::LooksLikeSeconds => f.write_str("a moment in 1970: seconds where milliseconds belong?"),
            Self::TooFar => {
                f.write_str("more than a hundred years off: micro- or nanoseconds where milliseconds belong?")
            }
        }
    }
}
