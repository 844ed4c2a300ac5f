//! Asking a consumer for messages.
//!
//! Decides how: first for what is there, as many as there is room for, and if there is nothing, for one, for a tenth of the lease.
//! So nothing is ever sent that nobody has asked for, and the lease of what comes counts from a question that is not much older
//! than the answer. What was asked for by somebody who left is there for the next who asks.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::{Client, HeaderMap, StatusCode, Subject};
use bytes::Bytes;
use futures_util::FutureExt as _;
use oneclock::clock;
use oneclock_core::{Deadline, Tick};

use super::unreadable;
use super::wires::{Heard, Line, Wires};
use crate::broker::BrokerError;

/// One message as it came.
pub(super) struct Raw {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) reply: Subject,
    pub(super) sequence: u64,
    pub(super) delivered: u32,
    pub(super) asked: Tick,
}

/// What a consumer was asked, and what it has sent.
#[derive(Default)]
pub(super) struct Pulls {
    inbox: Option<Inbox>,
    failures: u32,
}

/// Where answers come in.
struct Inbox {
    messages: Heard,
    address: String,
    connects: u64, // of its client, when it was opened
    asked: Option<Asked>,
    ready: Vec<Raw>,
    is_over: bool, // what still comes in was asked for too long ago
}

/// A question that the server has not answered to its end.
struct Asked {
    at: Tick,
    until: Tick,
    left: usize,
}

/// The server answers this instead of messages.
#[derive(Debug, thiserror::Error)]
#[error("the server answers {status}: {said}")]
struct Said {
    status: StatusCode,
    said: String,
}

/// The client was closed, for good.
#[derive(Debug, thiserror::Error)]
#[error("the connection was closed for good: connect anew")]
struct Closed;

/// How long after the end of a question its answer may take.
const GRACE: Duration = Duration::from_secs(1);
/// How often it is looked whether the connection is another one by now.
const LOOKS_EVERY: Duration = Duration::from_millis(250);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_QUESTION: Duration = Duration::from_secs(5);
const SHORTEST_QUESTION: Duration = Duration::from_millis(100);
const WHAT: &str = "could not be asked for messages";

// === Pulls ===

impl Pulls {
    /// At least one message.
    pub(super) async fn next(wires: &Wires, line: &Line, at_most: usize) -> Result<Vec<Raw>, BrokerError> {
        let mut pulls = line.pulls.lock().await;
        if pulls.failures > 0 {
            tokio::time::sleep(pause(pulls.failures)).await;
        }
        let got = pulls.ask(wires, line, at_most.max(1)).await;
        match &got {
            Ok(_) => pulls.failures = 0,
            Err(_) => {
                pulls.failures = pulls.failures.saturating_add(1);
                pulls.inbox = None;
            }
        }
        got
    }

    /// What was asked for and nobody has taken: the open question is heard to its end, and none is asked. Whoever else asks at this
    /// moment gets it.
    pub(super) async fn rest(wires: &Wires, line: &Line) -> Vec<Raw> {
        let Ok(mut pulls) = line.pulls.try_lock() else { return Vec::new() };
        let Some(inbox) = &mut pulls.inbox else { return Vec::new() };
        // What the server says instead of messages, or does not say any more, changes nothing of what came.
        let _ = inbox.listen(&wires.client, usize::MAX).await;
        std::mem::take(&mut inbox.ready)
    }

    async fn ask(&mut self, wires: &Wires, line: &Line, at_most: usize) -> Result<Vec<Raw>, BrokerError> {
        let mut waits = false;
        loop {
            let inbox = self.inbox(wires).await?;
            if inbox.ready.is_empty() && inbox.asked.is_none() {
                inbox.ask(wires, line, at_most, waits).await?;
            }
            if inbox.ready.len() < at_most && inbox.asked.is_some() {
                let is_whole =
                    inbox.listen(&wires.client, at_most).await.map_err(|said| wires.unanswered(WHAT, said))?;
                if !is_whole && inbox.ready.is_empty() {
                    self.inbox = None; // its question went with its connection
                    connected(wires).await?;
                    unreadable::make_readable(wires, line).await; // which a message may have broken
                    continue;
                }
            }
            if !inbox.ready.is_empty() {
                let taken = inbox.ready.len().min(at_most);
                return Ok(inbox.ready.drain(..taken).collect());
            }
            waits = true;
        }
    }

    /// The inbox of the connection that stands now.
    async fn inbox(&mut self, wires: &Wires) -> Result<&mut Inbox, BrokerError> {
        connected(wires).await?;
        let connects = connects(&wires.client);
        let is_of_now = self.inbox.as_ref().is_some_and(|inbox| inbox.is_good(connects) || !inbox.ready.is_empty());
        let inbox = match self.inbox.take() {
            Some(inbox) if is_of_now => inbox,
            _ => {
                let address = wires.client.new_inbox();
                let messages = wires.client.subscribe(address.clone()).await;
                let messages = messages.map_err(|error| BrokerError::not_sent(&wires.name, WHAT, error))?;
                Inbox {
                    messages: Heard::new(messages),
                    address,
                    connects,
                    asked: None,
                    ready: Vec::new(),
                    is_over: false,
                }
            }
        };
        Ok(self.inbox.insert(inbox))
    }
}

