//! The probe in Rust. Decides nothing: it does what a request asks it to, and writes down what was done to it.
//!
//! gRPC and Connect share the work; only the framing differs.

use std::future::pending;
use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;
use futures_util::{StreamExt as _, stream};
use oneclock::Operation;
use prost::Message as _;
use tokio::time::sleep;
use tonic::metadata::{KeyAndValueRef, MetadataMap};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::line::{self, Kind};
use crate::log::{Log, Record, left_ms};
use crate::message::{Any, Ask, ERROR_INFO, ErrorInfo, LogAsk, LogTold, RpcStatus, Told};

#[allow(clippy::all, missing_docs, unreachable_pub, unused_qualifications, reason = "generated")]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/oneclock.probe.v1.Probe.rs"));
}
pub(crate) use generated::probe_client as client;
pub(crate) use generated::probe_server as server;

/// Metadata with this prefix is sent back: with the head, and with the trailers of a failure.
pub(crate) const ECHOED: &str = "x-probe-";

/// What the [`ErrorInfo`] of a failure that was asked for says.
pub(crate) const REASON: &str = "PROBE";
/// Its domain.
pub(crate) const DOMAIN: &str = "probe.example";

/// The items of an answer.
pub(crate) type Items = Pin<Box<dyn Stream<Item = Result<Told, Status>> + Send>>;

/// The service.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    /// What it did.
    pub(crate) log: Log,
    kind: Kind,
}

/// What a stream that is under way still has to do.
struct Sending {
    ask: Ask,
    record: Record,
    metadata: MetadataMap,
    sent: u32,
}

// === Probe ===

impl Probe {
    /// One that calls its next hop through our layer, or plainly.
    pub(crate) fn new(kind: Kind) -> Self {
        Self { log: Log::default(), kind }
    }

    /// The unary method, whatever the framing.
    pub(crate) async fn answer(&self, metadata: MetadataMap, ask: Ask) -> Result<Told, Status> {
        let mut record = self.log.begin("Unary", &ask.id, &metadata);
        sleep_ms(ask.work_ms).await;
        let mut told = record.told().clone();
        if !ask.next.is_empty() {
            self.call_next(&ask, &mut told).await?;
        }
        if ask.stall {
            pending::<()>().await;
        }
        record.finish();
        if ask.fail == 0 { Ok(told) } else { Err(failure(&ask, &metadata)) }
    }

    /// The server stream, whatever the framing.
    pub(crate) fn items(&self, metadata: MetadataMap, ask: Ask) -> Items {
        let record = self.log.begin("ServerStream", &ask.id, &metadata);
        let sending = Sending { ask, record, metadata, sent: 0 };
        Box::pin(stream::unfold(Some(sending), |sending| async move { sending?.next().await }))
    }

    /// What the next hop said. It fails only if there is no such address.
    async fn call_next(&self, ask: &Ask, told: &mut Told) -> Result<(), Status> {
        let next = ask.next_ask.as_deref().cloned().unwrap_or_default();
        let address = line::client(self.kind, &ask.next);
        let mut client = address.map_err(|error| Status::invalid_argument(format!("next: {error}")))?;
        told.left_before_next_ms = Operation::current().as_ref().map_or(0, left_ms);
        match client.unary(next).await {
            Ok(answer) => told.next = Some(Box::new(answer.into_inner())),
            Err(status) => told.next_code = number(status.code()),
        }
        Ok(())
    }
}

#[tonic::async_trait]
impl server::Probe for Probe {
    type ServerStreamStream = Items;
    type BidiStream = Items;

    async fn unary(&self, request: Request<Ask>) -> Result<Response<Told>, Status> {
        let (metadata, _, ask) = request.into_parts();
        let mut response = Response::new(self.answer(metadata.clone(), ask).await?);
        echo(&metadata, response.metadata_mut());
        Ok(response)
    }

    async fn server_stream(&self, request: Request<Ask>) -> Result<Response<Items>, Status> {
        let (metadata, _, ask) = request.into_parts();
        let mut response = Response::new(self.items(metadata.clone(), ask));
        echo(&metadata, response.metadata_mut());
        Ok(response)
    }

