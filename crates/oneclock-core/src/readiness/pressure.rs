//! When work that nobody waits for any more should keep new work away.
//!
//! Decides with two marks and counts of looks, so that readiness does not flutter, and below a guard: while too few others are
//! ready it never does, since then this process is better than none.

/// At which share of a capacity pressure begins and ends, and for how many looks in a row.
///
/// ```
/// use oneclock_core::readiness::{Fleet, Marks, Pressure};
///
/// let marks = Marks::of(64).high(50).low(20).begins_after(3).ends_after(2);
/// assert!(marks.check().is_ok());
/// let mut pressure = Pressure::default();
/// let looks = [40, 40, 40, 30, 12, 40, 12, 12].map(|zombies| pressure.look(&marks, zombies, Fleet::CanSpare));
/// assert_eq!(looks, [false, false, true, true, true, true, true, false]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    capacity: usize,
    high: u8,
    low: u8,
    begins_after: u32,
    ends_after: u32,
}

/// Marks that contradict one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotMarks {
    /// A share of nothing.
    #[error("the capacity for zombies is 0: give the number of threads, connections or places that they take up")]
    NoCapacity,
    /// There is no band between the marks, so it would flutter.
    #[error("the low mark ({low} %) is not below the high one ({high} %): readiness would flutter between them")]
    NoBand {
        /// Where pressure ends.
        low: u8,
        /// Where it begins.
        high: u8,
    },
    /// More than all.
    #[error("the high mark is {high} %: above 100 % of the capacity there is nothing")]
    AboveAll {
        /// Where pressure begins.
        high: u8,
    },
    /// One look is a moment, and none is nothing.
    #[error("{what} is {looks}: fewer than two looks in a row are a moment, and no pressure")]
    TooFewLooks {
        /// Which count.
        what: &'static str,
        /// What it was set to.
        looks: u32,
    },
}

/// What whoever knows the others says of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fleet {
    /// Enough others are ready.
    CanSpare,
    /// Too few others are ready, or it is not known.
    CannotSpare,
}

/// Whether there is pressure, and what leads there. Begins without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    on: bool,
    in_a_row: u32, // looks that speak for the other state
}

// === Marks ===

impl Marks {
    /// Of `capacity` places that zombies can take up: blocking threads, connections. From half of it on for 5 looks; back at a
    /// fifth or less for 15.
    pub const fn of(capacity: usize) -> Self {
        Self { capacity, high: 50, low: 20, begins_after: 5, ends_after: 15 }
    }

    /// Pressure begins at this many percent of the capacity.
    #[must_use]
    pub const fn high(self, percent: u8) -> Self {
        Self { high: percent, ..self }
    }

    /// Pressure ends at this many percent of it, or less.
    #[must_use]
    pub const fn low(self, percent: u8) -> Self {
        Self { low: percent, ..self }
    }

    /// It begins with this many looks in a row at or above the high mark.
    #[must_use]
    pub const fn begins_after(self, looks: u32) -> Self {
        Self { begins_after: looks, ..self }
    }

    /// It ends with this many looks in a row at or below the low mark.
    #[must_use]
    pub const fn ends_after(self, looks: u32) -> Self {
        Self { ends_after: looks, ..self }
    }

    /// Whether they fit together.
    ///
    /// # Errors
    /// [`NotMarks`], the first that is found.
    pub const fn check(&self) -> Result<(), NotMarks> {
        let Self { capacity, high, low, begins_after, ends_after } = *self;
        if capacity == 0 {
            return Err(NotMarks::NoCapacity);
        }
        if low >= high {
            return Err(NotMarks::NoBand { low, high });
        }
        if high > 100 {
            return Err(NotMarks::AboveAll { high });
        }
        if begins_after < 2 {
            return Err(NotMarks::TooFewLooks { what: "begins_after", looks: begins_after });
        }
        if ends_after < 2 {
            return Err(NotMarks::TooFewLooks { what: "ends_after", looks: ends_after });
        }
        Ok(())
    }

    /// The places that zombies can take up.
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    const fn reaches(&self, zombies: usize) -> bool {
        percents(zombies) >= share(self.capacity, self.high)
    }

    const fn is_low(&self, zombies: usize) -> bool {
        percents(zombies) <= share(self.capacity, self.low)
    }
}

const fn percents(zombies: usize) -> u128 {
    zombies as u128 * 100
}

const fn share(capacity: usize, percent: u8) -> u128 {
    capacity as u128 * percent as u128
}

// === Pressure ===

impl Pressure {
    /// One look found this many zombies. Whether there is pressure now.
    ///
    /// While the fleet cannot spare this process there is none, and looks do not count: when it can again, not everybody who
    /// was held must go at once.
    pub fn look(&mut self, marks: &Marks, zombies: usize, fleet: Fleet) -> bool {
        if fleet == Fleet::CannotSpare {
            *self = Self::default();
            return false;
        }
        let (speaks_for_the_other, enough) = if self.on {
            (marks.is_low(zombies), marks.ends_after)
        } else {
            (marks.reaches(zombies), marks.begins_after)
        };
        self.in_a_row = if speaks_for_the_other { self.in_a_row.saturating_add(1) } else { 0 };
        if self.in_a_row >= enough {
            *self = Self { on: !self.on, in_a_row: 0 };
        }
        self.on
    }

