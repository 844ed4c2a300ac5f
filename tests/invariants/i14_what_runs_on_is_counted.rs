//! I14: what keeps running after its caller left is counted: how many, what, why, and for how long.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use oneclock::events::RanOn;
use oneclock::running_unguarded;
use oneclock_axum::{Op, Problem};
use oneclock_test::{PATIENCE, Probe};
use tokio::sync::Notify;

use crate::naive::under_a_timeout_layer;
use crate::shop::{NOTICED, Shop, ample, ms};
use crate::ways::{Ask, Got, Leave};
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

/// How long the work of these tests goes on after its request is over, at least.
const RUNS_ON: Duration = ms(200);

/// How the requests of these tests end: two leave, one has its deadline.
const EVERY_END: [(&str, Option<Leave>); 3] =
    [("left", Some(Leave::InOrder)), ("reset", Some(Leave::Abruptly)), ("deadline", None)];

/// Lets the request end while its work goes on, and that stop later. Returns how long it can have run on at most.
async fn runs_on(ask: Ask, leave: Option<Leave>, work: &Work, over: impl Future) -> Duration {
    let nth = work.probe.started_count() + 1;
    let before = match leave {
        Some(leave) => {
            let asked = ask.send_to_leave(leave).await;
            work.probe.started(nth).await.unwrap();
            let before = clock_now();
            asked.leave().await;
            before
        }
        None => {
            let before = clock_now();
            assert_eq!(ask.within(ms(500)).answer().await.status, 504);
            before
        }
    };
    over.await; // the request is over, the work is not
    assert_eq!(work.probe.running(), 1);
    tokio::time::sleep(RUNS_ON).await;
    work.stop();
    work.probe.ended(nth).await.unwrap();
    clock_now() - before + NOTICED
}

/// What was counted of the `nth` work that ran on, soon after its end.
async fn is_counted(shop: &Shop, nth: usize) -> Result<(String, RanOn, Duration), String> {
    let ran_on = |seen: &Seen| match seen {
        Seen::RanOn { work, because, how_long } => Some((work.to_string(), *because, *how_long)),
        _ => None,
    };
    let counted = shop.witness().first(nth, "work that ran on", ran_on);
    let counted = tokio::time::timeout(NOTICED, counted).await;
    counted.map(|mut all| all.remove(nth - 1)).map_err(|_| "it ran on, and nobody counted it".to_owned())
}

over_every_way_in! {
    async fn a_step_that_must_finish(shop: Shop) {
        let work = Work::new();
        for (n, (name, leave)) in (1..).zip(EVERY_END) {
            let addr = shop.open(ample(name), work.app()).await;
            let most = runs_on(shop.get(addr, "/charge"), leave, &work, shop.witness().ended(name)).await;
            let (what, because, how_long) = is_counted(&shop, n).await.unwrap();
            assert_eq!((what.as_str(), because), ("charge", RanOn::MustFinish));
            assert!(how_long >= RUNS_ON && how_long <= most, "{name}: {how_long:?}, at most {most:?}");
        }
        assert_eq!(shop.witness().ran_on(), EVERY_END.len(), "each once");
        comes_to_rest().await;
    }

    async fn a_blocking_closure(shop: Shop) {
        let work = Work::new();
        for (n, (name, leave)) in (1..).zip(EVERY_END) {
            let addr = shop.open(ample(name), work.app()).await;
            let most = runs_on(shop.get(addr, "/resize"), leave, &work, shop.witness().ended(name)).await;
            let (what, because, how_long) = is_counted(&shop, n).await.unwrap();
            assert_eq!((what.as_str(), because), ("resize", RanOn::Blocking));
            assert!(how_long >= RUNS_ON && how_long <= most, "{name}: {how_long:?}, at most {most:?}");
        }
        assert_eq!(shop.witness().ran_on(), EVERY_END.len(), "each once");
        comes_to_rest().await;
    }

    /// The number is the process's, and other tests may run beside this one: that it is never zero meanwhile is what
    /// can be asked.
    async fn it_is_known_while_it_runs(shop: Shop) {
        for target in ["/charge", "/resize"] {
            let work = Work::new();
            let addr = shop.open(ample("order"), work.app()).await;
            let asked = shop.get(addr, target).send().await;
            work.probe.started(1).await.unwrap();
            asked.leave().await;
            for _ in 0..20 {
                assert!(running_unguarded() > 0, "{target}");
                tokio::time::sleep(ms(5)).await;
            }
            assert_eq!(work.probe.running(), 1, "{target}");
            work.stop();
            work.probe.ended(1).await.unwrap();
        }
        comes_to_rest().await;
    }

    async fn what_ends_in_time_has_not_run_on(shop: Shop) {
        let work = Work::new();
        let addr = shop.open(ample("order"), work.app()).await;
        for (n, target) in (1..).zip(["/charge", "/resize"]) {
            let asked = shop.get(addr, target).send().await;
            work.probe.started(n).await.unwrap();
            work.stop();
            let got = asked.got().await;
            assert!(matches!(&got, Got::Whole(answer) if answer.status == 200), "{got:?}");
        }
        comes_to_rest().await;
        assert_eq!(shop.witness().ran_on(), 0);
    }

    without_a_sidecar:

    async fn the_naive_way_of_a_spawned_task_is_counted_by_nobody(shop: Shop) {
        let work = Work::new();
        let app = under_a_timeout_layer(work.app(), ms(20_000));
        let addr = shop.open_naively(app).await;
        runs_on(shop.get(addr, "/naive"), Some(Leave::InOrder), &work, std::future::ready(())).await;
        is_counted(&shop, 1).await.expect_err("nobody knows of it");
    }
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
