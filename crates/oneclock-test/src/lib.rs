//! Test support for services that keep a deadline: peers that misbehave, callers that leave, and assertions that work
//! really stopped.
//!
//! | for | there is |
//! |---|---|
//! | what your service calls | [`peer`]: servers that stall, trickle, reset, refuse, stop reading |
//! | whoever calls your service | [`caller`]: clients that leave in every way, and tell a whole answer from a truncated one |
//! | your handlers | [`Probe`]: began, came to its end, or was dropped before |
//! | a router under a deadline layer | [`assert_stops_at_deadline`], [`assert_body_stops_at_deadline`] |
//! | what a test leaves behind | [`Baseline`]: tasks and descriptors are back where they were; [`Wakes`]: no busy waiting |
//!
//! Peers and callers use real sockets on the loopback interface, so their tests run in real time: wait for an event, not
//! for a duration. The assertions run in memory and need paused time. Everything that is awaited has a bound,
//! [`PATIENCE`], and says what it saw instead ([`NotSeen`]).
//!
//! Paused time is a feature of tokio's that your own crate has to ask for:
//! ```toml
//! [dev-dependencies]
//! oneclock-test = "0.1"
//! tokio = { version = "1", features = ["macros", "rt", "test-util"] }
//! ```
//!
//! It knows nothing of how a deadline is kept: the library `oneclock` is judged by it like any other.
//!
//! # Example
//! A caller leaves, and the call that was made for it has to leave as well:
//! ```
//! use oneclock_test::caller::{Caller, How};
//! use oneclock_test::peer::{self, Leaving};
//! use oneclock_test::{Baseline, Protocol};
//! # use std::net::SocketAddr;
//! # async fn gateway(upstream: SocketAddr) -> std::io::Result<(SocketAddr, tokio::task::JoinHandle<()>)> {
//! #     let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! #     let addr = listener.local_addr()?;
//! #     Ok((addr, tokio::spawn(async move {
//! #         let Ok((mut caller, _)) = listener.accept().await else { return };
//! #         let Ok(mut inner) = tokio::net::TcpStream::connect(upstream).await else { return };
//! #         let _ = tokio::io::copy(&mut caller, &mut inner).await;
//! #     })))
//! # }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let before = Baseline::take();
//! let inventory = peer::stall(Protocol::Http1)?;
//! let (addr, service) = gateway(inventory.addr()).await?; // yours, in its place
//!
//! let call = Caller::h1(addr).get("/order").send(How::Reset).await?;
//! inventory.await_request().await?;
//! call.leave().await?;
//! assert_eq!(inventory.caller_left().await?.how, Leaving::Closed);
//!
//! drop(inventory);
//! service.await?;
//! before.assert_back().await;
//! # Ok(()) }
//! ```

mod bound;
pub mod caller;
pub mod grpc;
mod leak;
pub mod peer;
mod probe;
mod stops;
mod wire;

pub use bound::{KEPT, NotSeen, PATIENCE};
pub use h2::Reason;
pub use leak::{Baseline, Leaked, Wakes};
pub use probe::{End, Ended, Probe, ProbeGuard};
pub use stops::{BUDGET, RESERVE, SLACK, Stopped, assert_body_stops_at_deadline, assert_stops_at_deadline};

/// Which HTTP a peer speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 with prior knowledge (no TLS).
    Http2,
}
