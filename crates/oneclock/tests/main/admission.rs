//! Places before something scarce: had, waited for, given back, whatever becomes of whoever asked. Contract I4, I5, X6, X7.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use oneclock::admission::{Asked, NotAdmitted, Wants};
use oneclock::{Admission, NotBegun, Operation, Place, Shutdown, WhyNot, clock};
use oneclock_core::admission::{Mode, Settings, Why};
use oneclock_core::{BoundBy, Budget, Cause, Importance, Reason, Stage};

use crate::support::{Recorder, ms, request, settle};

fn pool(places: u32) -> Admission {
    Admission::to("pool", Settings::fixed(places)).unwrap()
}

async fn enter(pool: &Admission, budget: u64) -> Result<Place, NotBegun> {
    pool.enter_in(&Operation::begin("order", ms(budget)), "lookup").await
}

fn wants(operation: &Operation) -> Wants<'_> {
    Wants { class: None, deadline: operation.deadline(), importance: Importance::Required, peer: 0 }
}

/// (taken, waiting)
#[track_caller]
fn is(pool: &Admission, busy: u32, waiting: u32) {
    assert_eq!((pool.busy(), pool.waiting()), (busy, waiting));
}

#[tokio::test(start_paused = true)]
async fn a_place_is_had_and_given_back_and_what_it_was_held_for_is_remembered() {
    let pool = pool(2);
    let first = enter(&pool, 800).await.unwrap();
    let second = enter(&pool, 800).await.unwrap();
    is(&pool, 2, 0);
    tokio::time::sleep(ms(30)).await;
    drop(first);
    is(&pool, 1, 0);
    assert_eq!(pool.held(), ms(30));
    drop(second);
    is(&pool, 0, 0);
    for _ in 0..40 {
        let _place = enter(&pool, 800).await.unwrap();
        tokio::time::sleep(ms(30)).await;
    }
    let (name, needed, cut_off) = pool.estimates().remove(0);
    assert_eq!((name.unwrap().as_str(), cut_off), ("lookup", 0.0));
    assert!((ms(28)..ms(33)).contains(&needed), "{needed:?}");
}

#[tokio::test(start_paused = true)]
async fn i4_waiting_is_stage_queue_and_spends_the_budget() {
    let pool = pool(1);
    let held = enter(&pool, 800).await.unwrap();
    let op = Operation::begin("order", ms(300));
    let entering = tokio::spawn({
        let (pool, op) = (pool.clone(), op.clone());
        async move { pool.enter_in(&op, "lookup").await.map(drop) }
    });
    settle().await;
    assert_eq!(op.stage(), Stage::Queue);
    is(&pool, 1, 1);
    tokio::time::sleep(ms(80)).await;
    drop(held);
    entering.await.unwrap().unwrap();
    let ledger = op.ledger();
    let [entry] = ledger.entries() else { panic!("{ledger}") };
    let took = entry.ended.unwrap().since(entry.began);
    assert_eq!((entry.name.as_str(), entry.stage, took), ("pool", Stage::Queue, ms(80)));
    assert_ne!(op.stage(), Stage::Queue, "it waits no longer");
}

#[tokio::test(start_paused = true)]
async fn i4_the_wait_ends_with_the_budget() {
    let pool = pool(1);
    let _held = enter(&pool, 10_000).await.unwrap();
    let began = clock::now();
    let refused = enter(&pool, 300).await.unwrap_err();
    assert_eq!(clock::now().since(began), ms(300));
    assert!(matches!(refused.why, WhyNot::Ended(ending) if ending.cause == Cause::Deadline), "{refused}");
    is(&pool, 1, 0);
}

/// Not when its turn comes: what is left is its caller's to use.
#[tokio::test(start_paused = true)]
async fn the_wait_ends_when_what_would_follow_would_be_too_late() {
    let pool = pool(1);
    for _ in 0..40 {
        let _place = enter(&pool, 800).await.unwrap();
        tokio::time::sleep(ms(100)).await;
    }
    let _held = enter(&pool, 10_000).await.unwrap();
    let began = clock::now();
    let refused = enter(&pool, 300).await.unwrap_err();
    let waited = clock::now().since(began);
    assert!((ms(185)..ms(215)).contains(&waited), "{waited:?} of 300ms, since it needs 100ms");
    let WhyNot::NotAdmitted(refusal) = refused.why else { panic!("{refused}") };
    assert_eq!((refusal.why, refused.reason()), (Why::Doomed, Reason::InsufficientBudget));
    is(&pool, 1, 0);
}

