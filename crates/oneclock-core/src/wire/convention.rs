//! Which fields are read or written, each with its spelling. Contract section 1 (the table) and E7.
//!
//! A field whose unit or kind is ambiguous cannot be expressed: it is [`declared`](Convention::declared) with one.

use std::sync::Arc;
use std::time::Duration;

use super::{Codec, Encoded, Wall, names};
use crate::Name;

/// One field that carries a deadline: its name, and how its value is spelled.
///
/// ```
/// # use oneclock_core::wire::{Convention, Declared, Read, Wall}; use std::time::Duration;
/// let seconds = Convention::declared("x-request-timeout", Declared::RemainingSeconds)?;
/// assert_eq!(seconds.codec().parse(b"3", Wall::default()), Read::Valid(Duration::from_secs(3)));
/// # Ok::<(), oneclock_core::wire::NotAConvention>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Convention {
    name: Name, // Invariant: a lower-case field name.
    codec: Codec,
}

/// An ordered set of conventions, no two for the same field. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Conventions(Set);

#[derive(Clone, Debug)]
enum Set {
    Fixed(&'static [Convention]),
    Shared(Arc<[Convention]>),
}

/// What the value of a declared field is. There is no word for "milliseconds" alone: whether they remain or count from
/// 1970 has to be said (contract section 1, last row).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Declared {
    /// Milliseconds that are left.
    RemainingMillis,
    /// Whole seconds that are left.
    RemainingSeconds,
    /// Seconds that are left, with a fraction.
    DecimalSeconds,
    /// A moment: milliseconds since 1970.
    EpochMillis,
    /// A moment, as RFC 3339 writes it.
    Rfc3339,
}

/// Why a field cannot be declared as a convention.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAConvention {
    /// No name was given.
    #[error("the field name is empty")]
    NoName,
    /// The name is longer than any sender's.
    #[error("the field name has {0} bytes, 128 is the most")]
    LongName(usize),
    /// Field names are compared in lower case, as HTTP/2 sends them.
    #[error("field name {0:?} has upper-case letters: write it in lower case")]
    UpperCase(String),
    /// A character that no field name may have (RFC 9110, section 5.6.2).
    #[error("field name {name:?} has {character:?}, which no field name may have")]
    NotAToken {
        /// The name as it was given.
        name: String,
        /// The first character that does not belong.
        character: char,
    },
    /// The field's owner has fixed what it means, so it cannot be declared to mean something else.
    #[error("{field} has its own grammar and cannot be declared as {kind}")]
    FixedGrammar {
        /// The field.
        field: &'static str,
        /// What it was declared as.
        kind: Declared,
    },
}

/// A word in configuration that is no [`Declared`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} does not say what the field holds: write one of {}", Declared::WORDS)]
pub struct NotAKind {
    /// The word as it was given.
    pub word: String,
}

/// The same field in two conventions: which grammar holds would depend on their order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field {field} is there twice: one field has one grammar")]
pub struct SameFieldTwice {
    /// The field.
    pub field: Name,
}

/// What is left does not reach one unit of a field that the next hop needs: the call is not made (contract E2, E3).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{remaining:?} left, less than one unit of {field}")]
pub struct NothingToSend {
    /// The field whose unit is too coarse.
    pub field: Name,
    /// What is left.
    pub remaining: Duration,
}

// === Convention ===

