//! The numbers of each scenario: who is how patient, what goes wrong and when, and the load that tells it.
//!
//! Spans are given as told and kept as run: divided by the scenario's scale, so that a story of minutes takes seconds.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::purchase::Service;
use crate::trouble::Trouble;

/// One scenario.
#[derive(Clone, Debug)]
pub struct Story {
    /// Its name on the command line.
    pub name: &'static str,
    /// What happens, in a sentence or two.
    pub told: &'static str,
    /// How many times faster than told it runs.
    pub scale: u32,
    /// Whether it is about what PostgreSQL does.
    pub needs_postgres: bool,
    /// How long the user waits for one try of the app; with one budget, for the tap as a whole.
    pub patience: Duration,
    /// How often the app tries, with independent timeouts.
    pub tries: u32,
    /// The limits of each layer, with independent timeouts.
    pub limits: Limits,
    /// The limits that the shop with one budget has beside it.
    pub within: Within,
    /// How long each service works while all is well.
    pub usual: fn(Service) -> u64,
    /// How many connections inventory and pricing have to their databases.
    pub connections: usize,
    /// Who is in trouble.
    pub troubled: Service,
    /// How.
    pub trouble: Trouble,
    /// A service that forwards nothing throughout.
    pub silent_hop: Option<Service>,
    /// When the trouble begins, from the start of the load.
    pub trouble_from: Duration,
    /// When it is over.
    pub trouble_until: Duration,
    /// The service whose work is counted for each tap.
    pub counted: Service,
    /// One user in this many leaves before the answer, and comes back; none if zero.
    pub leaves_one_in: u32,
    /// How long they are away.
    pub away: Duration,
    /// How many others tap together with the one whose time is told.
    pub crowd: usize,
    /// How long the load lasts.
    pub lasts: Duration,
    /// The mean time between two taps.
    pub between_taps: Duration,
    /// What somebody got wrong in the shop with one budget; nothing in the demo's stories.
    pub mistake: Option<Mistake>,
}

/// What one can get wrong with one budget in place, for stories in which that should be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A statement takes its time in one step, so an interrupt is not noticed before its end.
    DeafStatements,
    /// Inventory calls its database from a task and an operation of its own, which no end of its request reaches.
    DatabaseNotTold,
}

/// What each layer waits for, when each has a limit of its own. All of them look reasonable alone.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The gateway's, for an answer of the order service.
    pub gateway: Duration,
    /// A service's, for its own answer; the order's for inventory, too. It has none for pricing.
    pub services: Duration,
    /// The order's for payment.
    pub payment: Duration,
    /// How often the order tries payment.
    pub payment_tries: u32,
    /// The order's for recommendations: they are optional, so it is short.
    pub recommendations: Duration,
    /// Pricing's, for its own answer.
    pub pricing: Duration,
}

/// What the shop with one budget is told beside it. Each can only shorten.
#[derive(Clone, Copy, Debug)]
pub struct Within {
    /// What the order service keeps back from its first three calls, for payment and for the way home.
    pub reserve: Duration,
    /// The most that inventory spends on its database, waiting for a connection included.
    pub inventory_database: Duration,
    /// What pricing gives itself when nobody says what is left.
    pub absent: Duration,
    /// Whether a charge has a key, and payment makes one charge for each.
    pub keys: bool,
}

/// One tap of the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tap {
    /// When, from the start of the load.
    pub at: Duration,
    /// What is bought.
    pub article: u32,
    /// How long the user stays, if they leave before an answer that takes longer.
    pub leaves_after: Option<Duration>,
}

/// Articles are numbered so that "one in so many" can be any number up to four.
const ARTICLES: u32 = 12;

impl Story {
    /// All scenarios, in the order in which they are told.
    pub fn all() -> Vec<Self> {
        vec![
            Self::slow_pricing(),
            Self::stalled_body(),
            Self::overloaded_pool(),
            Self::caller_leaves(),
            Self::silent_hop(),
            Self::double_charge(),
            Self::zombie_queries(),
        ]
    }

