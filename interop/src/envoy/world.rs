//! All that the rows need, running: the services, and Envoys with each configuration, alone and two in a row.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::caller::{Ask, Seen};
use super::proxy::{Envoy, Program};
use super::resets::Resets;
use super::service::{Arrival, Service};

/// As it comes.
pub(crate) const DEFAULT: &str = include_str!("../../envoy/default.yaml");
const VARIANTS: &str = include_str!("../../envoy/variants.yaml");
/// The settings that keep the contract.
pub(crate) const CONTRACT: &str = include_str!("../../envoy/contract.yaml");

/// Ports in those files, and whose they are.
pub(crate) const SERVICE: u16 = 18080;
const NAIVE: u16 = 18081;
const RESETS: u16 = 18082;
const DEAF: u16 = 18083;
const DIES: u16 = 18084;
const DEAD: u16 = 18089;
pub(crate) const UPSTREAM: u16 = 18090;

/// Everything, until it is dropped.
pub(crate) struct World {
    pub(crate) ours: Service,
    pub(crate) naive: Service,
    /// Ours, but it does not read what Envoy writes.
    deaf: Service,
    pub(crate) resets: Mutex<Resets>,
    /// Before our service; as Envoy comes.
    plain: Envoy,
    /// Before the naive service; as Envoy comes.
    plain_to_naive: Envoy,
    /// Before `plain`.
    plain_to_plain: Envoy,
    pub(crate) variants: Envoy,
    pub(crate) contract: Envoy,
    /// Its `outbound` leads to the `inbound` of `contract`, its `inbound` and `edge` to the naive service.
    contract_to_contract: Envoy,
    /// Its `inbound` leads to `resets`.
    contract_to_resets: Envoy,
    cases: AtomicUsize,
    _tasks: JoinSet<()>,
}

/// One call, from both ends.
pub(crate) struct Told {
    pub(crate) seen: Seen,
    pub(crate) arrivals: Vec<Arrival>,
}

// === World ===

impl World {
    pub(crate) async fn start(program: &Program) -> Result<Self, String> {
        let (ours, naive, resets) = (Service::ours().await?, Service::naive().await?, Resets::start().await?);
        let (deaf, dead) = (Service::deaf().await?, nobody().await?);
        let mut tasks = JoinSet::new();
        let dies = dies(&mut tasks).await?;
        let plain = Envoy::start(program, "plain", DEFAULT, &[(SERVICE, ours.address)]).await?;
        let plain_to_naive = Envoy::start(program, "plain-to-naive", DEFAULT, &[(SERVICE, naive.address)]).await?;
        let plain_to_plain = Envoy::start(program, "plain-to-plain", DEFAULT, &[(SERVICE, plain.at("plain")?)]).await?;
        let services = [
            (SERVICE, ours.address),
            (NAIVE, naive.address),
            (RESETS, resets.address),
            (DEAF, deaf.address),
            (DIES, dies),
            (DEAD, dead),
        ];
        let variants = Envoy::start(program, "variants", VARIANTS, &services).await?;
        let services = [(SERVICE, ours.address), (UPSTREAM, naive.address), (DEAD, dead), (DIES, dies)];
        let contract = Envoy::start(program, "contract", CONTRACT, &services).await?;
        let services = [(SERVICE, naive.address), (UPSTREAM, contract.at("inbound")?), (DEAD, dead)];
        let contract_to_contract = Envoy::start(program, "contract-to-contract", CONTRACT, &services).await?;
        let services = [(SERVICE, resets.address)];
        let contract_to_resets = Envoy::start(program, "contract-to-resets", CONTRACT, &services).await?;
        Ok(Self {
            ours,
            naive,
            deaf,
            resets: Mutex::new(resets),
            plain,
            plain_to_naive,
            plain_to_plain,
            variants,
            contract,
            contract_to_contract,
            contract_to_resets,
            cases: AtomicUsize::new(0),
            _tasks: tasks,
        })
    }

    /// An Envoy as it comes, before our service.
    pub(crate) fn plain(&self) -> Result<SocketAddr, String> {
        self.plain.at("plain")
    }

