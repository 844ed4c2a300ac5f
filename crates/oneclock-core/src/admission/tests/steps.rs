//! Any sequence of steps: no place is lost or made up, nobody is handed one twice, or after it left.

use std::collections::BTreeMap;

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Arrives { budget: u64, optional: bool, peer: u64, class: usize },
    Left(usize),
    Due(usize),
    Vacates { held: u64 },
    Passes(u64),
    Took { class: usize, takes: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0_u64..400, any::<bool>(), 0_u64..4, 0_usize..2)
            .prop_map(|(budget, optional, peer, class)| Step::Arrives { budget, optional, peer, class }),
        1 => any::<usize>().prop_map(Step::Left),
        2 => any::<usize>().prop_map(Step::Due),
        3 => (0_u64..60).prop_map(|held| Step::Vacates { held }),
        3 => (0_u64..40).prop_map(Step::Passes),
        1 => (0_usize..2, 0_u64..200).prop_map(|(class, takes)| Step::Took { class, takes }),
    ]
}

/// What must be so, counted by somebody else.
struct Model {
    now: u64,
    asked: u32,
    busy: u32,
    most: u32,
    waiting: BTreeMap<u32, (Key, u64)>, // and the deadlines
    gone: Vec<Key>,
}

impl Model {
    fn gone(&mut self, who: u32) -> u64 {
        let (key, deadline) = self.waiting.remove(&who).expect("it waits, and is told once");
        self.gone.push(key);
        deadline
    }

    fn nth(&self, n: usize) -> Option<(u32, Key)> {
        let len = self.waiting.len().max(1);
        self.waiting.iter().nth(n % len).map(|(who, (key, _))| (*who, *key))
    }

    fn settled(&mut self, settled: Vec<Settled<u32>>) {
        self.busy -= 1;
        let (run, not) = told(settled);
        for who in run {
            assert!(self.gone(who) > self.now, "an expired one started");
            self.busy += 1;
        }
        for (who, why) in not {
            let deadline = self.gone(who);
            assert!(why == Why::Optional || (why == Why::Expired) == (deadline <= self.now), "{why:?}");
        }
    }

    fn takes(&mut self, pool: &Admission<u32>, classes: &[Arc<Class>], step: &Step) {
        match *step {
            Step::Arrives { budget, optional, peer, class } => {
                let (who, deadline) = (self.asked, self.now + budget);
                self.asked += 1;
                let importance = if optional { Importance::Optional } else { Importance::Required };
                let asking = Asking::new(&classes[class], until(deadline)).importance(importance).peer(peer);
                let free = pool.busy() < pool.places() && self.waiting.is_empty();
                match pool.arrive(&asking, who, at(self.now)) {
                    Arrival::Runs { item, .. } => {
                        assert!(item == who && free && budget > 0);
                        self.busy += 1;
                    }
                    Arrival::Waits { key, evicted, .. } => {
                        assert!(!free && budget > 0);
                        if let Some((evicted, _)) = evicted {
                            self.gone(evicted);
                        }
                        self.waiting.insert(who, (key, deadline));
                    }
                    Arrival::Refused(item, refusal) => {
                        assert!(item == who && (!free || budget == 0), "{refusal:?} although a place is free");
                    }
                }
            }
            Step::Left(n) => {
                if let Some((who, key)) = self.nth(n) {
                    assert_eq!(pool.left(key), Some(who));
                    self.gone(who);
                }
            }
            Step::Due(n) => {
                if let Some((who, key)) = self.nth(n) {
                    match pool.due(key, at(self.now)) {
                        Due::Refused(refused, _) => {
                            assert_eq!(refused, who);
                            self.gone(who);
                        }
                        Due::Later(then) => assert!(then > at(self.now), "asked again and again"),
                        Due::Gone => panic!("it waits"),
                    }
                }
            }
            Step::Vacates { held } if self.busy > 0 => self.settled(pool.vacate(ms(held), at(self.now))),
            Step::Vacates { .. } => {}
            Step::Passes(time) => self.now += time,
            Step::Took { class, takes } => {
                (0..30).for_each(|_| classes[class].took(ms(takes), Sample::Whole, at(self.now)));
            }
        }
        self.most = self.most.max(pool.places());
    }
}

fn goes_through(settings: Settings, steps: &[Step]) {
    let pool = Admission::new(settings);
    let classes = [pool.class(), pool.class()];
    let mut model =
        Model { now: 1, asked: 0, busy: 0, most: pool.places(), waiting: BTreeMap::new(), gone: Vec::new() };
    for step in steps {
        model.takes(&pool, &classes, step);
        assert_eq!((pool.busy(), pool.waiting() as usize), (model.busy, model.waiting.len()), "after {step:?}");
        assert!(pool.busy() <= model.most && pool.waiting() as usize <= settings.queue);
        assert!(pool.waiting() == 0 || pool.busy() >= pool.places(), "one waits for a place that is free");
        for key in &model.gone {
            assert_eq!(pool.left(*key), None, "a key of one that is gone is nobody else's");
        }
    }
    while model.busy > 0 {
        model.settled(pool.vacate(ms(1), at(model.now)));
    }
    assert_eq!((pool.busy(), pool.waiting(), model.waiting.len()), (0, 0, 0), "nobody is forgotten");
}

proptest! {
    #[test]
    fn places_that_are_known(places in 1_u32..4, queue in 0_usize..12, steps in proptest::collection::vec(step(), 1..300)) {
        goes_through(Settings::fixed(places).queue(queue), &steps);
    }

    #[test]
    fn places_that_are_found(least in 1_u32..3, steps in proptest::collection::vec(step(), 1..250)) {
        goes_through(Settings::adaptive(least).queue(20), &steps);
    }
}

/// Threads instead of turns: each gives back what it got, whichever way it got it.
#[test]
fn threads_lose_no_place() {
    let pool = Admission::new(Settings::fixed(3).queue(16));
    let class = pool.class();
    let handed = AtomicU32::new(0); // places that were handed to somebody else's name, to be given back by anybody
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (pool, class, handed) = (&pool, &class, &handed);
            scope.spawn(move || {
                let settle = |settled: Vec<Settled<u32>>| {
                    let (run, _) = told(settled);
                    handed.fetch_add(u32::try_from(run.len()).expect("few"), Ordering::Relaxed);
                };
                for n in 0..5_000_u64 {
                    let now = at(n / 8);
                    match pool.arrive(&Asking::new(class, Deadline::after(now, ms(40 + n % 7))), 0, now) {
                        Arrival::Runs { .. } => settle(pool.vacate(ms(1), now)),
                        Arrival::Waits { key, .. } if (n + thread).is_multiple_of(3) => drop(pool.left(key)),
                        Arrival::Waits { key, .. } if (n + thread) % 3 == 1 => drop(pool.due(key, now)),
                        Arrival::Waits { .. } | Arrival::Refused(..) => {}
                    }
                    assert!(pool.busy() <= 3);
                    let take = |left: u32| left.checked_sub(1);
                    while handed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                        settle(pool.vacate(ms(1), now));
                    }
                }
            });
        }
    });
    let mut left = handed.into_inner();
    assert_eq!(pool.busy(), left);
    while left > 0 {
        left -= 1;
        left += u32::try_from(told(pool.vacate(ms(1), at(10_000))).0.len()).expect("few");
    }
    assert_eq!((pool.busy(), pool.waiting()), (0, 0));
}
