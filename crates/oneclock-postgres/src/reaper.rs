//! What happens to a connection whose statement was left in flight: cancelled, waited for, and lent again, or closed.
//!
//! Decides nothing itself: `oneclock_core::statement::Fence` says when a cancel may fly and when the connection is free. One
//! task for each such connection, which holds its place in the pool, so there are never more than the pool is large. The
//! pool owns them, and waits for them when it is closed.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use oneclock::events::{Event as Told, RanOn};
use oneclock::{MayRunOn, Operation, clock};
use oneclock_core::Name;
use oneclock_core::statement::{Action, Event, Fence};
use tokio::runtime::Handle;
use tokio::sync::{SemaphorePermit, oneshot};

use crate::connect::{Boxed, CancelFailed};
use crate::link::{Conn, Held};
use crate::pool::Shared;

/// How long a server may take to notice a cancel that has arrived, before another one is sent. Doubled each time.
const NOTICES: Duration = Duration::from_millis(25);
const NOTICES_AT_MOST: Duration = Duration::from_millis(400);

/// What takes longer to end is counted as having run on.
const PATIENCE: Duration = Duration::from_millis(100);

/// The end of a statement in flight: from here on its cancel is on its way.
pub(crate) struct Reaping(oneshot::Sender<(Held, InFlight)>);

/// Whether the statement was answered when its connection is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InFlight {
    /// Nobody read its answer: the connection may be busy.
    Busy,
    /// The answer was read: the server is ready.
    Answered,
}

/// A cancel, from its turn to its end.
enum Cancelling<'a> {
    No,
    Queued(Boxed<'a, Option<SemaphorePermit<'a>>>),
    UnderWay(Boxed<'a, Result<(), CancelFailed>>),
}

// === Reaping ===

impl Reaping {
    /// Begins the end of what runs on `conn`. The connection itself is handed over afterwards, by [`give`](Self::give).
    pub(crate) fn begin(
        pool: &Arc<Shared>,
        conn: Arc<Conn>,
        operation: &Operation,
        name: &Name,
        runtime: &Handle,
    ) -> Self {
        let (sender, handed_over) = oneshot::channel();
        let reaping = reap(Arc::clone(pool), conn, handed_over, operation.clone(), name.clone());
        pool.spawn(operation, runtime, reaping);
        Self(sender)
    }

    /// Hands the connection over.
    pub(crate) fn give(self, mut held: Held, in_flight: InFlight) {
        held.link.in_force = None; // whether a bound that was under way arrived is not known
        let _ = self.0.send((held, in_flight)); // its runtime is gone: then so is the connection
    }
}

async fn reap(
    pool: Arc<Shared>,
    conn: Arc<Conn>,
    handed_over: oneshot::Receiver<(Held, InFlight)>,
    operation: Operation,
    name: Name,
) {
    let began = clock::now();
    let running = MayRunOn::new(&operation, RanOn::Statement);
    let mut grace = pin!(tokio::time::sleep(pool.grace));
    let mut handed_over = pin!(handed_over);
    let mut held: Option<Held> = None;
    let mut probe: Option<Boxed<'_, Event>> = None;
    let mut cancelling = Cancelling::No;
    let mut notices = NOTICES;
    let mut noticing = pin!(tokio::time::sleep(notices));
    let mut fence = Fence::new();
    let mut action = fence.on(Event::Ended);
    loop {
        match action {
            Action::SendCancel => {
                cancelling = Cancelling::Queued(Box::pin(async { pool.cancels.acquire().await.ok() }))
            }
            Action::Wait => {}
            Action::Release | Action::Discard => break,
        }
        let is_cancelling = !matches!(cancelling, Cancelling::No);
        let event = tokio::select! {
            biased;
            given = &mut handed_over, if held.is_none() => match given {
                Ok((given, in_flight)) => {
                    held = Some(given);
                    match in_flight {
                        InFlight::Answered => Some(Event::Ready),
                        InFlight::Busy => {
                            probe = Some(Box::pin(ready(&conn)));
                            None
                        }
                    }
                }
                Err(_) => Some(Event::Lost),
            },
            event = or_never(&mut probe) => {
                probe = None;
                Some(event)
            }
            event = cancelling.next(&pool, &conn, &mut fence), if is_cancelling => {
                noticing.set(tokio::time::sleep(notices));
                event
            }
            () = &mut noticing, if !is_cancelling && held.is_some() => {
                notices = (notices * 2).min(NOTICES_AT_MOST);
                noticing.set(tokio::time::sleep(notices));
                Some(Event::StillBusy)
            }
            () = &mut grace => Some(Event::GraceOver),
        };
        action = event.map_or(Action::Wait, |event| fence.on(event));
    }
    drop((probe, cancelling, running));
    let for_ = clock::now().since(began);
    if for_ > PATIENCE {
        // It did not end at once, so somebody should know (invariant I14).
        operation.tell(&Told::RanOn { operation: operation.name(), work: &name, because: RanOn::Statement, for_ });
    }
    drop(operation);
    match (action, held) {
        (Action::Release, Some(held)) => pool.settle(held).await,
        (_, held) => {
            if !conn.is_closed() {
                tracing::warn!(grace = ?pool.grace, "a connection was not free again in time after its end: it is closed");
            }
            drop(conn);
            pool.discard(held);
        }
    }
}

/// The answer to nothing: it comes after everything that was sent before, so then nothing is in flight. A late cancel may
/// hit it, which is an answer too.
async fn ready(conn: &Conn) -> Event {
    match conn.client.simple_query("").await {
        Ok(_) => Event::Ready,
        Err(error) if error.as_db_error().is_some() && !conn.is_closed() => Event::Ready,
        Err(_) => Event::Lost,
    }
}

async fn or_never(probe: &mut Option<Boxed<'_, Event>>) -> Event {
    match probe {
        Some(probe) => probe.await,
        None => std::future::pending().await,
    }
}

// === Cancelling ===

impl<'a> Cancelling<'a> {
    /// One step further: `None` when the next one has just begun.
    async fn next(&mut self, pool: &'a Shared, conn: &'a Conn, fence: &mut Fence) -> Option<Event> {
        match self {
            Self::No => std::future::pending().await,
            Self::Queued(turn) => {
                let turn = turn.await;
                // From here on it may arrive at any time, unless the statement is over, which the fence knows.
                if fence.on(Event::CancelBegins) == Action::Wait {
                    pool.cancels_sent.fetch_add(1, Ordering::Relaxed);
                    let cancel = pool.connector.cancel(conn.cancel.clone(), conn.peer.clone());
                    *self = Self::UnderWay(Box::pin(async move {
                        let _turn = turn; // until the server is done with it
                        cancel.await
                    }));
                } else {
                    *self = Self::No;
                }
                None
            }
            Self::UnderWay(cancel) => {
                let event = match cancel.await {
                    Ok(()) => Event::CancelClosed,
                    Err(CancelFailed::NotSent(error)) => {
                        tracing::debug!(%error, "no connection for a cancel");
                        Event::CancelNotSent
                    }
                    Err(CancelFailed::Lost(error)) => {
                        tracing::debug!(%error, "a cancel broke off");
                        Event::CancelLost
                    }
                };
                *self = Self::No;
                Some(event)
            }
        }
    }
}
