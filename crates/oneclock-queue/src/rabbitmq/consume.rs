//! Receiving: a consumer for each lane, made again when its connection is gone.
//!
//! Decides how long is paused before that, which errors are worth another try, and what is handed out: nothing that was delivered
//! on a connection that is gone, since somebody else gets it.

use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use lapin::message::Delivery;
use lapin::options::{BasicConsumeOptions, BasicQosOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Consumer};
use oneclock::clock;
use oneclock_core::Tick;
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::Trouble;
use super::link::{Link, Topology};
use crate::Lane;

/// The pause after the first failure; twice that after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// And no longer than this.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The consumers of a queue's lanes, on one connection.
#[derive(Debug)]
pub(super) struct Lanes {
    link: Link,
    prefetch: u16,
    each: [Mutex<Consuming>; Lane::ALL.len()],
}

/// What is known of one lane's consumer. Behind a mutex: whoever receives waits for those who asked before.
#[derive(Debug, Default)]
struct Consuming {
    flow: Option<Flow>,
    failures: u32,
    /// Not before this is it tried again.
    pause: Option<Tick>,
}

#[derive(Debug)]
struct Flow {
    consumer: Consumer,
    // Deliveries are acknowledged on it: it is closed when the consumer goes.
    _channel: Channel,
}

impl Lanes {
    pub(super) fn new(link: Link, prefetch: u16) -> Self {
        Self { link, prefetch, each: Default::default() }
    }

    /// At least one delivery, at most `at_most`. Dropped, nothing was taken: from the first delivery on nothing is awaited.
    pub(super) async fn receive(
        &self,
        topology: &Topology,
        lane: Lane,
        at_most: usize,
    ) -> Result<Vec<Delivery>, Trouble> {
        let [main, late, dead] = &self.each;
        let consuming = match lane {
            Lane::Main => main,
            Lane::Late => late,
            Lane::Dead => dead,
        };
        let mut consuming = consuming.lock().await;
        loop {
            consuming.open(&self.link, topology, lane, self.prefetch).await?;
            let Some(flow) = &mut consuming.flow else { continue };
            let first = flow.consumer.next().await;
            let mut taken = Vec::new();
            let mut next = Some(first);
            while let Some(item) = next {
                match item {
                    Some(Ok(delivery)) => taken.extend(Some(delivery).filter(|delivery| !delivery.acker.poisoned())),
                    ended => {
                        let error = ended.and_then(Result::err);
                        consuming.failed(topology, lane, error.as_ref().map(|error| error as _));
                        break;
                    }
                }
                let wanted = consuming.flow.as_mut().filter(|_| taken.len() < at_most);
                next = wanted.and_then(|flow| flow.consumer.next().now_or_never());
            }
            if !taken.is_empty() {
                consuming.failures = 0;
                return Ok(taken);
            }
        }
    }
}

impl Consuming {
    /// Opens a consumer, unless there is one. An error that another try may mend is not returned: it is paused instead.
    async fn open(&mut self, link: &Link, topology: &Topology, lane: Lane, prefetch: u16) -> Result<(), Trouble> {
        while self.flow.is_none() {
            if let Some(until) = self.pause {
                sleep(until.since(clock::now())).await;
            }
            match Flow::open(link, topology, topology.queues.lane(lane), prefetch).await {
                Ok(flow) => self.flow = Some(flow),
                Err(trouble) => {
                    self.failed(topology, lane, Some(&trouble));
                    if trouble.is_final() {
                        return Err(trouble);
                    }
                }
            }
        }
        Ok(())
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
    async fn open(link: &Link, topology: &Topology, queue: &ShortString, prefetch: u16) -> Result<Self, Trouble> {
        let channel = link.channel().await?;
        topology.declare(&channel).await?;
        channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
        let (tag, options) = (ShortString::default(), BasicConsumeOptions::default());
        let consumer = channel.basic_consume(queue.clone(), tag, options, FieldTable::default()).await?;
        Ok(Self { consumer, _channel: channel })
    }
}