    async fn client_stream(&self, request: Request<Streaming<Ask>>) -> Result<Response<Told>, Status> {
        let (metadata, _, mut messages) = request.into_parts();
        let first =
            messages.message().await?.ok_or_else(|| Status::invalid_argument("the first message is missing"))?;
        let mut record = self.log.begin("ClientStream", &first.id, &metadata);
        record.read();
        let mut read = 1;
        while messages.message().await?.is_some() {
            record.read();
            read += 1;
        }
        sleep_ms(first.work_ms).await;
        if first.stall {
            pending::<()>().await;
        }
        record.finish();
        if first.fail != 0 {
            return Err(failure(&first, &metadata));
        }
        let mut response = Response::new(Told { item: read, ..record.told().clone() });
        echo(&metadata, response.metadata_mut());
        Ok(response)
    }

    async fn bidi(&self, request: Request<Streaming<Ask>>) -> Result<Response<Items>, Status> {
        let (metadata, _, mut messages) = request.into_parts();
        let first =
            messages.message().await?.ok_or_else(|| Status::invalid_argument("the first message is missing"))?;
        let record = self.log.begin("Bidi", &first.id, &metadata);
        let mut response = Response::new(converse(first, messages, record, metadata.clone()));
        echo(&metadata, response.metadata_mut());
        Ok(response)
    }

    async fn log(&self, request: Request<LogAsk>) -> Result<Response<LogTold>, Status> {
        Ok(Response::new(self.log.of(&request.get_ref().id)))
    }
}

/// Answers each message after the work that it asks for.
fn converse(first: Ask, messages: Streaming<Ask>, record: Record, metadata: MetadataMap) -> Items {
    let asks = stream::iter([Ok(first)]).chain(messages);
    Box::pin(stream::unfold(Some((asks, record, metadata, 0)), |state| async move {
        let (mut asks, mut record, metadata, sent) = state?;
        let ask = match asks.next().await {
            Some(Ok(ask)) => ask,
            Some(Err(status)) => return Some((Err(status), None)),
            None => {
                record.finish();
                return None;
            }
        };
        record.read();
        sleep_ms(ask.work_ms).await;
        if ask.stall {
            pending::<()>().await;
        }
        if ask.fail != 0 {
            record.finish();
            return Some((Err(failure(&ask, &metadata)), None));
        }
        record.sent();
        let told = Told { item: sent + 1, ..record.told().clone() };
        Some((Ok(told), Some((asks, record, metadata, sent + 1))))
    }))
}

// === Sending ===

impl Sending {
    async fn next(mut self) -> Option<(Result<Told, Status>, Option<Self>)> {
        if self.sent < self.ask.items {
            sleep_ms(if self.sent == 0 { self.ask.work_ms } else { self.ask.every_ms }).await;
            self.sent += 1;
            self.record.sent();
            let told = Told { item: self.sent, ..self.record.told().clone() };
            return Some((Ok(told), Some(self)));
        }
        if self.ask.stall {
            pending::<()>().await;
        }
        self.record.finish();
        (self.ask.fail != 0).then(|| (Err(failure(&self.ask, &self.metadata)), None))
    }
}

// === What is said ===

/// The failure that was asked for.
fn failure(ask: &Ask, metadata: &MetadataMap) -> Status {
    let code = i32::try_from(ask.fail).map_or(Code::Unknown, Code::from_i32);
    let info = ErrorInfo { reason: REASON.to_owned(), domain: DOMAIN.to_owned() };
    let detail = Any { type_url: ERROR_INFO.to_owned(), value: info.encode_to_vec() };
    let message = "as asked".to_owned();
    let status = RpcStatus { code: code as i32, message: message.clone(), details: vec![detail] };
    let mut trailers = MetadataMap::new();
    echo(metadata, &mut trailers);
    Status::with_details_and_metadata(code, message, status.encode_to_vec().into(), trailers)
}

/// Copies what is to be sent back, in its order.
fn echo(from: &MetadataMap, to: &mut MetadataMap) {
    for pair in from.iter() {
        match pair {
            KeyAndValueRef::Ascii(key, value) if key.as_str().starts_with(ECHOED) => {
                to.append(key, value.clone());
            }
            KeyAndValueRef::Binary(key, value) if key.as_str().starts_with(ECHOED) => {
                to.append_bin(key, value.clone());
            }
            _ => {}
        }
    }
}

fn number(code: Code) -> u32 {
    u32::try_from(code as i32).unwrap_or_default()
}

async fn sleep_ms(milliseconds: u32) {
    if milliseconds > 0 {
        sleep(Duration::from_millis(milliseconds.into())).await;
    }
}
