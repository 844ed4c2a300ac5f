//! Checks where the peer calls us. Decides for each what has to be seen, by the peer and by our handler.

use std::time::Duration;

use super::{End, LIMIT_MS, LONG_MS, PATIENCE, Spot, at_limit, chain, fields, fresh, through};
use crate::Error;
use crate::finding::Finding;
use crate::message::Ask;
use crate::peer::{ANSWERS_WITHIN, Call, Outcome, Over, Peer, Send, Which};

/// Who calls whom.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(super) peer: &'a Peer,
    pub(super) over: Option<Over>,
    /// Its ceiling is above all that peers ask for.
    pub(super) roomy: Spot<'a>,
    /// Its ceiling is [`LIMIT`](super::LIMIT).
    pub(super) tight: Spot<'a>,
    /// Shows what the peer really sends.
    pub(super) plain: Spot<'a>,
    /// The peers that a chain can end at; none where the service calls nobody.
    pub(super) ends: &'a [End<'a>],
    /// What else there is where a sidecar stands between.
    pub(super) doors: Option<&'a through::Doors>,
}

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Deadline,
    DeadlineOfStream(&'static str),
    Told,
    OwnLimit,
    OwnLimitOfStream(&'static str),
    Expired,
    Malformed,
    Twice,
    Cancel,
    CancelStream(&'static str),
    CutUpload(&'static str),
    Metadata,
    DetailsOfHandler,
    DetailsOfDeadline,
    Chain,
    ChainStops,
    Through(through::Check),
}

const STREAMS: [&str; 3] = ["ServerStream", "ClientStream", "Bidi"];

/// Those that this peer takes part in.
pub(crate) fn checks(which: Which) -> Vec<Check> {
    let streams = if which == Which::Connect { &STREAMS[..1] } else { &STREAMS[..] };
    let mut checks = vec![Check::Told, Check::Deadline];
    checks.extend(streams.iter().map(|method| Check::DeadlineOfStream(method)));
    checks.push(Check::OwnLimit);
    checks.extend(streams.iter().map(|method| Check::OwnLimitOfStream(method)));
    checks.extend([Check::Expired, Check::Malformed]);
    if which == Which::Raw {
        checks.push(Check::Twice);
    }
    checks.push(Check::Cancel);
    checks.extend(streams.iter().map(|method| Check::CancelStream(method)));
    // Node ends the messages on the wire before it resets the call, so nobody could tell a part from the whole.
    if matches!(which, Which::PythonSync | Which::PythonAio) {
        checks.extend([Check::CutUpload("ClientStream"), Check::CutUpload("Bidi")]);
    }
    // node:http2 alone knows no metadata and no details.
    if which != Which::Raw {
        checks.extend([Check::Metadata, Check::DetailsOfHandler, Check::DetailsOfDeadline]);
    }
    checks.extend([Check::Chain, Check::ChainStops]);
    checks
}

impl Check {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Deadline => "deadline, unary",
            Self::DeadlineOfStream("ServerStream") => "deadline, server stream",
            Self::DeadlineOfStream("ClientStream") => "deadline, client stream",
            Self::DeadlineOfStream(_) => "deadline, bidi",
            Self::Told => "our handler knows what is left",
            Self::OwnLimit => "our ceiling, unary",
            Self::OwnLimitOfStream("ServerStream") => "our ceiling, server stream",
            Self::OwnLimitOfStream("ClientStream") => "our ceiling, client stream",
            Self::OwnLimitOfStream(_) => "our ceiling, bidi",
            Self::Expired => "expired on arrival",
            Self::Malformed => "malformed timeouts",
            Self::Twice => "the field twice",
            Self::Cancel => "peer cancels, unary",
            Self::CancelStream("ServerStream") => "peer cancels, server stream",
            Self::CancelStream("ClientStream") => "peer cancels, client stream",
            Self::CancelStream(_) => "peer cancels, bidi",
            Self::CutUpload("ClientStream") => "a cut upload, client stream",
            Self::CutUpload(_) => "a cut upload, bidi",
            Self::Metadata => "metadata intact",
            Self::DetailsOfHandler => "details of a failure",
            Self::DetailsOfDeadline => "details of a deadline",
            Self::Chain => "chain: what is left at its end",
            Self::ChainStops => "chain: its end stops",
            Self::Through(check) => check.name(),
        }
    }
}

impl Scene<'_> {
    pub(crate) async fn run(&self, check: Check) -> Result<Finding, Error> {
        match check {
            Check::Deadline => self.deadline("Unary").await,
            Check::DeadlineOfStream(method) => self.deadline(method).await,
            Check::Told => self.told().await,
            Check::OwnLimit => self.own_limit("Unary").await,
            Check::OwnLimitOfStream(method) => self.own_limit(method).await,
            Check::Expired => fields::expired(self).await,
            Check::Malformed => fields::malformed(self).await,
            Check::Twice => fields::twice(self).await,
            Check::Cancel => self.cancel("Unary").await,
            Check::CancelStream(method) => self.cancel(method).await,
            Check::CutUpload(method) => self.cut_upload(method).await,
            Check::Metadata => self.metadata().await,
            Check::DetailsOfHandler => self.details_of_handler().await,
            Check::DetailsOfDeadline => self.details_of_deadline().await,
            Check::Chain => chain::reduced(self).await,
            Check::ChainStops => chain::stops(self).await,
            Check::Through(check) => check.run(self).await,
        }
    }

    /// A call of this method that goes on until somebody ends it.
    pub(super) fn endless(&self, method: &'static str, at: &Spot<'_>) -> Call {
        let ask = match method {
            "Unary" => Ask { work_ms: LONG_MS, ..Ask::default() },
            "ServerStream" => Ask { items: LONG_MS / 50, every_ms: 50, ..Ask::default() },
            _ => Ask::default(),
        };
        // A write of grpcio's asyncio that meets the end of its call makes INTERNAL of it, whatever the end was.
        let items = if self.peer.which == Which::PythonAio { 2 } else { LONG_MS / 50 };
        let send = match method {
            "ClientStream" | "Bidi" => Send { items, every_ms: 50, open: true },
            _ => Send::default(),
        };
        Call { send, ..self.call(method, at, ask) }
    }

    pub(super) fn call(&self, method: &'static str, at: &Spot<'_>, ask: Ask) -> Call {
        let ask = Ask { id: fresh(self.peer.which, method), ..ask };
        let target = at.address.clone();
        let give_up = PATIENCE + Duration::from_secs(1);
        Call {
            method,
            target,
            ask,
            over: self.over,
            give_up_ms: u32::try_from(give_up.as_millis()).ok(),
            ..Call::default()
        }
    }

    /// The call with a timeout, as the peer's own API sets it.
    pub(super) fn within(&self, ms: u32, mut call: Call) -> Call {
        if self.peer.which == Which::Raw {
            call.metadata.push(("grpc-timeout".to_owned(), format!("{ms}m")));
        } else {
            call.timeout_ms = Some(ms);
        }
        call
    }

    async fn told(&self) -> Result<Finding, Error> {
        let ms = 5_000;
        let call = self.within(ms, self.call("Unary", &self.roomy, Ask::default()));
        let told = self.peer.call(&call, ANSWERS_WITHIN).await?.told.ok_or("no answer")?;
        // A call begins before its head arrives, so less is left; some round what they send up by less than one.
        let holds = told.has_deadline && (1..=ms + 1).contains(&told.left_ms);
        let said = if told.has_deadline { format!("{} of {ms} ms", told.left_ms) } else { "nothing".to_owned() };
        Ok(Finding::when(holds, said))
    }

    async fn deadline(&self, method: &'static str) -> Result<Finding, Error> {
        let call = self.within(LIMIT_MS, self.endless(method, &self.roomy));
        self.ends_at_limit(&call, &self.roomy).await
    }

    async fn own_limit(&self, method: &'static str) -> Result<Finding, Error> {
        let call = self.within(LONG_MS, self.endless(method, &self.tight));
        self.ends_at_limit(&call, &self.tight).await
    }

    async fn ends_at_limit(&self, call: &Call, at: &Spot<'_>) -> Result<Finding, Error> {
        let outcome = self.peer.call(call, PATIENCE).await?;
        let entry = at.log.ended(&call.ask.id).await;
        let after = outcome.after_ms;
        let mut said = format!("{} after {after} of {LIMIT_MS} ms", outcome.code);
        let mut holds = outcome.code == "DEADLINE_EXCEEDED" && at_limit(after);
        if matches!(call.method, "ServerStream" | "Bidi") {
            said += &format!(" and {} items", outcome.items);
            holds &= outcome.items > 0;
        }
        if outcome.code != "DEADLINE_EXCEEDED" {
            said += &format!(" ({})", outcome.message);
        }
        if self.peer.which == Which::Raw {
            said += &format!(" ({})", outcome.message);
            holds &= outcome.partial == 0 && outcome.message.starts_with("HTTP 200, trailers");
        }
        match entry {
            Ok(entry) if entry.items > 0 => {
                said += &format!("; handler {} after {} ms and {} items", entry.ended, entry.after_ms, entry.items);
            }
            Ok(entry) => said += &format!("; handler {} after {} ms", entry.ended, entry.after_ms),
            Err(error) => {
                holds = false;
                said += &format!("; {error}");
            }
        }
        Ok(Finding::when(holds, said))
    }

    async fn cancel(&self, method: &'static str) -> Result<Finding, Error> {
        let at = &self.roomy;
        let log = at.log;
        let call = self.within(LONG_MS, self.endless(method, at));
        let running = self.peer.begin(&call).await?;
        if let Err(error) = log.started(&call.ask.id).await {
            let outcome = running.end(PATIENCE).await?;
            return Err(
                format!("{error}; peer {} after {} ms: {}", outcome.code, outcome.after_ms, outcome.message).into()
            );
        }
        running.cancel().await?;
        let outcome = running.end(PATIENCE).await?;
        let entry = log.ended(&call.ask.id).await?;
        let holds = matches!(outcome.code.as_str(), "CANCELLED" | "RESET");
        let said = format!("peer {}, handler {} after {} ms", outcome.code, entry.ended, entry.after_ms);
        Ok(Finding::when(holds, said))
    }

    /// A handler that reads the end of its messages where the peer left would act on half of them.
    async fn cut_upload(&self, method: &'static str) -> Result<Finding, Error> {
        let at = &self.roomy;
        let log = at.log;
        let call = self.within(LONG_MS, self.endless(method, at));
        let running = self.peer.begin(&call).await?;
        log.once(&call.ask.id, "read", |entry| entry.read > 1).await?;
        running.cancel().await?;
        running.end(PATIENCE).await?;
        let entry = log.ended(&call.ask.id).await?;
        let how = if entry.ended == "cancelled" { "no end of them" } else { "the end, as if they were all" };
        Ok(Finding::when(entry.ended == "cancelled", format!("after {} messages the handler saw {how}", entry.read)))
    }

    async fn metadata(&self) -> Result<Finding, Error> {
        let with = |ask| Call { metadata: fields::metadata(), ..self.call("Unary", &self.roomy, ask) };
        let answered = self.peer.call(&with(Ask::default()), ANSWERS_WITHIN).await?;
        fields::intact(&answered.initial).map_err(|error| format!("with the head: {error}"))?;
        let failed = self.fail(with(Ask { fail: 9, ..Ask::default() })).await?;
        fields::intact(&failed.trailing).map_err(|error| format!("with the failure: {error}"))?;
        Ok(Finding::when(answered.code == "OK", "text, bytes, twice the same; with the head, with a failure"))
    }

    async fn details_of_handler(&self) -> Result<Finding, Error> {
        let outcome = self.fail(self.call("Unary", &self.roomy, Ask { fail: 9, ..Ask::default() })).await?;
        let info = outcome.info.ok_or("no ErrorInfo")?;
        Ok(Finding::when(
            info.reason == "PROBE",
            format!("FAILED_PRECONDITION, ErrorInfo {} of {}", info.reason, info.domain),
        ))
    }

    async fn fail(&self, call: Call) -> Result<Outcome, Error> {
        let outcome = self.peer.call(&call, ANSWERS_WITHIN).await?;
        if (outcome.code.as_str(), outcome.message.as_str()) != ("FAILED_PRECONDITION", "as asked") {
            return Err(format!("a failure arrives as {}: {}", outcome.code, outcome.message).into());
        }
        Ok(outcome)
    }

    async fn details_of_deadline(&self) -> Result<Finding, Error> {
        let call = self.within(LONG_MS, self.endless("Unary", &self.tight));
        let outcome = self.peer.call(&call, PATIENCE).await?;
        let info = outcome.info.ok_or_else(|| format!("{}: {}: no ErrorInfo", outcome.code, outcome.message))?;
        let holds = outcome.code == "DEADLINE_EXCEEDED" && info.domain == "oneclock" && !info.reason.is_empty();
        Ok(Finding::when(holds, format!("ErrorInfo {} of {}, {}", info.reason, info.domain, info.metadata)))
    }
}
