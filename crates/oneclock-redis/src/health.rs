//! Whether the connection that everybody shares is still good, and when the next one may be opened.
//!
//! Decides only; time comes in. A call that was cut off proves nothing by itself, since its command may be slow. That the
//! connection owed answers all the while and nothing at all was read from it does: then it has stalled, and whoever comes next
//! must not wait on it.

use std::time::Duration;

use oneclock_core::Tick;

/// How long a connection may owe answers and give nothing. Not less: a busy server and a busy machine are silent for moments
/// too. It is also the least that lies between two replacements.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// The pause after the first attempt to connect that failed. It doubles with each that follows.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// The longest pause between two attempts, so that a server that is back is found soon.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// What one connection owes, and for how long it has been silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    waiting: usize,
    quiet_since: Option<Tick>, // since it began to owe an answer, or since it gave the last sign
}

/// Attempts to connect: how many failed in a row, and when the next one may begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attempts {
    failed: u32,
    not_before: Tick,
}

// === Health ===

impl Health {
    /// A command was handed over, and somebody waits for its answer.
    pub(crate) fn sent(&mut self, now: Tick) {
        self.waiting = self.waiting.saturating_add(1);
        self.quiet_since.get_or_insert(now);
    }

    /// Something was read, whoever it was for.
    pub(crate) fn read(&mut self, now: Tick) {
        self.quiet_since = (self.waiting > 0).then_some(now);
    }

    /// Somebody has the answer.
    pub(crate) fn answered(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
        if self.waiting == 0 {
            self.quiet_since = None;
        }
    }

    /// Somebody waits no longer. The answer is still owed, so the silence goes on. True if the connection has stalled.
    pub(crate) fn cut_off(&mut self, now: Tick) -> bool {
        self.waiting = self.waiting.saturating_sub(1);
        self.quiet_since.is_some_and(|since| now.since(since) >= PATIENCE)
    }
}

// === Attempts ===

impl Attempts {
    /// How long until the next one may begin; zero if it may begin now.
    pub(crate) fn pause(&self, now: Tick) -> Duration {
        self.not_before.since(now)
    }

    /// One succeeded.
    pub(crate) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// One failed. The pause is between half and the whole of what its number gives, by `bits`, so that many processes do not
    /// come back at the same moment.
    pub(crate) fn failed(&mut self, now: Tick, bits: u64) {
        let whole = FIRST_PAUSE.saturating_mul(1_u32.checked_shl(self.failed).unwrap_or(u32::MAX)).min(LONGEST_PAUSE);
        self.failed = self.failed.saturating_add(1).min(16);
        let half = whole / 2;
        let part = u32::try_from(bits % 1_000).unwrap_or_default();
        self.not_before = now + half + half * part / 1_000;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Tick {
        Tick::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn one_slow_answer_is_no_stall_while_others_come() {
        let mut health = Health::default();
        health.sent(at(0)); // the slow one
        for ms in [50, 100, 150, 200] {
            health.sent(at(ms));
            health.read(at(ms + 1));
            health.answered();
        }
        assert!(!health.cut_off(at(250)), "49 ms before, it gave a sign");
    }

    #[test]
    fn short_budgets_one_after_the_other_see_the_stall_together() {
        let mut health = Health::default();
        let mut verdicts = Vec::new();
        for ms in [0, 30, 60, 90] {
            health.sent(at(ms));
            verdicts.push(health.cut_off(at(ms + 30)));
        }
        assert_eq!(verdicts, [false, false, false, true], "the first answer has been owed since 0 ms");
    }

    #[test]
    fn an_idle_connection_is_not_silent() {
        let mut health = Health::default();
        health.sent(at(0));
        health.read(at(1));
        health.answered();
        health.sent(at(5_000));
        assert!(!health.cut_off(at(5_050)));
    }

    #[test]
    fn a_late_answer_to_nobody_is_a_sign_too() {
        let mut health = Health::default();
        health.sent(at(0));
        assert!(!health.cut_off(at(60)));
        health.read(at(90)); // its answer
        health.sent(at(120));
        assert!(!health.cut_off(at(210)));
    }

    #[test]
    fn pauses_grow_and_stay_short() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.pause(at(7)), Duration::ZERO);
        let mut pauses = Vec::new();
        for _ in 0..40 {
            attempts.failed(at(0), 999_999);
            pauses.push(attempts.pause(at(0)));
        }
        assert!(pauses.is_sorted(), "{pauses:?}");
        assert!(pauses[0] >= FIRST_PAUSE / 2 && pauses[0] < FIRST_PAUSE);
        assert!(pauses[39] >= LONGEST_PAUSE / 2 && pauses[39] < LONGEST_PAUSE, "{:?}", pauses[39]);
        attempts.succeeded();
        assert_eq!(attempts.pause(at(0)), Duration::ZERO);
    }
}
