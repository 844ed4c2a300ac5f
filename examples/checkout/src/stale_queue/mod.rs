//! A queue that nobody reads for hours: what is done late, what is done twice, and what is lost, when its consumer is back.
//!
//! It is no [`Story`](crate::story::Story): the user has long been answered. What a purchase leaves to be done goes through a queue,
//! the confirmation with the price in it, and the question what became of a card whose outcome is unknown. So it has the shop's order
//! service alone, and outside of the shop a payment provider and a mail server. The tap's time is as told; behind the counter an hour
//! takes a second, since expiries are moments of the wall clock, which no test can pause.
//!
//! | module | is |
//! |---|---|
//! | `outside` | the payment provider and the mail server, the same both ways |
//! | `books` | what really happened |
//! | `place` | where the queues are: in memory, or |
//! | `rabbitmq` | on a RabbitMQ |
//! | `queues` | which of them is asked for |
//! | `process` | a consumer's process, which can be killed |
//! | `independent` | the order service and its consumer with a queue's own time to live |
//! | `propagated` | the same with work that lives by its own expiry |
//! | `figures` | the figures, as they are printed |

mod books;
mod figures;
mod independent;
mod outside;
mod place;
mod process;
mod propagated;
mod queues;
mod rabbitmq;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use oneclock::clock;
use oneclock_core::{Deadline, Tick};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;

use crate::{BoxError, ShopClosed};
use books::Books;
pub use figures::{Behind, Cards, Confirmations, StaleQueue};
use outside::Outside;
use place::{Here, Place};
use process::Process;
pub use queues::Queues;
use rabbitmq::OnRabbitMq;

/// The numbers of the outage. Spans in hours are behind the counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outage {
    /// How long a user waits.
    pub patience: Duration,
    /// How long the order service waits for the payment provider.
    pub payment: Duration,
    /// How long an hour behind the counter takes.
    pub hour: Duration,
    /// For how many hours the price in a confirmation holds, and within how many a card is to be settled.
    pub useful: f64,
    /// For how many hours people tap.
    pub lasts: f64,
    /// The mean time between two taps.
    pub between_taps: Duration,
    /// Of so many cards the outcome of one is unknown.
    pub unknown_one_in: u32,
    /// Of so many addresses the mail server refuses one, while it is in trouble.
    pub refused_one_in: u32,
    /// Until when the mail server and the provider's answers are in trouble, in hours.
    pub well_from: f64,
    /// The consumer dies when so many mails have been sent. It is started again at once, but for the last time.
    pub deaths: [usize; 2],
    /// When somebody notices, and starts it again, in hours.
    pub back_at: f64,
    /// When somebody puts the dead letters back, in hours.
    pub redrive_at: f64,
}

/// One purchase, and what will be the matter with it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tap {
    at: Duration,
    card: Card,
    /// The mail server refuses its address, while it is in trouble.
    refused: bool,
}

/// What becomes of a card.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Card {
    /// It is charged, and the provider says so.
    Charged,
    /// The provider says nothing. It has charged it, or not.
    Unknown { charged: bool },
}

/// One way of keeping time behind the counter.
trait Way: Clone + Send + Sync + 'static {
    /// The order service.
    fn service(&self) -> impl Future<Output = Result<Router, ShopClosed>> + Send;

    /// A phone, for the order service at this address.
    fn phone(&self, url: &str) -> Result<Phone, ShopClosed>;

    /// A consumer, until its process ends.
    fn consume(self) -> impl Future<Output = Result<(), BoxError>> + Send + 'static;

    /// Puts back what is dead. How many of them are back.
    fn redrive(&self) -> impl Future<Output = Result<usize, BoxError>>;
}

/// Taps for this order. Whether it was taken, within the time that a user has.
type Phone = Box<dyn Fn(usize) -> Answered + Send + Sync>;
type Answered = Pin<Box<dyn Future<Output = bool> + Send>>;

/// What goes on is over when nothing has happened for so long; a delivery whose consumer died comes again sooner.
const QUIET: Duration = Duration::from_millis(600);
const QUIET_WITHIN: Duration = Duration::from_secs(10);
/// How often the progress is told.
const TOLD_EVERY: Duration = Duration::from_millis(100);

// === Outage ===

impl Default for Outage {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            patience: ms(800),
            payment: ms(400),
            hour: ms(1_000),
            useful: 1.0,
            lasts: 3.0,
            between_taps: ms(25),
            unknown_one_in: 5,
            refused_one_in: 6,
            well_from: 1.0,
            deaths: [5, 22],
            back_at: 2.5,
            redrive_at: 3.5,
        }
    }
}

impl Outage {
    /// Its name on the command line.
    pub const NAME: &'static str = "stale-queue";

    /// So many hours, as run.
    fn hours(&self, hours: f64) -> Duration {
        self.hour.mul_f64(hours)
    }

