//! Rows with tonic's client at the one end, plain or under our layer, and our layer for tonic at the other.

use std::net::SocketAddr;
use std::time::Duration;

use oneclock::Operation;
use oneclock_core::Outcome;
use oneclock_tonic::{ClientLayer, destination};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tower::Layer as _;

use super::row::{Measured, Row, ms, same};
use super::service::Arrival;
use super::world::World;
use crate::message::Ask;
use crate::probe::client::ProbeClient;

const LONG: &str = "sleep=60000";

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "G1",
        case: "tonic's client under our layer, 400 ms, a service without a clock of its own",
        by_default: "told `grpc-timeout`; our layer ends the call with DEADLINE_EXCEEDED, outcome unknown; Envoy cancels the work",
        kept: "the same",
        measure: |world| Box::pin(ours(world)),
    },
    Row {
        id: "G2",
        case: "tonic's plain client; our service ends a stream at its `when_absent` (800 ms)",
        by_default: "told 15000 (T1): it is the ceiling that ends it, after 5 s. DEADLINE_EXCEEDED in the trailers",
        kept: "DEADLINE_EXCEEDED in the trailers after 800 ms",
        measure: |world| Box::pin(stream(world)),
    },
    Row {
        id: "G3",
        case: "tonic's plain client; a stream with `grpc-timeout: 400m`",
        by_default: "our service ends it: DEADLINE_EXCEEDED in the trailers. Where Envoy is first, by a route's `timeout` or \
                     by `grpc_timeout_header_max`, it is INTERNAL",
        kept: "has neither: DEADLINE_EXCEEDED in the trailers",
        measure: |world| Box::pin(cut(world)),
    },
    Row {
        id: "G4",
        case: "tonic's client under our layer with time left, a route's `timeout` passes",
        by_default: "UNAVAILABLE, outcome unknown: repeated only if the method is declared idempotent",
        kept: "there is no such `timeout`: as G1",
        measure: |world| Box::pin(unavailable(world)),
    },
];

/// One call of tonic's client.
struct Call {
    status: Result<u32, Status>,
    arrivals: Vec<Arrival>,
}

impl Call {
    fn one(&self) -> Result<&Arrival, String> {
        match self.arrivals.as_slice() {
            [one] => Ok(one),
            other => Err(format!("{} requests arrived instead of one; status: {:?}", other.len(), self.status)),
        }
    }

    fn code(&self) -> Code {
        self.status.as_ref().err().map_or(Code::Ok, Status::code)
    }

    fn outcome(&self) -> Option<&'static str> {
        self.status.as_ref().err().and_then(oneclock_tonic::outcome).map(Outcome::as_str)
    }

    fn lines(&self) -> Vec<String> {
        let said = self.status.as_ref().map_or_else(|status| status.message().to_owned(), |n| format!("{n} messages"));
        let arrivals = self.arrivals.iter().map(|arrival| format!("service: {}", arrival.line()));
        arrivals.chain([format!("tonic: {:?}: {said}", self.code())]).collect()
    }
}

fn request(case: &str, work: &str, timeout: Option<&str>) -> Result<Request<Ask>, String> {
    let mut request = Request::new(Ask::default());
    for (name, value) in [("x-case", Some(case)), ("x-work", Some(work)), ("grpc-timeout", timeout)] {
        if let Some(value) = value {
            request.metadata_mut().insert(name, value.parse().map_err(|_| format!("{value} is no metadata"))?);
        }
    }
    Ok(request)
}

fn channel(to: SocketAddr) -> Result<Channel, String> {
    Endpoint::from_shared(format!("http://{to}")).map(|to| to.connect_lazy()).map_err(|error| error.to_string())
}

/// A unary call under our layer, from an operation with this budget.
async fn unary(world: &World, to: SocketAddr, work: &str, budget: Duration) -> Result<Call, String> {
    let case = world.case();
    let peer = destination("peer").build().map_err(|error| error.to_string())?;
    let mut client = ProbeClient::new(ClientLayer::new(peer).layer(channel(to)?));
    let operation = Operation::begin("row", budget);
    let answer = operation.scope(client.unary(request(&case, work, None)?)).await;
    Ok(Call { status: answer.map(|_| 1), arrivals: world.over(&case).await? })
}

/// A stream to tonic's plain client; how many messages came, or the status that ended it.
async fn messages(world: &World, to: SocketAddr, work: &str, timeout: Option<&str>) -> Result<Call, String> {
    let case = world.case();
    let mut client = ProbeClient::new(channel(to)?);
    let request = request(&case, work, timeout)?;
    let reading = async {
        let mut stream = client.server_stream(request).await?.into_inner();
        let mut read = 0;
        while stream.message().await?.is_some() {
            read += 1;
        }
        Ok(read)
    };
    let status = reading.await;
    Ok(Call { status, arrivals: world.over(&case).await? })
}

async fn ours(world: &World) -> Result<Measured, String> {
    let mut seen = Measured::default();
    for (to, kept) in [(world.plain_to_naive()?, false), (world.kept_to_naive("outbound")?, true)] {
        let call = unary(world, to, LONG, ms(400)).await?;
        same("code", call.code(), Code::DeadlineExceeded)?;
        same("outcome", call.outcome(), Some("unknown"))?;
        same("told", call.one()?.said("grpc-timeout").is_empty(), false)?;
        same("dropped", call.one()?.dropped(), true)?;
        if kept { &mut seen.kept } else { &mut seen.by_default }.extend(call.lines());
    }
    Ok(seen)
}

async fn stream(world: &World) -> Result<Measured, String> {
    let plain = messages(world, world.plain()?, "stream=100", None).await?;
    let kept = messages(world, world.kept("inbound")?, "stream=100", None).await?;
    for call in [&plain, &kept] {
        same("code", call.code(), Code::DeadlineExceeded)?;
        same("dropped", call.one()?.dropped(), true)?;
    }
    same("told", plain.one()?.said("x-envoy-expected-rq-timeout-ms"), "15000")?;
    same("told", kept.one()?.said("x-envoy-expected-rq-timeout-ms"), "")?;
    Ok(Measured { by_default: plain.lines(), kept: kept.lines() })
}

async fn cut(world: &World) -> Result<Measured, String> {
    let (work, timeout) = ("stream=50", Some("400m"));
    let plain = messages(world, world.plain()?, work, timeout).await?;
    let short = messages(world, world.variants.at("short")?, work, None).await?;
    let max = messages(world, world.variants.at("max")?, work, timeout).await?;
    let kept = messages(world, world.kept("inbound")?, work, timeout).await?;
    let codes = [&plain, &short, &max, &kept].map(Call::code);
    let (internal, ours) = (Code::Internal, Code::DeadlineExceeded);
    same("default, timeout, grpc_timeout_header_max, inbound", codes, [ours, internal, internal, ours])?;
    let by_default = [plain.lines(), short.lines(), max.lines()].concat();
    Ok(Measured { by_default, kept: kept.lines() })
}

async fn unavailable(world: &World) -> Result<Measured, String> {
    let call = unary(world, world.variants.at("short")?, LONG, ms(8000)).await?;
    same("code", call.code(), Code::Unavailable)?;
    same("outcome", call.outcome(), Some("unknown"))?;
    same("dropped", call.one()?.dropped(), true)?;
    Ok(Measured { by_default: call.lines(), kept: Vec::new() })
}