impl Inbox {
    fn is_good(&self, connects: u64) -> bool {
        self.connects == connects && !self.is_over
    }

    async fn ask(&mut self, wires: &Wires, line: &Line, at_most: usize, waits: bool) -> Result<(), BrokerError> {
        let for_ = (line.lease / 10).clamp(SHORTEST_QUESTION, LONGEST_QUESTION);
        let (left, question) = if waits {
            (1, format!("{{\"batch\":1,\"expires\":{}}}", for_.as_nanos()))
        } else {
            (at_most, format!("{{\"batch\":{at_most},\"no_wait\":true}}"))
        };
        let subject = format!("CONSUMER.MSG.NEXT.{}.{}", wires.stream, line.consumer);
        let request = async_nats::Request::new().payload(question.into()).inbox(self.address.clone());
        let at = clock::now();
        let until = at + if waits { for_ + GRACE } else { GRACE };
        self.asked = Some(Asked { at, until, left }); // first, so that what comes for one who left meanwhile is not taken for newer
        let sent = wires.context.send_request(subject, request).await;
        sent.map_err(|error| BrokerError::not_sent(&wires.name, WHAT, error))
    }

    /// Takes what comes until the question is answered to its end. False if it never will be.
    async fn listen(&mut self, client: &Client, at_most: usize) -> Result<bool, Said> {
        while let Some(asked) = &mut self.asked {
            if self.ready.len() >= at_most {
                return Ok(true);
            }
            // What is here already needs no timer.
            let came = match self.messages.next().now_or_never() {
                Some(came) => came,
                None => {
                    let now = clock::now();
                    if now >= asked.until || connects(client) != self.connects {
                        (self.asked, self.is_over) = (None, true);
                        return Ok(false);
                    }
                    let look = clock::instant(Deadline::at(asked.until.min(now + LOOKS_EVERY)));
                    let Ok(came) = tokio::time::timeout_at(look, self.messages.next()).await else { continue };
                    came
                }
            };
            let Some(message) = came else {
                (self.asked, self.is_over) = (None, true);
                return Ok(false);
            };
            match message.status {
                None | Some(StatusCode::OK) => {
                    asked.left = asked.left.saturating_sub(1);
                    let at = asked.at;
                    if asked.left == 0 {
                        self.asked = None;
                    }
                    self.ready.extend(raw(message, at));
                }
                Some(StatusCode::IDLE_HEARTBEAT) => {}
                Some(StatusCode::NOT_FOUND | StatusCode::TIMEOUT) => self.asked = None,
                Some(status) => {
                    self.asked = None;
                    let said = message.description.unwrap_or_default();
                    if !said.to_ascii_lowercase().contains("maxackpending") {
                        return Err(Said { status, said });
                    } // as many are under way as may be: one waits
                }
            }
        }
        Ok(true)
    }
}

fn raw(message: async_nats::Message, asked: Tick) -> Option<Raw> {
    let reply = message.reply.clone()?;
    let Some((sequence, delivered)) = numbers(&reply) else {
        tracing::warn!(subject = %message.subject, "a message that no stream has sent came where only those come: left alone");
        return None;
    };
    Some(Raw { headers: message.headers.unwrap_or_default(), body: message.payload, reply, sequence, delivered, asked })
}

/// Which message of its stream it is, and which delivery: `$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.…`, with domain and
/// account before that on some servers.
fn numbers(reply: &str) -> Option<(u64, u32)> {
    let mut tokens = reply.strip_prefix("$JS.ACK.")?.split('.');
    let before = match tokens.clone().count() {
        7 => 2,
        9.. => 4,
        _ => return None,
    };
    let delivered: u64 = tokens.nth(before)?.parse().ok()?;
    let sequence = tokens.next()?.parse().ok()?;
    Some((sequence, u32::try_from(delivered).unwrap_or(u32::MAX)))
}

/// Waits until there is a connection; the client opens it by itself.
async fn connected(wires: &Wires) -> Result<(), BrokerError> {
    let mut tries = 0;
    while !wires.is_connected() {
        tries += 1;
        // Only the answer to a question tells one that is being opened again from one that is closed for good.
        if let Ok(Err(_closed)) = tokio::time::timeout(pause(tries), wires.client.flush()).await {
            return Err(BrokerError::not_sent(&wires.name, WHAT, Closed));
        }
    }
    Ok(())
}

fn connects(client: &Client) -> u64 {
    client.statistics().connects.load(Ordering::Relaxed)
}

/// It grows, up to a bound.
fn pause(failures: u32) -> Duration {
    let doubled = 2_u32.checked_pow(failures.saturating_sub(1)).and_then(|times| FIRST_PAUSE.checked_mul(times));
    doubled.unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE)
}
