//! I7: long work notices at its next checkpoint that nobody waits for it any more, async work and blocking work alike.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use oneclock::{Ended, Operation, clock};
use oneclock_axum::{Op, Problem};
use oneclock_core::{BoundBy, Cause};
use oneclock_test::Probe;

use crate::naive::under_a_timeout_layer;
use crate::shop::{Shop, ample, ms};
use crate::ways::Leave;

const STEPS: usize = 50;
const BUDGET: Duration = ms(200);

over_every_way_in! {
    async fn a_blocking_closure_notices_that_its_caller_left(shop: Shop) {
        for (name, leave) in [("resize", Leave::InOrder), ("shrink", Leave::Abruptly)] {
            let closure = Closure::new();
            let addr = shop.open(ample(name), Router::new().route("/", closure.guarded())).await;
            let asked = shop.get(addr, "/").send_to_leave(leave).await;
            closure.may_step();
            closure.is_in_step(2).await;
            asked.leave().await;
            let over = shop.witness().ended(name).await;
            assert_eq!(over.ending.map(|ending| ending.cause), Some(Cause::CallerGone));
            closure.may_step(); // goes on with the one that it is in
            assert_eq!(closure.stops().await, Ok(2), "it ends at the checkpoint after that");
            let ended = closure.ended.lock().unwrap().clone().expect("a checkpoint said so");
            assert_eq!(ended.ending.cause, Cause::CallerGone);
        }
    }

    async fn a_blocking_closure_notices_its_deadline(shop: Shop) {
        let closure = Closure::new();
        let addr = shop.open(ample("resize"), Router::new().route("/", closure.guarded())).await;
        let asked = shop.get(addr, "/").within(ms(500)).send().await;
        closure.is_in_step(1).await;
        // The answer does not wait for the closure.
        let got = asked.got().await;
        assert!(matches!(&got, crate::ways::Got::Whole(answer) if answer.status == 504), "{got:?}");
        closure.may_step();
        assert_eq!(closure.stops().await, Ok(1));
        let ended = closure.ended.lock().unwrap().clone().expect("a checkpoint said so");
        if shop.is_behind_a_sidecar() && ended.ending.cause == Cause::CallerGone {
            return; // it was first to notice
        }
        assert_eq!((ended.ending.cause, ended.ending.bound), (Cause::Deadline, BoundBy::Caller));
    }

    without_a_sidecar:

    /// Work between two awaits, which nothing can interrupt.
    async fn async_work_notices_its_deadline(shop: Shop) {
        let (steps, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None::<Ended>)));
        let (counted, kept) = (steps.clone(), ended.clone());
        let computes = move |Op(op): Op| async move {
            for _ in 0..STEPS {
                op.checkpoint().inspect_err(|ended| *kept.lock().unwrap() = Some(ended.clone()))?;
                std::thread::sleep(ms(20)); // it computes
                counted.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, Problem>("done")
        };
        let addr = shop.open(ample("report"), Router::new().route("/", get(computes))).await;
        let answer = shop.get(addr, "/").within(BUDGET).answer().await;
        assert_eq!(answer.verdict(), (504, Some("deadline")));
        let ended = ended.lock().unwrap().clone().expect("a checkpoint said so");
        assert_eq!((ended.ending.cause, ended.ending.bound), (Cause::Deadline, BoundBy::Caller));
        let steps = steps.load(Ordering::Relaxed);
        assert!(steps <= 10, "{steps} steps of 20 ms in {BUDGET:?}");
        assert!(ended.elapsed >= BUDGET, "{ended}");
    }

    async fn the_naive_way_of_a_timeout_layer_computes_to_the_end(shop: Shop) {
        let steps = Arc::new(AtomicUsize::new(0));
        let counted = steps.clone();
        let computes = move || async move {
            for _ in 0..STEPS {
                std::thread::sleep(ms(20));
                counted.fetch_add(1, Ordering::Relaxed);
            }
        };
        let addr = shop.open_naively(under_a_timeout_layer(Router::new().route("/", get(computes)), BUDGET)).await;
        shop.get(addr, "/").answer().await;
        assert_eq!(steps.load(Ordering::Relaxed), STEPS, "no timer fires in a loop without an await");
    }

    async fn the_naive_way_of_spawn_blocking_never_notices(shop: Shop) {
        let closure = Closure::new();
        let app = under_a_timeout_layer(Router::new().route("/", closure.unguarded()), BUDGET);
        let addr = shop.open_naively(app).await;
        let asked = shop.get(addr, "/").send().await;
        closure.may_step();
        closure.is_in_step(2).await;
        asked.leave().await;
        closure.may_step();
        closure.stops().await.expect_err("nobody told it");
        for _ in 0..STEPS {
            closure.may_step();
        }
        closure.probe.ended(1).await.unwrap();
        assert_eq!(closure.steps.load(Ordering::Relaxed), STEPS);
    }
}

