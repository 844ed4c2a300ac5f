//! Our own client as a caller: one POST, what came of it, and what is known of the far side afterwards.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use oneclock::Operation;
use oneclock::events::{Called, Event, Observer};
use oneclock_core::wire::Conventions;
use oneclock_core::{Outcome, Trust};
use oneclock_http::{Client, collect};

use super::service::Arrival;
use super::world::World;

/// Keeps what became of the last call.
#[derive(Debug, Default)]
struct Last(Mutex<Option<Called>>);

/// One call of our client.
pub(crate) struct Call {
    pub(crate) status: Result<u16, String>,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) reason: String,
    pub(crate) overloaded: String,
    pub(crate) arrivals: Vec<Arrival>,
}

impl Observer for Last {
    fn on(&self, event: &Event<'_>) {
        if let Event::Called(called) = event {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((*called).clone());
        }
    }
}

impl Call {
    pub(crate) fn one(&self) -> Result<&Arrival, String> {
        match self.arrivals.as_slice() {
            [one] => Ok(one),
            other => Err(format!("{} requests arrived instead of one; caller: {:?}", other.len(), self.status)),
        }
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let outcome = self.outcome.map_or_else(|| "none".to_owned(), |outcome| outcome.to_string());
        let status = match &self.status {
            Ok(status) => status.to_string(),
            Err(error) => error.clone(),
        };
        let arrivals: Vec<_> = self.arrivals.iter().map(|arrival| format!("service: {}", arrival.line())).collect();
        arrivals.into_iter().chain([format!("our client: {status}; outcome: {outcome}")])
    }
}

/// A POST of our client over HTTP/1.1 within `budget`.
pub(crate) async fn post(
    world: &World,
    to: Result<SocketAddr, String>,
    path: &str,
    (tells, budget, work): (Conventions, Duration, &str),
) -> Result<Call, String> {
    let case = world.case();
    let client = Client::builder("upstream", format!("http://{}", to?)).tells(tells).trust(Trust::Inside);
    let client = client.build().map_err(|error| error.to_string())?;
    let last = Arc::new(Last::default());
    let operation = Operation::begin("row", budget).observed_by(Arc::<Last>::clone(&last));
    let request = Request::post(path).header("x-case", &case).header("x-work", work);
    let request = request.body(Full::<Bytes>::default()).map_err(|error| error.to_string())?;
    let (mut reason, mut overloaded) = (String::new(), String::new());
    let status = match client.request_in(&operation, request).await {
        Ok(answer) => {
            let said =
                |name| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
            (reason, overloaded) = (said("oneclock-reason"), said("x-envoy-overloaded"));
            let status = answer.status().as_u16();
            collect(answer.into_body(), 1 << 20).await.map(|_| status).map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    let outcome = last.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|called| called.outcome);
    Ok(Call { status, outcome, reason, overloaded, arrivals: world.over(&case).await? })
}
