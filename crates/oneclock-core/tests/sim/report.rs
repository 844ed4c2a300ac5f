//! What came of a run, as the figures are compared: goodput by capacity, waste, amplification, success of each stream,
//! recovery.

use std::fmt;
use std::ops::Range;

use crate::state::{Hop, Root};
use crate::world::{SECOND, World};

pub(crate) struct Report {
    world: World,
    pub(crate) roots: Vec<Root>,
    hops: Vec<Hop>,
    /// What each control says of itself, tier by tier.
    pub(crate) told: Vec<String>,
}

/// The figures of the time of overload, and how it went on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Successes of the first whole stretch before, by what was offered.
    pub(crate) before: f64,
    /// Successes per second, by capacity.
    pub(crate) goodput: f64,
    /// Slots' time that was spent on successes, by all of it that there is.
    pub(crate) useful: f64,
    /// Slots' time spent on what did not succeed, by all that was spent.
    pub(crate) waste: f64,
    /// Attempts by calls, at the hop where it is worst.
    pub(crate) amplification: f64,
    /// The first second after it from which two are as good as before (95 %); none within the run.
    pub(crate) recovery: Option<u64>,
    /// Of the successes, in milliseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

// === Report ===

impl Report {
    pub(crate) fn new(world: &World, roots: Vec<Root>, hops: Vec<Hop>, told: Vec<String>) -> Self {
        Self { world: world.clone(), roots, hops, told }
    }

    /// `before` is the time that recovery is measured by, `during` the overload (or the slow-down).
    pub(crate) fn figures(&self, before: Range<u64>, during: Range<u64>) -> Figures {
        let (p50, p99) = self.latency(&during);
        Figures {
            before: self.success(None, &before),
            goodput: self.goodput(&during),
            useful: self.useful(&during),
            waste: self.waste(&during),
            amplification: self.amplification(&during),
            recovery: self.recovery(&before, during.end),
            p50,
            p99,
        }
    }

    pub(crate) fn streams(&self) -> usize {
        self.world.streams.len()
    }

    fn arrived(&self, within: &Range<u64>) -> impl Iterator<Item = &Root> {
        self.roots.iter().filter(move |root| within.contains(&root.at))
    }

    fn answered(&self, within: &Range<u64>) -> impl Iterator<Item = &Root> {
        self.roots.iter().filter(move |root| root.ok && root.ended.is_some_and(|at| within.contains(&at)))
    }

    /// The part of those who came in that time (of one stream, or of all) that had an answer in time.
    pub(crate) fn success(&self, stream: Option<usize>, within: &Range<u64>) -> f64 {
        let (mut came, mut ok) = (0, 0);
        for root in self.arrived(within).filter(|root| stream.is_none_or(|one| root.stream == one)) {
            came += 1;
            ok += u64::from(root.ok);
        }
        if came == 0 { 1.0 } else { ok as f64 / came as f64 }
    }

    /// Answers in time by what one tier can do: its slots over the mean of what comes, as in the stretch's own mix.
    fn goodput(&self, within: &Range<u64>) -> f64 {
        self.answered(within).count() as f64 / seconds(within) / self.capacity(within.start)
    }

    /// Requests per second that keep all slots of the last tier busy; those before it can do as much.
    fn capacity(&self, at: u64) -> f64 {
        let tier = &self.world.tiers[self.world.tiers.len() - 1];
        let (mut rate, mut work) = (0.0, 0.0);
        for stream in &self.world.streams {
            let per_second = stream.shape.iter().find(|(until, _)| at < *until).map_or(0.0, |&(_, rate)| rate);
            rate += per_second;
            work += per_second * tier.service[stream.class].mean().as_secs_f64();
        }
        (tier.slots * tier.replicas) as f64 * rate / work
    }

    fn useful(&self, within: &Range<u64>) -> f64 {
        let last = &self.world.tiers[self.world.tiers.len() - 1];
        let slots = last.slots * last.replicas * self.world.tiers.len();
        let spent: u64 = self.answered(within).map(|root| root.spent).sum();
        spent as f64 / (slots as f64 * (within.end - within.start) as f64)
    }

    fn waste(&self, within: &Range<u64>) -> f64 {
        let (mut all, mut lost) = (0, 0);
        for root in self.arrived(within) {
            all += root.spent;
            lost += if root.ok { 0 } else { root.spent };
        }
        lost as f64 / all.max(1) as f64
    }

    fn amplification(&self, within: &Range<u64>) -> f64 {
        let seconds = (within.start / SECOND) as usize..(within.end / SECOND) as usize;
        let sum = |counts: &Vec<u64>| counts.iter().take(seconds.end).skip(seconds.start).sum::<u64>() as f64;
        self.hops.iter().map(|hop| sum(&hop.attempts) / sum(&hop.calls).max(1.0)).fold(1.0, f64::max)
    }

    fn recovery(&self, before: &Range<u64>, end: u64) -> Option<u64> {
        let least = 0.95 * self.success(None, before);
        let good = |second: u64| {
            let from = end + second * SECOND;
            self.success(None, &(from..from + SECOND)) >= least
        };
        (0..(self.world.until - end) / SECOND - 1).find(|&second| good(second) && good(second + 1))
    }

    fn latency(&self, within: &Range<u64>) -> (f64, f64) {
        let mut took: Vec<u64> = self.answered(within).filter_map(|root| root.ended.map(|at| at - root.at)).collect();
        took.sort_unstable();
        let at = |q: f64| took.get((took.len() as f64 * q) as usize).map_or(0.0, |&nanos| nanos as f64 / 1e6);
        (at(0.5), at(0.99))
    }

    /// Changes with anything that happened: whether two runs were the same.
    pub(crate) fn print_of_all(&self) -> u64 {
        self.roots.iter().fold(0, |sum: u64, root| {
            let each = root.spent ^ root.ended.unwrap_or(0).rotate_left(32) ^ u64::from(root.ok);
            sum.wrapping_mul(0x0100_0000_01b3).wrapping_add(each)
        })
    }
}

fn seconds(within: &Range<u64>) -> f64 {
    (within.end - within.start) as f64 / SECOND as f64
}

// === Figures ===

impl Figures {
    pub(crate) const HEAD: &'static str = "before goodput useful  waste  ampl. recovery     p50     p99";

    /// The middle one of several runs, figure by figure; a recovery that did not come is the longest.
    pub(crate) fn middle(all: &[Self]) -> Self {
        let middle = |of: &dyn Fn(&Self) -> f64| {
            let mut each: Vec<f64> = all.iter().map(of).collect();
            each.sort_by(f64::total_cmp);
            each[each.len() / 2]
        };
        let recovery = middle(&|one| one.recovery.map_or(f64::INFINITY, |seconds| seconds as f64));
        Self {
            before: middle(&|one| one.before),
            goodput: middle(&|one| one.goodput),
            useful: middle(&|one| one.useful),
            waste: middle(&|one| one.waste),
            amplification: middle(&|one| one.amplification),
            recovery: recovery.is_finite().then_some(recovery as u64),
            p50: middle(&|one| one.p50),
            p99: middle(&|one| one.p99),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before, goodput, useful, waste, amplification, recovery, p50, p99 } = self;
        write!(f, "{before:6.4} {goodput:7.3} {useful:6.3} {waste:6.3} {amplification:6.2} ")?;
        match recovery {
            Some(seconds) => write!(f, "{seconds:6} s ")?,
            None => write!(f, "   never ")?,
        }
        write!(f, "{p50:7.1} {p99:7.1}")
    }
}
