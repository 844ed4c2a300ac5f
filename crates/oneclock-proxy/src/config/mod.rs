//! The configuration: one YAML file, which may hold HTTPRoutes of Gateway API, too.
//!
//! Decides what a proxy may be told. A key that nobody knows, a value that is none, two lines that contradict one
//! another are refused with their place and what to write instead; nothing is ignored and nothing means "unlimited".
//! What is left to others: opening files, connecting, listening. The reference of all keys is
//! `docs/guide/proxy-config.md`.
//!
//! | file | decides |
//! |---|---|
//! | `types`, `routes` | what there is, and the defaults |
//! | `matching` | which route a request takes |
//! | `node` | YAML, with places |
//! | `keys`, `route_keys`, `shape` | every key, for reading, for [`schema`] and for the reference |
//! | `read`, `route`, `once`, `log`, `values` | the file's own document |
//! | `httproute` | the other kind of document |
//! | `check` | what contradicts itself |
//! | `print`, `redact` | the effective configuration, without passwords |

mod check;
mod httproute;
mod keys;
mod log;
mod matching;
mod node;
mod once;
mod print;
mod read;
mod redact;
mod refused;
mod route;
mod route_keys;
mod routes;
mod schema;
mod shape;
mod types;
mod values;

#[cfg(test)]
mod tests;

pub use log::{AccessLog, LogTo, Share};
pub use matching::{Match, PathMatch};
use node::Refuse as _;
pub(crate) use once::is_over_tls;
pub(crate) use redact::shown;
pub use refused::Refused;
pub(crate) use refused::known;
pub use routes::{Concurrency, Idempotency, IdempotencyStore, Principal, Retry, Route};
pub use schema::schema;
pub use types::{Config, DEFAULT_ADMIN, DEFAULT_LISTENER, Listener, Tls, Upstream, UpstreamProtocol, UpstreamTls};

impl Config {
    /// Reads a file: at most one document of its own, and any number of HTTPRoutes.
    ///
    /// Says nothing of files that are named in it: they are opened when the proxy starts.
    ///
    /// # Errors
    /// [`Refused`], the first that is found: where, and what to write instead.
    pub fn parse(text: &str) -> Result<Self, Refused> {
        let mut draft = check::Draft::new();
        let mut own = None;
        for document in node::documents(text)? {
            if httproute::is_an_object(&document) {
                httproute::read(&document, &mut draft)?;
            } else if let Some(first) = own.replace(document.place) {
                return Err(document.refused(format!(
                    "there is a document without a `kind` already (line {}): write both as one",
                    first.line
                )));
            } else {
                read::file(&document, &mut draft)?;
            }
        }
        draft.finish()
    }
}
