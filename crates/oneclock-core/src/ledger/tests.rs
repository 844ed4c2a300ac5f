//! The sums that must hold, against references that know no entries, no bounds and no folding.

use super::*;
use proptest::prelude::*;

const fn at(ms: u64) -> Tick {
    Tick::from_nanos(ms * 1_000_000)
}

#[test]
fn parallel_children_charge_the_interval_they_cover() {
    let mut ledger = Ledger::new(at(0));
    let a = ledger.open("a", Stage::Wait, None, at(10));
    let b = ledger.open("b", Stage::Wait, None, at(20));
    let part = ledger.open("connect", Stage::Connect, Some(a), at(10));
    ledger.close(part, at(15));
    ledger.close(a, at(50));
    ledger.close(b, at(60));
    assert_eq!(ledger.accounted(at(100)), Duration::from_millis(50));
    assert_eq!(ledger.unaccounted(at(100)), Duration::from_millis(50));
    assert_eq!(ledger.parts_of(Some(a)).count(), 1);
}

#[test]
fn more_than_fits_is_folded_by_name_and_stays_bounded() {
    let mut ledger = Ledger::new(at(0));
    for n in 0..1_000 {
        let id = ledger.open(format!("call-{}", n % 200), Stage::Wait, None, at(n));
        ledger.close(id, at(n + 2));
    }
    assert_eq!(ledger.entries().len(), MAX_ENTRIES);
    assert!(ledger.folded().len() <= MAX_FOLDED);
    let folded: u64 = ledger.folded().iter().map(|folded| folded.count).sum();
    assert_eq!(folded, 1_000 - MAX_ENTRIES as u64);
}

/// A client call costs one direct entry and a part for each stage.
#[test]
fn i13_parts_do_not_push_out_the_calls_that_they_belong_to() {
    let mut ledger = Ledger::new(at(0));
    let stages = [Stage::Pool, Stage::Send, Stage::Wait, Stage::Body];
    for call in 0..40 {
        let began = call * 100;
        let entry = ledger.open("call", Stage::Wait, None, at(began));
        for (n, stage) in (0..).zip(stages) {
            let part = ledger.open(stage.as_str(), stage, Some(entry), at(began + n * 25));
            ledger.close(part, at(began + (n + 1) * 25));
        }
        ledger.close(entry, at(began + 100));
        assert!(ledger.unaccounted(at(began + 100)).is_zero(), "after {} calls: {ledger}", call + 1);
        assert_eq!(ledger.parts_of(None).count(), MAX_ENTRIES.min(call as usize + 1));
    }
    assert_eq!(ledger.entries().len(), MAX_ENTRIES + MAX_PARTS);
    assert_eq!(ledger.folded(), [Folded { name: "call".into(), count: 8, sum: Duration::from_millis(800) }]);
}

#[test]
fn what_is_folded_and_goes_on_is_accounted_and_closing_it_again_changes_nothing() {
    let mut ledger = Ledger::new(at(0));
    for _ in 0..MAX_ENTRIES {
        let id = ledger.open("kept", Stage::Work, None, at(0));
        ledger.close(id, at(1));
    }
    let (a, b) = (ledger.open("more", Stage::Work, None, at(10)), ledger.open("more", Stage::Work, None, at(10)));
    assert_eq!(ledger.accounted(at(30)), Duration::from_millis(21));
    for _ in 0..3 {
        ledger.close(a, at(40));
    }
    assert_eq!(ledger.folded()[0].count, 1);
    assert_eq!(ledger.accounted(at(60)), Duration::from_millis(51), "the other goes on");
    ledger.close(b, at(60));
    ledger.close(b, at(90));
    assert_eq!((ledger.folded()[0].count, ledger.accounted(at(90))), (2, Duration::from_millis(51)));
}

#[test]
fn i13_the_account_of_one_entry_adds_up_too() {
    let mut ledger = Ledger::new(at(0));
    let call = ledger.open("call", Stage::Arrival, None, at(10));
    for (began, ended) in [(20, Some(40)), (30, Some(35)), (50, None)] {
        let part = ledger.open("part", Stage::Wait, Some(call), at(began));
        if let Some(ended) = ended {
            ledger.close(part, at(ended));
        }
    }
    let part = ledger.part(call);
    assert_eq!(part.accounted(at(70)), Duration::from_millis(20 + 20));
    assert_eq!(part.unaccounted(at(70)), Duration::from_millis(10 + 10));
}

