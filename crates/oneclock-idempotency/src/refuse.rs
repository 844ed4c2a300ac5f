//! The only place where a refusal becomes an answer (contract M7).

use bytes::Bytes;
use http::header::LINK;
use http::{HeaderValue, Response, StatusCode};
use oneclock_core::idempotency::{Handle, Refusal, Scope, retry_after};
use oneclock_core::{Outcome, Stage, Trust};
use oneclock_http::{Problem, Protocol};
use std::time::Duration;

/// Where a caller may ask what became of its operation.
#[derive(Clone, Copy)]
pub(crate) struct MonitorLink<'a> {
    /// The path of the monitor, without the handle.
    pub(crate) at: Option<&'a str>,
    pub(crate) scope: &'a Scope,
}

/// In the extensions of an answer: it leaves open what was done, whatever its status.
#[derive(Clone, Copy)]
pub(crate) struct LeftOpen;

/// The answer for `refusal`. `detail` is for everybody.
pub(crate) fn answer(
    refusal: Refusal,
    detail: Option<String>,
    lease_left: Duration,
    protocol: Protocol,
) -> Response<Bytes> {
    of_problem(problem(refusal, detail, lease_left), protocol)
}

/// The problem that `refusal` is.
pub(crate) fn problem(refusal: Refusal, detail: Option<String>, lease_left: Duration) -> Problem {
    let status = StatusCode::from_u16(refusal.http_status()).unwrap_or(StatusCode::CONFLICT);
    let problem = Problem::with_status(status, refusal.title()).typed(refusal.as_str(), refusal.grpc_status());
    let problem = problem.with_outcome(match refusal {
        Refusal::InProgress | Refusal::OutcomeUnknown => Outcome::Unknown { stage: Stage::Work },
        Refusal::AnswerNotKept => Outcome::Applied,
        _ => Outcome::NotSent,
    });
    let problem = match detail {
        Some(detail) => problem.detail(detail),
        None => problem,
    };
    if refusal.comes_again() {
        problem.come_again(Duration::from_secs(retry_after(lease_left)))
    } else {
        problem.never_again()
    }
}

/// Nobody knows whose a request is.
pub(crate) fn no_principal(known_by: Option<&str>) -> Problem {
    let problem = Problem::with_status(StatusCode::UNAUTHORIZED, "an idempotency key needs a known caller");
    let known_by = known_by.map(|what| format!("whose key it is, is told by {what}"));
    known_by.into_iter().fold(problem, Problem::detail)
}

/// A problem as for an outsider, and handed on whole to the ingress layer, which writes it anew for whom it trusts.
pub(crate) fn of_problem(problem: Problem, protocol: Protocol) -> Response<Bytes> {
    let mut response = problem.to_answer(protocol, Trust::Outside);
    response.extensions_mut().insert(problem);
    response
}

impl MonitorLink<'_> {
    /// Where it is.
    pub(crate) fn address(self) -> Option<String> {
        self.at.map(|at| format!("{at}/{}", Handle::of(self.scope)))
    }

    /// Adds the link to an answer that leaves something open.
    pub(crate) fn add_to<B>(self, mut response: Response<B>) -> Response<B> {
        if let Some(address) = self.address()
            && let Ok(link) = HeaderValue::try_from(format!("<{address}>; rel=\"monitor\""))
        {
            response.headers_mut().append(LINK, link);
        }
        response
    }
}
