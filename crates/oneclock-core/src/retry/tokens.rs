//! How many retries all calls to one destination may make together (contract R9), so that retries cannot multiply the load
//! of a destination that is failing.
//!
//! Two atomic words, no lock, no clock. Deposits come with successes, not with requests: in an outage there are none, and
//! nothing is left to retry with but the reserve.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::Tick;
use crate::word::{Word, once_in};

/// What one success adds, in tenths of a token.
const PER_SUCCESS: u64 = 1;
/// What one retry or hedge costs, in tenths of a token.
const PER_RETRY: u64 = 10;
/// What is there at first, in tenths of a token.
const START: u64 = 100;
/// The most that is kept, in tenths of a token.
const MOST: u64 = 1_000;
/// What has to be left for a hedge, in tenths of a token: hedging is for good times.
const SPARE: u64 = MOST / 2;
/// How often one retry is allowed although there is no token.
const RESERVE: Duration = Duration::from_secs(1);

/// The tokens of one destination: a tenth for each success, one for each retry or hedge, ten at first, a hundred at most.
/// When there is none, one retry a second is allowed all the same, so that a client with few calls is not left without any.
///
/// Over a long time retries are therefore at most a tenth of the successes, and one a second.
///
/// ```
/// # use oneclock_core::{retry::Tokens, Tick}; use std::time::Duration;
/// let (tokens, now) = (Tokens::new(), Tick::from_nanos(0));
/// assert_eq!((0..50).filter(|_| tokens.take(now)).count(), 11, "ten, and the one of this second");
/// for _ in 0..20 { tokens.succeeded(); }
/// assert_eq!((0..50).filter(|_| tokens.take(now)).count(), 2);
/// assert!(tokens.take(now + Duration::from_secs(1)));
/// ```
pub struct Tokens(pub(super) Bucket<AtomicU64>);

/// The same over any atomic word, so that a model checker can take its place.
pub(super) struct Bucket<W> {
    tenths: W,
    reserve_at: W, // when the reserve may be used again
}

// === Tokens ===

impl Tokens {
    /// Ten tokens.
    pub fn new() -> Self {
        Self(Bucket::new())
    }

    /// A call succeeded: a tenth of a token more.
    pub fn succeeded(&self) {
        self.0.add(PER_SUCCESS);
    }

    /// Takes the token of one retry, else uses the reserve of this second. Returns whether the retry may be made.
    #[must_use = "without a token there is no retry"]
    pub fn take(&self, now: Tick) -> bool {
        self.0.take_if_at_least(PER_RETRY) || self.0.take_reserve(now)
    }

    /// Takes the token of a hedge, if more than half of the bucket is filled (contract R10).
    #[must_use = "without a spare token there is no hedge"]
    pub fn take_spare(&self) -> bool {
        self.0.take_if_at_least(SPARE + PER_RETRY)
    }

    /// Takes a token, if there is one, for a repetition that is made in any case: of something that was never sent.
    pub fn charge(&self) {
        let _ = self.0.take_if_at_least(PER_RETRY);
    }

    /// How many there are, in tenths of a token.
    pub fn tenths(&self) -> u64 {
        self.0.tenths.read()
    }
}

impl Default for Tokens {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("tenths", &self.tenths()).finish_non_exhaustive()
    }
}

// === Bucket ===

impl<W: Word> Bucket<W> {
    pub(super) fn new() -> Self {
        Self { tenths: W::holding(START), reserve_at: W::holding(0) }
    }

    pub(super) fn add(&self, tenths: u64) {
        let mut before = self.tenths.read();
        loop {
            let after = before.saturating_add(tenths).min(MOST);
            match self.tenths.swap_if(before, after) {
                Ok(()) => return,
                Err(instead) => before = instead,
            }
        }
    }

    pub(super) fn take_if_at_least(&self, least: u64) -> bool {
        let mut before = self.tenths.read();
        while before >= least {
            match self.tenths.swap_if(before, before - PER_RETRY) {
                Ok(()) => return true,
                Err(instead) => before = instead,
            }
        }
        false
    }

    pub(super) fn take_reserve(&self, now: Tick) -> bool {
        once_in(&self.reserve_at, RESERVE, now)
    }
}

#[cfg(test)]
mod model {
    //! Every interleaving of a few threads, tried by loom.

    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64 as Modelled;
    use loom::thread;

    #[test]
    fn r9_two_who_take_the_last_token_get_one_and_the_reserve() {
        loom::model(|| {
            let bucket = Arc::new(Bucket::<Modelled>::new());
            while bucket.tenths.read() > PER_RETRY {
                assert!(bucket.take_if_at_least(PER_RETRY));
            }
            let taking = |bucket: Arc<Bucket<Modelled>>| {
                let now = Tick::from_nanos(5);
                move || u32::from(bucket.take_if_at_least(PER_RETRY)) + u32::from(bucket.take_reserve(now))
            };
            let other = thread::spawn(taking(Arc::clone(&bucket)));
            let mine = taking(Arc::clone(&bucket))();
            assert_eq!(mine + other.join().unwrap(), 2, "one token and one reserve, each once");
        });
    }

    #[test]
    fn r9_no_deposit_is_lost_beside_a_withdrawal() {
        loom::model(|| {
            let bucket = Arc::new(Bucket::<Modelled>::new());
            let depositing = Arc::clone(&bucket);
            let other = thread::spawn(move || depositing.add(PER_SUCCESS));
            assert!(bucket.take_if_at_least(PER_RETRY));
            other.join().unwrap();
            assert_eq!(bucket.tenths.read(), START - PER_RETRY + PER_SUCCESS);
        });
    }
}
