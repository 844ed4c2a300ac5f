//! Publishing, and waiting until the broker has it.
//!
//! Decides what is known of the far side when that fails. Messages are published in batches, each on a channel that carries nothing
//! else meanwhile: one that no queue takes comes back without its number, and the client hands it to whichever confirmation comes
//! next, so that only when all of a batch are confirmed it is known whose it is. Else one that is lost would be taken for published.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use lapin::message::BasicReturnMessage;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation, ErrorKind};
use oneclock_core::{Outcome, Stage};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::Trouble;
use super::headers;
use super::link::Link;

/// Publishes through a few channels, each with a task that ends with the last clone of the queue.
#[derive(Debug)]
pub(super) struct Publisher {
    link: Arc<Link>,
    asks: mpsc::Sender<Asked>,
}

/// A message that somebody waits to have published.
#[derive(Debug)]
struct Asked {
    to: Target,
    body: Bytes,
    properties: BasicProperties,
    answer: oneshot::Sender<Result<(), NotPublished>>,
}

/// Why a message was not published, and what is known of the far side.
#[derive(Clone, Debug)]
pub(super) struct NotPublished {
    pub(super) outcome: Outcome,
    pub(super) trouble: Trouble,
}

/// Where to.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The empty one leads to the queue that its key names, and nowhere else.
    pub(super) exchange: ShortString,
    pub(super) key: ShortString,
}

/// What one message of a batch came to, before it is known whose the returned ones are.
struct Published {
    asked: Asked,
    came_to: Result<(), NotPublished>,
}

/// Batches under way at the same time. While the broker stores one, the next is on its way.
const CHANNELS: usize = 4;

// === Publisher ===

impl Publisher {
    /// Publishes at most about `at_once` messages at the same time. Connects at once, and declares everything.
    pub(super) async fn connect(link: Link, at_once: usize) -> Result<Self, Trouble> {
        let first = open(&link).await?;
        let link = Arc::new(link);
        let (asks, asked) = mpsc::channel(at_once);
        let asked = Arc::new(Mutex::new(asked));
        let mut standing = Some(first);
        for _ in 0..CHANNELS {
            let most = at_once.div_ceil(CHANNELS);
            tokio::spawn(publish(Arc::clone(&link), Arc::clone(&asked), standing.take(), most));
        }
        Ok(Self { link, asks })
    }

    /// Publishes one message. Dropped, it may have been published.
    pub(super) async fn publish(
        &self,
        to: &Target,
        body: &Bytes,
        properties: BasicProperties,
    ) -> Result<(), NotPublished> {
        let (size, most) = (headers::size(&properties), self.link.frame_max());
        if size > most as usize {
            return Err(NotPublished::not_sent(Trouble::HeadersTooLong { size, most }));
        }
        let (answer, answered) = oneshot::channel();
        let asked = Asked { to: to.clone(), body: body.clone(), properties, answer };
        self.asks.send(asked).await.map_err(|_| NotPublished::not_sent(Trouble::Closed))?;
        answered.await.unwrap_or_else(|_| Err(NotPublished::unknown(Trouble::Closed)))
    }

    /// Whether the headers of a message fit into what the broker takes.
    pub(super) fn takes(&self, properties: &BasicProperties) -> bool {
        headers::size(properties) <= self.link.frame_max() as usize
    }

    /// A channel for something else.
    pub(super) async fn channel(&self) -> Result<Channel, Trouble> {
        self.link.channel().await
    }
}

async fn open(link: &Link) -> Result<Channel, Trouble> {
    let channel = link.channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok(channel)
}

/// Publishes what is asked for, a batch at a time, until nobody can ask any more.
async fn publish(link: Arc<Link>, asks: Arc<Mutex<mpsc::Receiver<Asked>>>, mut standing: Option<Channel>, most: usize) {
    let mut batch = Vec::new();
    while asks.lock().await.recv_many(&mut batch, most).await > 0 {
        batch.retain(|asked| !asked.answer.is_closed()); // whoever left does not want it any more
        // A channel that stood idle may have broken meanwhile, and says so before anything is sent.
        let channel = match standing.take().filter(|channel| channel.status().connected()) {
            Some(channel) => Ok(channel),
            None => open(&link).await,
        };
        match channel {
            Ok(channel) => {
                publish_all(&channel, std::mem::take(&mut batch)).await;
                standing = Some(channel);
            }
            Err(trouble) => {
                for asked in batch.drain(..) {
                    let _ = asked.answer.send(Err(NotPublished::not_sent(trouble.clone())));
                }
            }
        }
    }
}

