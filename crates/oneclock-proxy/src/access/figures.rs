//! Where a request's time went, as its ledger says.
//!
//! Decides how the entries of the ledger are put together: the stages of all attempts are added up, since that is what the
//! caller waited for.

use std::time::Duration;

use oneclock_core::{Deadline, Ledger, Stage, Tick};

use super::record::CALLS;

/// The figures of one request, up to the head of its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    /// In the queue of its route.
    pub(super) queue: Duration,
    /// For a connection that others had.
    pub(super) pool: Duration,
    /// For the name, the connection and its TLS.
    pub(super) connect: Duration,
    /// From the first byte sent to the head of the answer.
    pub(super) upstream: Duration,
    /// Between attempts.
    pub(super) backoff: Duration,
    /// How many calls were made.
    pub(super) attempts: u32,
    /// What was left of each of them when its head was sent, of those that came so far.
    pub(super) told: Vec<Duration>,
    /// Where the last of them was.
    pub(super) last: Option<Stage>,
}

impl Figures {
    /// Those of `ledger` until then; `grants` is what its calls were given, in their order.
    pub(super) fn of(ledger: &Ledger, until: Tick, grants: &[Option<Deadline>; CALLS]) -> Self {
        let mut figures = Self::default();
        let mut grants = grants.iter();
        let mut grant = None;
        for entry in ledger.entries() {
            let took = entry.ended.unwrap_or(until).since(entry.began);
            match (entry.part_of.is_some(), entry.stage) {
                (false, Stage::Queue) => figures.queue += took,
                (false, Stage::Backoff) => figures.backoff += took,
                // A call: what follows are its parts, since one attempt begins after the other.
                (false, Stage::Arrival) => {
                    figures.attempts += 1;
                    figures.last = Some(Stage::Arrival);
                    grant = grants.next().copied().flatten();
                }
                (false, _) => {}
                (true, stage) => {
                    figures.last = Some(stage);
                    match stage {
                        Stage::Pool => figures.pool += took,
                        Stage::Resolve | Stage::Connect | Stage::Tls => figures.connect += took,
                        Stage::Send | Stage::Wait => {
                            figures.upstream += took;
                            figures.told.extend(grant.take().map(|grant| grant.remaining(entry.began)));
                        }
                        _ => {}
                    }
                }
            }
        }
        figures
    }

    /// These as well.
    pub(super) fn add(&mut self, other: Self) {
        let Self { queue, pool, connect, upstream, backoff, attempts, told, last } = other;
        self.queue += queue;
        self.pool += pool;
        self.connect += connect;
        self.upstream += upstream;
        self.backoff += backoff;
        self.attempts += attempts;
        self.told.extend(told);
        self.last = last.or(self.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Tick {
        Tick::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn the_stages_of_all_attempts_add_up() {
        let ms = Duration::from_millis;
        let mut ledger = Ledger::new(at(0));
        let queue = ledger.open("queue", Stage::Queue, None, at(0));
        ledger.close(queue, at(30));
        let stage = |ledger: &mut Ledger, call, stage: Stage, from, to| {
            let part = ledger.open(stage.as_str(), stage, Some(call), at(from));
            ledger.close(part, at(to));
        };
        let first = ledger.open("app", Stage::Arrival, None, at(31));
        stage(&mut ledger, first, Stage::Pool, 31, 33);
        stage(&mut ledger, first, Stage::Connect, 33, 40);
        stage(&mut ledger, first, Stage::Send, 40, 41);
        stage(&mut ledger, first, Stage::Wait, 41, 100);
        ledger.close(first, at(100));
        let backoff = ledger.open("backoff", Stage::Backoff, None, at(100));
        ledger.close(backoff, at(120));
        let second = ledger.open("app", Stage::Arrival, None, at(120));
        stage(&mut ledger, second, Stage::Pool, 120, 121);
        ledger.open("wait", Stage::Wait, Some(second), at(121));
        let mut grants = [None; CALLS];
        (grants[0], grants[1]) = (Some(Deadline::at(at(400))), Some(Deadline::at(at(300))));
        let figures = Figures::of(&ledger, at(200), &grants);
        let want = Figures {
            queue: ms(30),
            pool: ms(3),
            connect: ms(7),
            upstream: ms(60 + 79),
            backoff: ms(20),
            attempts: 2,
            told: vec![ms(360), ms(179)],
            last: Some(Stage::Wait),
        };
        assert_eq!(figures, want);
    }
}
