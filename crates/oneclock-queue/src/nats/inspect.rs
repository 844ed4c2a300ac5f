//! What people on call ask of a queue, through the server's API. Nothing is taken.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::wires::{Line, Wires};
use super::{Nats, fields, unreadable};
use crate::broker::{BrokerError, Depth, Inspect, Lane};
use crate::message::Message;

const DEPTH: &str = "how much is in it could not be asked";
const PEEK: &str = "it could not be looked at";
/// What the server answers where there is no further message.
const NO_MESSAGE: u64 = 404;

impl Inspect for Nats {
    /// What comes again later is among what waits in the main lane, whichever lane it came from. What has come and gone is counted in
    /// deliveries: one that is repeated counts in both.
    async fn depth(&self, lane: Lane) -> Result<Depth, BrokerError> {
        let wires = &self.wires;
        let own = consumer(wires, wires.line(lane)).await?;
        let later = match lane {
            Lane::Main => consumer(wires, &wires.wait).await?.all(),
            Lane::Late | Lane::Dead => 0,
        };
        Ok(Depth {
            waiting: Some(own.pending + later),
            in_flight: Some(own.in_flight),
            came: Some(own.delivered + own.pending),
            went: Some(own.delivered.saturating_sub(own.in_flight)),
        })
    }

    async fn peek(&self, lane: Lane, at_most: usize) -> Result<Vec<Message>, BrokerError> {
        let (wires, line) = (&self.wires, self.wires.line(lane));
        let (mut found, mut from) = (Vec::new(), 1);
        while found.len() < at_most {
            let subject = format!("STREAM.MSG.GET.{}", wires.stream);
            let question = json!({ "seq": from, "next_by_subj": line.subject.as_str() });
            let answer: Value = match wires.context.request(subject, &question).await {
                Ok(answer) => answer,
                Err(error) => return Err(wires.unanswered(PEEK, error)),
            };
            if answer.pointer("/error/code").and_then(Value::as_u64) == Some(NO_MESSAGE) {
                break;
            }
            let (sequence, message) = read(wires, &answer).map_err(|error| wires.unanswered(PEEK, error))?;
            found.push(message);
            from = sequence.saturating_add(1);
        }
        Ok(found)
    }
}

/// What a consumer has to do.
struct Consumer {
    pending: u64,
    in_flight: u64,
    delivered: u64,
}

impl Consumer {
    fn all(&self) -> u64 {
        self.pending + self.in_flight
    }
}

async fn consumer(wires: &Wires, line: &Line) -> Result<Consumer, BrokerError> {
    let subject = format!("CONSUMER.INFO.{}.{}", wires.stream, line.consumer);
    let info: Result<Value, _> = wires.context.request(subject, &json!({})).await;
    let info = info.map_err(|error| wires.unanswered(DEPTH, error))?;
    let number = |of: &str| info.pointer(of).and_then(Value::as_u64);
    match (number("/num_pending"), number("/num_ack_pending"), number("/delivered/consumer_seq")) {
        (Some(pending), Some(in_flight), Some(delivered)) => Ok(Consumer { pending, in_flight, delivered }),
        _ => Err(wires.unanswered(DEPTH, said(&info))),
    }
}

/// A message of the API, whose fields are in base64.
fn read(wires: &Wires, answer: &Value) -> Result<(u64, Message), Box<dyn std::error::Error + Send + Sync>> {
    let message = answer.get("message").ok_or_else(|| said(answer))?;
    let sequence = message.get("seq").and_then(Value::as_u64).ok_or("a message without its number")?;
    let decoded = |of: &str| STANDARD.decode(message.get(of).and_then(Value::as_str).unwrap_or_default());
    let (headers, body) = (unreadable::lossy(&decoded("hdrs")?), decoded("data")?);
    let id = format!("{}:{sequence}", wires.stream);
    Ok((sequence, fields::read(&headers, id, body.into(), wires.uncertainty.get()).message))
}

fn said(answer: &Value) -> String {
    let text = answer.pointer("/error/description").and_then(Value::as_str);
    text.unwrap_or("the answer is of a shape that is not known").to_owned()
}