/// Publishes a batch, and answers each when all of it is known.
async fn publish_all(channel: &Channel, batch: Vec<Asked>) {
    let alone = batch.len() == 1;
    let each = batch.into_iter().map(async |mut asked| {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let (exchange, key) = (asked.to.exchange.clone(), asked.to.key.clone());
        let properties =
            BasicProperties::default().with_message_id(asked.properties.message_id().clone().unwrap_or_default());
        let properties = std::mem::replace(&mut asked.properties, properties); // its id is enough to know it by
        let sent = match channel.basic_publish(exchange, key, options, &asked.body, properties).await {
            Ok(sent) => sent.await.map_err(|error| NotPublished::waiting(error, alone)),
            Err(error) => Err(NotPublished::sending(error, alone)),
        };
        let (came_to, back) = confirmed(&asked.to, sent);
        (Published { asked, came_to }, back)
    });
    let mut published = VecDeque::new();
    let mut returned = Vec::new();
    for (one, back) in join_all(each).await {
        published.push_back(one);
        returned.extend(back);
    }
    for back in returned {
        give_back(&mut published, &back);
    }
    for one in published {
        let _ = one.asked.answer.send(one.came_to);
    }
}

/// What a confirmation says of a message, and what came back with it, whosever that is.
fn confirmed(
    to: &Target,
    sent: Result<Confirmation, NotPublished>,
) -> (Result<(), NotPublished>, Option<BasicReturnMessage>) {
    match sent {
        Ok(Confirmation::Ack(back)) => (Ok(()), back),
        // With an exchange of its own some queues may have taken it while another refused.
        Ok(Confirmation::Nack(back)) if to.exchange.as_str().is_empty() => {
            (Err(NotPublished::rejected(Trouble::Refused)), back)
        }
        Ok(Confirmation::Nack(back)) => (Err(NotPublished::unknown(Trouble::Refused)), back),
        Ok(Confirmation::NotRequested) => (Err(NotPublished::unknown(Trouble::NotConfirmed)), None),
        Err(not) => (Err(not), None),
    }
}

/// Says it to the first whose it may be: of two that are the same, either.
fn give_back(published: &mut VecDeque<Published>, back: &BasicReturnMessage) {
    let id = back.properties.message_id().clone().unwrap_or_default();
    let is_of = |one: &&mut Published| {
        one.came_to.is_ok()
            && one.asked.to.key == back.routing_key
            && one.asked.properties.message_id().as_ref() == Some(&id)
            && one.asked.body == back.data
    };
    let trouble = || Trouble::Returned { code: back.reply_code, text: back.reply_text.to_string() };
    if let Some(one) = published.iter_mut().find(is_of) {
        one.came_to = Err(NotPublished::rejected(trouble()));
    } else {
        // Nobody's: then of none it is known that it was taken.
        for one in published.iter_mut().filter(|one| one.came_to.is_ok()) {
            one.came_to = Err(NotPublished::unknown(trouble()));
        }
    }
}

// === NotPublished ===

impl NotPublished {
    fn not_sent(trouble: Trouble) -> Self {
        Self { outcome: Outcome::NotSent, trouble }
    }

    fn rejected(trouble: Trouble) -> Self {
        Self { outcome: Outcome::Rejected, trouble }
    }

    fn unknown(trouble: Trouble) -> Self {
        Self { outcome: Outcome::Unknown { stage: Stage::Wait }, trouble }
    }

    /// It failed while it was sent: nothing was only where its channel was known to be gone before.
    fn sending(error: lapin::Error, alone: bool) -> Self {
        match error.kind() {
            ErrorKind::InvalidChannelState(..)
            | ErrorKind::InvalidChannel(_)
            | ErrorKind::InvalidConnectionState(_) => Self::not_sent(error.into()),
            _ => Self::waiting(error, alone),
        }
    }

    /// It failed while its confirmation was awaited. An error of the channel is about this message only if it carried no other.
    fn waiting(error: lapin::Error, alone: bool) -> Self {
        if alone && error.is_amqp_soft_error() { Self::rejected(error.into()) } else { Self::unknown(error.into()) }
    }
}