impl Convention {
    /// `grpc-timeout`
    pub const GRPC_TIMEOUT: Self = Self::fixed(names::GRPC_TIMEOUT, Codec::Grpc);
    /// `connect-timeout-ms`
    pub const CONNECT_TIMEOUT_MS: Self = Self::fixed(names::CONNECT_TIMEOUT_MS, Codec::Millis);
    /// `x-remaining-ms`, the one we write on plain HTTP
    pub const X_REMAINING_MS: Self = Self::fixed(names::X_REMAINING_MS, Codec::Millis);
    /// `x-request-timeout-ms`
    pub const X_REQUEST_TIMEOUT_MS: Self = Self::fixed(names::X_REQUEST_TIMEOUT_MS, Codec::Millis);
    /// `x-request-deadline`, an RFC 3339 time
    pub const X_REQUEST_DEADLINE: Self = Self::fixed(names::X_REQUEST_DEADLINE, Codec::Rfc3339);
    /// `x-envoy-expected-rq-timeout-ms`. Envoy writes 1 when nothing is left; that is read as 1 ms, which the least
    /// useful time refuses (contract K4).
    pub const X_ENVOY_EXPECTED_RQ_TIMEOUT_MS: Self = Self::fixed(names::X_ENVOY_EXPECTED_RQ_TIMEOUT_MS, Codec::Millis);
    /// `x-envoy-upstream-rq-timeout-ms`, where zero says nothing
    pub const X_ENVOY_UPSTREAM_RQ_TIMEOUT_MS: Self =
        Self::fixed(names::X_ENVOY_UPSTREAM_RQ_TIMEOUT_MS, Codec::EnvoyUpstreamMillis);
    /// `x-envoy-upstream-rq-per-try-timeout-ms`, where zero says nothing
    pub const X_ENVOY_UPSTREAM_RQ_PER_TRY_TIMEOUT_MS: Self =
        Self::fixed(names::X_ENVOY_UPSTREAM_RQ_PER_TRY_TIMEOUT_MS, Codec::EnvoyUpstreamMillis);
    /// `expect-within`
    pub const EXPECT_WITHIN: Self = Self::fixed(names::EXPECT_WITHIN, Codec::DecimalSeconds);
    /// `context-ttl-ms`
    pub const CONTEXT_TTL_MS: Self = Self::fixed(names::CONTEXT_TTL_MS, Codec::Millis);
    /// `finagle-ctx-com.twitter.finagle.deadline`
    pub const FINAGLE_DEADLINE: Self = Self::fixed(names::FINAGLE_DEADLINE, Codec::Finagle);
    /// `l5d-timeout`
    pub const L5D_TIMEOUT: Self = Self::fixed(names::L5D_TIMEOUT, Codec::L5d);

    /// Every convention whose grammar the contract fixes.
    pub const ALL: [Self; 12] = [
        Self::GRPC_TIMEOUT,
        Self::CONNECT_TIMEOUT_MS,
        Self::X_REMAINING_MS,
        Self::X_REQUEST_TIMEOUT_MS,
        Self::X_REQUEST_DEADLINE,
        Self::X_ENVOY_EXPECTED_RQ_TIMEOUT_MS,
        Self::X_ENVOY_UPSTREAM_RQ_TIMEOUT_MS,
        Self::X_ENVOY_UPSTREAM_RQ_PER_TRY_TIMEOUT_MS,
        Self::EXPECT_WITHIN,
        Self::CONTEXT_TTL_MS,
        Self::FINAGLE_DEADLINE,
        Self::L5D_TIMEOUT,
    ];

    const fn fixed(name: &'static str, codec: Codec) -> Self {
        Self { name: Name::literal(name), codec }
    }

    /// A field of the user's own, or one of the table's that senders use in more than one way (`x-request-timeout`,
    /// `x-request-deadline`), with what its value is.
    ///
    /// # Errors
    /// [`NotAConvention`] when the name is no lower-case field name, or belongs to a convention with another grammar.
    pub fn declared(name: impl Into<Name>, kind: Declared) -> Result<Self, NotAConvention> {
        let declared = Self { name: name.into(), codec: kind.codec() };
        check_field_name(declared.name.as_str())?;
        match Self::ALL.iter().find(|fixed| fixed.name == declared.name) {
            // Some senders put milliseconds here: ambiguous in the wild, unlike the rest of the table.
            Some(fixed) if fixed.codec == declared.codec || *fixed == Self::X_REQUEST_DEADLINE => Ok(declared),
            Some(_) => {
                let field = names::ALL.into_iter().find(|field| declared.name == *field).unwrap_or("this field");
                Err(NotAConvention::FixedGrammar { field, kind })
            }
            None => Ok(declared),
        }
    }

