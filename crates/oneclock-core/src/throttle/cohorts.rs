//! What was sent to one destination lately, and what became of it, by when it was sent.
//!
//! Decides how it is kept: a ring of sixteen cohorts, each all that was sent in one span of time. An answer counts in the
//! cohort of its request, however late it comes, so that the two are forgotten together. Two atomic words for a cohort; each
//! says itself which one it counts, so that whoever comes first after a turn begins it anew and no count of another thread is
//! lost.
//!
//! And what a ring says: [`all`](Cohorts::all) of it, and its [newest](Cohorts::newest) cohorts of which enough is known.

use std::time::Duration;

use crate::Tick;
use crate::word::Word;

/// How many cohorts a ring has.
pub(super) const COHORTS: u64 = 16;
/// The youngest of them: what is under way there may well be accepted.
const YOUNG: u64 = COHORTS / 4;
/// Of right now tell this many cohorts, with this many answers: fewer are chance.
const NEWEST: u64 = 2;
const ENOUGH: u64 = 10;

/// A word is the number of its cohort and two counts.
const COUNT_BITS: u32 = 20;
const MOST: u64 = (1 << COUNT_BITS) - 1;
const NUMBER: u64 = (1 << (64 - 2 * COUNT_BITS)) - 1;

pub(super) struct Cohorts<W> {
    span: u64, // how long one is, in nanoseconds
    slots: [Slot<W>; COHORTS as usize],
}

struct Slot<W> {
    made: W,  // how many were sent, and how many held back
    ended: W, // how many of those sent were accepted, and how many were not
}

/// One of the two counts of a word.
#[derive(Clone, Copy)]
enum Count {
    First,
    Second,
}

/// What one cohort comes to so far.
struct Counts {
    cohort: u64,
    sent: u64,
    held: u64,
    accepted: u64,
    refused: u64,
}

/// What several cohorts come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Those that were sent, and those that were held back.
    pub(super) requests: u64,
    /// Those that were accepted.
    pub(super) accepts: u64,
}

impl<W: Word> Cohorts<W> {
    /// Cohorts of this length each.
    pub(super) fn of(span: Duration) -> Self {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self { span, slots: std::array::from_fn(|_| Slot { made: W::holding(0), ended: W::holding(0) }) }
    }

    /// One is sent at `at`.
    pub(super) fn sent(&self, at: Tick) {
        let cohort = self.number(at);
        add(&self.slot(cohort).made, cohort, Count::First);
    }

    /// One would have been sent at `at`, and was held back.
    pub(super) fn held_back(&self, at: Tick) {
        let cohort = self.number(at);
        add(&self.slot(cohort).made, cohort, Count::Second);
    }

    /// One that was said to be sent at `at` was not, or says nothing.
    pub(super) fn not_sent(&self, at: Tick) {
        let cohort = self.number(at);
        take(&self.slot(cohort).made, cohort, Count::First);
    }

    pub(super) fn accepted(&self, at: Tick) {
        let cohort = self.number(at);
        add(&self.slot(cohort).ended, cohort, Count::First);
    }

    pub(super) fn not_accepted(&self, at: Tick) {
        let cohort = self.number(at);
        add(&self.slot(cohort).ended, cohort, Count::Second);
    }

    /// One that was said to be accepted was not.
    pub(super) fn not_accepted_after_all(&self, at: Tick) {
        let cohort = self.number(at);
        if take(&self.slot(cohort).ended, cohort, Count::First) {
            self.not_accepted(at);
        }
    }

    /// What the whole ring comes to at `now`. What is young and under way counts as accepted, since refusals come sooner than
    /// answers; what is old and under way has had time enough.
    pub(super) fn all(&self, now: Tick) -> Sums {
        let current = self.number(now);
        let mut sums = Sums::default();
        for counts in self.known(current) {
            let Counts { cohort, sent, held, accepted, refused } = counts;
            let under_way = sent.saturating_sub(accepted + refused);
            sums.requests += accepted + refused + under_way + held;
            sums.accepts += accepted + if age(cohort, current) < YOUNG { under_way } else { 0 };
        }
        sums
    }

    /// What the newest cohorts come to of which enough is known: more than half of what was sent has ended. Answers that take
    /// longer than a cohort are so looked for further back, as far as the ring goes, and haste on either side proves nothing:
    /// neither that of the refusals of one that accepts after a while, nor that of the answers of one that is silent to most.
    pub(super) fn newest(&self, now: Tick) -> Sums {
        let current = self.number(now);
        let (mut sums, mut cohorts, mut answers) = (Sums::default(), 0, 0);
        for ago in 0..COHORTS {
            let counts = self.counts(current.wrapping_sub(ago) & NUMBER);
            let ended = counts.accepted + counts.refused;
            if ended * 2 <= counts.sent {
                continue;
            }
            // What was held back counts as far as it is known what became of the others.
            sums.requests += ended + counts.held * ended / counts.sent.max(ended);
            sums.accepts += counts.accepted;
            (cohorts, answers) = (cohorts + 1, answers + ended);
            if cohorts >= NEWEST && answers >= ENOUGH {
                break;
            }
        }
        sums
    }

    /// Whether any call was accepted that was sent at `at` or since, or within a turn of the ring before.
    pub(super) fn any_accepted(&self, at: Tick) -> bool {
        self.known(self.number(at)).any(|counts| counts.accepted > 0)
    }

