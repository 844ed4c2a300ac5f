//! A spike: for a while three times as many come as the shop can serve, then as many as before. What is answered in time,
//! second by second, and whether the shop comes back.
//!
//! It is no [`Story`](crate::story::Story): nothing is slow or broken, there are only more taps, and what is told is a course
//! over time, not one tap. So it has a chain of its own, gateway → order → pricing, in which each service can do only so many
//! things at once. No database: a piece of work is a wait with a place taken, so that the machine does not become the limit.
//!
//! | module | is |
//! |---|---|
//! | `tier` | a service of the chain, and what was seen there: arrivals, work |
//! | `independent` | the chain with independent timeouts |
//! | `propagated` | the chain with one budget |
//! | `load` | the taps: they come when they come, and are counted from when they should have come |
//! | `figures` | the figures, as they are printed |

mod figures;
mod independent;
mod load;
mod propagated;
mod tier;

use std::fmt;
use std::time::Duration;

pub use figures::{CallsPerTap, Course, Overload, PerSecond, Second};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::ShopClosed;
use crate::purchase::Service;
use load::Board;
use tier::Tiers;

/// The numbers of the spike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spike {
    /// How long a user waits: for one try of the app; with one budget, for the tap as a whole.
    pub patience: Duration,
    /// How often the app and each service try what they call. With one budget: as far as time and tokens allow.
    pub tries: u32,
    /// How many things each service can do at once.
    pub places: u32,
    /// How long it does one thing, on average.
    pub work: Duration,
    /// What the gateway gives the order service for one try, with independent timeouts.
    pub order_limit: Duration,
    /// What the order service gives pricing for one try, with independent timeouts.
    pub pricing_limit: Duration,
    /// How many come before and after the spike, by how many the shop can serve.
    pub usual: f64,
    /// How many come during the spike, likewise.
    pub spike: f64,
    /// The seconds before the spike, those of it, and those that are watched after it.
    pub seconds: [u32; 3],
}

/// The two ways of keeping time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Every layer has a limit of its own.
    Independent,
    /// Every layer spends from the tap's.
    Propagated,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The seconds that are over and settled, with independent timeouts.
    pub independent: &'a [Second],
    /// The same with one budget, which runs second.
    pub propagated: &'a [Second],
    /// How much of the whole is done, from 0 to 1.
    pub done: f64,
}

/// When a user taps, and for what.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tap {
    at: Duration,
    article: u32,
}

/// The services of the chain, callers first.
const CHAIN: [Service; 3] = [Service::Gateway, Service::Order, Service::Pricing];
/// How much work an article makes depends on its number.
const ARTICLES: u32 = 12;

// === Spike ===

impl Default for Spike {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            patience: ms(300),
            tries: 3,
            // Few enough that what waits in the spike stays below the 1 024 open files that many machines allow.
            places: 4,
            work: ms(30),
            order_limit: ms(200),
            pricing_limit: ms(100),
            usual: 0.7,
            spike: 3.0,
            seconds: [5, 8, 7],
        }
    }
}

impl Spike {
    /// Its name on the command line.
    pub const NAME: &'static str = "overload";

    /// The same with another patience. Everything else stays as it is.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// How many taps a second the shop can serve: each of its services can do as much.
    pub fn capacity(&self) -> f64 {
        f64::from(self.places) / self.work.as_secs_f64()
    }

    /// How long its load lasts, in seconds.
    pub fn lasts(&self) -> u32 {
        self.seconds.iter().sum()
    }

    /// How many come in this second, by how many the shop can serve.
    pub fn load_at(&self, second: u32) -> f64 {
        let [before, spike, _] = self.seconds;
        if (before..before + spike).contains(&second) { self.spike } else { self.usual }
    }

    /// The taps; the same for the same seed. As people come: nobody knows of anybody else.
    fn taps(&self, seed: u64) -> Vec<Tap> {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut taps = Vec::new();
        let mut at = 0.0;
        loop {
            let second = at as u32;
            let chance: f64 = rng.random_range(0.0..1.0);
            at -= (1.0 - chance).ln() / (self.capacity() * self.load_at(second));
            if at >= f64::from(self.lasts()) {
                return taps;
            }
            taps.push(Tap { at: Duration::from_secs_f64(at), article: rng.random_range(0..ARTICLES) });
        }
    }

    /// How long this service works for this article: from half to one and a half of the mean, the same both ways.
    fn works(&self, service: Service, article: u32) -> Duration {
        let nth = (article + 5 * service as u32) % ARTICLES;
        self.work.mul_f64(0.5 + (f64::from(nth) + 0.5) / f64::from(ARTICLES))
    }

    /// Runs it both ways, one after the other, under the same taps.
    ///
    /// `progress` is told how far it has come, some times a second.
    ///
    /// # Errors
    /// [`ShopClosed`], if a service could not be started, or this process may not open as many sockets as are needed.
    ///
    /// # Cancel safety
    /// Dropping it closes the shop.
    pub async fn run(&self, seed: u64, progress: impl Fn(Progress<'_>) + Send + Sync) -> Result<Overload, ShopClosed> {
        let taps = self.taps(seed);
        let first = |seconds: &[Second], done: f64| {
            progress(Progress { independent: seconds, propagated: &[], done: done / 2.0 });
        };
        let independent = self.course(Way::Independent, &taps, first).await?;
        let second = |seconds: &[Second], done: f64| {
            progress(Progress { independent: &independent.seconds, propagated: seconds, done: 0.5 + done / 2.0 });
        };
        let propagated = self.course(Way::Propagated, &taps, second).await?;
        Ok(Overload::of(self, independent, propagated))
    }

    async fn course(
        &self,
        way: Way,
        taps: &[Tap],
        progress: impl Fn(&[Second], f64) + Send + Sync,
    ) -> Result<Course, ShopClosed> {
        let tiers = Tiers::new(self);
        let board = Board::of(self, taps);
        match way {
            Way::Independent => {
                let (shop, app) = independent::open(self, &tiers).await?;
                load::run(app, &board, progress).await?;
                drop(shop);
            }
            Way::Propagated => {
                let (shop, app) = propagated::open(self, &tiers).await?;
                load::run(app, &board, progress).await?;
                shop.close().await;
            }
        }
        Ok(Course::of(self, &board, &tiers))
    }
}

// === Way ===

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Independent => "independent timeouts",
            Self::Propagated => "one budget",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_taps_as_many_as_are_told() {
        let spike = Spike::default();
        let taps = spike.taps(7);
        assert_eq!(taps, spike.taps(7));
        assert_ne!(taps, spike.taps(8));
        let during = |from: u64, to: u64| {
            let span = Duration::from_secs(from)..Duration::from_secs(to);
            taps.iter().filter(|tap| span.contains(&tap.at)).count() as f64 / (to - from) as f64 / spike.capacity()
        };
        assert!((0.5..0.9).contains(&during(0, 5)), "{}", during(0, 5));
        assert!((2.5..3.5).contains(&during(5, 13)), "{}", during(5, 13));
        assert!((0.5..0.9).contains(&during(13, 20)), "{}", during(13, 20));
    }

    #[test]
    fn all_articles_together_make_the_mean_work_at_every_service() {
        let spike = Spike::default();
        for service in CHAIN {
            let all: Duration = (0..ARTICLES).map(|article| spike.works(service, article)).sum();
            let off = (all / ARTICLES).abs_diff(spike.work);
            assert!(off < Duration::from_micros(1), "{off:?} at {}", service.name());
        }
    }
}