    /// The taps; the same for the same seed.
    fn taps(&self, seed: u64) -> Vec<Tap> {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut at, mut taps) = (Duration::ZERO, Vec::new());
        while at < self.hours(self.lasts) {
            let is_unknown = rng.random_ratio(1, self.unknown_one_in);
            let card = if is_unknown { Card::Unknown { charged: rng.random_ratio(1, 2) } } else { Card::Charged };
            taps.push(Tap { at, card, refused: rng.random_ratio(1, self.refused_one_in) });
            at += self.between_taps.mul_f64(rng.random_range(0.5..1.5));
        }
        taps
    }

    /// Runs it both ways, one after the other, under the same taps.
    ///
    /// `progress` is told how much of the whole is done, from 0 to 1.
    ///
    /// # Errors
    /// [`ShopClosed`], if a service could not be started, or the broker would not.
    ///
    /// # Cancel safety
    /// Dropping it closes the shop; what it has on a RabbitMQ is left to [`Queues::sweep`].
    pub async fn run(
        &self,
        queues: &Queues,
        seed: u64,
        progress: impl Fn(f64) + Send + Sync,
    ) -> Result<StaleQueue, ShopClosed> {
        match queues.url() {
            None => self.both(async |_| Ok(Here::new(self)), seed, progress).await,
            Some(url) => {
                let opens = async |way| OnRabbitMq::new(url, way, self).await.map(|there| queues.made(there));
                let told = self.both(opens, seed, progress).await;
                queues.sweep().await?;
                told
            }
        }
    }

    async fn both<P: Place>(
        &self,
        place: impl AsyncFn(&'static str) -> Result<P, ShopClosed>,
        seed: u64,
        progress: impl Fn(f64) + Send + Sync,
    ) -> Result<StaleQueue, ShopClosed> {
        let taps: Arc<[Tap]> = self.taps(seed).into();

        let (books, kept) = (Arc::new(Books::default()), place("plain").await?);
        let outside = Outside::open(self, &taps, &books).await?;
        let way = independent::Independent::new(self, &outside, &books, kept);
        let ran = self.course(way, &outside, &taps, &books, |done| progress(done / 2.0)).await?;
        let independent = Behind::of(self, &books, ran);

        let (books, kept) = (Arc::new(Books::default()), place("ours").await?);
        let outside = Outside::open(self, &taps, &books).await?;
        let way = propagated::Propagated::new(self, &outside, &books, kept);
        let ran = self.course(way, &outside, &taps, &books, |done| progress(0.5 + done / 2.0)).await?;
        let propagated = Behind::of(self, &books, ran);
        Ok(StaleQueue::of(self, P::NAME, independent, propagated))
    }

    /// The hours, one way. Returns how many dead letters were put back.
    async fn course<W: Way>(
        &self,
        way: W,
        outside: &Outside,
        taps: &[Tap],
        books: &Arc<Books>,
        progress: impl Fn(f64),
    ) -> Result<usize, ShopClosed> {
        let mut servers = JoinSet::new();
        let url = outside::serve(&mut servers, way.service().await?).await?;
        let phone = way.phone(&url)?;
        let began = clock::now();
        let at = |hours: f64| sleep_until(began + self.hours(hours));
        let load = async {
            let mut running = JoinSet::new();
            for (order, one) in taps.iter().enumerate() {
                sleep_until(began + one.at).await;
                let (tapped, books) = (phone(order), Arc::clone(books));
                running.spawn(async move {
                    if tapped.await {
                        books.answered();
                    }
                });
            }
            while running.join_next().await.is_some() {}
        };
        let recovers = async {
            at(self.well_from).await;
            outside.recovers();
        };
        let queue = async {
            for death in self.deaths {
                let consumer = Process::begin(way.clone().consume())?;
                tokio::select! {
                    () = books.mails_reach(death) => {}
                    () = at(self.back_at) => {}
                }
                consumer.kill()?;
            }
            at(self.back_at).await;
            let consumer = Process::begin(way.clone().consume())?;
            at(self.redrive_at).await;
            let redriven = way.redrive().await.map_err(ShopClosed::no_queue)?;
            books.quiet_for(QUIET, QUIET_WITHIN).await;
            consumer.kill()?;
            Ok(redriven)
        };
        let telling = async {
            let whole = self.hours(self.redrive_at) + QUIET;
            loop {
                progress(clock::now().since(began).div_duration_f64(whole).min(1.0));
                tokio::time::sleep(TOLD_EVERY).await;
            }
        };
        tokio::select! {
            (redriven, (), ()) = async { tokio::join!(queue, load, recovers) } => redriven,
            () = telling => Ok(0), // it goes on for ever
        }
    }
}

async fn sleep_until(tick: Tick) {
    tokio::time::sleep_until(clock::instant(Deadline::at(tick))).await;
}
