//! Receiving: a consumer for each lane, made again when its connection is gone.
//!
//! Decides that the broker sends no more ahead than is worked on, how long is paused before a consumer is made again, which errors
//! are worth another try, and what is handed out: nothing that was delivered on a connection that is gone, since somebody else
//! gets it.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use lapin::message::Delivery;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Consumer};
use oneclock::clock;
use oneclock_core::Tick;
use tokio::sync::{Mutex, RwLock};
use tokio::time::sleep;

use super::Trouble;
use super::link::{Link, Topology};
use crate::Lane;

/// The pause after the first failure; twice that after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// And no longer than this.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A broker that has sent nothing for so long has nothing to send.
const QUIET: Duration = Duration::from_millis(100);

/// The consumers of a queue's lanes, on one connection.
#[derive(Debug)]
pub(super) struct Lanes {
    link: Link,
    prefetch: u16,
    each: [Consumes; Lane::ALL.len()],
}

/// One lane's consumer. Behind a mutex: whoever receives waits for those who asked before.
#[derive(Debug, Default)]
struct Consumes {
    consuming: Mutex<Consuming>,
    places: AtomicUsize, // of whoever works on the lane; zero: nobody has said
}

/// What is known of it.
#[derive(Debug, Default)]
struct Consuming {
    flow: Option<Flow>,
    failures: u32,
    /// Not before this is it tried again.
    pause: Option<Tick>,
}

#[derive(Debug)]
struct Flow {
    consumer: Option<Consumer>, // `None`: it was stopped
    // Deliveries are acknowledged on it: it is closed when the consumer goes.
    channel: Channel,
    prefetch: u16,
    under_way: Arc<UnderWay>,
}

/// The deliveries of one consumer that are not settled.
#[derive(Debug, Default)]
struct UnderWay {
    many: AtomicUsize,
    settles: RwLock<()>, // nothing is settled while the consumer is stopped
}

/// One of them, until it is settled.
#[derive(Debug)]
pub(super) struct Held {
    of: Arc<UnderWay>,
    is_settled: AtomicBool,
}

impl Held {
    fn new(of: &Arc<UnderWay>) -> Self {
        of.many.fetch_add(1, Ordering::AcqRel);
        Self { of: Arc::clone(of), is_settled: AtomicBool::new(false) }
    }

    /// What settles it. It waits while its consumer is stopped: another message would be sent for it, which nobody would take.
    pub(super) async fn settling<T>(&self, settles: impl Future<Output = T>) -> T {
        let _not_stopped = self.of.settles.read().await;
        let settled = settles.await;
        self.over();
        settled
    }

    fn over(&self) {
        if !self.is_settled.swap(true, Ordering::AcqRel) {
            self.of.many.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.over();
    }
}

impl Lanes {
    pub(super) fn new(link: Link, prefetch: u16) -> Self {
        Self { link, prefetch, each: Default::default() }
    }

    /// Somebody is about to work on so many at a time: the broker is to send no more than that.
    pub(super) fn expect(&self, lane: Lane, places: usize) {
        self.of(lane).places.fetch_max(places, Ordering::Relaxed);
    }

