//! I6: when the caller leaves or the deadline passes, every child stops: handlers, calls, tasks, branches, bodies,
//! child processes, and what those services do that were called. What must finish ends by its own bound. Contract N2,
//! N3, N5, X3, X4, X8.

use std::convert::Infallible;
use std::io::PipeWriter;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::{MethodRouter, get};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use oneclock::operation::Kind;
use oneclock_axum::{Op, Problem};
use oneclock_core::{BoundBy, Cause, Trust};
use oneclock_test::peer::Peer;
use oneclock_test::{Ended, Probe};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::naive::under_a_timeout_layer;
use crate::out::Terms;
use crate::shop::{NOTICED, Shop, ample, ms};
use crate::ways::{Answer, Got, Leave, Way};
use crate::witness::{Seen, clock_now};

/// How a request comes to its early end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Leaves(Leave),
    Deadline,
}

const EVERY_END: [End; 3] = [End::Leaves(Leave::InOrder), End::Leaves(Leave::Abruptly), End::Deadline];

/// What a caller has that is not to leave: enough for the work to begin, even on a slow machine.
const BUDGET: Duration = ms(500);

impl End {
    const fn cause(self) -> Cause {
        match self {
            Self::Leaves(_) => Cause::CallerGone,
            Self::Deadline => Cause::Deadline,
        }
    }
}

/// Sends a request, waits until its work has `begun`, and lets it end. Returns the moment from which on nothing of it
/// may go on, and what the caller got if it stayed.
async fn end(shop: &Shop, addr: SocketAddr, end: End, begun: impl Future) -> (Instant, Option<Got>) {
    let since = clock_now();
    match end {
        End::Leaves(leave) => {
            let asked = shop.get(addr, "/").within(ms(20_000)).send_to_leave(leave).await;
            begun.await;
            (asked.leave().await, None)
        }
        End::Deadline => {
            let asked = shop.get(addr, "/").within(BUDGET).send().await;
            begun.await;
            let got = asked.got().await;
            // A sidecar tells whole milliseconds, less what has begun of one.
            let told = if shop.is_behind_a_sidecar() { BUDGET - ms(2) } else { BUDGET };
            assert!(clock_now() >= since + told, "not before its deadline: {got:?}");
            (since + BUDGET, Some(got))
        }
    }
}

/// Whether the `nth` run ended by being dropped, soon after `at`.
async fn is_dropped(probe: &Probe, nth: usize, at: Instant) -> Result<(), String> {
    match timeout(NOTICED + ms(100), probe.ended(nth)).await {
        Ok(Ok(end)) if end.how == Ended::Dropped && end.at <= at + NOTICED => Ok(()),
        Ok(other) => Err(format!("{other:?} when it had to end at {at:?} ({probe})")),
        Err(_) => Err(format!("it goes on ({probe})")),
    }
}

/// The same for a call that a peer has.
async fn is_left(shop: &Shop, peer: &Peer, nth: usize, at: Instant) -> Result<(), String> {
    match timeout(NOTICED + ms(100), peer.callers_left(nth)).await {
        Ok(Ok(left)) if shop.way().is_cut_off(left.how) && left.at <= at + NOTICED => Ok(()),
        Ok(other) => Err(format!("{other:?} when it had to end at {at:?} ({peer})")),
        Err(_) => Err(format!("it goes on ({peer})")),
    }
}

/// Why the `nth` request of the service `order` ended, which it has for certain.
async fn cause(shop: &Shop, nth: usize) -> Option<Cause> {
    let ended = |seen: &Seen| match seen {
        Seen::Ended(over) if over.operation == *"order" && over.kind == Kind::Request => Some(over.ending),
        _ => None,
    };
    let endings = shop.witness().first(nth, "end of order", ended).await;
    endings.last().copied().flatten().map(|ending| ending.cause)
}

/// Whether this is why something ended that had such an end. A sidecar may be first to notice a deadline, and then leaves its
/// service.
fn is_because(shop: &Shop, cause: Option<Cause>, how: End) -> bool {
    cause == Some(how.cause()) || shop.is_behind_a_sidecar() && cause == Some(Cause::CallerGone)
}

async fn order(shop: &Shop, handler: MethodRouter) -> SocketAddr {
    shop.open(ample("order"), Router::new().route("/", handler)).await
}