#[tokio::test(start_paused = true)]
async fn x6_what_has_ended_asks_for_nothing() {
    let pool = pool(1);
    let op = Operation::begin("order", ms(300));
    op.call_off();
    let refused = pool.enter_in(&op, "lookup").await.unwrap_err();
    assert!(matches!(refused.why, WhyNot::Ended(ending) if ending.cause == Cause::CalledOff), "{refused}");
    is(&pool, 0, 0);
    assert_eq!(pool.estimates().len(), 1, "no sort of work came by");
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_dropped_leaves_the_queue_at_once() {
    let pool = pool(1);
    let held = enter(&pool, 800).await.unwrap();
    let op = Operation::begin("order", ms(300));
    {
        let mut entering = pin!(pool.enter_in(&op, "lookup"));
        assert!(entering.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        is(&pool, 1, 1);
    }
    is(&pool, 1, 0);
    assert_ne!(op.stage(), Stage::Queue);
    drop(held);
    is(&pool, 0, 0);
}

/// The place was handed over and not yet looked at.
#[tokio::test(start_paused = true)]
async fn a_future_that_is_dropped_after_it_was_handed_a_place_hands_it_on() {
    let pool = pool(1);
    let held = enter(&pool, 800).await.unwrap();
    let op = Operation::begin("order", ms(300));
    let context = &mut Context::from_waker(Waker::noop());
    let mut first = Box::pin(pool.enter_in(&op, "lookup"));
    let mut second = Box::pin(pool.enter_in(&op, "lookup"));
    assert!(first.as_mut().poll(context).is_pending() && second.as_mut().poll(context).is_pending());
    tokio::time::advance(ms(50)).await;
    drop(held);
    is(&pool, 1, 1);
    tokio::time::advance(ms(20)).await;
    drop(first);
    is(&pool, 1, 0);
    assert_eq!(pool.held(), ms(50), "it was never used");
    let Poll::Ready(Ok(place)) = second.as_mut().poll(context) else { panic!("it is its turn") };
    drop(place);
    is(&pool, 0, 0);
}

/// It was handed over in time, and whoever waited came to look at it too late: nothing begins after the end.
#[tokio::test(start_paused = true)]
async fn x6_a_place_that_is_looked_at_after_the_end_goes_back() {
    let pool = pool(1);
    for ends in [|op: &Operation| assert!(op.call_off()), |_: &Operation| ()] {
        let held = enter(&pool, 10_000).await.unwrap();
        let op = Operation::begin("order", ms(300));
        let context = &mut Context::from_waker(Waker::noop());
        let mut entering = Box::pin(pool.enter_in(&op, "lookup"));
        assert!(entering.as_mut().poll(context).is_pending());
        drop(held);
        ends(&op);
        tokio::time::advance(ms(300)).await;
        let Poll::Ready(Err(refused)) = entering.as_mut().poll(context) else { panic!("it begins after its end") };
        assert!(matches!(refused.why, WhyNot::Ended(_)), "{refused}");
        is(&pool, 0, 0);
    }
    assert!(pool.estimates().iter().all(|(_, needed, _)| needed.is_zero()), "nothing was done");
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_ends_stops_waiting() {
    let pool = pool(1);
    let _held = enter(&pool, 60_000).await.unwrap();
    let shutdown = Shutdown::new();
    let called_off = Operation::begin("order", ms(10_000));
    let shut_down = Operation::begin("order", ms(10_000)).ended_by(&shutdown);
    let entering = |op: &Operation| {
        let (pool, op) = (pool.clone(), op.clone());
        tokio::spawn(async move { pool.enter_in(&op, "lookup").await.unwrap_err() })
    };
    let began = clock::now();
    let (first, second) = (entering(&called_off), entering(&shut_down));
    let _copy = shut_down.spawn("copy", std::future::pending::<()>()); // else the grace is over at once
    settle().await;
    is(&pool, 1, 2);
    called_off.call_off();
    let refused = first.await.unwrap();
    assert!(matches!(refused.why, WhyNot::Ended(ending) if ending.cause == Cause::CalledOff), "{refused}");
    is(&pool, 1, 1);
    shutdown.drain(ms(500)).await;
    let refused = second.await.unwrap();
    let WhyNot::Ended(ending) = refused.why else { panic!("{refused}") };
    assert_eq!((ending.cause, ending.stage, clock::now().since(began)), (Cause::Shutdown, Stage::Queue, ms(500)));
    is(&pool, 1, 0);
}

#[tokio::test(start_paused = true)]
async fn c7_what_is_optional_makes_room() {
    let pool = Admission::to("pool", Settings::fixed(1).queue(1)).unwrap();
    let held = enter(&pool, 800).await.unwrap();
    let optional = Operation::begin("prefetch", ms(800)).optional();
    let mut waiting = pin!(pool.enter_in(&optional, "lookup"));
    let context = &mut Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(context).is_pending());
    let op = Operation::begin("order", ms(800));
    let mut required = pin!(pool.enter_in(&op, "lookup"));
    assert!(required.as_mut().poll(context).is_pending());
    let Poll::Ready(Err(refused)) = waiting.as_mut().poll(context) else { panic!("it made room") };
    assert_eq!(refused.reason(), Reason::Shed);
    drop(held);
    assert!(matches!(required.as_mut().poll(context), Poll::Ready(Ok(_))));
}

#[tokio::test(start_paused = true)]
async fn where_nothing_is_enforced_nobody_waits() {
    let pool = Admission::to("pool", Settings::fixed(1).queue(0).mode(Mode::Shadow)).unwrap();
    let op = Operation::begin("order", ms(300));
    let Asked::Has(first, None) = pool.ask(&wants(&op), clock::now()) else { panic!("a free place") };
    let Asked::Has(second, Some(would)) = pool.ask(&wants(&op), clock::now()) else { panic!("it starts all the same") };
    assert_eq!(would.why, Why::Full);
    pool.set_mode(Mode::Observe);
    let Asked::Has(third, None) = pool.ask(&wants(&op), clock::now()) else { panic!("nothing is told") };
    is(&pool, 3, 0);
    drop((first, second, third));
    is(&pool, 0, 0);
}

/// What a turn says twice, or after it was handed a place: nothing. Dropping it then takes nothing back.
#[tokio::test(start_paused = true)]
async fn a_turn_that_is_over_may_be_dropped_at_any_time() {
    let pool = pool(1);
    let op = Operation::begin("order", ms(300));
    let context = &mut Context::from_waker(Waker::noop());
    let held = enter(&pool, 800).await.unwrap();
    let Asked::Waits(mut turn) = pool.ask(&wants(&op), clock::now()) else { panic!("it waits") };
    assert!(turn.poll(&op, context).is_pending());
    drop(held);
    let Poll::Ready(Ok(place)) = turn.poll(&op, context) else { panic!("it is its turn") };
    drop(turn);
    is(&pool, 1, 0);
    let Asked::Waits(mut turn) = pool.ask(&wants(&op), clock::now()) else { panic!("it waits") };
    tokio::time::advance(ms(300)).await;
    let Poll::Ready(Err(why)) = turn.poll(&op, context) else { panic!("it is too late") };
    assert!(matches!(why, NotAdmitted::Ended(ending) if ending.cause == Cause::Deadline), "{why:?}");
    drop(place);
    drop(turn);
    is(&pool, 0, 0);
}

#[tokio::test(start_paused = true)]
async fn vacated_the_next_one_starts_and_the_work_is_measured_to_its_end() {
    let pool = pool(1);
    let recorder = Recorder::new();
    for _ in 0..40 {
        let driver = request("order", ms(800), &recorder);
        let op = driver.operation().clone();
        let Asked::Has(place, _) = pool.ask(&wants(&op), clock::now()) else { panic!("a free place") };
        let driver = driver.holding(place);
        tokio::time::sleep(ms(10)).await;
        let part = op.grant("pricing").operation().unwrap();
        part.vacate(); // of what it is a part of
        part.vacate(); // once
        is(&pool, 0, 0);
        let next = enter(&pool, 800).await.unwrap();
        tokio::time::sleep(ms(90)).await;
        is(&pool, 1, 0);
        driver.finish();
        is(&pool, 1, 0);
        drop(next);
    }
    let held = pool.held();
    assert!(held < ms(90), "{held:?}");
    let needed = |which: Option<&str>| {
        let estimates = pool.estimates();
        estimates.into_iter().find(|(name, ..)| name.as_ref().map(|name| name.as_str()) == which).unwrap().1
    };
    assert!(needed(None) > ms(93), "what follows is part of what it takes: {:?}", needed(None));
}

/// Its caller has left and its operation is over; what the place stands for is in use.
#[tokio::test(start_paused = true)]
async fn n2_a_step_that_must_finish_keeps_the_place_until_it_is_over() {
    let pool = pool(1);
    let recorder = Recorder::new();
    let driver = request("order", ms(100), &recorder);
    let op = driver.operation().clone();
    let Asked::Has(place, _) = pool.ask(&wants(&op), clock::now()) else { panic!("a free place") };
    let driver = driver.holding(place);
    let (work, done) = crate::finish::step(300);
    let step = tokio::spawn(async move { op.must_finish("charge", ms(5_000), work).await });
    settle().await;
    drop(driver); // its caller left
    step.await.unwrap().unwrap_err();
    is(&pool, 1, 0);
    let began = clock::now();
    let next = enter(&pool, 5_000).await.unwrap();
    assert_eq!(clock::now().since(began), ms(300));
    done.await.unwrap();
    drop(next);
    settle().await;
    is(&pool, 0, 0);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_must_finish_and_panics_gives_the_place_back() {
    let pool = pool(1);
    let recorder = Recorder::new();
    let driver = request("order", ms(100), &recorder);
    let op = driver.operation().clone();
    let Asked::Has(place, _) = pool.ask(&wants(&op), clock::now()) else { panic!("a free place") };
    let driver = driver.holding(place);
    let panics =
        async { if clock::now() > oneclock_core::Tick::default() { panic!("on purpose") } else { Ok::<_, ()>(()) } };
    op.must_finish("charge", ms(5_000), panics).await.unwrap_err();
    is(&pool, 1, 0);
    driver.finish();
    is(&pool, 0, 0);
}

/// Real threads, real time: many come, some leave in the middle, some are called off, some vacate early.
#[test]
fn a_storm_over_many_threads_loses_no_place() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let over = runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(60), async {
            let pool = Admission::to("pool", Settings::fixed(3).queue(32)).unwrap();
            let (inside, had, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)), 3);
            let mut callers = tokio::task::JoinSet::new();
            for caller in 0..48_u64 {
                let (pool, inside, had) = (pool.clone(), Arc::clone(&inside), Arc::clone(&had));
                callers.spawn(async move {
                    for n in 0..60_u64 {
                        let what = (caller * 7 + n * 5) % 11;
                        let op = Operation::begin("order", ms(2 + what * 3));
                        let patience =
                            Duration::from_micros(if what.is_multiple_of(3) { what * 150 } else { 60_000_000 });
                        let entering = tokio::time::timeout(patience, pool.enter_in(&op, "lookup"));
                        if what == 4 {
                            op.call_off();
                        }
                        let Ok(Ok(place)) = entering.await else { continue };
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < most, "more inside than there are places");
                        had.fetch_add(1, Ordering::SeqCst);
                        if what.is_multiple_of(2) {
                            tokio::time::sleep(Duration::from_micros(what * 50)).await;
                        } else {
                            tokio::task::yield_now().await;
                        }
                        inside.fetch_sub(1, Ordering::SeqCst);
                        if what == 5 {
                            place.vacate();
                        }
                        drop(place);
                    }
                });
            }
            callers.join_all().await;
            is(&pool, 0, 0);
            assert!(had.load(Ordering::SeqCst) > 100, "{had:?} had a place");
            assert!(pool.enter_in(&Operation::begin("order", ms(1_000)), "lookup").await.is_ok());
        })
        .await
    });
    over.expect("within a minute");
}