    /// The cohorts that count while this is the youngest one.
    fn known(&self, current: u64) -> impl Iterator<Item = Counts> {
        let cohorts = (0..COHORTS).zip(&self.slots).map(|(place, slot)| (place, number(&slot.made)));
        let counts = cohorts.filter(move |(place, cohort)| {
            // A place that was never used says that it counts the first one.
            cohort % COHORTS == *place && age(*cohort, current) < COHORTS
        });
        counts.map(|(_, cohort)| self.counts(cohort))
    }

    fn counts(&self, cohort: u64) -> Counts {
        let slot = self.slot(cohort);
        let [(sent, held), (accepted, refused)] = [read(&slot.made, cohort), read(&slot.ended, cohort)];
        Counts { cohort, sent, held, accepted, refused }
    }

    /// The number of the cohort of what is sent at `at`.
    fn number(&self, at: Tick) -> u64 {
        (at.as_nanos() / self.span) & NUMBER
    }

    fn slot(&self, cohort: u64) -> &Slot<W> {
        // A number of 24 bits, and sixteen of them: the remainder goes on evenly where the number wraps.
        &self.slots[(cohort % COHORTS) as usize]
    }
}

/// How many cohorts ago. One that a faster thread has begun already is of now.
fn age(cohort: u64, current: u64) -> u64 {
    let age = current.wrapping_sub(cohort) & NUMBER;
    if age > NUMBER / 2 { 0 } else { age }
}

/// Which cohort a word counts.
fn number<W: Word>(word: &W) -> u64 {
    word.read() >> (2 * COUNT_BITS)
}

/// The counts of `cohort`: none, if another one has its place.
fn read<W: Word>(word: &W, cohort: u64) -> (u64, u64) {
    let word = word.read();
    if word >> (2 * COUNT_BITS) == cohort { (word >> COUNT_BITS & MOST, word & MOST) } else { (0, 0) }
}

/// Counts one more in `cohort`; nothing, if a later one has its place. At the most it stays: that is 280 000 a second.
fn add<W: Word>(word: &W, cohort: u64, count: Count) {
    change(word, cohort, |value| if count.of(value) == MOST { value } else { value + count.one() });
}

/// Counts one less. Returns whether there was one.
fn take<W: Word>(word: &W, cohort: u64, count: Count) -> bool {
    let mut was_there = false;
    change(word, cohort, |value| {
        was_there = count.of(value) > 0;
        if was_there { value - count.one() } else { value }
    });
    was_there
}

/// Changes the counts of `cohort`, which are zero if its place was an earlier one's. A later one is left alone.
fn change<W: Word>(word: &W, cohort: u64, mut change: impl FnMut(u64) -> u64) {
    let mut before = word.read();
    loop {
        let held = before >> (2 * COUNT_BITS);
        let mine = cohort << (2 * COUNT_BITS);
        let counts = match held.wrapping_sub(cohort) & NUMBER {
            0 => before,
            later if later <= NUMBER / 2 => return,
            _ => mine,
        };
        match word.swap_if(before, change(counts)) {
            Ok(()) => return,
            Err(instead) => before = instead,
        }
    }
}

impl Count {
    const fn one(self) -> u64 {
        match self {
            Self::First => 1 << COUNT_BITS,
            Self::Second => 1,
        }
    }

    const fn of(self, value: u64) -> u64 {
        match self {
            Self::First => value >> COUNT_BITS & MOST,
            Self::Second => value & MOST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn places_that_were_never_used_count_nothing() {
        let cohorts = Cohorts::<AtomicU64>::of(Duration::from_secs(1));
        let now = Tick::default();
        cohorts.sent(now);
        cohorts.held_back(now);
        let later = now + Duration::from_secs(3);
        assert_eq!(cohorts.all(later), Sums { requests: 2, accepts: 1 }, "it is young, and may be accepted");
        cohorts.accepted(now);
        assert_eq!((cohorts.all(later), cohorts.newest(later)), (Sums { requests: 2, accepts: 1 }, cohorts.all(later)));
    }
}

#[cfg(test)]
mod model {
    //! Every interleaving of a few threads, tried by loom.

    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64 as Modelled;
    use loom::thread;

    const SPAN: Duration = Duration::from_nanos(1);

    #[test]
    fn no_count_is_lost_where_two_begin_a_cohort_together() {
        loom::model(|| {
            let cohorts = Arc::new(Cohorts::<Modelled>::of(SPAN));
            cohorts.sent(Tick::from_nanos(3)); // its place is about to be taken
            cohorts.accepted(Tick::from_nanos(3));
            let later = Tick::from_nanos(3 + COHORTS);
            let calling = |cohorts: Arc<Cohorts<Modelled>>| {
                move || {
                    cohorts.sent(later);
                    cohorts.accepted(later);
                }
            };
            let other = thread::spawn(calling(Arc::clone(&cohorts)));
            calling(Arc::clone(&cohorts))();
            other.join().unwrap();
            let both = Sums { requests: 2, accepts: 2 };
            assert_eq!((cohorts.all(later), cohorts.newest(later)), (both, both));
        });
    }

    #[test]
    fn a_late_answer_changes_no_cohort_but_its_own() {
        loom::model(|| {
            let cohorts = Arc::new(Cohorts::<Modelled>::of(SPAN));
            let early = Tick::from_nanos(3);
            cohorts.sent(early);
            let later = Tick::from_nanos(3 + COHORTS);
            let answering = Arc::clone(&cohorts);
            let other = thread::spawn(move || {
                answering.accepted(early);
                answering.not_accepted_after_all(early);
                answering.not_sent(early);
            });
            cohorts.sent(later);
            cohorts.not_accepted(later);
            other.join().unwrap();
            let one = Sums { requests: 1, accepts: 0 };
            assert_eq!((cohorts.all(later), cohorts.newest(later)), (one, one));
        });
    }
}
