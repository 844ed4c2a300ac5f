//! A broker in memory, for tests of services: leases, redelivery and lanes as a real one has them, and nothing durable.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oneclock::clock;
use oneclock_core::expiry::names;
use oneclock_core::wire::Wall;
use oneclock_core::{Deadline, Name, Tick};
use tokio::sync::Notify;

use crate::broker::{Broker, BrokerError, Dead, Delivery, Depth, Inspect, Lane, NotSettled, Settle};
use crate::message::{Incoming, Message};

/// A queue in this process. **For tests only**: what is in it is gone with the process.
///
/// A delivery that nobody settles comes again when its lease is over, like one of a consumer that died.
#[derive(Clone)]
pub struct MemoryBroker(Arc<Shared>);

struct Shared {
    name: Name,
    lease: Duration,
    lanes: Mutex<Lanes>,
    arrived: Notify,
    numbers: AtomicU64,
}

#[derive(Default)]
struct Lanes {
    main: VecDeque<Stored>,
    late: VecDeque<Stored>,
    dead: VecDeque<Stored>,
}

/// One message as a broker keeps it: header fields and a body, not what somebody made of them.
#[derive(Clone)]
struct Stored {
    number: u64, // of its lease: whoever has an older one has lost it
    fields: Vec<(String, String)>,
    message: Message,
    deliveries: u32,
    uncounted: u32,
    vanished: bool,
    hidden_until: Option<Tick>,
    is_leased: bool,
}

/// A delivery of a [`MemoryBroker`].
pub struct MemoryDelivery {
    broker: MemoryBroker,
    lane: Lane,
    number: u64,
    asked: Tick,
    attempt: u32,
    may_have_run: bool,
    message: Message,
}

/// What a [`MemoryBroker`] keeps of one message.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Its header fields as they stand there.
    pub fields: Vec<(String, String)>,
    /// The message.
    pub message: Message,
}

// === MemoryBroker ===

impl MemoryBroker {
    /// An empty queue, with leases of thirty seconds.
    pub fn new(name: impl Into<Name>) -> Self {
        Self::with_lease(name, Duration::from_secs(30))
    }

    /// An empty queue with leases of this length.
    pub fn with_lease(name: impl Into<Name>, lease: Duration) -> Self {
        let (lanes, arrived, numbers) = (Mutex::default(), Notify::new(), AtomicU64::new(1));
        Self(Arc::new(Shared { name: name.into(), lease, lanes, arrived, numbers }))
    }

    /// What is in a lane, being worked on or not, in its order.
    pub fn kept(&self, lane: Lane) -> Vec<Kept> {
        let mut lanes = self.lanes();
        let kept = |stored: &Stored| Kept { fields: stored.fields.clone(), message: stored.message.clone() };
        lanes.of(lane).iter().map(kept).collect()
    }

    /// How many messages a lane has.
    pub fn len(&self, lane: Lane) -> usize {
        self.lanes().of(lane).len()
    }

    /// Whether a lane has none.
    pub fn is_empty(&self, lane: Lane) -> bool {
        self.len(lane) == 0
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.0.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
        self.0.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes what is there, or says when to look again.
    fn take(&self, lane: Lane, at_most: usize) -> Result<Vec<MemoryDelivery>, Option<Tick>> {
        let now = clock::now();
        let mut lanes = self.lanes();
        let mut taken = Vec::new();
        for stored in lanes.of(lane) {
            let is_free = stored.hidden_until.is_none_or(|until| until <= now);
            if taken.len() < at_most && is_free {
                stored.vanished |= stored.is_leased;
                stored.number = self.number();
                stored.deliveries += 1;
                stored.is_leased = true;
                stored.hidden_until = Some(now + self.0.lease);
                taken.push(MemoryDelivery {
                    broker: self.clone(),
                    lane,
                    number: stored.number,
                    asked: now,
                    attempt: stored.deliveries.saturating_sub(stored.uncounted),
                    may_have_run: stored.vanished,
                    message: stored.message.clone(),
                });
            }
        }
        if taken.is_empty() {
            Err(lanes.of(lane).iter().filter_map(|stored| stored.hidden_until).min())
        } else {
            Ok(taken)
        }
    }

    fn store(&self, lane: Lane, fields: Vec<(String, String)>, body: &bytes::Bytes) -> Stored {
        let mut incoming = Incoming::new();
        for (name, value) in &fields {
            incoming.field(name, value.as_bytes());
        }
        let number = self.number();
        let message = incoming.finish(format_args!("{}-{number}", lane.as_str()), body.clone(), Duration::ZERO);
        Stored {
            number,
            fields,
            message,
            deliveries: 0,
            uncounted: 0,
            vanished: false,
            hidden_until: None,
            is_leased: false,
        }
    }

    /// Puts a message into the queue as a stranger would: with these header fields and no others.
    pub fn put(&self, fields: &[(&str, &str)], body: impl Into<bytes::Bytes>) {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let stored = self.store(Lane::Main, fields, &body.into());
        self.lanes().main.push_back(stored);
        self.0.arrived.notify_waiters();
    }
}

impl Broker for MemoryBroker {
    type Delivery = MemoryDelivery;

