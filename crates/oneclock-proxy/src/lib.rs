//! The sidecar: it stands before a service in any language and gives it the contract.
//!
//! Made of the layers of `oneclock-http`; no rule is written a second time here.
//!
//! ```text
//! caller → serve → route → ingress (deadline, admission) → forward → retry → client → upstream
//! ```
//!
//! | file | decides |
//! |---|---|
//! | `proxy` | the order of a start, what a reload changes, how long a drain takes |
//! | `table` | what a configuration is made into, what routes share, what is not done yet |
//! | `route` | from the accept loop to a route |
//! | `forward`, `hop`, `answer` | which client, what of the heads is passed on, the body on its way back |
//! | `own` | streams and upgrades: what lives on behind its call |
//! | `upgrade` | WebSockets |
//! | `live` | what is under way, and until when |
//! | `tls` | the TLS of a listener, from its files |
//! | [`config`] | what may be said |
//!
//! [`Proxy::start`] runs what a [`Config`](config::Config) says. A request's budget begins when its head is read; the
//! upstream is told what is left when the head goes out to it, whatever came in; a caller that leaves takes its call with it.
//! What the two heads keep and lose on the way: hop-by-hop fields are removed both ways, `host` is kept, `x-forwarded-for`
//! and `x-forwarded-proto` are written.

mod answer;
pub mod config;
mod failed;
mod forward;
mod hop;
mod live;
mod own;
mod proxy;
mod route;
mod table;
mod tls;
mod upgrade;

pub use failed::StartFailed;
pub use proxy::{Drained, Proxy, Running};
