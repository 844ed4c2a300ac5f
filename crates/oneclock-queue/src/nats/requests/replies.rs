//! Where answers come in: one subscription for all questions.
//!
//! Decides that whoever stops waiting leaves nothing behind. The client's own would keep a place for each answer that never comes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::{Client, Message, SubscribeError, Subscriber};
use futures_util::StreamExt as _;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Hands each answer to whoever waits for it.
pub(super) struct Replies {
    prefix: String, // with its dot
    waiting: Waiting,
    next: AtomicU64,
    task: JoinHandle<()>,
}

#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<HashMap<u64, oneshot::Sender<Message>>>>);

/// One answer that is waited for.
pub(super) struct Awaited {
    pub(super) address: String,
    pub(super) answer: oneshot::Receiver<Message>,
    number: u64,
    waiting: Waiting,
}

// === Replies ===

impl Replies {
    pub(super) async fn open(client: &Client) -> Result<Self, SubscribeError> {
        let prefix = format!("{}.", client.new_inbox());
        let messages = client.subscribe(format!("{prefix}*")).await?;
        let waiting = Waiting::default();
        let task = tokio::spawn(hand_out(messages, prefix.clone(), waiting.clone()));
        Ok(Self { prefix, waiting, next: AtomicU64::new(1), task })
    }

    /// A place for one answer.
    pub(super) fn await_one(&self) -> Awaited {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.waiting.lock().insert(number, sender);
        Awaited { address: format!("{}{number}", self.prefix), answer, number, waiting: self.waiting.clone() }
    }

    /// How many are waited for.
    pub(super) fn awaited(&self) -> usize {
        self.waiting.lock().len()
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Message>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.number);
    }
}

async fn hand_out(mut messages: Subscriber, prefix: String, waiting: Waiting) {
    while let Some(message) = messages.next().await {
        let number = message.subject.strip_prefix(&*prefix).and_then(|number| number.parse().ok());
        let sender = number.and_then(|number: u64| waiting.lock().remove(&number));
        if let Some(sender) = sender {
            let _ = sender.send(message); // who has left meanwhile needs it no more
        }
    }
    waiting.lock().clear(); // the client is closed: nobody waits for what cannot come
}
