//! What is checked of two in a row. Decides what the caller and the service have to see.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::try_join_all;
use oneclock::clock;
use oneclock_core::wire::{Convention, Conventions, Read};

use super::chains::Chain;
use crate::Error;
use crate::envoy::caller::Ask;
use crate::envoy::service::Arrival;
use crate::finding::{Finding, Verdict};

/// What whoever says nothing gets, and outsiders at most.
const WHEN_ABSENT: u64 = 2_000;
/// Ends here, or no more than ten times later.
const LIMIT: u64 = 400;
const LONG: &str = "sleep=60000";
/// How soon the work must be over after its caller left.
const SOON: Duration = Duration::from_millis(1_500);
const METHOD: &str = "/shop.Orders/Place";

/// How a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Http1,
    Http2,
    Grpc,
}

const HOW: [How; 3] = [How::Http1, How::Http2, How::Grpc];

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    Told,
    Several,
    SaidNothing,
    Outsiders,
    OfEnvoy,
    Expired,
    TooLittle,
    Malformed,
    Ends,
    EndsInTrailers,
    Leaves,
}

pub(super) const CHECKS: [Check; 11] = [
    Check::Told,
    Check::Several,
    Check::SaidNothing,
    Check::Outsiders,
    Check::OfEnvoy,
    Check::Expired,
    Check::TooLittle,
    Check::Malformed,
    Check::Ends,
    Check::EndsInTrailers,
    Check::Leaves,
];

impl Check {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Told => "told no more than was given",
            Self::Several => "several fields: the smallest",
            Self::SaidNothing => "nothing said: a limit all the same",
            Self::Outsiders => "outsiders shorten, and never lengthen",
            Self::OfEnvoy => "a limit that Envoy is given",
            Self::Expired => "zero reaches nobody",
            Self::TooLittle => "one millisecond reaches nobody",
            Self::Malformed => "malformed reaches nobody",
            Self::Ends => "the work ends at the deadline",
            Self::EndsInTrailers => "gRPC's stream ends with status 4",
            Self::Leaves => "the caller leaves: the work ends",
        }
    }
}

impl Chain {
    pub(super) async fn run(&self, check: Check) -> Result<Finding, Error> {
        match check {
            Check::Told => self.told().await,
            Check::Several => self.several().await,
            Check::SaidNothing => self.said_nothing().await,
            Check::Outsiders => self.outsiders().await,
            Check::OfEnvoy => self.of_envoy().await,
            Check::Expired => self.reaches_nobody("0", "0m", 504, Some(4)).await,
            Check::TooLittle => self.reaches_nobody("1", "1m", 504, Some(4)).await,
            Check::Malformed => self.malformed().await,
            Check::Ends => self.ends().await,
            Check::EndsInTrailers => self.ends_in_trailers().await,
            Check::Leaves => self.leaves().await,
        }
    }

    /// Sends it; how much the service was told in the field that says most, which may not be more than this.
    async fn at_most(&self, to: SocketAddr, ask: Ask, most: u64) -> Result<String, String> {
        let (seen, arrivals) = self.call(to, ask).await.map_err(|error| error.to_string())?;
        let [arrival] = &arrivals[..] else {
            return Err(format!("{} arrived instead of one; caller: {}", arrivals.len(), seen.line()));
        };
        let said = said(arrival)?;
        let (name, told) = said.iter().max_by_key(|(_, told)| *told).ok_or("the service is told nothing")?;
        if *told > Duration::from_millis(most) || told.is_zero() {
            return Err(format!("{name} says {told:?} of {most} ms"));
        }
        Ok(format!("{} of {most}", told.as_millis()))
    }

    async fn told(&self) -> Result<Finding, Error> {
        let mut seen = Vec::new();
        for how in HOW {
            for given in [LIMIT, 900, 2_500, 5_500] {
                seen.push((format!("{how:?} {given}"), self.at_most(self.inside, how.within(given), given).await));
            }
        }
        Ok(all(seen))
    }

