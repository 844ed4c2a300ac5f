//! What comes again later.
//!
//! Decides when a copy that waits is due, by this machine's clock, and moves it to its lane then. The server keeps the time: a copy
//! that is not due is given back to it for so long. Every process that receives from the queue moves; one that dies in between
//! leaves its copy to the others.

use std::sync::Arc;

use async_nats::jetstream::AckKind;
use oneclock::clock;
use oneclock_core::wire::Wall;
use tokio::task::JoinHandle;

use super::fields;
use super::pulls::{Pulls, Raw};
use super::wires::Wires;
use crate::broker::NotSettled;

/// Moves what is due until it is dropped.
pub(super) struct Mover(JoinHandle<()>);

/// How many that wait are asked for at once.
const AT_ONCE: usize = 64;

// === Mover ===

impl Mover {
    pub(super) fn start(wires: Arc<Wires>) -> Self {
        Self(tokio::spawn(move_what_is_due(wires)))
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn move_what_is_due(wires: Arc<Wires>) {
    loop {
        let came = match Pulls::next(&wires, &wires.wait, AT_ONCE).await {
            Ok(came) => came,
            Err(error) => {
                tracing::debug!(queue = %wires.name, error = &error as &dyn std::error::Error, "what waits is asked for again");
                continue; // the next question pauses first
            }
        };
        for raw in came {
            if let Err(error) = move_one(&wires, &raw, clock::wall()).await {
                // It is delivered again when its lease is over.
                tracing::debug!(queue = %wires.name, error = &error as &dyn std::error::Error, "one that waits was not moved");
            }
        }
    }
}

async fn move_one(wires: &Wires, raw: &Raw, now: Wall) -> Result<(), NotSettled> {
    let waits = fields::waiting(&raw.headers, now);
    if !waits.left.is_zero() {
        return wires.say(&raw.reply, AckKind::Nak(Some(waits.left))).await;
    }
    let number = format!("{}:{}:due", wires.stream, raw.sequence);
    let mut headers = fields::copy(&raw.headers, &format!("{}:{}", wires.stream, raw.sequence), &number);
    fields::keep_deliveries(&raw.headers, &mut headers);
    let moved =
        wires.publish(&wires.line(waits.lane).subject, headers, raw.body.clone(), "what is due could not be moved");
    moved.await.map_err(|error| NotSettled::Failed(error.into()))?;
    wires.say(&raw.reply, AckKind::Ack).await
}
