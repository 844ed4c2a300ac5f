//! Deadline fields of a header map: read all, remove stale ones, write what the next hop understands.
//!
//! What the bytes mean is `oneclock_core::wire`'s decision; this is the loop around it. Contract P8, P9, C3, E7.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use oneclock::clock;
use oneclock_core::wire::{Convention, Conventions, NothingToSend, Reader, Reading, Wall};
use oneclock_core::{Name, Trust};

/// Reads every deadline field that `conventions` know and that a peer of this trust may send; and whether there is any,
/// also of those that it may not.
///
/// Goes through the header map once, because nearly every name differs from a convention's in its length already, while
/// a look-up hashes the name first.
pub(crate) fn read<'c>(headers: &HeaderMap, conventions: &'c Conventions, trust: Trust) -> (Reading<'c>, bool) {
    let mut reader = Reader::new(clock::wall);
    let mut any = false;
    for (name, value) in headers {
        if let Some(convention) = conventions.find(name.as_str()) {
            any = true;
            if may_send(trust, convention) {
                reader.field(convention, value.as_bytes());
            }
        }
    }
    (reader.finish(), any)
}

/// Removes every deadline field, so that none travels on unreduced.
pub(crate) fn strip(headers: &mut HeaderMap, conventions: &Conventions) {
    for convention in conventions.iter() {
        headers.remove(convention.name().as_str());
    }
}

/// Writes `remaining` in each of `conventions`, after removing stale copies of these and of the default set.
///
/// # Errors
/// [`NothingToSend`], if what remains is below one unit of a field: the call must not be made (contract E2).
pub(crate) fn write(
    headers: &mut HeaderMap,
    conventions: &Conventions,
    remaining: std::time::Duration,
) -> Result<(), NothingToSend> {
    strip(headers, &Conventions::default_set());
    strip(headers, conventions);
    let wall = if conventions.need_wall() { clock::wall() } else { Wall::default() };
    let mut unnameable = None;
    conventions.write(remaining, wall, |name, value| match field(name, value.as_bytes()) {
        Some((name, value)) => {
            headers.insert(name, value);
        }
        None => unnameable = Some(name.clone()),
    })?;
    match unnameable {
        // A declared name is checked to be a header name; should one slip through, not calling is the safe side.
        Some(field) => Err(NothingToSend { field, remaining }),
        None => Ok(()),
    }
}

fn field(name: &Name, value: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    Some((HeaderName::try_from(name.as_str()).ok()?, HeaderValue::from_bytes(value).ok()?))
}

fn may_send(trust: Trust, convention: &Convention) -> bool {
    match trust {
        Trust::Inside => true,
        Trust::Outside => !convention.only_from_trusted(),
    }
}