/// Whoever waited for a place behind itself would wait to its end.
#[tokio::test(start_paused = true)]
async fn a_step_that_must_finish_uses_the_place_that_it_keeps() {
    let pool = Admission::to("pool", Settings::fixed(1)).unwrap();
    let now = clock::now();
    let budget = Budget::begin(BoundBy::Caller, ms(500), now);
    let driver = Operation::arrive("order".into(), now, budget, None, None, None);
    let wants = Wants { class: None, deadline: budget.deadline, importance: Importance::Required, peer: 0 };
    let Asked::Has(place, _) = pool.ask(&wants, now) else { panic!("a free place") };
    let driver = driver.holding(place);
    let op = driver.operation().clone();
    let inner = pool.clone();
    let step = op.must_finish("charge", ms(1_000), async move {
        let op = Operation::current().expect("in the step");
        let place = inner.enter_in(&op, "charge").await.map_err(|_| "it waits for itself")?;
        assert_eq!(inner.busy(), 1, "the same one");
        drop(place);
        Ok::<_, &str>(inner.busy())
    });
    assert_eq!(step.await.unwrap(), 1);
    driver.finish();
    op.shutdown().drain(ms(1_000)).await;
    assert_eq!(pool.busy(), 0);
}

/// What callers who leave at once had taken by then is not what the work takes.
#[tokio::test(start_paused = true)]
async fn callers_that_leave_at_once_do_not_make_the_work_quick() {
    let pool = Admission::to("pool", Settings::fixed(1)).unwrap();
    for _ in 0..40 {
        let op = Operation::begin("order", ms(500));
        let place = pool.enter_in(&op, "work").await.unwrap();
        tokio::time::sleep(ms(100)).await;
        drop(place);
    }
    let needed = |pool: &Admission| pool.estimates().into_iter().find(|(name, ..)| name.is_some()).unwrap().1;
    assert!(needed(&pool) > ms(90));
    for _ in 0..400 {
        let op = Operation::begin("order", ms(500));
        let place = pool.enter_in(&op, "work").await.unwrap();
        tokio::time::sleep(ms(1)).await;
        op.call_off();
        drop(place);
    }
    assert!(needed(&pool) > ms(90), "{:?}", pool.estimates());
}
