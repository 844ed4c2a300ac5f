//! The taps come when they come, whether or not earlier ones were answered (an open loop), and how long a user has waited is
//! counted from when the tap should have come: a generator that is late must not make the shop look fast.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oneclock::clock;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Second, Spike, Tap};
use crate::purchase::Try;
use crate::{BoxError, ShopClosed};

/// How the app asks.
pub(super) trait App: Send + Sync + 'static {
    /// One tap, that comes so much `late`.
    fn tap(&self, first: Try, late: Duration) -> impl Future<Output = Answer> + Send;

    /// Why it could not even ask, if that was so.
    fn no_socket(&self) -> Option<BoxError>;
}

/// What the user was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It was done, by this try.
    Done { number: u32 },
    /// A refusal, or nothing after all tries.
    No,
}

/// The taps, and what has become of them.
#[derive(Clone)]
pub(super) struct Board {
    spike: Spike,
    taps: Arc<[Tap]>,
    ends: Arc<Mutex<Vec<Option<Ended>>>>,
}

/// A tap that is over.
#[derive(Clone, Copy, Debug)]
struct Ended {
    answer: Answer,
    waited: Duration,
}

/// What a user has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Got {
    /// An answer within the time they give it, by this try.
    InTime { number: u32 },
    /// An answer later.
    Late,
    /// A no, while there was still time to do something else.
    Refused,
    /// Nothing within that time, or until all tries were over.
    Nothing,
}

/// After the patience is over a timer may need a moment to say so.
const SETTLED: Duration = Duration::from_millis(100);
/// How often the progress is told.
const TOLD_EVERY: Duration = Duration::from_millis(200);

/// Has all of them tapped, and waits until each is over.
pub(super) async fn run<A: App>(app: A, board: &Board, progress: impl Fn(&[Second], f64)) -> Result<(), ShopClosed> {
    let app = Arc::new(app);
    let began = clock::now();
    let load = async {
        let mut running = JoinSet::new();
        for (index, tap) in board.taps.iter().copied().enumerate() {
            sleep(tap.at.saturating_sub(clock::now().since(began))).await;
            let (app, board) = (Arc::clone(&app), board.clone());
            running.spawn(async move {
                let first = Try { tap: index, visit: 1, number: 1, article: tap.article };
                let late = clock::now().since(began).saturating_sub(tap.at);
                let answer = app.tap(first, late).await;
                board.ended(index, Ended { answer, waited: clock::now().since(began).saturating_sub(tap.at) });
            });
        }
        while running.join_next().await.is_some() {}
    };
    let telling = async {
        loop {
            sleep(TOLD_EVERY).await;
            let gone = clock::now().since(began);
            let done = gone.as_secs_f64() / f64::from(board.spike.lasts());
            progress(&board.settled(gone), done.min(1.0));
        }
    };
    tokio::select! {
        () = load => {}
        () = telling => {}
    }
    match app.no_socket() {
        Some(why) => Err(ShopClosed::no_sockets(why)),
        None => Ok(()),
    }
}

// === Board ===

impl Board {
    pub(super) fn of(spike: &Spike, taps: &[Tap]) -> Self {
        Self { spike: *spike, taps: taps.into(), ends: Arc::new(Mutex::new(vec![None; taps.len()])) }
    }

    pub(super) fn taps(&self) -> usize {
        self.taps.len()
    }

    /// What the user of this tap has got, as far as that is known.
    pub(super) fn got(&self, index: usize) -> Got {
        got(self.spike.patience, self.ends().get(index).copied().flatten())
    }

    /// How long those waited that were refused, ascending.
    pub(super) fn waits_for_a_no(&self) -> Vec<Duration> {
        let refused = |ended: &Option<Ended>| got(self.spike.patience, *ended) == Got::Refused;
        let mut waits: Vec<Duration> =
            self.ends().iter().filter(|ended| refused(ended)).flatten().map(|e| e.waited).collect();
        waits.sort_unstable();
        waits
    }

    /// All seconds.
    pub(super) fn seconds(&self) -> Vec<Second> {
        self.settled(Duration::MAX)
    }

    /// The seconds of whose taps all is known when so much time has gone by.
    fn settled(&self, gone: Duration) -> Vec<Second> {
        let over = gone.saturating_sub(self.spike.patience + SETTLED).as_secs();
        let whole = u32::try_from(over).unwrap_or(u32::MAX).min(self.spike.lasts());
        let mut seconds: Vec<Second> =
            (0..whole).map(|second| Second { load: self.spike.load_at(second), ..Second::default() }).collect();
        let ends = self.ends();
        for (tap, ended) in self.taps.iter().zip(ends.iter()) {
            let Some(second) = seconds.get_mut(tap.at.as_secs() as usize) else { break };
            second.taps += 1;
            match got(self.spike.patience, *ended) {
                Got::InTime { .. } => second.answers_in_time += 1,
                Got::Refused => second.refused += 1,
                Got::Late | Got::Nothing => {}
            }
        }
        seconds
    }

    fn ended(&self, index: usize, ended: Ended) {
        if let Some(end) = self.ends().get_mut(index) {
            *end = Some(ended);
        }
    }

    fn ends(&self) -> MutexGuard<'_, Vec<Option<Ended>>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn got(patience: Duration, ended: Option<Ended>) -> Got {
    match ended {
        Some(Ended { answer: Answer::Done { number }, waited }) if waited <= patience => Got::InTime { number },
        Some(Ended { answer: Answer::Done { .. }, .. }) => Got::Late,
        Some(Ended { answer: Answer::No, waited }) if waited < patience => Got::Refused,
        Some(_) | None => Got::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn an_answer_counts_for_the_second_of_its_tap_once_that_is_settled() {
        let spike = Spike::default();
        let tap = |at| Tap { at: ms(at), article: 0 };
        let board = Board::of(&spike, &[tap(10), tap(500), tap(990), tap(1_200)]);
        let ended = |waited, answer| Ended { answer, waited: ms(waited) };
        board.ended(0, ended(300, Answer::Done { number: 1 }));
        board.ended(1, ended(301, Answer::Done { number: 2 }));
        board.ended(2, ended(3, Answer::No));
        assert!(board.settled(ms(1_390)).is_empty(), "somebody may still be answered in time");
        let seconds = board.settled(ms(1_400));
        assert_eq!(seconds.len(), 1);
        assert_eq!((seconds[0].taps, seconds[0].answers_in_time, seconds[0].refused), (3, 1, 1));
        assert_eq!(board.seconds().len(), 20);
        assert_eq!(
            [0, 1, 2, 3].map(|tap| board.got(tap)),
            [Got::InTime { number: 1 }, Got::Late, Got::Refused, Got::Nothing]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_counted_from_when_the_tap_should_have_come() -> Result<(), ShopClosed> {
        struct Slow;
        impl App for Slow {
            async fn tap(&self, _: Try, late: Duration) -> Answer {
                assert!(late < ms(5), "{late:?}");
                sleep(ms(200)).await;
                Answer::Done { number: 1 }
            }
            fn no_socket(&self) -> Option<BoxError> {
                None
            }
        }
        let board = Board::of(&Spike::default(), &[Tap { at: ms(0), article: 0 }, Tap { at: ms(50), article: 1 }]);
        let began = clock::now();
        run(Slow, &board, |_, _| ()).await?;
        assert!(clock::now().since(began) < ms(300), "the second did not wait for the first");
        assert_eq!(board.seconds()[0].answers_in_time, 2);
        Ok(())
    }
}
