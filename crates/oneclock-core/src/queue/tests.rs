use super::*;
use proptest::prelude::*;

const PACE: Pace = Pace { turn: Duration::from_millis(4), soon: Duration::from_millis(20) };

fn at(ms: u64) -> Tick {
    Tick::default() + Duration::from_millis(ms)
}

fn waiter(since: u64, deadline: u64) -> Waiter {
    let deadline = Deadline::at(at(deadline));
    Waiter { deadline, importance: Importance::Required, peer: 0, since: at(since) }
}

/// A queue that stands, and those in it came after that, named as they came.
fn standing(names: std::ops::Range<u64>, peer: impl Fn(u64) -> u64) -> Queue<u64> {
    let mut queue = Queue::new();
    let fillers: Vec<_> = (0..30).map(|n| queue.push(waiter(0, 100 + n), n)).collect();
    for n in 0..12 {
        assert!(queue.pop(at(n * 10), PACE).is_some());
    }
    assert_eq!(queue.order(), Order::Newest);
    for name in names {
        queue.push(Waiter { peer: peer(name), ..waiter(name, 10_000 + name) }, name);
    }
    for filler in fillers {
        queue.remove(filler);
    }
    queue
}

fn ahead(queue: &Queue<u64>, deadline: u64) -> usize {
    queue.ahead_of(Deadline::at(at(deadline)), Importance::Required)
}

fn pop(queue: &mut Queue<u64>, ms: u64) -> u64 {
    queue.pop(at(ms), PACE).expect("one waits").1
}

#[test]
fn a_standing_queue_serves_the_newest_and_turns_back_when_it_is_empty() {
    let mut queue = standing(0..3, |_| 0);
    assert_eq!([pop(&mut queue, 500), pop(&mut queue, 501), pop(&mut queue, 502)], [2, 1, 0]);
    assert_eq!(queue.order(), Order::EarliestDeadline);
    queue.push(waiter(600, 900), 1);
    queue.push(waiter(601, 800), 2);
    assert_eq!(pop(&mut queue, 602), 2);
}

#[test]
fn a_burst_is_no_standing_queue() {
    let mut queue = Queue::new();
    for burst in 0..20 {
        for n in 0..10 {
            queue.push(waiter(burst * 50, burst * 50 + 1_000 + n), n);
        }
        for n in 0..10 {
            pop(&mut queue, burst * 50 + n * 4);
        }
        assert_eq!(queue.order(), Order::EarliestDeadline);
    }
}

#[test]
fn what_is_only_nice_to_have_comes_last_and_goes_first() {
    let mut queue = Queue::new();
    queue.push(Waiter { importance: Importance::Optional, ..waiter(0, 10) }, 1);
    queue.push(waiter(1, 900), 2);
    queue.push(Waiter { importance: Importance::Optional, ..waiter(2, 20) }, 3);
    assert!(queue.has_optional());
    assert_eq!(pop(&mut queue, 3), 2);
    queue.push(waiter(4, 900), 4);
    assert_eq!(queue.pop_oldest().map(|(_, name)| name), Some(1));
    assert_eq!(queue.pop_oldest().map(|(_, name)| name), Some(3));
    assert_eq!(queue.pop_oldest().map(|(_, name)| name), Some(4));
    assert!(queue.pop_oldest().is_none() && !queue.has_optional());
}

#[test]
fn a_caller_that_floods_does_not_keep_others_waiting() {
    // Nine in ten are of one caller.
    let mut queue = standing(0..200, |name| if name % 10 == 0 { 7 } else { 8 });
    let served: Vec<_> = (0..20).map(|n| pop(&mut queue, 500 + n)).collect();
    let others = served.iter().filter(|name| *name % 10 == 0).count();
    assert!(others >= 5, "{others} of 20: {served:?}");
    let mut naive = standing(0..200, |_| 0);
    assert_eq!((0..20).filter(|n| pop(&mut naive, 500 + n).is_multiple_of(10)).count(), 2, "by age alone");
}

#[test]
fn ahead_is_told_by_the_deadline() {
    let mut queue = Queue::new();
    for n in 0..10 {
        queue.push(waiter(0, 100 + n * 100), n);
    }
    assert_eq!(ahead(&queue, 50), 0);
    assert_eq!(ahead(&queue, 100), 1, "who was there first");
    assert_eq!(ahead(&queue, 550), 5);
    assert_eq!(ahead(&queue, 2_000), 10);
    queue.push(waiter(0, 1_000_000), 10);
    assert_eq!(ahead(&queue, 2_000), 10, "one that has all the time there is changes nothing");
    for n in 0..1_000 {
        queue.push(waiter(0, 100 + n), 11 + n);
    }
    assert!((450..=550).contains(&ahead(&queue, 600)), "{}", ahead(&queue, 600));
}

proptest! {
    /// Whatever happens: nobody is lost, nobody is served twice, keys of those that left do nothing.
    #[test]
    fn everyone_comes_out_once(steps in proptest::collection::vec((0_u8..5, 0_u64..300, 0_u64..4), 1..400)) {
        let mut queue = Queue::new();
        let (mut keys, mut inside) = (Vec::new(), std::collections::BTreeSet::new());
        for (n, (what, ms, peer)) in steps.into_iter().enumerate() {
            let now = n as u64 * 10;
            let importance = if ms % 3 == 0 { Importance::Optional } else { Importance::Required };
            match what {
                0 | 1 => {
                    let key = queue.push(Waiter { importance, peer, ..waiter(now, now + ms) }, n);
                    keys.push((key, n));
                    inside.insert(n);
                }
                2 => if let Some((_, name)) = queue.pop(at(now), PACE) {
                    prop_assert!(inside.remove(&name));
                },
                3 => if let Some((_, name)) = queue.pop_oldest() {
                    prop_assert!(inside.remove(&name));
                },
                _ => if let Some((key, name)) = keys.get(usize::try_from(ms).expect("small") % keys.len().max(1)) {
                    prop_assert_eq!(queue.remove(*key).map(|(_, name)| name), inside.take(name));
                },
            }
            prop_assert_eq!(queue.len(), inside.len());
            prop_assert!(queue.by_age.len() <= 2 * queue.len() + SLACK + 1 && queue.by_deadline.len() <= 2 * queue.len() + SLACK + 1);
        }
        while let Some((_, name)) = queue.pop(at(1_000_000), PACE) {
            prop_assert!(inside.remove(&name));
        }
        prop_assert!(inside.is_empty());
    }
}
