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
//! | `proxy` | the order of a start, how long a drain takes |
//! | `reload`, `watch` | what a reload changes, when a file has changed |
//! | `listeners`, `leaving` | the servers of the listeners, their exchange, the end of one |
//! | `table` | what a configuration is made into, what routes share, what is not done yet |
//! | `route` | from the accept loop to a route |
//! | `head` | heads that two hops could read in two ways, which are refused |
//! | `forward`, `hop`, `answer` | which client, what of the heads is passed on, the body on its way back |
//! | `keyed` | idempotency keys: what the library's layer is told, where its records are |
//! | `own` | streams and upgrades: what lives on behind its call |
//! | `upgrade` | WebSockets |
//! | `failures` | how often it is told that an upstream fails |
//! | `live` | what is under way, and until when |
//! | `control`, `overrides` | what can be done to a proxy that runs: a reload, a change of one route, a stop |
//! | `observe`, `ledgers` | what is counted and kept of all that happens |
//! | `access` | which requests leave a line in the access log, and what it says |
//! | `admin` | the pages of its operators |
//! | `tls`, `digest` | TLS from its files, whether they say something else |
//! | `shortened` | how much of a path is kept |
//! | [`config`] | what may be said |
//!
//! [`Proxy::start`] runs what a [`Config`](config::Config) says. A request's budget begins when its head is read; the
//! upstream is told what is left when the head goes out to it, whatever came in; a caller that leaves takes its call with it.
//! What the two heads keep and lose on the way: hop-by-hop fields are removed both ways, `host` is kept, `x-forwarded-for`
//! and `x-forwarded-proto` are written.

mod access;
mod admin;
mod answer;
pub mod config;
mod control;
mod digest;
mod failed;
mod failures;
mod forward;
mod head;
mod hop;
mod keyed;
mod leaving;
mod ledgers;
mod listeners;
mod live;
mod made;
mod observe;
mod overrides;
mod own;
mod proxy;
mod reload;
mod route;
mod shortened;
mod table;
mod tls;
mod to;
mod upgrade;
mod watch;

pub use failed::StartFailed;
pub use proxy::{Drained, Proxy, Running};
pub use reload::LastReload;
pub use watch::{ConfigFile, NotRead};
