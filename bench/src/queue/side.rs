//! What each side does in a turn.

use std::future::Future;
use std::time::{Duration, Instant};

use oneclock::clock;
use oneclock_bench::Failed;
use oneclock_core::expiry::{Expires, Policy};
use oneclock_queue::{Broker, Delivery as _, Lane, Message, Settle};

/// How many are under way at the same time.
pub(crate) const AT_ONCE: usize = 128;
/// What each message carries.
pub(crate) static BODY: [u8; 256] = [b'x'; 256];

/// Who takes a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The broker's own client, with bodies and nothing else.
    Bare,
    /// The same client, which sends the same header fields as ours, and reads none.
    Dressed,
    /// Ours, over the same client.
    Ours,
}

/// Messages in a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) published: f64,
    pub(crate) settled: f64,
}

/// A broker's own client, and ours over it.
pub(crate) trait Pair {
    /// The broker.
    fn name(&self) -> &'static str;
    /// A turn of one of them.
    fn turn(&self, side: Side, messages: usize) -> impl Future<Output = Result<Rates, Failed>>;
}

impl Side {
    pub(crate) const ALL: [Self; 3] = [Self::Bare, Self::Dressed, Self::Ours];
}

/// How many in a second.
#[allow(clippy::disallowed_methods)] // a stop watch, not a deadline
pub(crate) async fn rate(messages: usize, work: impl Future<Output = Result<(), Failed>>) -> Result<f64, Failed> {
    let began = Instant::now();
    work.await?;
    Ok(messages as f64 / began.elapsed().as_secs_f64())
}

/// A turn of ours, the same for every broker.
pub(crate) async fn ours<B: Broker>(broker: &B, messages: usize) -> Result<Rates, Failed> {
    use futures_util::{StreamExt as _, TryStreamExt as _, stream};
    let published = rate(messages, async {
        let each = stream::iter(0..messages).map(|_| async { broker.publish(&message()).await });
        each.buffer_unordered(AT_ONCE).try_collect::<()>().await.map_err(Failed::from)
    });
    let published = published.await?;
    let settled = rate(messages, async {
        let mut left = messages;
        while left > 0 {
            let got = broker.receive(Lane::Main, AT_ONCE.min(left)).await?;
            left -= got.len();
            futures_util::future::try_join_all(got.iter().map(|delivery| delivery.settle(&Settle::Gone))).await?;
        }
        Ok(())
    });
    Ok(Rates { published, settled: settled.await? })
}

/// The header fields of one of ours, all but its id, and how many bytes they are with it.
pub(crate) fn fields(prefix: &str) -> (Vec<(String, String)>, usize) {
    let message = message();
    let (mut fields, mut bytes) = (Vec::new(), 0);
    message.write(prefix, |name, value| {
        bytes += name.len() + value.len();
        if value != &*message.id {
            fields.push((name.to_owned(), value.to_owned()));
        }
    });
    (fields, bytes)
}

/// An id that no other message has.
pub(crate) fn id() -> String {
    message().id.to_string()
}

/// One with everything that a message says of its end.
fn message() -> Message {
    let mut message = Message::new("confirm-order", "order-service", &BODY[..]);
    let now = clock::wall();
    message.stamp.expires = Expires::At(now + Duration::from_secs(3_600));
    message.stamp.policy = Policy::DeadLetter;
    message.stamp.owner = Some("orders".into());
    message.stamp.first_enqueued = Some(now);
    message
}