    /// The field's name, in lower case.
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// How the value is spelled.
    pub const fn codec(&self) -> Codec {
        self.codec
    }

    /// Whether only a trusted peer's field counts: what outsiders ask of an Envoy is not for us to obey.
    pub const fn only_from_trusted(&self) -> bool {
        matches!(self.codec, Codec::EnvoyUpstreamMillis)
    }
}

fn check_field_name(name: &str) -> Result<(), NotAConvention> {
    const LONGEST: usize = 128;
    let in_a_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() {
        Err(NotAConvention::NoName)
    } else if name.len() > LONGEST {
        Err(NotAConvention::LongName(name.len()))
    } else if let Some(character) = name.chars().find(|c| !in_a_token(*c)) {
        Err(NotAConvention::NotAToken { name: name.to_owned(), character })
    } else if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Err(NotAConvention::UpperCase(name.to_owned()))
    } else {
        Ok(())
    }
}

// === Declared ===

impl Declared {
    /// Every kind, for tables and tests.
    pub const ALL: [Self; 5] =
        [Self::RemainingMillis, Self::RemainingSeconds, Self::DecimalSeconds, Self::EpochMillis, Self::Rfc3339];

    const WORDS: &str = "remaining-ms, remaining-seconds, decimal-seconds, epoch-ms, rfc3339";

    /// The word for configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RemainingMillis => "remaining-ms",
            Self::RemainingSeconds => "remaining-seconds",
            Self::DecimalSeconds => "decimal-seconds",
            Self::EpochMillis => "epoch-ms",
            Self::Rfc3339 => "rfc3339",
        }
    }

    /// How such a value is spelled.
    pub const fn codec(self) -> Codec {
        match self {
            Self::RemainingMillis => Codec::Millis,
            Self::RemainingSeconds => Codec::WholeSeconds,
            Self::DecimalSeconds => Codec::DecimalSeconds,
            Self::EpochMillis => Codec::EpochMillis,
            Self::Rfc3339 => Codec::Rfc3339,
        }
    }
}

impl std::str::FromStr for Declared {
    type Err = NotAKind;

    fn from_str(word: &str) -> Result<Self, NotAKind> {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == word);
        known.ok_or_else(|| NotAKind { word: word.to_owned() })
    }
}

impl std::fmt::Display for Declared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

// === Conventions ===

impl Conventions {
    /// What is read when nothing else is configured: the bold rows of the contract's table.
    pub const fn default_set() -> Self {
        const SET: &[Convention] = &[
            Convention::GRPC_TIMEOUT,
            Convention::CONNECT_TIMEOUT_MS,
            Convention::X_REMAINING_MS,
            Convention::X_REQUEST_TIMEOUT_MS,
            Convention::X_REQUEST_DEADLINE,
            Convention::X_ENVOY_EXPECTED_RQ_TIMEOUT_MS,
        ];
        Self(Set::Fixed(SET))
    }

    /// No convention at all: what arrives says nothing, what leaves is told nothing.
    pub const fn none() -> Self {
        Self(Set::Fixed(&[]))
    }

    /// A set that was checked by whoever wrote it down.
    pub(super) const fn fixed(set: &'static [Convention]) -> Self {
        Self(Set::Fixed(set))
    }

    /// These, in this order.
    ///
    /// # Errors
    /// [`SameFieldTwice`] when two are for the same field.
    pub fn new(conventions: impl IntoIterator<Item = Convention>) -> Result<Self, SameFieldTwice> {
        let set: Vec<_> = conventions.into_iter().collect();
        for (i, convention) in set.iter().enumerate() {
            if set.iter().take(i).any(|earlier| earlier.name == convention.name) {
                return Err(SameFieldTwice { field: convention.name.clone() });
            }
        }
        Ok(Self(Set::Shared(set.into())))
    }