    /// At least one delivery, at most `at_most`, until `stop`: then the broker is told to send none, and what it had sent by then is
    /// returned. Dropped, nothing was taken: from the first delivery on nothing is awaited, unless it is stopped.
    pub(super) async fn receive(
        &self,
        topology: &Topology,
        lane: Lane,
        at_most: usize,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Vec<(Delivery, Held)>, Trouble> {
        let mut stop = pin!(stop);
        let of_lane = self.of(lane);
        let mut consuming = tokio::select! {
            biased;
            consuming = of_lane.consuming.lock() => consuming,
            () = stop.as_mut() => return Ok(Vec::new()), // whoever has it takes what comes
        };
        let places = of_lane.places.load(Ordering::Relaxed);
        let prefetch = u16::try_from(places).ok().filter(|places| (1..self.prefetch).contains(places));
        let prefetch = prefetch.unwrap_or(self.prefetch);
        loop {
            let is_open = consuming.open(&self.link, topology, lane, prefetch, stop.as_mut()).await?;
            let Some(flow) = consuming.flow.as_mut().filter(|_| is_open) else { return Ok(Vec::new()) };
            let Some(consumer) = &mut flow.consumer else { continue };
            let under_way = Arc::clone(&flow.under_way);
            let first = tokio::select! {
                biased;
                () = stop.as_mut() => return Ok(consuming.stop(topology, lane).await),
                first = consumer.next() => first,
            };
            let mut taken = Vec::new();
            let mut next = Some(first);
            while let Some(item) = next {
                match item {
                    Some(Ok(delivery)) => taken.extend(is_ours(&delivery).then(|| (delivery, Held::new(&under_way)))),
                    ended => {
                        let error = ended.and_then(Result::err);
                        consuming.failed(topology, lane, error.as_ref().map(|error| error as _));
                        break;
                    }
                }
                let wanted = consuming.flow.as_mut().filter(|_| taken.len() < at_most);
                let consumer = wanted.and_then(|flow| flow.consumer.as_mut());
                next = consumer.and_then(|consumer| consumer.next().now_or_never());
            }
            if !taken.is_empty() {
                consuming.failures = 0;
                return Ok(taken);
            }
        }
    }

    fn of(&self, lane: Lane) -> &Consumes {
        let [main, late, dead] = &self.each;
        match lane {
            Lane::Main => main,
            Lane::Late => late,
            Lane::Dead => dead,
        }
    }
}

/// Nobody else has it by now.
fn is_ours(delivery: &Delivery) -> bool {
    !delivery.acker.poisoned()
}

impl Consuming {
    /// Opens a consumer, unless there is one. An error that another try may mend is not returned: it is paused instead. False: `stop`
    /// came before it was tried. What was begun is not stopped, since the broker sends as soon as it hears of it.
    async fn open(
        &mut self,
        link: &Link,
        topology: &Topology,
        lane: Lane,
        prefetch: u16,
        mut stop: Pin<&mut (impl Future<Output = ()> + Send)>,
    ) -> Result<bool, Trouble> {
        while self.flow.as_ref().is_none_or(|flow| flow.consumer.is_none()) {
            let pause = sleep(self.pause.map_or(Duration::ZERO, |until| until.since(clock::now())));
            tokio::select! {
                biased;
                () = stop.as_mut() => return Ok(false),
                () = pause => {}
            }
            // One that was stopped has its deliveries on its channel still.
            let channel = self.flow.take().map(|flow| flow.channel).filter(|channel| channel.status().connected());
            match Flow::open(link, topology, channel, topology.queues.lane(lane), prefetch).await {
                Ok(flow) => self.flow = Some(flow),
                Err(trouble) => {
                    self.failed(topology, lane, Some(&trouble));
                    if trouble.is_final() {
                        return Err(trouble);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Tells the broker to send no more. What it had sent by then.
    ///
    /// What a quorum queue sends while it is told so is lost to the broker itself, which counts it as delivered. So it is told when it
    /// has nothing to send: as many are under way as may be and none is settled meanwhile, or none has come for a while.
    async fn stop(&mut self, topology: &Topology, lane: Lane) -> Vec<(Delivery, Held)> {
        let Some(Flow { consumer: Some(consumer), channel, prefetch, under_way }) = &mut self.flow else {
            return Vec::new();
        };
        let stopped = Arc::clone(under_way);
        let _none_is_settled = stopped.settles.write().await;
        let mut sent = Vec::new();
        while stopped.many.load(Ordering::Acquire) + sent.len() < usize::from(*prefetch) {
            match tokio::time::timeout(QUIET, consumer.next()).await {
                Ok(Some(Ok(delivery))) => sent.push(delivery),
                Ok(_) | Err(_) => break,
            }
        }
        let mut error = channel.basic_cancel(consumer.tag(), BasicCancelOptions::default()).await.err();
        // Those before the broker's answer, which ends them.
        while let Some(item) = consumer.next().await {
            match item {
                Ok(delivery) => sent.push(delivery),
                Err(failed) => {
                    error = Some(failed);
                    break;
                }
            }
        }
        sent.retain(is_ours);
        match (error, &mut self.flow) {
            (None, Some(flow)) => flow.consumer = None,
            (error, _) => self.failed(topology, lane, error.as_ref().map(|error| error as _)),
        }
        sent.into_iter().map(|delivery| (delivery, Held::new(&stopped))).collect()
    }

    fn failed(&mut self, topology: &Topology, lane: Lane, error: Option<&(dyn std::error::Error + 'static)>) {
        self.flow = None;
        let doubled = 2_u32.checked_pow(self.failures).and_then(|times| FIRST_PAUSE.checked_mul(times));
        let pause = doubled.unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.pause = Some(clock::now() + pause);
        let error = error.map_or_else(|| "the broker ended it: was the queue deleted?".to_owned(), ToString::to_string);
        tracing::warn!(queue = %topology.name, %lane, error, again_in = ?pause, "nothing is received: the consumer is gone");
    }
}

impl Flow {
    /// On this channel, or a new one.
    async fn open(
        link: &Link,
        topology: &Topology,
        channel: Option<Channel>,
        queue: &ShortString,
        prefetch: u16,
    ) -> Result<Self, Trouble> {
        let channel = match channel {
            Some(channel) => channel,
            None => link.channel().await?,
        };
        topology.declare(&channel).await?;
        channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
        let (tag, options) = (ShortString::default(), BasicConsumeOptions::default());
        let consumer = channel.basic_consume(queue.clone(), tag, options, FieldTable::default()).await?;
        Ok(Self { consumer: Some(consumer), channel, prefetch, under_way: Arc::default() })
    }
}