/// A closure that makes its steps when it is told to.
struct Closure {
    probe: Probe,
    steps: Arc<AtomicUsize>,
    in_step: Probe,
    ended: Arc<Mutex<Option<Ended>>>,
    tell: mpsc::Sender<()>,
    told: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Closure {
    fn new() -> Self {
        let (tell, told) = mpsc::channel();
        Self {
            probe: Probe::new(),
            steps: Arc::default(),
            in_step: Probe::new(),
            ended: Arc::default(),
            tell,
            told: Arc::new(Mutex::new(told)),
        }
    }

    fn may_step(&self) {
        let _ = self.tell.send(()); // it may have ended
    }

    /// Waits until it is in the middle of its `n`th step.
    async fn is_in_step(&self, n: usize) {
        self.in_step.started(n).await.unwrap();
    }

    /// After how many steps it stops by itself, if it does.
    async fn stops(&self) -> Result<usize, String> {
        match tokio::time::timeout(ms(1_000), self.probe.ended(1)).await {
            Ok(_) => Ok(self.steps.load(Ordering::Relaxed)),
            Err(_) => Err(format!("it goes on ({})", self.probe)),
        }
    }

    /// Its steps; before each it asks `checkpoint`.
    fn work(&self) -> impl FnOnce(&dyn Fn() -> Result<(), Ended>) + Clone + Send + Sync + 'static {
        let (probe, in_step) = (self.probe.clone(), self.in_step.clone());
        let (steps, ended, told) = (self.steps.clone(), self.ended.clone(), self.told.clone());
        move |checkpoint| {
            let _running = probe.enter();
            for _ in 0..STEPS {
                if let Err(end) = checkpoint() {
                    *ended.lock().unwrap() = Some(end);
                    return;
                }
                let _in_step = in_step.enter();
                if told.lock().unwrap().recv().is_err() {
                    return; // the test is over
                }
                steps.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn guarded(&self) -> axum::routing::MethodRouter {
        let work = self.work();
        get(move |Op(op): Op| async move {
            let resized = op.spawn_blocking("rows", move |op: &Operation| work(&|| op.checkpoint()));
            resized.await.map_err(Problem::from)
        })
    }

    fn unguarded(&self) -> axum::routing::MethodRouter {
        let work = self.work();
        get(move || async move { drop(tokio::task::spawn_blocking(move || work(&|| Ok(()))).await) })
    }
}

/// Work that gives way between its steps ends at the deadline itself, and a checkpoint in it says when.
#[tokio::test(start_paused = true)]
async fn async_work_that_gives_way_is_ended_at_its_deadline() {
    let op = Operation::begin("report", ms(100));
    let (begun, steps) = (clock::now(), AtomicUsize::new(0));
    let work = async {
        loop {
            op.checkpoint()?;
            steps.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(ms(30)).await;
        }
        #[allow(unreachable_code, reason = "says what the loop's errors are")]
        Ok::<(), Ended>(())
    };
    let ended = op.run(work).await.expect_err("nothing else ends it");
    assert_eq!((ended.ending.cause, clock::now().since(begun)), (Cause::Deadline, ms(100)));
    assert_eq!(steps.load(Ordering::Relaxed), 4);
    assert!(op.checkpoint().is_err());
}