    /// The incident: an app that waits 8 s and tries three times, while pricing slows from 200 ms to 12 s.
    fn slow_pricing() -> Self {
        let scale = 20;
        let told = |millis: u64| Duration::from_millis(millis) / scale;
        Self {
            name: "slow-pricing",
            told: "For one article in three, pricing slows from 200 ms to 12 s for a while, then recovers.",
            scale,
            patience: told(8_000),
            limits: Limits {
                gateway: told(29_000),
                services: told(30_000),
                payment: told(30_000),
                payment_tries: 1,
                recommendations: told(3_000),
                pricing: told(30_000),
            },
            within: Within { reserve: told(1_000), inventory_database: told(4_000), absent: told(8_000), keys: false },
            usual: |service| match service {
                Service::Pricing | Service::Inventory => 10,
                Service::Recommendations | Service::Payment => 5,
                Service::Gateway | Service::Order => 0,
            },
            connections: 8,
            troubled: Service::Pricing,
            trouble: Trouble::slow(told(12_000)).one_in(3),
            trouble_from: told(10_000),
            trouble_until: told(60_000),
            counted: Service::Pricing,
            lasts: told(80_000),
            between_taps: told(1_000),
            ..Self::of_800_ms()
        }
    }

    /// A body that stops is not covered by a limit that covers the head.
    fn stalled_body() -> Self {
        Self {
            name: "stalled-body",
            told: "The recommendations, which an order can do without, answer with a head and then nothing, for one \
                   article in two.",
            troubled: Service::Recommendations,
            trouble: Trouble { stall: true, ..Trouble::default() }.one_in(2),
            counted: Service::Inventory,
            ..Self::of_800_ms()
        }
    }

    /// A queue that holds more than anybody waits for.
    fn overloaded_pool() -> Self {
        Self {
            name: "overloaded-pool",
            told: "Inventory has 4 connections to its database. For 0.7 s its statements take 200 ms \
                   instead of 40, and a queue forms.",
            troubled: Service::Inventory,
            trouble: Trouble::slow(Duration::from_millis(200)),
            trouble_until: Duration::from_millis(1_000),
            connections: 4,
            counted: Service::Inventory,
            crowd: 24,
            between_taps: Duration::from_millis(14),
            ..Self::of_800_ms()
        }
    }

    /// Nobody waits any more, and the money is taken all the same.
    fn caller_leaves() -> Self {
        Self {
            name: "caller-leaves",
            told: "Payment takes 300 ms. One user in two leaves before it is done, comes back a little later, and taps \
                   again. Neither way has idempotency keys here.",
            troubled: Service::Payment,
            trouble: Trouble::slow(Duration::from_millis(300)),
            counted: Service::Payment,
            leaves_one_in: 2,
            away: Duration::from_millis(400),
            ..Self::of_800_ms()
        }
    }

    /// Between the budget and the work stands a service that knows nothing of it.
    fn silent_hop() -> Self {
        Self {
            name: "silent-hop",
            told: "Pricing slows to 3 s for one article in three, and the order service in front of it forwards \
                   nothing: neither what is left, nor that its caller has gone.",
            silent_hop: Some(Service::Order),
            // The same on both sides: what pricing allows itself.
            limits: Limits { pricing: Duration::from_millis(500), ..Self::of_800_ms().limits },
            troubled: Service::Pricing,
            trouble: Trouble::slow(Duration::from_millis(3_000)).one_in(3),
            connections: 16,
            counted: Service::Pricing,
            ..Self::of_800_ms()
        }
    }

    /// A limit just below what the provider takes, and a retry: the answer to the first charge comes when nobody listens.
    fn double_charge() -> Self {
        let scale = 20;
        let told = |millis: u64| Duration::from_millis(millis) / scale;
        let story = Self::slow_pricing();
        Self {
            name: "double-charge",
            told: "For one article in six the payment provider takes 22 s. The order service waits 20 s for payment and \
                   tries once more. With one budget a charge has a key, which payment enforces.",
            patience: told(28_000),
            tries: 1,
            limits: Limits { payment: told(20_000), payment_tries: 2, ..story.limits },
            within: Within { keys: true, ..story.within },
            troubled: Service::Payment,
            trouble: Trouble::slow(told(22_000)).one_in(6),
            counted: Service::Payment,
            lasts: told(60_000),
            trouble_until: told(60_000),
            ..story
        }
    }