    async fn several(&self) -> Result<Finding, Error> {
        let mut seen = Vec::new();
        for how in HOW {
            let ask = how.within(5_000).field("x-request-timeout-ms", "900");
            seen.push((format!("{how:?}, two fields"), self.at_most(self.inside, ask, 900).await));
            let ask = how.within(5_000).field(how.field(), how.value(900));
            let twice = if how == How::Grpc && self.name == "Envoy, ours" {
                // It writes both into one field, `5000m,900m`, which is none.
                let (answer, arrivals) = self.call(self.inside, ask).await?;
                let refused = answer.grpc() == Some(13) && arrivals.is_empty();
                if refused { Ok("13, joined by Envoy".to_owned()) } else { Err(answer.line()) }
            } else {
                self.at_most(self.inside, ask, 900).await
            };
            seen.push((format!("{how:?}, one twice"), twice));
        }
        Ok(all(seen))
    }

    async fn said_nothing(&self) -> Result<Finding, Error> {
        let mut seen = Vec::new();
        for how in HOW {
            // Envoy's own limit is what is said then, where it stands first.
            let most = if self.name == "Envoy, ours" && how != How::Grpc { 6_000 } else { WHEN_ABSENT };
            seen.push((format!("{how:?}"), self.at_most(self.inside, how.ask(), most).await));
        }
        Ok(all(seen))
    }

    async fn outsiders(&self) -> Result<Finding, Error> {
        let mut seen = Vec::new();
        for how in HOW {
            seen.push((format!("{how:?} 60000"), self.at_most(self.outside, how.within(60_000), WHEN_ABSENT).await));
            seen.push((format!("{how:?} 900"), self.at_most(self.outside, how.within(900), 900).await));
            let ask = how.ask().field("x-envoy-upstream-rq-timeout-ms", "60000");
            seen.push((format!("{how:?}, Envoy's"), self.at_most(self.outside, ask, WHEN_ABSENT).await));
        }
        Ok(all(seen))
    }

    /// Which it writes on as what it expects. Of ours nobody has asked to read it.
    async fn of_envoy(&self) -> Result<Finding, Error> {
        if !self.name.starts_with("Envoy") {
            return Ok(Finding::not_possible("ours does not read it, unless it is told to"));
        }
        let mut seen = Vec::new();
        for how in [How::Http1, How::Http2] {
            let ask = how.ask().field("x-envoy-upstream-rq-timeout-ms", "900");
            seen.push((format!("{how:?}"), self.at_most(self.inside, ask, 900).await));
        }
        Ok(all(seen))
    }

    async fn reaches_nobody(&self, http: &str, grpc: &str, status: u16, code: Option<u8>) -> Result<Finding, Error> {
        let mut seen = Vec::new();
        for to in [self.inside, self.outside] {
            for how in HOW {
                let value = if how == How::Grpc { grpc } else { http };
                let (answer, arrivals) = self.call(to, how.ask().field(how.field(), value)).await?;
                let right = if how == How::Grpc {
                    (answer.code(), answer.grpc()) == (200, code)
                } else {
                    answer.code() == status
                };
                let line = format!("{}, arrived {} times", answer.line(), arrivals.len());
                let result = if right && arrivals.is_empty() { Ok(answer.code().to_string()) } else { Err(line) };
                seen.push((format!("{how:?} `{value}`"), result));
            }
        }
        Ok(all(seen))
    }

    async fn malformed(&self) -> Result<Finding, Error> {
        for (http, grpc) in [("-1", "-1m"), ("5s", "5"), ("12345678901", "123456789S"), ("1.5", "1.5S")] {
            let found = self.reaches_nobody(http, grpc, 400, Some(13)).await?;
            if found.verdict != Verdict::Holds {
                return Ok(found);
            }
        }
        Ok(Finding::when(true, "400, and 13 for gRPC; no handler ran"))
    }

    async fn ends(&self) -> Result<Finding, Error> {
        let calls = HOW.map(|how| async move {
            let (answer, arrivals) = self.call(self.inside, how.within(LIMIT).field("x-work", LONG)).await?;
            let in_its_words = (answer.code(), answer.grpc()) == (200, Some(4));
            let right = if how == How::Grpc { in_its_words } else { answer.code() == 504 };
            let in_time = at_limit(answer.took);
            let dropped = matches!(&arrivals[..], [arrival] if arrival.dropped());
            let line = answer.line();
            let result = if right && in_time && dropped {
                Ok(format!("{} ms", answer.took.as_millis()))
            } else {
                Err(format!("{line}; {}", arrivals.iter().map(Arrival::line).collect::<Vec<_>>().join("; ")))
            };
            Ok::<_, Error>((format!("{how:?}"), result))
        });
        Ok(all(try_join_all(calls).await?))
    }

