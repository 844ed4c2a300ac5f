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
use super::copy;
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
/// What the broker says of a message that is larger than it takes (`max_message_size`), or that is none.
const PRECONDITION_FAILED: u16 = 406;
/// A body of more bytes is published alone: the broker says of one that is too large only that its channel is closed.
const LARGE: usize = 128 * 1024;

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
        let (size, most) = (copy::size(&properties), self.most());
        if size > most {
            return Err(NotPublished::impossible(Trouble::HeadersTooLong { size, most }));
        }
        let (answer, answered) = oneshot::channel();
        let asked = Asked { to: to.clone(), body: body.clone(), properties, answer };
        self.asks.send(asked).await.map_err(|_| NotPublished::not_sent(Trouble::Closed))?;
        answered.await.unwrap_or_else(|_| Err(NotPublished::unknown(Trouble::Closed)))
    }

    /// The most bytes that the head of a message may take: a frame.
    pub(super) fn most(&self) -> usize {
        match self.link.frame_max() {
            0 => usize::MAX, // the broker said that it takes any
            most => most as usize,
        }
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
        standing = publish_each(&link, standing.take(), std::mem::take(&mut batch)).await;
    }
}

/// Publishes what was asked for: large messages one by one, the others together. Returns the channel, while it stands.
async fn publish_each(link: &Link, mut standing: Option<Channel>, batch: Vec<Asked>) -> Option<Channel> {
    let (large, small): (Vec<_>, Vec<_>) = batch.into_iter().partition(|asked| asked.body.len() > LARGE);
    let batches = std::iter::once(small).chain(large.into_iter().map(|one| vec![one]));
    for batch in batches.filter(|batch| !batch.is_empty()) {
        // A channel that stood idle may have broken meanwhile, and says so before anything is sent.
        let channel = match standing.take().filter(|channel| channel.status().connected()) {
            Some(channel) => Ok(channel),
            None => open(link).await,
        };
        match channel {
            Ok(channel) => {
                publish_all(&channel, batch).await;
                standing = Some(channel);
            }
            Err(trouble) => refuse(batch, &trouble),
        }
    }
    standing
}

fn refuse(batch: Vec<Asked>, trouble: &Trouble) {
    for asked in batch {
        let _ = asked.answer.send(Err(NotPublished::not_sent(trouble.clone())));
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

    /// This message is never taken.
    fn impossible(trouble: Trouble) -> Self {
        Self { outcome: Outcome::Failed, trouble }
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
        let soft = match error.kind() {
            ErrorKind::ProtocolError(said) if alone && error.is_amqp_soft_error() => Some(said.get_id()),
            _ => None,
        };
        match soft {
            Some(PRECONDITION_FAILED) => Self::impossible(error.into()),
            Some(_) => Self::rejected(error.into()),
            None => Self::unknown(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use lapin::message::Delivery;

    use super::*;

    /// A message of a batch, which the broker has confirmed.
    fn confirmed(key: &str, id: &str, body: &str) -> (Published, oneshot::Receiver<Result<(), NotPublished>>) {
        let (answer, answered) = oneshot::channel();
        let to = Target { exchange: ShortString::default(), key: key.into() };
        let properties = BasicProperties::default().with_message_id(id.into());
        let asked = Asked { to, body: Bytes::copy_from_slice(body.as_bytes()), properties, answer };
        (Published { asked, came_to: Ok(()) }, answered)
    }

    fn returned(key: &str, id: &str, body: &str) -> BasicReturnMessage {
        let delivery = Delivery::mock(0, ShortString::default(), key.into(), false, body.as_bytes().to_vec());
        let mut back = BasicReturnMessage { delivery, reply_code: 312, reply_text: "NO_ROUTE".into() };
        back.properties = BasicProperties::default().with_message_id(id.into());
        back
    }

    /// What became of each of three, after this one came back with whichever confirmation.
    fn told(back: &BasicReturnMessage) -> Vec<Option<Outcome>> {
        let (batch, _answered): (VecDeque<_>, Vec<_>) =
            [confirmed("q", "1", "a"), confirmed("q", "2", "b"), confirmed("q", "2", "b")].into_iter().unzip();
        let mut batch = batch;
        give_back(&mut batch, back);
        batch.iter().map(|one| one.came_to.as_ref().err().map(|not| not.outcome)).collect()
    }

    /// The client hands a message that came back to whichever confirmation it reads next, so that only what it says tells whose it is.
    #[test]
    fn what_came_back_is_told_to_whose_it_is() {
        let rejected = Some(Outcome::Rejected);
        assert_eq!(told(&returned("q", "1", "a")), [rejected, None, None]);
        assert_eq!(told(&returned("q", "2", "b")), [None, rejected, None], "of two that are the same, one");
        let unknown = Some(Outcome::Unknown { stage: Stage::Wait });
        for nobodys in [returned("q", "3", "a"), returned("other", "1", "a"), returned("q", "1", "b")] {
            assert_eq!(told(&nobodys), [unknown; 3], "then of none it is known that it was taken");
        }
    }
}
