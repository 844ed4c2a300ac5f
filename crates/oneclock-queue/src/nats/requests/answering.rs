//! One request that is worked on, and its answer.
//!
//! Decides what is answered: what the handler says, or why it came to no end. Work that its deadline ended is answered, too: its
//! caller may have kept a little time for the way home.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use async_nats::{Client, Subject};
use bytes::Bytes;
use oneclock::{Driver, Operation};

use super::messages::{Answer, Declined, Question};

/// A request whose operation has begun.
pub(super) struct Answering {
    client: Client,
    driver: Driver,
    reply: Subject,
}

// === Answering ===

impl Answering {
    pub(super) fn new(client: Client, driver: Driver, reply: Subject) -> Self {
        Self { client, driver, reply }
    }

    pub(super) fn reply(&self) -> &Subject {
        &self.reply
    }

    async fn say(&self, answer: Result<Answer, Declined>) {
        let (headers, body) = match answer.map(|answer| (answer.headers(), answer.body)) {
            Ok((Ok(headers), body)) => (headers, body),
            Ok((Err(_field), _)) => {
                (Declined::new(500, "a field of the answer cannot be one of NATS").headers(), Bytes::new())
            }
            Err(declined) => (declined.headers(), Bytes::new()),
        };
        let said = match headers.is_empty() {
            true => self.client.publish(self.reply.clone(), body).await,
            false => self.client.publish_with_headers(self.reply.clone(), headers, body).await,
        };
        if let Err(error) = said {
            tracing::warn!(operation = %self.driver.operation().name(), %error, "an answer could not be sent");
            let declined = Declined::new(500, "the answer could not be sent").headers();
            let _ = self.client.publish_with_headers(self.reply.clone(), declined, Bytes::new()).await;
        }
    }
}

/// Works on a request and answers it.
pub(super) async fn answer<H, W>(answering: Answering, handler: Arc<H>, question: Question)
where
    H: Fn(Operation, Question) -> W,
    W: Future<Output = Result<Answer, Declined>>,
{
    let operation = answering.driver.operation().clone();
    let worked = {
        let inside = operation.clone();
        let mut work = pin!(operation.run(async move { handler(inside, question).await }));
        poll_fn(|cx| {
            let _polling = answering.driver.polling();
            work.as_mut().poll(cx)
        })
        .await
    };
    match worked {
        Ok(answer) => {
            answering.say(answer).await;
            answering.driver.finish();
        }
        Err(ended) => answering.say(Err(Declined::because(ended.reason()))).await,
    }
}
