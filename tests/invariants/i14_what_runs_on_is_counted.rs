//! I14: what keeps running after its caller left is counted: how many, what, why, and for how long.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc};

use axum::Router;
use axum::routing::get;
use oneclock::events::RanOn;
use oneclock::running_unguarded;
use oneclock_axum::{Op, Problem};
use oneclock_core::Policy;
use oneclock_test::{PATIENCE, Probe};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::naive::under_a_timeout_layer;
use crate::shop::{NOTICED, Shop, ample, ms};
use crate::ways::{Ask, Leave};
use crate::witness::{Seen, clock_now};

/// Work that goes on until it is told to stop, as a step that must finish, as a blocking closure, and naively.
#[derive(Clone)]
struct Work {
    probe: Probe,
    stop: Arc<Notify>,
    stop_blocking: Arc<Mutex<Option<mpsc::Sender<()>>>>,
}

impl Work {
    fn new() -> Self {
        Self { probe: Probe::new(), stop: Arc::default(), stop_blocking: Arc::default() }
    }

    fn stop(&self) {
        self.stop.notify_one();
        *self.stop_blocking.lock().unwrap() = None;
    }

    async fn work(self) -> Result<(), Infallible> {
        let guard = self.probe.enter();
        self.stop.notified().await;
        guard.finish();
        Ok(())
    }

    fn block(self) -> impl FnOnce() + Send {
        let (sender, receiver) = mpsc::channel::<()>();
        *self.stop_blocking.lock().unwrap() = Some(sender);
        move || {
            let guard = self.probe.enter();
            let _ = receiver.recv(); // ends with the sender
            guard.finish();
        }
    }

    fn app(&self) -> Router {
        let (step, closure, task) = (self.clone(), self.clone(), self.clone());
        let must_finish = move |Op(op): Op| async move {
            op.must_finish("charge", ms(20_000), step.work()).await.map_err(Problem::from)
        };
        let blocking = move |Op(op): Op| async move {
            let work = closure.block();
            op.spawn_blocking("resize", move |_| work()).await.map_err(Problem::from)
        };
        let naive = move || async move { drop(tokio::spawn(task.work()).await) };
        Router::new().route("/charge", get(must_finish)).route("/resize", get(blocking)).route("/naive", get(naive))
    }
}

/// Lets a request end while its work goes on, and the work some time later. Returns the bounds of how long it ran on.
async fn runs_on(ask: Ask, leave: Option<Leave>, work: &Work, over: impl Future) -> [std::time::Duration; 2] {
    let nth = work.probe.started_count() + 1;
    let before: Instant;
    match leave {
        Some(leave) => {
            let asked = ask.send_to_leave(leave).await;
            work.probe.started(nth).await.unwrap();
            before = clock_now();
            asked.leave().await;
        }
        None => {
            before = clock_now();
            assert_eq!(ask.within(ms(300)).answer().await.status, 504);
        }
    }
    over.await; // the request is over, the work is not
    let after = clock_now();
    assert_eq!(work.probe.running(), 1);
    tokio::time::sleep(ms(200)).await;
    work.stop();
    work.probe.ended(nth).await.unwrap();
    [after_to_now(after), after_to_now(before)]
}

fn after_to_now(then: Instant) -> std::time::Duration {
    clock_now() - then
}

const EVERY_END: [Option<Leave>; 3] = [Some(Leave::InOrder), Some(Leave::Abruptly), None];

/// What was counted of the `nth` work that ran on.
async fn counted(shop: &Shop, nth: usize) -> (String, RanOn, std::time::Duration) {
    let ran_on = |seen: &Seen| matches!(seen, Seen::RanOn { .. }).then_some(());
    shop.witness().first(nth, "work that ran on", ran_on).await;
    shop.witness().ran_on().pop().expect("one at least")
}

async fn is_over(shop: &Shop, name: &'static str) {
    shop.witness().ended(name).await;
}

