//! What the owner of a resource says of it. Nothing has to be tuned: how many places there are, if that is known.

use crate::estimate::DEFAULT_QUANTILE;

/// The most that wait, unless something else is said.
const QUEUE: usize = 1_024;
/// The most that may wait at all.
const MOST: usize = 4_096;
/// The most places that are tried where the number is not known.
const MOST_FOUND: u32 = 1_000;

/// How many places a resource has, how many may wait, and whether anything is enforced.
///
/// ```
/// # use oneclock_core::admission::*;
/// let pool = Settings::fixed(8);                          // a pool of eight connections
/// let handlers = Settings::adaptive(2).mode(Mode::Shadow); // two cores, the rest is found out; says what it would refuse
/// assert!(pool.check().is_ok() && handlers.check().is_ok());
/// assert!(Settings::fixed(0).check().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    pub(super) places: Places,
    pub(super) queue: usize,
    pub(super) quantile: f64,
    pub(super) mode: Mode,
}

/// How many places there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Places {
    /// That many, as in a pool.
    Known(u32),
    /// Nobody knows; it is found between these.
    Found {
        /// At least the number of cores.
        least: u32,
        /// And never more.
        most: u32,
    },
}

/// Whether what is decided is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Everything starts at once. What work takes is measured.
    Observe,
    /// Everything starts at once, and what would have been refused is told.
    Shadow,
    /// It is done.
    #[default]
    Enforce,
}

/// These settings contradict themselves.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NotSettings {
    /// Nothing would ever start.
    #[error("{places} places: write at least 1, and at most {MOST_FOUND} where the number is to be found")]
    Places {
        /// What was given.
        places: u32,
    },
    /// The queue has to have a bound.
    #[error("a queue of {queue}: write at most {MOST}; more would only wait to be refused later")]
    Queue {
        /// What was given.
        queue: usize,
    },
    /// It has to be a share.
    #[error("quantile = {quantile}: write a number from 0.5 to 0.99; 0.9 unless said otherwise")]
    Quantile {
        /// What was given.
        quantile: f64,
    },
}

// === Settings ===

impl Settings {
    /// That many places.
    pub const fn fixed(places: u32) -> Self {
        Self { places: Places::Known(places), queue: QUEUE, quantile: DEFAULT_QUANTILE, mode: Mode::Enforce }
    }

    /// As many places as the resource turns out to serve at once, at least `least`: the number of cores.
    pub const fn adaptive(least: u32) -> Self {
        let least = if least == 0 { 1 } else { least };
        let most = if least > MOST_FOUND { least } else { MOST_FOUND }; // which `check` refuses
        Self { places: Places::Found { least, most }, ..Self::fixed(least) }
    }

    /// Where the number of places is to be found, never more than this; 1000 unless said otherwise.
    #[must_use]
    pub const fn most(mut self, most: u32) -> Self {
        if let Places::Found { least, .. } = self.places {
            self.places = Places::Found { least, most };
        }
        self
    }

    /// The most that wait; 1024 unless said otherwise. With 0 nobody does.
    #[must_use]
    pub const fn queue(mut self, queue: usize) -> Self {
        self.queue = queue;
        self
    }

    /// What of its need work must have left to be started: 0.9 unless said otherwise. Lower ones start work that misses,
    /// higher ones refuse work that would have been done.
    #[must_use]
    pub const fn quantile(mut self, quantile: f64) -> Self {
        self.quantile = quantile;
        self
    }

    /// Whether it is done; [`Mode::Enforce`] unless said otherwise.
    #[must_use]
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Whether they fit together.
    ///
    /// # Errors
    /// [`NotSettings`], the first that is found.
    pub fn check(self) -> Result<Self, NotSettings> {
        let places = match self.places {
            Places::Known(places) => (1..=u32::MAX / 4).contains(&places).then_some(()).ok_or(places),
            Places::Found { least, most } if most > MOST_FOUND => Err(most.max(least)),
            Places::Found { least, most } => (1..=most).contains(&least).then_some(()).ok_or(least),
        };
        places.map_err(|places| NotSettings::Places { places })?;
        if self.queue > MOST {
            return Err(NotSettings::Queue { queue: self.queue });
        }
        if !(0.5..=0.99).contains(&self.quantile) {
            return Err(NotSettings::Quantile { quantile: self.quantile });
        }
        Ok(self)
    }
}

// === Mode ===

impl Mode {
    /// The word for configuration, logs and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Shadow => "shadow",
            Self::Enforce => "enforce",
        }
    }

    /// The mode that this word says; `None` for any other.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Observe, Self::Shadow, Self::Enforce].into_iter().find(|mode| mode.as_str() == word)
    }

    pub(super) const fn code(self) -> u8 {
        self as u8
    }

    pub(super) const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Observe,
            1 => Self::Shadow,
            _ => Self::Enforce,
        }
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
