//! Which queues are asked for, and what is left of them on a broker.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::rabbitmq::OnRabbitMq;
use crate::ShopClosed;

/// Where the queues are.
#[derive(Clone, Default)]
pub struct Queues {
    rabbitmq: Option<Arc<str>>,
    left_over: Arc<Mutex<Vec<OnRabbitMq>>>,
}

impl Queues {
    /// In this process: nothing has to be installed.
    pub fn in_memory() -> Self {
        Self::default()
    }

    /// On the RabbitMQ at this address, in queues that are made for it and removed at its end.
    pub fn on_rabbitmq(url: &str) -> Self {
        Self { rabbitmq: Some(url.into()), ..Self::default() }
    }

    /// Removes what runs that were dropped on the way have left on the broker.
    ///
    /// # Errors
    /// [`ShopClosed`], if the broker does not let it.
    ///
    /// # Cancel safety
    /// What is not removed yet is tried again by the next call.
    pub async fn sweep(&self) -> Result<(), ShopClosed> {
        loop {
            let Some(one) = self.left_over().last().cloned() else { return Ok(()) };
            one.remove().await?;
            self.left_over().retain(|other| *other != one);
        }
    }

    /// Their broker, if they have one.
    pub(super) fn url(&self) -> Option<&str> {
        self.rabbitmq.as_deref()
    }

    /// It is removed by the next sweep.
    pub(super) fn made(&self, on_rabbitmq: OnRabbitMq) -> OnRabbitMq {
        self.left_over().push(on_rabbitmq.clone());
        on_rabbitmq
    }

    fn left_over(&self) -> MutexGuard<'_, Vec<OnRabbitMq>> {
        self.left_over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its address has a password.
        f.debug_struct("Queues").field("on_rabbitmq", &self.rabbitmq.is_some()).finish_non_exhaustive()
    }
}