#[test]
fn what_the_far_side_told_is_bounded_and_stands_by_its_entry() {
    let account = |name: &str| {
        let field = format!("oneclock;desc={name};dur=8, queue;dur=5, unaccounted;dur=3, left;dur=2");
        Account::parse(field.as_bytes()).unwrap()
    };
    let mut ledger = Ledger::new(at(0));
    let ids: Vec<_> = (0..100).map(|n| ledger.open("call", Stage::Wait, None, at(n))).collect();
    for id in &ids {
        ledger.tell(*id, account("first"));
        ledger.tell(*id, account("second"));
    }
    assert_eq!(ids.iter().filter(|id| ledger.told_of(**id).is_some()).count(), MAX_ENTRIES);
    assert!(ids.iter().filter_map(|id| ledger.told_of(*id)).all(|told| told.operation == "first"));
    let text = ledger.part(ids[0]).to_string();
    assert_eq!(text, "there: first 8ms: queue 5ms, unaccounted 3ms, left 2ms");
}

/// The union of intervals by a sorted sweep: another way than the counting of open entries.
fn swept(mut spans: Vec<(u64, u64)>) -> u64 {
    spans.sort_unstable();
    let (mut sum, mut until) = (0, 0);
    for (began, ended) in spans {
        sum += ended.saturating_sub(began.max(until));
        until = until.max(ended);
    }
    sum
}

/// How many of the milliseconds before `end` any span covers, one by one: an account that knows no entries, no bounds
/// and no folding.
fn milliseconds_covered(spans: &[(u64, Option<u64>)], end: u64) -> Duration {
    let covers = |ms: u64, (began, ended): (u64, Option<u64>)| began <= ms && ended.is_none_or(|ended| ms < ended);
    Duration::from_millis((0..end).filter(|ms| spans.iter().any(|span| covers(*ms, *span))).count() as u64)
}

