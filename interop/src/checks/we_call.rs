//! Checks where we call the peer. Decides for each what has to be seen, by our caller and by the peer's handler.
//!
//! Whether a peer's handler is cancelled, or finds the end of its messages where they were cut off, is its library's doing.
//! With plain tonic in our place the caller sets the timeout by hand, as its API has it.

use std::future::pending;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use oneclock::{Operation, clock};
use prost::Message as _;
use tokio::time::{sleep, timeout};
use tonic::metadata::{KeyAndValueRef, MetadataMap, MetadataValue};
use tonic::{Code, Request, Status};

use super::{Asked, LIMIT, LIMIT_MS, LONG_MS, PATIENCE, at_limit, fields, fresh};
use crate::Error;
use crate::finding::Finding;
use crate::line::{self, Kind, Line};
use crate::message::{Ask, ErrorInfo, RpcStatus, Told};
use crate::peer::Peer;
use crate::probe::client::ProbeClient;

/// Who calls whom.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(super) peer: &'a Peer,
    pub(super) kind: Kind,
}

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Reduced,
    Deadline(&'static str),
    NothingLeft,
    Leave(&'static str),
    Statuses,
    Metadata,
}

pub(crate) const CHECKS: &[Check] = &[
    Check::Reduced,
    Check::Deadline("Unary"),
    Check::Deadline("ServerStream"),
    Check::Deadline("ClientStream"),
    Check::Deadline("Bidi"),
    Check::NothingLeft,
    Check::Leave("Unary"),
    Check::Leave("ServerStream"),
    Check::Leave("ClientStream"),
    Check::Leave("Bidi"),
    Check::Statuses,
    Check::Metadata,
];

/// What a call to its end gave: how many items, then the status if it failed.
struct Ended {
    items: u32,
    status: Option<Status>,
}

impl Check {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reduced => "peer is told what is left",
            Self::Deadline("Unary") => "deadline, unary",
            Self::Deadline("ServerStream") => "deadline, server stream",
            Self::Deadline("ClientStream") => "deadline, client stream",
            Self::Deadline(_) => "deadline, bidi",
            Self::NothingLeft => "nothing left",
            Self::Leave("Unary") => "we leave, unary",
            Self::Leave("ServerStream") => "we leave, server stream",
            Self::Leave("ClientStream") => "we leave, client stream",
            Self::Leave(_) => "we leave, bidi",
            Self::Statuses => "statuses intact",
            Self::Metadata => "metadata and details intact",
        }
    }
}

