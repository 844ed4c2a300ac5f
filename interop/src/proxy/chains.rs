//! Two in a row (contract V12): two sidecars, one before a real Envoy, one behind it; and two Envoys as they come, to show that a
//! check can fail. Behind the second stands a service that knows nothing of budgets and writes down what it is told.
//!
//! Decides which listener of the first leads to which of the second.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;

use super::in_a_row::CHECKS;
use super::sidecar::{Settings, Sidecar, Trust};
use crate::Error;
use crate::envoy::caller::{Ask, Seen};
use crate::envoy::proxy::{Envoy, Program, VERSION};
use crate::envoy::service::{Arrival, Service};
use crate::envoy::world::{CONTRACT, DEFAULT, SERVICE, UPSTREAM};
use crate::finding::{Finding, Group, Row};

/// Two in a row, before a service of their own.
pub(super) struct Chain {
    pub(super) name: &'static str,
    /// Where callers of ours call the first.
    pub(super) inside: SocketAddr,
    /// Where others do.
    pub(super) outside: SocketAddr,
    pub(super) service: Service,
    cases: AtomicUsize,
    _sidecars: Vec<Sidecar>,
    _envoys: Vec<Envoy>,
}

/// Runs every check with each of them.
pub(crate) async fn group(sidecar: &Path, envoy: &Program) -> Result<Group, Error> {
    let chains = [two_of_ours(sidecar).await?, ours_first(sidecar, envoy).await?, envoy_first(sidecar, envoy).await?];
    let plain = two_envoys(envoy).await?;
    let found = join_all(chains.iter().chain([&plain]).map(|chain| async {
        let mut findings = Vec::new();
        for check in CHECKS {
            findings.push((chain.name, Finding::of(chain.run(check).await)));
        }
        findings
    }));
    let mut columns: Vec<_> = found.await.into_iter().map(Vec::into_iter).collect();
    let mut rows = Vec::new();
    for check in CHECKS {
        let mut cells: Vec<_> = columns.iter_mut().filter_map(Iterator::next).collect();
        let plain = cells.pop().ok_or("no finding")?;
        rows.push(Row { check: check.name(), ours: cells, plain });
    }
    Ok(Group { title: "two in a row".to_owned(), peer: format!("Envoy {VERSION}"), rows })
}

async fn two_of_ours(sidecar: &Path) -> Result<Chain, Error> {
    let service = Service::naive().await?;
    let second = ours(sidecar, "second", service.address).await?;
    let first = ours(sidecar, "first", second.at(Trust::Inside)?).await?;
    Chain::of("ours, ours", (first.at(Trust::Inside)?, first.at(Trust::Outside)?), service, vec![first, second], vec![])
}

async fn ours_first(sidecar: &Path, envoy: &Program) -> Result<Chain, Error> {
    let service = Service::naive().await?;
    let second = Envoy::start(envoy, "behind-ours", CONTRACT, &[(SERVICE, service.address)]).await?;
    let first = ours(sidecar, "before-envoy", second.at("inbound")?).await?;
    let doors = (first.at(Trust::Inside)?, first.at(Trust::Outside)?);
    Chain::of("ours, Envoy", doors, service, vec![first], vec![second])
}

async fn envoy_first(sidecar: &Path, envoy: &Program) -> Result<Chain, Error> {
    let service = Service::naive().await?;
    let second = ours(sidecar, "behind-envoy", service.address).await?;
    // A caller's `outbound` leads to ours; its `edge`, to which outsiders come, to where ours trusts nobody.
    let leads_to = [(UPSTREAM, second.at(Trust::Inside)?), (SERVICE, second.at(Trust::Outside)?)];
    let first = Envoy::start(envoy, "before-ours", CONTRACT, &leads_to).await?;
    Chain::of("Envoy, ours", (first.at("outbound")?, first.at("edge")?), service, vec![second], vec![first])
}

async fn two_envoys(envoy: &Program) -> Result<Chain, Error> {
    let service = Service::naive().await?;
    let second = Envoy::start(envoy, "second", DEFAULT, &[(SERVICE, service.address)]).await?;
    let first = Envoy::start(envoy, "first", DEFAULT, &[(SERVICE, second.at("plain")?)]).await?;
    Chain::of("Envoy, Envoy", (first.at("plain")?, first.at("plain")?), service, vec![], vec![first, second])
}

async fn ours(program: &Path, name: &str, upstream: SocketAddr) -> Result<Sidecar, Error> {
    let upstream = upstream.to_string();
    let settings = Settings { name, upstream: &upstream, when_absent: "2s", ceiling: "10s", tls: None };
    Sidecar::start(program, &settings).await
}

// === Chain ===

impl Chain {
    fn of(
        name: &'static str,
        (inside, outside): (SocketAddr, SocketAddr),
        service: Service,
        sidecars: Vec<Sidecar>,
        envoys: Vec<Envoy>,
    ) -> Result<Self, Error> {
        let cases = AtomicUsize::new(0);
        Ok(Self { name, inside, outside, service, cases, _sidecars: sidecars, _envoys: envoys })
    }

    /// The name for one more call.
    pub(super) fn case(&self) -> String {
        format!("{} {}", self.name, self.cases.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends it to the first; what the caller saw, and what arrived at the service once work on that is over.
    pub(super) async fn call(&self, to: SocketAddr, ask: Ask) -> Result<(Seen, Vec<Arrival>), Error> {
        let case = self.case();
        let seen = ask.field("x-case", &case).send(to).await?;
        Ok((seen, self.service.log.over(&case).await?))
    }
}
