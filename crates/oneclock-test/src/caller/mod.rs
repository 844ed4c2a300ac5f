//! Callers that leave, in every way a caller can, on real sockets; and callers that stay, and tell a whole answer from
//! a truncated one.
//!
//! Leaving has two steps, so that a test can wait for the right moment in between: `send` brings out the request, and
//! `leave` leaves.
//!
//! # Example
//! ```
//! use oneclock_test::caller::{Caller, How};
//! use oneclock_test::{Protocol, peer::{self, Leaving}};
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let service = peer::stall(Protocol::Http1)?; // yours, in its place
//! let call = Caller::h1(service.addr()).get("/order").header("x-remaining-ms", "800").send(How::Close).await?;
//! service.await_request().await?; // or: probe.started(1)
//! call.leave().await?;
//! assert_eq!(service.caller_left().await?.how, Leaving::Closed); // or: probe.ended(1)
//! # Ok(()) }
//! ```

mod h1;
mod h2;

use std::net::SocketAddr;

pub use h1::{Gone, H1Caller, H1End, H1Outcome, How, Sent};
pub use h2::{Frozen, H2Builder, H2Call, H2Caller, H2Outcome, H2Request};

/// Where callers begin: [`Caller::h1`], [`Caller::h2`].
#[derive(Debug)]
pub struct Caller;

impl Caller {
    /// A caller over HTTP/1.1, for one request on a connection of its own.
    pub fn h1(addr: SocketAddr) -> H1Caller {
        H1Caller::new(addr)
    }

    /// A caller over HTTP/2 with prior knowledge (no TLS), for many requests on one connection.
    pub fn h2(addr: SocketAddr) -> H2Builder {
        H2Builder::new(addr)
    }
}