    /// This set and one more.
    ///
    /// # Errors
    /// [`SameFieldTwice`] when the set has that field; [`without`](Self::without) makes room.
    pub fn with(self, convention: Convention) -> Result<Self, SameFieldTwice> {
        Self::new(self.iter().cloned().chain([convention]))
    }

    /// This set without the convention for that field, if it has one.
    #[must_use]
    pub fn without(self, field: &str) -> Self {
        let set: Vec<_> = self.iter().filter(|convention| convention.name != *field).cloned().collect();
        Self(Set::Shared(set.into()))
    }

    /// The convention for that field; `field` in lower case.
    pub fn find(&self, field: &str) -> Option<&Convention> {
        self.iter().find(|convention| convention.name == *field)
    }

    /// The conventions, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Convention> {
        self.as_slice().iter()
    }

    /// The conventions, in order.
    pub fn as_slice(&self) -> &[Convention] {
        match &self.0 {
            Set::Fixed(set) => set,
            Set::Shared(set) => set,
        }
    }

    /// Whether any of them speaks of a moment, so that writing needs a real [`Wall`] reading.
    pub fn need_wall(&self) -> bool {
        self.iter().any(|convention| convention.codec.is_absolute())
    }

    /// Hands the same deadline to `put`, once for each convention and in its own unit (contract E7).
    ///
    /// ```
    /// # use oneclock_core::wire::{Wall, writes}; use std::time::Duration;
    /// let mut sent = Vec::new();
    /// writes::plain_http().write(Duration::from_micros(250_900), Wall::default(), |name, value| {
    ///     sent.push(format!("{name}: {value}"));
    /// })?;
    /// assert_eq!(sent, ["x-remaining-ms: 250"]);
    ///
    /// let too_little = writes::plain_http().write(Duration::from_micros(600), Wall::default(), |_, _| ());
    /// assert_eq!(too_little.unwrap_err().to_string(), "600µs left, less than one unit of x-remaining-ms");
    /// # Ok::<(), oneclock_core::wire::NothingToSend>(())
    /// ```
    ///
    /// # Errors
    /// [`NothingToSend`] when what remains is below one unit of a field. The call must then not be made; some fields may
    /// have been put already.
    pub fn write(
        &self,
        remaining: Duration,
        wall: Wall,
        mut put: impl FnMut(&Name, Encoded),
    ) -> Result<(), NothingToSend> {
        for convention in self.iter() {
            match convention.codec.encode(remaining, wall) {
                Some(value) => put(&convention.name, value),
                None => return Err(NothingToSend { field: convention.name.clone(), remaining }),
            }
        }
        Ok(())
    }
}

impl Default for Conventions {
    fn default() -> Self {
        Self::default_set()
    }
}

impl PartialEq for Conventions {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Conventions {}

impl<'a> IntoIterator for &'a Conventions {
    type Item = &'a Convention;
    type IntoIter = std::slice::Iter<'a, Convention>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::writes;

    #[test]
    fn the_default_set_is_the_bold_rows() {
        let fields: Vec<_> = Conventions::default_set().iter().map(|c| c.name().to_string()).collect();
        let bold = [
            "grpc-timeout",
            "connect-timeout-ms",
            "x-remaining-ms",
            "x-request-timeout-ms",
            "x-request-deadline",
            "x-envoy-expected-rq-timeout-ms",
        ];
        assert_eq!(fields, bold);
    }

    #[test]
    fn every_name_is_a_convention_or_needs_declaring() {
        for name in names::ALL {
            assert_eq!(check_field_name(name), Ok(()));
            let fixed = Convention::ALL.iter().any(|convention| *convention.name() == name);
            assert!(fixed || name == names::X_REQUEST_TIMEOUT, "{name}");
        }
    }

    #[test]
    fn only_what_is_asked_of_an_envoy_needs_trust() {
        for convention in Convention::ALL {
            let asks = convention.name().as_str().starts_with("x-envoy-upstream-");
            assert_eq!(convention.only_from_trusted(), asks, "{}", convention.name());
        }
    }