over_every_way_in! {
    async fn a_step_that_must_finish(shop: Shop) {
        let work = Work::new();
        for (n, (name, leave)) in (1..).zip(["a", "b", "c"].into_iter().zip(EVERY_END)) {
            let addr = shop.open(ample(name), work.app()).await;
            let [least, most] = runs_on(shop.get(addr, "/charge"), leave, &work, is_over(&shop, name)).await;
            let (what, because, how_long) = counted(&shop, n).await;
            assert_eq!((what.as_str(), because), ("charge", RanOn::MustFinish));
            assert!(how_long >= ms(150) && how_long <= most + NOTICED, "{how_long:?}, at least {least:?}");
        }
        comes_to_rest().await;
    }

    async fn a_blocking_closure(shop: Shop) {
        let work = Work::new();
        for (n, (name, leave)) in (1..).zip(["a", "b", "c"].into_iter().zip(EVERY_END)) {
            let addr = shop.open(ample(name), work.app()).await;
            let [least, most] = runs_on(shop.get(addr, "/resize"), leave, &work, is_over(&shop, name)).await;
            let (what, because, how_long) = counted(&shop, n).await;
            assert_eq!((what.as_str(), because), ("resize", RanOn::Blocking));
            assert!(how_long >= ms(150) && how_long <= most + NOTICED, "{how_long:?}, at least {least:?}");
        }
        comes_to_rest().await;
    }

    async fn it_is_known_while_it_runs(shop: Shop) {
        for target in ["/charge", "/resize"] {
            let work = Work::new();
            let addr = shop.open(ample("order"), work.app()).await;
            is_counted(&shop, addr, target, &work).await.unwrap();
        }
        comes_to_rest().await;
    }

    async fn what_ends_in_time_has_not_run_on(shop: Shop) {
        let work = Work::new();
        let addr = shop.open(Policy::named("order").when_absent(ms(9_000)), work.app()).await;
        for (n, target) in (1..).zip(["/charge", "/resize"]) {
            let asked = shop.get(addr, target).send().await;
            work.probe.started(n).await.unwrap();
            work.stop();
            let got = asked.got().await;
            assert!(matches!(&got, crate::ways::Got::Whole(answer) if answer.status == 200), "{got:?}");
        }
        assert_eq!(shop.witness().ran_on(), []);
        comes_to_rest().await;
    }

    async fn the_naive_way_of_a_spawned_task_is_counted_by_nobody(shop: Shop) {
        let work = Work::new();
        let app = under_a_timeout_layer(work.app(), ms(20_000));
        let addr = shop.open_naively(app).await;
        is_counted(&shop, addr, "/naive", &work).await.expect_err("it runs on, and nobody knows");
        assert_eq!(shop.witness().ran_on(), []);
    }
}

/// Whether work that goes on without its caller is among what is known to run.
///
/// The number is the process's, and other tests may run beside this one. What this work adds to it is seen only where
/// nothing else runs, so what is asked is weaker: that it is not zero at any moment while this work runs.
async fn is_counted(shop: &Shop, addr: SocketAddr, target: &str, work: &Work) -> Result<(), String> {
    let asked = shop.get(addr, target).send().await;
    work.probe.started(1).await.unwrap();
    asked.leave().await;
    let mut known = true;
    for _ in 0..100 {
        known &= running_unguarded() > 0;
        tokio::time::sleep(ms(5)).await;
    }
    assert_eq!(work.probe.running(), 1);
    work.stop();
    work.probe.ended(1).await.unwrap();
    if known { Ok(()) } else { Err("it ran, and nothing was known to run".to_owned()) }
}

/// Nothing is known to run on any more, whichever test began it.
async fn comes_to_rest() {
    let rest = async {
        while running_unguarded() > 0 {
            tokio::time::sleep(ms(1)).await; // no event tells of it: it is a number
        }
    };
    let came = tokio::time::timeout(PATIENCE, rest).await;
    assert!(came.is_ok(), "{} still run", running_unguarded());
}