impl Scene<'_> {
    pub(crate) async fn run(&self, check: Check) -> Result<Finding, Error> {
        match check {
            Check::Reduced => self.reduced().await,
            Check::Deadline(method) => self.deadline(method).await,
            Check::NothingLeft => self.nothing_left().await,
            Check::Leave(method) => self.leave(method).await,
            Check::Statuses => self.statuses().await,
            Check::Metadata => self.metadata().await,
        }
    }

    fn client(&self) -> Result<ProbeClient<Line>, Error> {
        line::client(self.kind, &self.peer.address)
    }

    fn log(&self) -> Asked<'_> {
        Asked::There(&self.peer.address)
    }

    fn ask(&self, method: &str) -> Ask {
        Ask { id: fresh(self.peer.which, method), ..Ask::default() }
    }

    /// Runs a call as a handler would. Only what is called bounds it, not this.
    async fn within<T>(&self, budget: Duration, call: impl Future<Output = T>) -> T {
        match self.kind {
            Kind::Ours => Operation::begin("interop", budget).scope(call).await,
            Kind::Plain => call.await,
        }
    }

    fn request<T>(&self, message: T, budget: Duration) -> Request<T> {
        let mut request = Request::new(message);
        if self.kind == Kind::Plain {
            request.set_timeout(budget);
        }
        request
    }

    async fn reduced(&self) -> Result<Finding, Error> {
        let (budget, spent) = (Duration::from_secs(5), Duration::from_millis(500));
        let mut client = self.client()?;
        let told = self.within(budget, async {
            sleep(spent).await;
            timeout(PATIENCE, client.unary(self.request(self.ask("told"), budget))).await
        });
        let told = told.await??.into_inner();
        let holds = told.has_deadline && told.left_ms > 0 && told.left_ms <= 4_500;
        let said = if told.has_deadline { format!("{} ms", told.left_ms) } else { "nothing".to_owned() };
        Ok(Finding::when(holds, format!("{said} of 5000, 500 spent")))
    }

    async fn deadline(&self, method: &'static str) -> Result<Finding, Error> {
        let (ask, client) = (self.ask(method), self.client()?);
        let id = ask.id.clone();
        let began = clock::now();
        let ended = self.within(LIMIT, timeout(PATIENCE, self.endless(method, client, ask, LIMIT))).await;
        let after = u32::try_from(clock::now().since(began).as_millis()).unwrap_or(u32::MAX);
        let ended = ended.map_err(|_| format!("no end within {} ms", PATIENCE.as_millis()))?;
        let entry = self.log().ended(&id).await?;
        let code = ended.status.as_ref().map_or(Code::Ok, Status::code);
        let streams_down = matches!(method, "ServerStream" | "Bidi");
        let holds = code == Code::DeadlineExceeded && at_limit(after) && (!streams_down || ended.items > 0);
        let items = if streams_down { format!(" and {} items", ended.items) } else { String::new() };
        let said = format!(
            "{code:?} after {after} of {LIMIT_MS} ms{items}; its handler {} after {} ms",
            entry.ended, entry.after_ms
        );
        Ok(Finding::when(holds, said))
    }

    /// Calls until somebody ends it.
    async fn endless(&self, method: &str, mut client: ProbeClient<Line>, ask: Ask, budget: Duration) -> Ended {
        let only = |result: Result<_, Status>| Ended { items: 0, status: result.err() };
        match method {
            "Unary" => {
                let ask = Ask { work_ms: LONG_MS, ..ask };
                only(client.unary(self.request(ask, budget)).await.map(|_| ()))
            }
            "ServerStream" => {
                let ask = Ask { items: LONG_MS / 50, every_ms: 50, ..ask };
                to_the_end(client.server_stream(self.request(ask, budget)).await).await
            }
            "ClientStream" => only(client.client_stream(self.request(endless_asks(ask), budget)).await.map(|_| ())),
            _ => to_the_end(client.bidi(self.request(endless_asks(ask), budget)).await).await,
        }
    }

    async fn nothing_left(&self) -> Result<Finding, Error> {
        let (ask, mut client) = (Ask { work_ms: LONG_MS, ..self.ask("late") }, self.client()?);
        let id = ask.id.clone();
        let result = self.within(Duration::from_millis(1), async {
            sleep(Duration::from_millis(5)).await;
            timeout(PATIENCE, client.unary(self.request(ask, Duration::ZERO))).await
        });
        let code = result.await?.err().map_or(Code::Ok, |status| status.code());
        let arrived = !self.log().entries(&id).await?.is_empty();
        let said = format!("{code:?}, peer's handler {}", if arrived { "ran" } else { "never ran" });
        Ok(Finding::when(code == Code::DeadlineExceeded && !arrived, said))
    }

    async fn leave(&self, method: &'static str) -> Result<Finding, Error> {
        let (ask, client) = (self.ask(method), self.client()?);
        let (id, budget) = (ask.id.clone(), Duration::from_millis(LONG_MS.into()));
        let call = self.within(budget, self.endless(method, client, ask, budget));
        // Dropped by the select once the peer has begun.
        tokio::select! {
            ended = call => return Err(format!("it ended: {:?}", ended.status).into()),
            started = self.log().started(&id) => started?,
        };
        let entry = self.log().ended(&id).await?;
        Ok(Finding::when(true, format!("its handler {} after {} ms", entry.ended, entry.after_ms)))
    }

    async fn statuses(&self) -> Result<Finding, Error> {
        let mut client = self.client()?;
        let mut wrong = Vec::new();
        for number in 1..=16 {
            let ask = Ask { fail: number, ..self.ask("status") };
            let answer = self.within(PATIENCE, client.unary(self.request(ask, PATIENCE))).await;
            let code = answer.err().map_or(Code::Ok, |status| status.code());
            if u32::try_from(code as i32) != Ok(number) {
                wrong.push(format!("{number} arrives as {code:?}"));
            }
        }
        Ok(Finding::when(wrong.is_empty(), if wrong.is_empty() { "1 to 16".to_owned() } else { wrong.join(", ") }))
    }

    async fn metadata(&self) -> Result<Finding, Error> {
        let mut client = self.client()?;
        let request = |fail| {
            let mut request = self.request(Ask { fail, ..self.ask("metadata") }, PATIENCE);
            add(request.metadata_mut())?;
            Ok::<_, Error>(request)
        };
        let answer = self.within(PATIENCE, client.unary(request(0)?)).await?;
        fields::intact(&pairs(answer.metadata())).map_err(|error| format!("with the head: {error}"))?;
        let failed = self.within(PATIENCE, client.unary(request(9)?)).await.err().ok_or("a failure was asked for")?;
        fields::intact(&pairs(failed.metadata())).map_err(|error| format!("with the failure: {error}"))?;
        let details = RpcStatus::decode(failed.details())?.details;
        let info = ErrorInfo::decode(details.first().ok_or("no details")?.value.as_slice())?;
        Ok(Finding::when(info.reason == "PROBE", format!("with the head, with a failure; ErrorInfo {}", info.reason)))
    }
}

async fn to_the_end(answer: Result<tonic::Response<tonic::Streaming<Told>>, Status>) -> Ended {
    let mut stream = match answer {
        Ok(answer) => answer.into_inner(),
        Err(status) => return Ended { items: 0, status: Some(status) },
    };
    let mut items = 0;
    loop {
        match stream.message().await {
            Ok(Some(_)) => items += 1,
            Ok(None) => return Ended { items, status: None },
            Err(status) => return Ended { items, status: Some(status) },
        }
    }
}

/// A message every 50 ms.
fn endless_asks(ask: Ask) -> impl Stream<Item = Ask> + Send + 'static {
    let more = stream::unfold(ask.clone(), |ask| async move {
        sleep(Duration::from_millis(50)).await;
        Some((ask.clone(), ask))
    });
    stream::iter([ask]).chain(more).chain(stream::once(pending()))
}

fn add(metadata: &mut MetadataMap) -> Result<(), Error> {
    for (name, value) in fields::metadata() {
        if name.ends_with("-bin") {
            let name = tonic::metadata::MetadataKey::<tonic::metadata::Binary>::from_bytes(name.as_bytes())?;
            metadata.append_bin(name, MetadataValue::from_bytes(&[0, 1, 2, 255]));
        } else {
            let name = tonic::metadata::MetadataKey::<tonic::metadata::Ascii>::from_bytes(name.as_bytes())?;
            metadata.append(name, value.parse()?);
        }
    }
    Ok(())
}

fn pairs(metadata: &MetadataMap) -> Vec<(String, String)> {
    let pairs = metadata.iter().map(|pair| match pair {
        KeyAndValueRef::Ascii(key, value) => (key.to_string(), value.to_str().unwrap_or_default().to_owned()),
        KeyAndValueRef::Binary(key, value) => {
            (key.to_string(), String::from_utf8_lossy(value.as_encoded_bytes()).into_owned())
        }
    });
    pairs.collect()
}