    #[test]
    fn a_declared_field_says_what_it_holds() {
        for kind in Declared::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
            assert!(Declared::WORDS.contains(kind.as_str()));
            let convention = Convention::declared("x-acme-budget", kind).unwrap();
            assert_eq!(convention.codec(), kind.codec());
        }
        let ambiguous = "ms".parse::<Declared>().unwrap_err().to_string();
        assert_eq!(
            ambiguous,
            "\"ms\" does not say what the field holds: write one of remaining-ms, remaining-seconds, decimal-seconds, \
             epoch-ms, rfc3339"
        );
    }

    #[test]
    fn a_field_name_is_a_lower_case_token() {
        let refused = |name: &'static str| Convention::declared(name, Declared::EpochMillis).unwrap_err().to_string();
        assert_eq!(refused(""), "the field name is empty");
        assert_eq!(refused("X-Budget"), "field name \"X-Budget\" has upper-case letters: write it in lower case");
        assert_eq!(refused("x budget"), "field name \"x budget\" has ' ', which no field name may have");
        assert_eq!(refused("x-bügel"), "field name \"x-bügel\" has 'ü', which no field name may have");
        assert_eq!(refused(":path"), "field name \":path\" has ':', which no field name may have");
        let long = Convention::declared("x".repeat(129), Declared::EpochMillis);
        assert_eq!(long, Err(NotAConvention::LongName(129)));
    }

    #[test]
    fn a_fixed_grammar_is_not_declared_away() {
        let refused = Convention::declared("grpc-timeout", Declared::RemainingMillis).unwrap_err();
        assert_eq!(refused.to_string(), "grpc-timeout has its own grammar and cannot be declared as remaining-ms");
        assert!(Convention::declared("context-ttl-ms", Declared::RemainingMillis).is_ok());
        assert!(Convention::declared("x-request-timeout", Declared::RemainingSeconds).is_ok());
        assert!(Convention::declared("x-request-deadline", Declared::EpochMillis).is_ok());
        // What Envoy spells as zero must not become "expired" by a declaration.
        assert!(Convention::declared("x-envoy-upstream-rq-timeout-ms", Declared::RemainingMillis).is_err());
    }

    #[test]
    fn one_field_has_one_grammar() {
        let twice = Conventions::default_set().with(Convention::GRPC_TIMEOUT).unwrap_err();
        assert_eq!(twice.to_string(), "field grpc-timeout is there twice: one field has one grammar");
        let replaced = Conventions::default_set()
            .without("x-request-deadline")
            .with(Convention::declared("x-request-deadline", Declared::EpochMillis).unwrap())
            .unwrap();
        assert_eq!(replaced.find("x-request-deadline").map(Convention::codec), Some(Codec::EpochMillis));
        assert_eq!(replaced.iter().count(), Conventions::default_set().iter().count());
    }

    #[test]
    fn e7_every_convention_gets_the_same_deadline_in_its_own_unit() {
        let set = Conventions::new([Convention::GRPC_TIMEOUT, Convention::X_REMAINING_MS, Convention::EXPECT_WITHIN]);
        let mut sent = Vec::new();
        let left = Duration::from_nanos(1_234_567_890);
        set.unwrap().write(left, Wall::default(), |name, value| sent.push(format!("{name}: {value}"))).unwrap();
        assert_eq!(sent, ["grpc-timeout: 1234567u", "x-remaining-ms: 1234", "expect-within: 1.234"]);
    }

    #[test]
    fn e2_a_rest_below_one_unit_of_any_field_is_not_sent() {
        let set = Conventions::new([Convention::GRPC_TIMEOUT, Convention::X_REMAINING_MS]).unwrap();
        let refused = set.write(Duration::from_micros(600), Wall::default(), |_, _| ()).unwrap_err();
        assert_eq!(*refused.field.as_str(), *names::X_REMAINING_MS);
        let nothing = writes::grpc().write(Duration::ZERO, Wall::default(), |_, _| ()).unwrap_err();
        assert_eq!(nothing.to_string(), "0ns left, less than one unit of grpc-timeout");
    }
}