over_every_way_in! {
    async fn a_handler(shop: Shop) {
        let probe = Probe::new();
        let addr = order(&shop, never(&probe)).await;
        for (n, how) in (1..).zip(EVERY_END) {
            let (at, got) = end(&shop, addr, how, probe.started(n)).await;
            is_dropped(&probe, n, at).await.unwrap();
            assert!(is_because(&shop, cause(&shop, n).await, how), "{how:?}");
            if let Some(got) = got {
                let Got::Whole(answer) = got else { panic!("{got:?}") };
                assert_eq!(answer.verdict(), (504, Some("deadline")));
            }
        }
    }

    async fn a_call(shop: Shop) {
        for &way_out in shop.ways_out() {
            let far_end = shop.stalls();
            let out = shop.out(way_out, far_end.addr(), Terms::default());
            let addr = order(&shop, get(move || async move { drop(out.get("/").await) })).await;
            for (n, how) in (1..).zip(EVERY_END) {
                let (at, _) = end(&shop, addr, how, far_end.await_requests(n)).await;
                is_left(&shop, &far_end, n, at).await.unwrap_or_else(|why| panic!("{way_out:?} {how:?}: {why}"));
            }
        }
    }

    async fn a_call_whose_answer_stalls_in_its_body(shop: Shop) {
        for &way_out in shop.ways_out() {
            let far_end = shop.stalls_mid_body();
            let out = shop.out(way_out, far_end.addr(), Terms::default());
            let addr = order(&shop, get(move || async move { drop(out.get("/").await) })).await;
            for (n, how) in (1..).zip(EVERY_END) {
                let (at, _) = end(&shop, addr, how, far_end.await_requests(n)).await;
                is_left(&shop, &far_end, n, at).await.unwrap_or_else(|why| panic!("{way_out:?} {how:?}: {why}"));
            }
        }
    }

    async fn what_the_services_behind_do(shop: Shop) {
        let probe = Probe::new();
        let mut next = shop.open(ample("pricing"), Router::new().route("/", never(&probe))).await;
        for name in ["inventory", "order"] {
            let out = shop.out(shop.way_out(), next, Terms::default());
            let calls = move || async move {
                drop(out.get("/").await); // which may be answered just before our own deadline
                std::future::pending::<()>().await;
            };
            next = shop.open(ample(name), Router::new().route("/", get(calls))).await;
        }
        for (n, how) in (1..).zip(EVERY_END) {
            let (at, _) = end(&shop, next, how, probe.started(n)).await;
            is_dropped(&probe, n, at).await.unwrap_or_else(|why| panic!("{how:?}: {why}"));
        }
    }

    async fn a_task(shop: Shop) {
        let probe = Probe::new();
        let task = probe.clone();
        let spawns = move |Op(op): Op| async move {
            drop(op.spawn("index", async move { task.never().await }));
            std::future::pending::<()>().await;
        };
        let addr = order(&shop, get(spawns)).await;
        for (n, how) in (1..).zip(EVERY_END) {
            let (at, _) = end(&shop, addr, how, probe.started(n)).await;
            is_dropped(&probe, n, at).await.unwrap_or_else(|why| panic!("{how:?}: {why}"));
        }
        let of_tasks = |seen: &Seen| match seen {
            Seen::Ended(over) if over.operation == *"index" => Some(over.ending.map(|ending| ending.cause)),
            _ => None,
        };
        let causes = shop.witness().first(3, "end of index", of_tasks).await;
        let learns = EVERY_END.iter().zip(&causes).all(|(how, cause)| is_because(&shop, *cause, *how));
        assert!(learns && causes.len() == EVERY_END.len(), "it learns the cause: {causes:?}");
    }

    /// Contract N5: background work ends with its parent, unless it was detached.
    async fn a_task_of_a_request_that_is_done(shop: Shop) {
        let probe = Probe::new();
        let task = probe.clone();
        let spawns = move |Op(op): Op| async move {
            drop(op.spawn("index", {
                let task = task.clone();
                async move { task.never().await }
            }));
            task.started(1).await.unwrap();
            "done"
        };
        let addr = order(&shop, get(spawns)).await;
        let answer = shop.get(addr, "/").answer().await;
        assert_eq!(answer.body, "done");
        is_dropped(&probe, 1, clock_now()).await.unwrap();
    }

    async fn every_branch_of_a_fan_out(shop: Shop) {
        let (required, optional) = (Probe::new(), Probe::new());
        let (one, other) = (required.clone(), optional.clone());
        let fans_out = move |Op(op): Op| async move {
            let never = |probe: Probe| async move {
                probe.never().await;
                Ok::<_, Infallible>(())
            };
            let parts = op.fan_out().required("inventory", |_| never(one)).optional("hints", |_| never(other));
            parts.await.map(drop).map_err(Problem::from)
        };
        let addr = order(&shop, get(fans_out)).await;
        for (n, how) in (1..).zip(EVERY_END) {
            let both = async { tokio::join!(required.started(n), optional.started(n)) };
            let (at, _) = end(&shop, addr, how, both).await;
            is_dropped(&required, n, at).await.unwrap_or_else(|why| panic!("{how:?}: {why}"));
            is_dropped(&optional, n, at).await.unwrap_or_else(|why| panic!("{how:?}: {why}"));
        }
    }

    async fn the_siblings_of_a_branch_that_failed(shop: Shop) {
        let far_end = shop.stalls();
        let out = shop.out(shop.way_out(), far_end.addr(), Terms::default());
        let called = Arc::new(Notify::new());
        let fail = called.clone();
        let fans_out = move |Op(op): Op| async move {
            let fails = |_| async move {
                fail.notified().await;
                Err::<(), _>(std::io::Error::other("no such article"))
            };
            let calls = |_| async move { out.get("/").await.map_err(|fault| fault.text) };
            let parts = op.fan_out().required("inventory", fails).required("pricing", calls);
            parts.await.map(drop).map_err(Problem::from)
        };
        let addr = order(&shop, get(fans_out)).await;
        let asked = shop.get(addr, "/").send().await;
        far_end.await_request().await.unwrap();
        called.notify_one();
        let Got::Whole(answer) = asked.got().await else { panic!("no answer") };
        assert_eq!(answer.status, 500, "{answer:?}");
        let insight = answer.json()["insight"].to_string();
        assert!(insight.contains("inventory") && insight.contains("no such article"), "the first failure: {insight}");
        far_end.caller_left().await.unwrap();
        let called = shop.witness().called("pricing").await;
        assert_eq!(called.ending.map(|ending| ending.cause), Some(Cause::SiblingFailed));
    }

    async fn what_produces_a_body(shop: Shop) {
        let probe = Probe::new();
        let addr = order(&shop, one_and_no_more(&probe)).await;
        for (n, how) in (1..).zip(EVERY_END) {
            let (at, got) = end(&shop, addr, how, probe.started(n)).await;
            is_dropped(&probe, n, at).await.unwrap_or_else(|why| panic!("{how:?}: {why}"));
            assert!(is_because(&shop, cause(&shop, n).await, how), "{how:?}");
            if let Some(got) = got {
                let Got::CutOff { status: Some(200), said } = got else { panic!("it does not look whole: {got:?}") };
                let said = said.as_ref().map(Answer::verdict);
                match shop.way() {
                    Way::Http1 | Way::Http2 => assert!(said.is_none(), "{said:?}"),
                    Way::Grpc => assert_eq!(said.expect("trailers"), (504, Some("deadline"))), // contract X3
                }
            }
        }
    }

    /// Not only the process that was started: what that has started, too.
    async fn a_child_process_with_its_children(shop: Shop) {
        for how in EVERY_END {
            let (mut alive, writer) = a_pipe();
            let writer = Arc::new(Mutex::new(Some(writer)));
            let runs = move |Op(op): Op| async move {
                let writer = writer.lock().unwrap().take().expect("one request");
                drop(op.process("convert", has_a_child(writer, 300)).await);
            };
            let addr = order(&shop, get(runs)).await;
            let (at, _) = end(&shop, addr, how, begun(&mut alive)).await;
            are_gone(&mut alive, at).await.unwrap_or_else(|why| panic!("{how:?}: {why}"));
        }
    }

    /// Contract N2: it goes on when its caller leaves, to its end.
    async fn but_a_step_that_must_finish_finishes(shop: Shop) {
        let (probe, go_on) = (Probe::new(), Arc::new(Notify::new()));
        let (charge, told) = (probe.clone(), go_on.clone());
        let charges = move |Op(op): Op| async move {
            let charge = async move {
                let guard = charge.enter();
                told.notified().await;
                guard.finish();
                Ok::<_, Infallible>(())
            };
            op.must_finish("charge", ms(20_000), charge).await.map_err(Problem::from)
        };
        let addr = order(&shop, get(charges)).await;
        for (n, how) in (1..).zip(EVERY_END) {
            end(&shop, addr, how, probe.started(n)).await;
            assert!(is_because(&shop, cause(&shop, n).await, how), "{how:?}");
            let (running, finished) = (probe.running(), probe.finished_count());
            assert_eq!((running, finished), (1, n - 1), "{how:?}: the request is over, the step is not");
            go_on.notify_one();
            assert_eq!(probe.ended(n).await.map(|end| end.how), Ok(Ended::Finished), "{how:?}");
        }
    }

    /// Contract N2: its own bound ends it where its caller's deadline does not.
    async fn and_ends_by_its_own_bound(shop: Shop) {
        let probe = Probe::new();
        let charge = probe.clone();
        let charges = move |Op(op): Op| async move {
            let charge = async move {
                charge.never().await;
                Ok::<_, Infallible>(())
            };
            op.must_finish("charge", ms(900), charge).await.map_err(Problem::from)
        };
        let addr = order(&shop, get(charges)).await;
        let (left, _) = end(&shop, addr, End::Leaves(Leave::InOrder), probe.started(1)).await;
        let began = probe.started(1).await.unwrap();
        let end = probe.ended(1).await.unwrap();
        assert_eq!(end.how, Ended::Dropped);
        let took = end.at - began;
        assert!(end.at > left && took >= ms(890) && took < ms(900) + NOTICED, "{took:?}");
        let over = shop.witness().ended("charge").await;
        assert_eq!(over.kind, Kind::MustFinish);
        assert_eq!(over.ending.map(|ending| (ending.cause, ending.bound)), Some((Cause::Deadline, BoundBy::Cap)));
    }

    without_a_sidecar:

    async fn the_naive_way_of_a_spawned_task_goes_on(shop: Shop) {
        for how in [End::Leaves(Leave::InOrder), End::Deadline] {
            let probe = Probe::new();
            let task = probe.clone();
            let spawns = move || async move { drop(tokio::spawn(async move { task.never().await }).await) };
            let app = under_a_timeout_layer(Router::new().route("/", get(spawns)), BUDGET);
            let addr = shop.open_naively(app).await;
            let (at, _) = end(&shop, addr, how, probe.started(1)).await;
            is_dropped(&probe, 1, at).await.expect_err("nobody owns it");
        }
    }

    async fn the_naive_way_of_a_call_in_a_task_goes_on(shop: Shop) {
        for how in [End::Leaves(Leave::InOrder), End::Deadline] {
            let far_end = shop.stalls();
            let client = shop.plain(far_end.addr());
            let calls = move || async move { drop(tokio::spawn(async move { client.get("/", None).await }).await) };
            let app = under_a_timeout_layer(Router::new().route("/", get(calls)), BUDGET);
            let addr = shop.open_naively(app).await;
            let (at, _) = end(&shop, addr, how, far_end.await_request()).await;
            is_left(&shop, &far_end, 1, at).await.expect_err("nobody told it");
        }
    }

    /// A `TimeoutLayer` bounds the head only.
    async fn the_naive_way_of_a_timeout_layer_lets_a_body_stall(shop: Shop) {
        let probe = Probe::new();
        let producer = probe.clone();
        let streams = move || async move {
            let guard = producer.enter();
            let never = stream::pending::<Result<Bytes, Infallible>>().map(move |never| {
                let _ = &guard;
                never
            });
            Body::from_stream(never)
        };
        let addr = shop.open_naively(under_a_timeout_layer(Router::new().route("/", get(streams)), BUDGET)).await;
        let since = clock_now();
        let asked = shop.get(addr, "/").send().await;
        assert!(matches!(asked.got_within(2 * BUDGET).await, Got::StillWaiting));
        is_dropped(&probe, 1, since + BUDGET).await.expect_err("nothing ended it, until its caller lost patience");
    }

    async fn the_naive_way_of_kill_on_drop_leaves_grandchildren(shop: Shop) {
        let (mut alive, writer) = a_pipe();
        let writer = Arc::new(Mutex::new(Some(writer)));
        let runs = move || async move {
            let writer = writer.lock().unwrap().take().expect("one request");
            drop(has_a_child(writer, 3).kill_on_drop(true).status().await);
        };
        let addr = shop.open_naively(Router::new().route("/", get(runs))).await;
        let (at, _) = end(&shop, addr, End::Leaves(Leave::InOrder), begun(&mut alive)).await;
        are_gone(&mut alive, at).await.expect_err("the shell is gone, what it started is not");
    }

    only_behind_a_sidecar:

    /// Who leaves the sidecar has it leave the service, which does what its server does then.
    async fn what_a_service_does_that_knows_of_no_deadline(shop: Shop) {
        let probe = Probe::new();
        let naive = shop.open_naively(Router::new().route("/", never(&probe))).await;
        let addr = shop.sidecar(naive, Trust::Inside, None, |_| {}).await;
        for (n, how) in (1..).zip(EVERY_END) {
            let (at, got) = end(&shop, addr, how, probe.started(n)).await;
            is_dropped(&probe, n, at).await.unwrap_or_else(|why| panic!("{how:?}: {why}"));
            if let Some(got) = got {
                let Got::Whole(answer) = got else { panic!("{got:?}") };
                assert_eq!(answer.verdict(), (504, Some("deadline")));
            }
        }
    }

    /// A body that never ends is ended, and does not look whole.
    async fn what_produces_a_body_and_knows_of_no_deadline(shop: Shop) {
        let probe = Probe::new();
        let naive = shop.open_naively(Router::new().route("/", one_and_no_more(&probe))).await;
        let addr = shop.sidecar(naive, Trust::Inside, None, |_| {}).await;
        for (n, how) in (1..).zip(EVERY_END) {
            let (at, got) = end(&shop, addr, how, probe.started(n)).await;
            is_dropped(&probe, n, at).await.unwrap_or_else(|why| panic!("{how:?}: {why}"));
            if let Some(got) = got {
                let Got::CutOff { status: Some(200), said } = got else { panic!("it does not look whole: {got:?}") };
                let said = said.as_ref().map(Answer::verdict);
                match shop.way() {
                    Way::Http1 | Way::Http2 => assert!(said.is_none(), "{said:?}"),
                    Way::Grpc => assert_eq!(said.expect("trailers"), (504, Some("deadline"))), // contract X3, V13
                }
            }
        }
    }
}

