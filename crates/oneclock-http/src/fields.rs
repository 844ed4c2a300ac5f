//! Deadline fields of a header map: read all, remove stale ones, write what the next hop understands.
//!
//! What the bytes mean is `oneclock_core::wire`'s decision; this is the loop around it. Contract P8, P9, C3, E7.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use oneclock::clock;
use oneclock_core::Trust;
use oneclock_core::wire::{Convention, Conventions, NothingToSend, Reader, Reading, Wall};

/// Conventions, prepared for header maps.
///
/// A look-up in a map checks and hashes the name every time, for each convention. Going through the map once costs less:
/// nearly every field differs from all conventions in the length of its name or in its last letter already.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    conventions: Conventions,
    names: Arc<[Option<HeaderName>]>, // of the conventions, in their order; a declared name is checked to be one
    marks: u64,                       // the marks of all names
}

/// What a request's fields say of its deadline and of the protocol that it speaks.
pub(crate) struct Said<'c> {
    /// What the deadline fields say together.
    pub(crate) reading: Reading<'c>,
    /// Whether there is any, also of those that this peer may not send.
    pub(crate) any: bool,
    /// Whether it is gRPC.
    pub(crate) grpc: bool,
}

/// What is read and removed when nothing else is configured.
static DEFAULT: LazyLock<Fields> = LazyLock::new(|| Fields::new(Conventions::default_set()));

impl Fields {
    pub(crate) fn new(conventions: Conventions) -> Self {
        let names =
            conventions.iter().map(|convention| HeaderName::try_from(convention.name().as_str()).ok()).collect();
        let marks = conventions.iter().fold(0, |marks, convention| marks | mark(convention.name().as_str()));
        Self { conventions, names, marks }
    }

    /// Reads every deadline field that a peer of this trust may send.
    pub(crate) fn read(&self, headers: &HeaderMap, trust: Trust) -> Said<'_> {
        let mut reader = Reader::new(clock::wall);
        let (mut any, mut grpc) = (false, false);
        for (name, value) in headers {
            if *name == header::CONTENT_TYPE {
                grpc |= value.as_bytes().starts_with(b"application/grpc");
            } else if let Some(convention) = self.find(name) {
                any = true;
                if may_send(trust, convention) {
                    reader.field(convention, value.as_bytes());
                }
            }
        }
        Said { reading: reader.finish(), any, grpc }
    }

    /// Removes every deadline field, so that none travels on unreduced.
    pub(crate) fn strip(&self, headers: &mut HeaderMap) {
        if headers.keys().any(|name| self.find(name).is_some()) {
            for name in self.names.iter().flatten() {
                headers.remove(name);
            }
        }
    }

    /// Writes `remaining` in each of these, after removing stale copies of these and of the default set.
    ///
    /// # Errors
    /// [`NothingToSend`], if what remains is below one unit of a field: the call must not be made (contract E2).
    pub(crate) fn write(&self, headers: &mut HeaderMap, remaining: Duration) -> Result<(), NothingToSend> {
        DEFAULT.strip(headers);
        self.strip(headers);
        let wall = if self.conventions.need_wall() { clock::wall() } else { Wall::default() };
        let mut names = self.names.iter();
        let mut unnameable = None;
        self.conventions.write(remaining, wall, |field, value| {
            match (names.next(), HeaderValue::from_bytes(value.as_bytes())) {
                (Some(Some(name)), Ok(value)) => {
                    headers.insert(name.clone(), value);
                }
                _ => unnameable = Some(field.clone()),
            }
        })?;
        match unnameable {
            // Should a name that is none slip through, not calling is the safe side.
            Some(field) => Err(NothingToSend { field, remaining }),
            None => Ok(()),
        }
    }

    fn find(&self, name: &HeaderName) -> Option<&Convention> {
        let name = name.as_str();
        if self.marks & mark(name) == 0 { None } else { self.conventions.find(name) }
    }
}

/// One bit, from the length of a name and its last letter.
fn mark(name: &str) -> u64 {
    let last = name.as_bytes().last().map_or(0, |last| usize::from(*last));
    1 << ((name.len() + last) % 64)
}

fn may_send(trust: Trust, convention: &Convention) -> bool {
    match trust {
        Trust::Inside => true,
        Trust::Outside => !convention.only_from_trusted(),
    }
}