    fn name(&self) -> &Name {
        &self.0.name
    }

    async fn publish(&self, message: &Message) -> Result<(), BrokerError> {
        let mut fields = Vec::new();
        message.write("ce-", |name, value| fields.push((name.to_owned(), value.to_owned())));
        let stored = self.store(Lane::Main, fields, &message.body);
        self.lanes().main.push_back(stored);
        self.0.arrived.notify_waiters();
        Ok(())
    }

    async fn receive(&self, lane: Lane, at_most: usize) -> Result<Vec<MemoryDelivery>, BrokerError> {
        loop {
            let arrived = self.0.arrived.notified();
            match self.take(lane, at_most.max(1)) {
                Ok(taken) => return Ok(taken),
                Err(None) => arrived.await,
                Err(Some(until)) => {
                    tokio::select! {
                        () = arrived => {}
                        () = tokio::time::sleep_until(clock::instant(Deadline::at(until))) => {}
                    }
                }
            }
        }
    }

    async fn clock(&self) -> Result<Option<Wall>, BrokerError> {
        Ok(Some(clock::wall()))
    }
}

impl Inspect for MemoryBroker {
    async fn depth(&self, lane: Lane) -> Result<Depth, BrokerError> {
        let mut lanes = self.lanes();
        let in_flight = lanes.of(lane).iter().filter(|stored| stored.is_leased).count();
        let waiting = lanes.of(lane).len() - in_flight;
        Ok(Depth { waiting: Some(waiting as u64), in_flight: Some(in_flight as u64), ..Depth::default() })
    }

    async fn peek(&self, lane: Lane, at_most: usize) -> Result<Vec<Message>, BrokerError> {
        Ok(self.lanes().of(lane).iter().take(at_most).map(|stored| stored.message.clone()).collect())
    }
}

impl Lanes {
    fn of(&mut self, lane: Lane) -> &mut VecDeque<Stored> {
        match lane {
            Lane::Main => &mut self.main,
            Lane::Late => &mut self.late,
            Lane::Dead => &mut self.dead,
        }
    }
}

// === MemoryDelivery ===

impl Delivery for MemoryDelivery {
    fn message(&self) -> &Message {
        &self.message
    }

    fn attempt(&self) -> u32 {
        self.attempt
    }

    fn may_have_run(&self) -> bool {
        self.may_have_run
    }

    fn asked(&self) -> Tick {
        self.asked
    }

    fn lease(&self) -> Option<Duration> {
        Some(self.broker.0.lease)
    }

    async fn renew(&self) -> Result<(), NotSettled> {
        let mut lanes = self.broker.lanes();
        let stored = lanes.of(self.lane).iter_mut().find(|stored| stored.number == self.number && stored.is_leased);
        let stored = stored.ok_or(NotSettled::Lost)?;
        stored.hidden_until = Some(clock::now() + self.broker.0.lease);
        Ok(())
    }

    async fn settle(&self, settle: &Settle) -> Result<(), NotSettled> {
        let mut lanes = self.broker.lanes();
        let lane = lanes.of(self.lane);
        let at = lane.iter().position(|stored| stored.number == self.number && stored.is_leased);
        let mut stored = at.and_then(|at| lane.remove(at)).ok_or(NotSettled::Lost)?;
        (stored.is_leased, stored.hidden_until) = (false, None);
        match settle {
            Settle::Gone => {}
            Settle::Again { after, counted } => {
                stored.hidden_until = Some(clock::now() + *after);
                stored.uncounted += u32::from(!counted);
                lane.push_back(stored);
            }
            Settle::Late => lanes.late.push_back(stored),
            Settle::Redrive(stamp) => {
                let is_new = |name: &str| names::attribute(name) != names::REDRIVES && name != names::OWNER;
                stored.fields.retain(|(name, _)| is_new(name) && !name.starts_with(names::DEAD));
                stamp.write(|name, value| {
                    if matches!(name, names::REDRIVES | names::OWNER) {
                        stored.fields.push((name.to_owned(), value.to_owned()));
                    }
                });
                let body = stored.message.body.clone();
                lanes.main.push_back(self.broker.store(Lane::Main, stored.fields, &body));
            }
            Settle::Dead(dead) => {
                dead_fields(dead, &mut stored.fields);
                let body = stored.message.body.clone();
                lanes.dead.push_back(self.broker.store(Lane::Dead, stored.fields, &body));
            }
        }
        drop(lanes);
        self.broker.0.arrived.notify_waiters();
        Ok(())
    }
}

fn dead_fields(dead: &Dead, fields: &mut Vec<(String, String)>) {
    dead.write(|name, value| {
        fields.retain(|(known, _)| known != name);
        fields.push((name.to_owned(), value.to_owned()));
    });
}

impl fmt::Debug for MemoryBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBroker").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for MemoryDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDelivery")
            .field("message", &self.message.id)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
