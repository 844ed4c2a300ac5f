//! Asking for a place before a request begins.
//!
//! Decides what a request is known by there: its route as the sort of work, its address as its caller. Who has a place, waits or
//! is refused is `oneclock_core::admission`'s decision.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;

use http::Method;
use oneclock::admission::{Asked, Turn, Wants};
use oneclock::{Admission, Place};
use oneclock_core::admission::Refusal;
use oneclock_core::{Deadline, Importance, Tick};

use super::layer::Route;
use crate::Arrival;

/// What a request has before it begins.
pub(super) enum Admitted {
    /// Nothing is scarce here.
    Free,
    /// A place; and where nothing is enforced, why it would have none.
    Has(Place, Option<Box<Refusal>>),
    /// A turn to wait for.
    Waits(Turn),
}

/// The sort of work: what the policy or the router calls it, never what the caller does. `GET /orders/{id}`: the methods of one
/// route seldom take as long.
pub(super) struct Class<'r> {
    method: &'static str,
    route: Option<&'r str>,
}

/// A place for a request with this deadline.
pub(super) fn ask<'r>(
    admission: Option<&Admission>,
    class: impl FnOnce() -> Class<'r>,
    deadline: Deadline,
    importance: Importance,
    arrival: Option<&Arrival>,
    now: Tick,
) -> Result<Admitted, Refusal> {
    let Some(admission) = admission else { return Ok(Admitted::Free) };
    let peer = arrival.map_or(0, peer);
    let asked = class().named(|class| admission.ask(&Wants { class, deadline, importance, peer }, now));
    match asked {
        Asked::Has(place, would_refuse) => Ok(Admitted::Has(place, would_refuse)),
        Asked::Waits(turn) => Ok(Admitted::Waits(turn)),
        Asked::Refused(refusal) => Err(refusal),
    }
}

impl<'r> Class<'r> {
    pub(super) fn of(
        method: &Method,
        route: Option<Route<'r>>,
        listed: impl FnOnce(&'r str) -> Option<&'r str>,
    ) -> Self {
        match route {
            Some(Route::Method(path)) => Self { method: "", route: listed(path) },
            Some(Route::Mounted { pattern, path }) => Self { method: "", route: listed(path).or(Some(pattern)) },
            Some(Route::Pattern(pattern)) => Self { method: known(method), route: Some(pattern) },
            None => Self { method: "", route: None },
        }
    }

    /// Put together without an allocation, which every request would pay for; what is too long goes by its route alone.
    fn named<T>(&self, ask: impl FnOnce(Option<&str>) -> T) -> T {
        let Some(route) = self.route else { return ask(None) };
        let mut name = [0; 64];
        let length = self.method.len() + route.len();
        if self.method.is_empty() || length > name.len() {
            return ask(Some(route));
        }
        name[..self.method.len()].copy_from_slice(self.method.as_bytes());
        name[self.method.len()..length].copy_from_slice(route.as_bytes());
        ask(std::str::from_utf8(&name[..length]).ok())
    }
}

/// Those that routers know; any other is the caller's to choose.
fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET ",
        Method::HEAD => "HEAD ",
        Method::POST => "POST ",
        Method::PUT => "PUT ",
        Method::PATCH => "PATCH ",
        Method::DELETE => "DELETE ",
        Method::OPTIONS => "OPTIONS ",
        _ => "",
    }
}

/// One caller is one address: its connections share their turns. Of IPv6 a network of 64 bits is one, since its owner has as many
/// addresses as it likes. Keyed for each process, so that nobody can choose whose turns to share.
fn peer(arrival: &Arrival) -> u64 {
    static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    match arrival.peer.map(|peer| peer.ip().to_canonical()) {
        None => 0,
        Some(IpAddr::V4(address)) => KEYS.hash_one(address),
        Some(IpAddr::V6(address)) => KEYS.hash_one(&address.octets()[..8]),
    }
}