    /// Contract X3, V13: at the boundary of a message.
    async fn ends_in_trailers(&self) -> Result<Finding, Error> {
        let ask = How::Grpc.within(LIMIT).field("x-work", "stream=50");
        let (answer, arrivals) = self.call(self.inside, ask).await?;
        let said = answer.trailers.contains_key("grpc-status") && (answer.code(), answer.grpc()) == (200, Some(4));
        let dropped = matches!(&arrivals[..], [arrival] if arrival.dropped());
        Ok(Finding::when(said && dropped && at_limit(answer.took) && !answer.body.is_empty(), answer.line()))
    }

    async fn leaves(&self) -> Result<Finding, Error> {
        let mut seen = Vec::new();
        for how in HOW {
            let case = self.case();
            let begun = async { drop(self.service.log.begun(&case).await) };
            let ask = how.within(5_500).field("x-work", LONG).field("x-case", &case);
            let left = ask.leave_at(self.inside, begun).await?;
            let arrivals = self.service.log.over(&case).await?;
            let [arrival] = &arrivals[..] else { return Err(format!("{} arrived", arrivals.len()).into()) };
            let after = arrival.ended.map(|(_, at)| at.since(left)).ok_or("the work has no end")?;
            let result = if arrival.dropped() && after <= SOON {
                Ok(format!("after {} ms", after.as_millis()))
            } else {
                Err(format!("{} {after:?} after its caller left", arrival.line()))
            };
            seen.push((format!("{how:?}"), result));
        }
        Ok(all(seen))
    }
}

/// Everything that the service is told of its time, in any field that anybody reads. What cannot be read is an error.
fn said(arrival: &Arrival) -> Result<Vec<(String, Duration)>, String> {
    let known = Conventions::new(Convention::ALL).map_err(|error| error.to_string())?;
    let mut said = Vec::new();
    for convention in &known {
        let name = convention.name().as_str();
        for value in arrival.head.get_all(name) {
            match convention.codec().parse(value.as_bytes(), clock::wall()) {
                Read::Valid(told) => said.push((name.to_owned(), told)),
                other => return Err(format!("{name}: {value:?} is {other:?}")),
            }
        }
    }
    Ok(said)
}

fn at_limit(took: Duration) -> bool {
    let limit = Duration::from_millis(LIMIT);
    (limit * 9 / 10..=limit * 10).contains(&took)
}

/// Holds if all of them do; says the first that does not.
fn all(seen: Vec<(String, Result<String, String>)>) -> Finding {
    let wrong: Vec<_> =
        seen.iter().filter_map(|(what, result)| Some(format!("{what}: {}", result.as_ref().err()?))).collect();
    match wrong.first() {
        Some(first) if wrong.len() == 1 => Finding::when(false, first),
        Some(first) => Finding::when(false, format!("{first} (and {} more)", wrong.len() - 1)),
        None => {
            let said: Vec<_> =
                seen.iter().filter_map(|(what, result)| Some(format!("{what} → {}", result.as_ref().ok()?))).collect();
            Finding::when(true, said.join(", "))
        }
    }
}

// === How ===

impl How {
    fn ask(self) -> Ask {
        match self {
            Self::Http1 => Ask::get("/orders"),
            Self::Http2 => Ask::get("/orders").http2(),
            Self::Grpc => Ask::grpc(METHOD),
        }
    }

    const fn field(self) -> &'static str {
        match self {
            Self::Http1 | Self::Http2 => "x-remaining-ms",
            Self::Grpc => "grpc-timeout",
        }
    }

    fn value(self, ms: u64) -> String {
        if self == Self::Grpc { format!("{ms}m") } else { ms.to_string() }
    }

    fn within(self, ms: u64) -> Ask {
        self.ask().field(self.field(), self.value(ms))
    }
}
