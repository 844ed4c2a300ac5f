//! What the accept loop knows of a request before any layer does: when its head was read, and who sent it.

use std::net::SocketAddr;

use oneclock::Shutdown;
use oneclock_core::{Tick, Trust};

use crate::upload::UploadEnd;

/// Stamped by [`serve`](crate::serve) into the extensions of every request, before the body and any queue (contract K1).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Arrival {
    /// When the head was read: the budget runs from here.
    pub at: Tick,
    /// Whether the peer belongs to us: a property of the listener (contract C2).
    pub trust: Trust,
    /// Where the peer is, where that is known.
    pub peer: Option<SocketAddr>,
    /// The shutdown of the server.
    pub shutdown: Shutdown,
    /// Who is to know when its upload was read to its end.
    pub(crate) upload: Option<UploadEnd>,
}

impl Arrival {
    /// A stamp for an accept loop of one's own.
    pub fn new(at: Tick, trust: Trust, peer: Option<SocketAddr>, shutdown: Shutdown) -> Self {
        Self { at, trust, peer, shutdown, upload: None }
    }
}