    /// Whether there is pressure, by the latest look.
    pub const fn is_on(&self) -> bool {
        self.on
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MARKS: Marks = Marks::of(10).high(50).low(20).begins_after(4).ends_after(6);

    fn flips(looks: impl IntoIterator<Item = bool>) -> usize {
        let mut before = false;
        looks.into_iter().filter(|now| std::mem::replace(&mut before, *now) != *now).count()
    }

    #[test]
    fn a_count_that_swings_around_a_mark_flips_nothing() {
        let swings = (0..1000).map(|n| if n % 2 == 0 { 5 } else { 2 });
        let mut pressure = Pressure::default();
        assert_eq!(flips(swings.clone().map(|zombies| pressure.look(&MARKS, zombies, Fleet::CanSpare))), 0);
        // One mark and no counting, as anybody would write it first:
        assert!(flips(swings.map(|zombies| zombies >= 5)) > 900);
    }

    #[test]
    fn between_the_marks_it_stays_as_it_is() {
        let mut pressure = Pressure::default();
        for zombies in [9, 9, 9, 9, 3, 4, 3, 4, 3, 4, 3, 4, 3, 4] {
            pressure.look(&MARKS, zombies, Fleet::CanSpare);
        }
        assert!(pressure.is_on());
        for zombies in [2, 1, 0, 0, 0] {
            assert!(pressure.look(&MARKS, zombies, Fleet::CanSpare));
        }
        assert!(!pressure.look(&MARKS, 0, Fleet::CanSpare));
    }

    #[test]
    fn a_fleet_that_cannot_spare_this_one_ends_it_at_once_and_begins_the_count_anew() {
        let mut pressure = Pressure::default();
        (0..4).for_each(|_| _ = pressure.look(&MARKS, 9, Fleet::CanSpare));
        assert!(pressure.is_on());
        for _ in 0..100 {
            assert!(!pressure.look(&MARKS, 9, Fleet::CannotSpare));
        }
        assert_eq!([(); 4].map(|()| pressure.look(&MARKS, 9, Fleet::CanSpare)), [false, false, false, true]);
    }

    #[test]
    fn marks_that_make_no_sense_are_refused() {
        let why = |marks: Marks| marks.check().unwrap_err().to_string();
        assert!(why(Marks::of(0)).contains("capacity"));
        assert!(why(Marks::of(8).high(20).low(20)).contains("flutter"));
        assert!(why(Marks::of(8).high(101)).contains("101 %"));
        assert!(why(Marks::of(8).begins_after(1)).starts_with("begins_after is 1"));
        assert!(why(Marks::of(8).ends_after(0)).starts_with("ends_after is 0"));
        assert!(Marks::of(usize::MAX).check().is_ok());
        assert!(Marks::of(usize::MAX).reaches(usize::MAX), "no overflow");
    }

    fn marks() -> impl Strategy<Value = Marks> {
        (1_usize..100, 1_u8..=100, 0_u8..100, 2_u32..8, 2_u32..8)
            .prop_map(|(capacity, high, low, begins, ends)| {
                Marks::of(capacity).high(high).low(low % high).begins_after(begins).ends_after(ends)
            })
            .prop_filter("marks", |marks| marks.check().is_ok())
    }

    proptest! {
        /// Whatever is found, it flips no more often than its counts allow.
        #[test]
        fn it_never_flips_more_often_than_its_looks_allow(
            marks in marks(), found in prop::collection::vec(0_usize..120, 0..400)
        ) {
            let mut pressure = Pressure::default();
            let looks: Vec<bool> =
                found.iter().map(|zombies| pressure.look(&marks, *zombies, Fleet::CanSpare)).collect();
            let cycle = (marks.begins_after + marks.ends_after) as usize;
            let (whole, rest) = (found.len() / cycle, found.len() % cycle);
            let most = 2 * whole + usize::from(rest >= marks.begins_after as usize);
            prop_assert!(flips(looks) <= most, "{marks:?}");
        }

        /// Whatever the fleet says and however often it changes its mind: never against its word, and each time it begins it
        /// was asked for that many looks in a row.
        #[test]
        fn it_is_never_on_against_the_word_of_the_fleet(
            marks in marks(), found in prop::collection::vec((0_usize..120, prop::bool::weighted(0.9)), 0..400)
        ) {
            let (mut pressure, mut before, mut asked_for) = (Pressure::default(), false, 0);
            for (zombies, can_spare) in found {
                let fleet = if can_spare { Fleet::CanSpare } else { Fleet::CannotSpare };
                let on = pressure.look(&marks, zombies, fleet);
                asked_for = if can_spare && marks.reaches(zombies) { asked_for + 1 } else { 0 };
                prop_assert!(can_spare || !on);
                prop_assert!(before || !on || asked_for >= marks.begins_after);
                before = on;
            }
        }
    }
}