proptest! {
    /// Each charge within its entry, no two in one moment, and together what the ledger says.
    #[test]
    fn i13_charges_are_disjoint_and_add_up_to_what_is_accounted(
        spans in prop::collection::vec((0u64..200, 0u64..80), 0..40),
        from in 0u64..100,
        long in 0u64..150,
    ) {
        let within = (at(from), at(from + long));
        let entries: Vec<_> = spans.iter().map(|(began, took)| (at(*began), at(began + took))).collect();
        let mut charges = charges(within, &entries);
        let mut sum = Duration::ZERO;
        for ((began, ended), entry) in charges.iter().zip(&entries) {
            prop_assert!(began <= ended);
            if began < ended {
                prop_assert!(*began >= entry.0.max(within.0) && *ended <= entry.1.min(within.1));
            }
            sum += ended.since(*began);
        }
        charges.retain(|(began, ended)| began < ended);
        charges.sort_unstable();
        prop_assert!(charges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        let covers = |ms: u64| spans.iter().any(|(began, took)| (*began..began + took).contains(&ms));
        let covered = (from..from + long).filter(|ms| covers(*ms)).count() as u64;
        prop_assert_eq!(sum, Duration::from_millis(covered));
    }

    /// Many more entries than are kept, some never closed, some closed twice, with parts that must not count.
    #[test]
    fn i13_what_is_accounted_is_what_the_entries_cover(
        spans in prop::collection::vec((0u64..1_000, 0u64..60, prop::bool::weighted(0.98), 0u8..4), 0..120),
        after in 0u64..200,
    ) {
        let spans: Vec<_> = spans.into_iter().map(|(began, took, closes, parts)| {
            (began, closes.then_some(began + took), parts)
        }).collect();
        let mut ledger = Ledger::new(at(0));
        let mut open: Vec<Vec<EntryId>> = vec![Vec::new(); spans.len()];
        let end = 1_100 + after;
        for ms in 0..end {
            for ((began, ended, parts), ids) in spans.iter().zip(&mut open) {
                if *began == ms {
                    let direct = ledger.open("step", Stage::Work, None, at(ms));
                    ids.push(direct);
                    ids.extend((0..*parts).map(|_| ledger.open("part", Stage::Wait, Some(direct), at(ms))));
                }
                if *ended == Some(ms) {
                    for id in ids.iter().rev() {
                        ledger.close(*id, at(ms));
                        ledger.close(*id, at(ms + 5));
                    }
                }
            }
        }
        let direct: Vec<_> = spans.iter().map(|(began, ended, _)| (*began, *ended)).collect();
        let covered = milliseconds_covered(&direct, end);
        prop_assert_eq!(ledger.accounted(at(end)), covered);
        prop_assert_eq!(ledger.unaccounted(at(end)), Duration::from_millis(end) - covered);
        prop_assert!(ledger.entries().len() <= MAX_ENTRIES + MAX_PARTS);
        prop_assert_eq!(ledger.parts_of(None).count(), spans.len().min(MAX_ENTRIES));
    }

    /// A path is steps one after the other, at any nanosecond, each with parts inside: its entries are disjoint, and with
    /// what no entry covers they sum to the elapsed time.
    #[test]
    fn i13_entries_on_one_path_are_disjoint_and_sum_to_the_elapsed_time(
        steps in prop::collection::vec((0u64..5_000_000, 0u64..50_000_000, 0usize..4), 0..90),
        after in 0u64..5_000_000,
    ) {
        let mut now = Tick::from_nanos(7);
        let mut ledger = Ledger::new(now);
        let mut own = Duration::ZERO;
        for (gap, took, parts) in steps {
            now = now + Duration::from_nanos(gap);
            own += Duration::from_nanos(gap);
            let step = ledger.open("step", Stage::Wait, None, now);
            for _ in 0..parts {
                let part = ledger.open("part", Stage::Connect, Some(step), now);
                now = now + Duration::from_nanos(took);
                ledger.close(part, now);
            }
            now = now + Duration::from_nanos(took);
            ledger.close(step, now);
        }
        now = now + Duration::from_nanos(after);
        own += Duration::from_nanos(after);
        let kept = ledger.parts_of(None).map(|(_, entry)| entry.ended.unwrap().since(entry.began));
        let sum = kept.sum::<Duration>() + ledger.folded().iter().map(|folded| folded.sum).sum::<Duration>();
        prop_assert_eq!(ledger.unaccounted(now), own);
        prop_assert_eq!(sum + ledger.unaccounted(now), now.since(ledger.began()));
        let mut before = None;
        for (_, entry) in ledger.parts_of(None) {
            prop_assert!(before <= Some(entry.began), "the next step begins where the one before has ended");
            before = entry.ended;
        }
    }

    /// Children in parallel, to the nanosecond, more of them than are kept: they charge what they cover together, never
    /// their sum.
    #[test]
    fn i13_parallel_children_charge_the_interval_they_cover_together(
        spans in prop::collection::vec((0u64..1_000_000_000, 0u64..400_000_000), 1..80),
    ) {
        let mut events: Vec<(u64, bool, usize)> = spans.iter().enumerate().flat_map(|(n, (began, took))| {
            [(*began, true, n), (began + took, false, n)]
        }).collect();
        events.sort_unstable_by_key(|(at, opens, _)| (*at, !opens));
        let mut ledger = Ledger::new(Tick::from_nanos(0));
        let mut ids: Vec<Option<EntryId>> = vec![None; spans.len()];
        let mut end = 0;
        for (at, opens, n) in events {
            end = at;
            match (opens, ids[n]) {
                (true, _) => ids[n] = Some(ledger.open("child", Stage::Wait, None, Tick::from_nanos(at))),
                (false, Some(id)) => ledger.close(id, Tick::from_nanos(at)),
                (false, None) => prop_assert!(false, "closed before it was opened"),
            }
        }
        let covered = swept(spans.iter().map(|(began, took)| (*began, began + took)).collect());
        let now = Tick::from_nanos(end);
        prop_assert_eq!(ledger.accounted(now), Duration::from_nanos(covered));
        prop_assert_eq!(ledger.accounted(now) + ledger.unaccounted(now), now.since(ledger.began()));
        let longest = spans.iter().map(|(_, took)| *took).max().unwrap();
        prop_assert!(ledger.accounted(now) >= Duration::from_nanos(longest));
    }
}
