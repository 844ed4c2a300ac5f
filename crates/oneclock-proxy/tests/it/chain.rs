//! Two proxies in a row, each in a runtime of its own, as two processes would be. Decides what has to become of a request there:
//! it arrives with no more than was said, or is answered and does not arrive.

use std::net::SocketAddr;
use std::thread::JoinHandle;

use http::{HeaderMap, StatusCode};
use oneclock::clock;
use oneclock_core::Trust;
use oneclock_core::wire::{Conventions, Read};
use oneclock_proxy::Proxy;
use oneclock_proxy::config::Config;
use oneclock_test::Protocol;
use oneclock_test::caller::{Caller, H2Caller};
use oneclock_test::peer::Peer;
use tokio::sync::oneshot;

use crate::common::{config, ms, whole_h1, whole_h2};

pub(crate) const WHEN_ABSENT: u64 = 2_000;
pub(crate) const CEILING: u64 = 10_000;
/// The least that is useful, unless a route says something else.
pub(crate) const LEAST: u64 = 5;
/// More than two hops need on a busy machine: with less left, a request may be refused on its way.
pub(crate) const SPENT: u64 = 1_500;

pub(crate) const EVERY_TRUST: [(Trust, Trust); 4] = [
    (Trust::Inside, Trust::Inside),
    (Trust::Outside, Trust::Inside),
    (Trust::Inside, Trust::Outside),
    (Trust::Outside, Trust::Outside),
];

/// A proxy in a thread of its own, until it is dropped.
pub(crate) struct Apart {
    pub(crate) addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A caller's side of the first of two, and what is behind the second.
pub(crate) struct Chain {
    pub(crate) first: Apart,
    _second: Apart,
    trust: (Trust, Trust),
}

/// What has to become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// It arrives, and its fields say at most so much.
    AtMost(u64),
    /// It is answered so, and the service never hears of it.
    Refused(StatusCode, &'static str),
}

impl Apart {
    pub(crate) fn start(config: Config) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, addr) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let proxy = Proxy::start(config).await.expect("it starts");
                tell.send(proxy.addresses()[0].1).expect("somebody waits");
                let _ = stopped.await;
                proxy.shutdown().await;
            });
        });
        Self { addr: addr.recv().expect("it starts"), stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || std::thread::panicking(), "a proxy panicked");
        }
    }
}

impl Chain {
    /// Two in a row before `service`, whose callers are trusted so. The second tells it in every field that there is.
    pub(crate) fn before(service: SocketAddr, protocol: Protocol, trust: (Trust, Trust)) -> Self {
        let mut last = config(service, protocol);
        last.listeners[0].trust = trust.1;
        for upstream in last.upstreams.values_mut() {
            upstream.tells = Some(Conventions::default_set());
        }
        let second = Apart::start(last);
        let mut outer = config(second.addr, protocol);
        outer.listeners[0].trust = trust.0;
        Self { first: Apart::start(outer), _second: second, trust }
    }

    /// The most that anybody gets.
    fn most(&self) -> u64 {
        if self.trust == (Trust::Inside, Trust::Inside) { CEILING } else { WHEN_ABSENT }
    }

    pub(crate) fn no_more_than(&self, said: u64) -> Want {
        match said {
            0 => Want::Refused(StatusCode::GATEWAY_TIMEOUT, "expired_before_start"),
            1..LEAST => Want::Refused(StatusCode::GATEWAY_TIMEOUT, "insufficient_budget"),
            _ => Want::AtMost(said.min(self.most())),
        }
    }

    /// Asks, and looks at what became of it.
    pub(crate) async fn check(&self, service: &Peer, fields: &[(&str, String)], want: Want) -> Result<(), String> {
        let before = service.requests();
        let mut call = Caller::h1(self.first.addr).get("/stock");
        for (name, value) in fields {
            call = call.header(name, value);
        }
        let (status, headers, _) = whole_h1(call.answer().await.expect("sent"));
        self.judge(service, before, (status, &headers), want).await
    }

    pub(crate) async fn check_h2(
        &self,
        caller: &H2Caller,
        service: &Peer,
        fields: &[(&str, String)],
        want: Want,
    ) -> Result<(), String> {
        let before = service.requests();
        let call = fields.iter().fold(caller.get("/stock"), |call, (name, value)| call.header(name, value));
        let (status, headers, ..) = whole_h2(call.send().await.expect("sent").answer().await);
        self.judge(service, before, (status, &headers), want).await
    }

    async fn judge(
        &self,
        service: &Peer,
        before: usize,
        (status, headers): (StatusCode, &HeaderMap),
        want: Want,
    ) -> Result<(), String> {
        let arrived = service.requests() - before;
        let reason = headers.get("oneclock-reason").map(|reason| reason.as_bytes());
        match want {
            // The time that is spent on the way may be all that there was.
            Want::AtMost(said) if said < SPENT && status == StatusCode::GATEWAY_TIMEOUT => Ok(()),
            Want::AtMost(said) => {
                if (status, arrived) != (StatusCode::OK, 1) {
                    return Err(format!("{status}, {reason:?}, arrived {arrived} times"));
                }
                let seen = service.await_requests(before + 1).await.expect("a request");
                says_at_most(&seen.headers, said)
            }
            // A busy machine may take the last milliseconds for itself.
            Want::Refused(StatusCode::GATEWAY_TIMEOUT, "insufficient_budget")
                if (status, reason) == (StatusCode::GATEWAY_TIMEOUT, Some(b"expired_before_start")) && arrived == 0 =>
            {
                Ok(())
            }
            Want::Refused(code, why) if (status, reason, arrived) == (code, Some(why.as_bytes()), 0) => Ok(()),
            Want::Refused(..) => Err(format!("{status}, {reason:?}, arrived {arrived} times")),
        }
    }
}

/// Every field that a service may read, each of them once.
pub(crate) fn says_at_most(seen: &HeaderMap, most: u64) -> Result<(), String> {
    for convention in &Conventions::default_set() {
        let name = convention.name();
        let values: Vec<_> = seen.get_all(name.as_str()).iter().collect();
        let [value] = values[..] else { return Err(format!("{name}: {values:?}")) };
        let told = match convention.codec().parse(value.as_bytes(), clock::wall()) {
            Read::Valid(told) => told,
            // A moment, which may have passed since it was written.
            Read::Expired if convention.codec().is_absolute() && most < SPENT => continue,
            other => return Err(format!("{name}: {value:?} is {other:?}")),
        };
        if told > ms(most) || told.is_zero() {
            return Err(format!("{name}: {value:?} is {told:?} of {most} ms"));
        }
        if most >= 2 * SPENT && told < ms(most - SPENT) {
            return Err(format!("{name}: {value:?} is {told:?}: where are the rest of {most} ms"));
        }
    }
    Ok(())
}

pub(crate) fn field(name: &'static str, value: impl ToString) -> (&'static str, String) {
    (name, value.to_string())
}
