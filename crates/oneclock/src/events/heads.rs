//! Heads of messages as an [`Observer`](super::Observer) sees them: of a request that arrives, of what a call asks, of an answer.
//!
//! Decides how little of HTTP this crate knows: words, numbers and fields that are lent for the time of one look. Nobody makes
//! one where nobody listens.

use std::fmt;

use oneclock_core::{Budget, Name, Tick};

/// The fields of a head, to be read.
pub trait Head {
    /// The value of a field that is there, if it is text. Of several, the first.
    fn get(&self, name: &str) -> Option<&str>;

    /// All values of a field, in their order.
    fn all(&self, name: &str) -> Vec<&[u8]>;
}

/// A request whose fate at the door is known: it is accepted and its work is about to begin, or it is refused.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct RequestBegan<'a> {
    /// The operation that begins, or that would have.
    pub operation: &'a Name,
    /// What it was matched to, where that is known: a router's pattern.
    pub route: Option<&'a Name>,
    /// When its head was read.
    pub arrived: Tick,
    /// What its operation may spend; `None` for one that is refused.
    pub budget: Option<Budget>,
    /// The field that its deadline came from, if its caller gave one.
    pub source: Option<&'a Name>,
    /// Which attempt of the hop above it is; one for the first.
    pub attempt: u32,
    /// What its caller speaks, where that is known: `grpc`, `grpc-web` or `connect`, else the protocol below as ALPN names it,
    /// `http/1.1` or `h2`.
    pub protocol: Option<&'static str>,
    /// Its method, as it came.
    pub method: &'a str,
    /// The path of its target, as it came: a caller's words, which belong into no label.
    pub path: &'a str,
    /// Its fields.
    pub fields: &'a dyn Head,
}

/// What a call over HTTP asks, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Target<'a> {
    /// The method.
    pub method: &'a str,
    /// The host that it is for, by its name or its address, if that is known.
    pub host: Option<&'a str>,
    /// The port there, if that is known.
    pub port: Option<u16>,
}

/// The head of an answer over HTTP: to a request, or to a call.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct AnswerHead<'a> {
    /// The status.
    pub status: u16,
    /// Its fields.
    pub fields: &'a dyn Head,
}

// === RequestBegan ===

impl<'a> RequestBegan<'a> {
    /// A first attempt that is refused, and was matched to nothing. For layers.
    pub fn new(operation: &'a Name, arrived: Tick, method: &'a str, path: &'a str, fields: &'a dyn Head) -> Self {
        Self {
            operation,
            route: None,
            arrived,
            budget: None,
            source: None,
            attempt: 1,
            protocol: None,
            method,
            path,
            fields,
        }
    }

    /// The same, in this protocol.
    #[must_use]
    pub fn spoken_in(mut self, protocol: &'static str) -> Self {
        self.protocol = Some(protocol);
        self
    }

    /// The same, with a deadline from this field.
    #[must_use]
    pub fn told_by(mut self, source: Option<&'a Name>) -> Self {
        self.source = source;
        self
    }

    /// The same, matched to this.
    #[must_use]
    pub fn on_route(mut self, route: Option<&'a Name>) -> Self {
        self.route = route;
        self
    }

    /// The same, as this attempt of the hop above.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// The same, accepted, with this to spend.
    #[must_use]
    pub fn accepted(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }
}

impl fmt::Debug for RequestBegan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBegan")
            .field("operation", &self.operation)
            .field("route", &self.route)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

// === Target ===

impl<'a> Target<'a> {
    /// A request with this method, for this host and port.
    pub const fn new(method: &'a str, host: Option<&'a str>, port: Option<u16>) -> Self {
        Self { method, host, port }
    }
}

// === AnswerHead ===

impl<'a> AnswerHead<'a> {
    /// An answer with this status and these fields.
    pub const fn new(status: u16, fields: &'a dyn Head) -> Self {
        Self { status, fields }
    }
}

impl fmt::Debug for AnswerHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerHead").field("status", &self.status).finish_non_exhaustive()
    }
}