over_plain_tonic! {
    /// Contract S1: both timeouts of tonic's server, its own and its caller's, bound the head only.
    async fn the_naive_way_of_tonics_server_lets_a_stream_go_on(shop: Shop) {
        let probe = Probe::new();
        let app = Router::new().route("/", one_and_no_more(&probe));
        let addr = shop.open_plain_tonic(app, |server| server.timeout(BUDGET)).await;
        let since = clock_now();
        let asked = shop.get(addr, "/").within(BUDGET).send().await;
        let got = asked.got_within(2 * BUDGET).await;
        assert!(matches!(got, Got::StillWaiting), "{got:?}");
        is_dropped(&probe, 1, since + BUDGET).await.expect_err("nothing ended it, until its caller lost patience");
    }
}

/// A stream whose second piece never comes.
fn one_and_no_more(probe: &Probe) -> MethodRouter {
    let producer = probe.clone();
    get(move || async move {
        let guard = producer.enter();
        let first = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"first"))]);
        let rest = stream::pending().map(move |never| {
            let _ = &guard;
            never
        });
        Body::from_stream(first.chain(rest))
    })
}

fn never(probe: &Probe) -> MethodRouter {
    let probe = probe.clone();
    get(move || async move { probe.never().await })
}

/// A pipe whose writing side is held by every process of a family: its end is the end of the last of them.
fn a_pipe() -> (pipe::Receiver, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    (pipe::Receiver::from_owned_fd(reader.into()).unwrap(), writer)
}

/// A shell that starts another process, and waits for it.
fn has_a_child(writer: PipeWriter, seconds: u32) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("sleep {seconds} & echo begun; wait")]);
    command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null());
    command
}

async fn begun(alive: &mut pipe::Receiver) {
    let mut line = [0; 6];
    let read = timeout(oneclock_test::PATIENCE, alive.read_exact(&mut line)).await;
    read.expect("the shell begins").expect("it says so");
}

async fn are_gone(alive: &mut pipe::Receiver, at: Instant) -> Result<(), String> {
    match timeout(NOTICED + ms(100), alive.read(&mut [0; 1])).await {
        Ok(Ok(0)) if clock_now() <= at + NOTICED => Ok(()),
        other => Err(format!("{other:?} at {:?}, when they had to end at {at:?}", clock_now())),
    }
}