    /// Statements whose callers have left keep their backends, and whoever gets the connection next waits behind them.
    fn zombie_queries() -> Self {
        Self {
            name: "zombie-queries",
            told: "Inventory's statement slows to 4 s for one article in three; it has 8 connections to PostgreSQL. Who asks \
                   pg_stat_activity after the last user has left?",
            needs_postgres: true,
            troubled: Service::Inventory,
            trouble: Trouble::slow(Duration::from_millis(4_000)).one_in(3),
            trouble_until: Duration::from_millis(2_400),
            counted: Service::Inventory,
            ..Self::of_800_ms()
        }
    }

    /// What the stories of 800 ms have in common: they run as told. A user waits 800 ms, the gateway 2 s, the services
    /// 5 s, and for payment 10 s.
    fn of_800_ms() -> Self {
        let told = Duration::from_millis;
        Self {
            name: "",
            told: "",
            scale: 1,
            needs_postgres: false,
            patience: told(800),
            tries: 3,
            limits: Limits {
                gateway: told(2_000),
                services: told(5_000),
                payment: told(10_000),
                payment_tries: 1,
                recommendations: told(250),
                pricing: told(5_000),
            },
            within: Within { reserve: told(100), inventory_database: told(400), absent: told(500), keys: false },
            usual: |service| match service {
                Service::Inventory | Service::Payment => 40,
                Service::Pricing => 30,
                Service::Recommendations => 20,
                Service::Gateway | Service::Order => 0,
            },
            connections: 8,
            troubled: Service::Pricing,
            trouble: Trouble::default(),
            silent_hop: None,
            trouble_from: told(300),
            trouble_until: told(1_800),
            counted: Service::Pricing,
            leaves_one_in: 0,
            away: told(0),
            crowd: 0,
            lasts: told(2_400),
            between_taps: told(30),
            mistake: None,
        }
    }

    /// The same story with another patience, as run.
    ///
    /// Everything else stays as it is: that is the point of limits that do not know of each other.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// What a span of this story is called when it is told.
    pub fn as_told(&self, run: Duration) -> Duration {
        run * self.scale
    }

    /// How many of these taps meet work that takes longer than their users wait: nobody can answer them in time.
    pub fn hopeless(&self, taps: &[Tap]) -> usize {
        let too_slow = self.trouble.slow_ms.is_some_and(|slow| Duration::from_millis(slow) > self.patience);
        let in_trouble = |tap: &&Tap| {
            (self.trouble_from..self.trouble_until).contains(&tap.at)
                && tap.article.is_multiple_of(self.trouble.one_in.max(1))
        };
        if too_slow { taps.iter().filter(in_trouble).count() } else { 0 }
    }

    /// How many connections this service has to its database.
    pub fn connections_of(&self, service: Service) -> usize {
        match service {
            Service::Inventory | Service::Pricing => self.connections,
            _ => 16,
        }
    }

    /// The taps of the load; the same for the same seed.
    pub fn taps(&self, seed: u64) -> Vec<Tap> {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut at = Duration::ZERO;
        let mut taps = Vec::new();
        while at < self.lasts {
            let leaves = self.leaves_one_in > 0 && rng.random_ratio(1, self.leaves_one_in);
            taps.push(Tap {
                at,
                article: rng.random_range(0..ARTICLES),
                // Most of them while payment is at work.
                leaves_after: leaves.then(|| self.patience.mul_f64(rng.random_range(0.05..0.45))),
            });
            // Between half and one and a half of the mean: uneven as people are, and never a burst that is a story of
            // its own.
            at += self.between_taps.mul_f64(rng.random_range(0.5..1.5));
        }
        taps
    }
}

/// For trying by hand: nothing goes wrong by itself.
impl Default for Story {
    fn default() -> Self {
        Self { name: "800 ms", ..Self::of_800_ms() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_taps_and_another_gives_others() {
        for story in Story::all() {
            assert_eq!(story.taps(7), story.taps(7));
            assert_ne!(story.taps(7), story.taps(8));
            assert!(story.taps(7).len() > 50, "{}", story.name);
        }
    }
}