    /// The same before the naive service.
    pub(crate) fn plain_to_naive(&self) -> Result<SocketAddr, String> {
        self.plain_to_naive.at("plain")
    }

    /// Two in a row, as they come, before our service.
    pub(crate) fn plain_to_plain(&self) -> Result<SocketAddr, String> {
        self.plain_to_plain.at("plain")
    }

    /// One with the settings, before our service; `inbound` or `edge`.
    pub(crate) fn kept(&self, listener: &str) -> Result<SocketAddr, String> {
        self.contract.at(listener)
    }

    /// The same before the naive service.
    pub(crate) fn kept_to_naive(&self, listener: &str) -> Result<SocketAddr, String> {
        match listener {
            "outbound" => self.contract.at(listener),
            _ => self.contract_to_contract.at(listener),
        }
    }

    /// The `inbound` of one with the settings, before the service that writes down resets.
    pub(crate) fn kept_to_resets(&self) -> Result<SocketAddr, String> {
        self.contract_to_resets.at("inbound")
    }

    /// A caller's `outbound`, then the `inbound` of our service.
    pub(crate) fn kept_to_kept(&self) -> Result<SocketAddr, String> {
        self.contract_to_contract.at("outbound")
    }

    /// The name for one more call.
    pub(crate) fn case(&self) -> String {
        format!("case-{}", self.cases.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends it; what the caller saw, and what the service did once that is over.
    pub(crate) async fn call(&self, to: Result<SocketAddr, String>, ask: Ask) -> Result<Told, String> {
        let case = self.case();
        let seen = ask.field("x-case", &case).send(to?).await?;
        Ok(Told { seen, arrivals: self.over(&case).await? })
    }

    /// Sends it, and leaves once the work began. How long after that the work ended.
    pub(crate) async fn leave(&self, to: Result<SocketAddr, String>, ask: Ask) -> Result<(Duration, Told), String> {
        let case = self.case();
        let begun = async {
            tokio::select! { _ = self.ours.log.begun(&case) => {}, _ = self.naive.log.begun(&case) => {} }
        };
        let left = ask.field("x-case", &case).leave_at(to?, begun).await?;
        let told = Told { seen: Seen::default(), arrivals: self.over(&case).await? };
        let ended = told.one()?.ended.ok_or("the work has no end")?.1;
        Ok((ended.since(left), told))
    }

    /// What arrived for this case at any service, once the work for it is over.
    pub(crate) async fn over(&self, case: &str) -> Result<Vec<Arrival>, String> {
        let mut arrivals = self.ours.log.over(case).await?;
        arrivals.extend(self.naive.log.over(case).await?);
        arrivals.extend(self.deaf.log.over(case).await?);
        Ok(arrivals)
    }
}

/// An address at which nothing listens.
async fn nobody() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
    listener.local_addr().map_err(|error| error.to_string())
}

/// One that takes a request and closes the connection without an answer.
async fn dies(tasks: &mut JoinSet<()>) -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    tasks.spawn(async move {
        while let Ok((mut io, _)) = listener.accept().await {
            let _ = io.read(&mut [0; 64 << 10]).await;
        }
    });
    Ok(address)
}

// === Told ===

impl Told {
    /// The only request that arrived.
    pub(crate) fn one(&self) -> Result<&Arrival, String> {
        match self.arrivals.as_slice() {
            [one] => Ok(one),
            other => Err(format!("{} requests arrived instead of one; caller: {}", other.len(), self.seen.line())),
        }
    }

    /// What each request said in this field.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.arrivals.iter().map(|arrival| arrival.said(name)).collect()
    }

    /// Both ends, each in one line.
    pub(crate) fn lines(&self) -> Vec<String> {
        let arrivals = self.arrivals.iter().map(|arrival| format!("service: {}", arrival.line()));
        let seen =
            (self.seen.status.is_some() || self.seen.cut.is_some()).then(|| format!("caller: {}", self.seen.line()));
        arrivals.chain(seen).collect()
    }
}
