//! The ledger of an answer, in its `server-timing` field.
//!
//! Decides who sees it and whose is believed: only those inside the trust boundary. The words are
//! `oneclock_core::wire::server_timing`'s.
//!
//! | | the caller is inside | the caller is outside |
//! |---|---|---|
//! | an answer of ours | has our account, if the layer tells it, and no other | has no account, also none that was copied |
//! | | **the destination is inside** | **the destination is outside** |
//! | an answer to us | its account is read, and stands by the call in the ledger | its account is taken out unread |
//!
//! Entries of others in the field are left as they are.

use http::{HeaderMap, HeaderName, HeaderValue};
use oneclock::{Operation, clock};
use oneclock_core::Trust;
use oneclock_core::wire::server_timing::{Account, SERVER_TIMING};

const FIELD: HeaderName = HeaderName::from_static(SERVER_TIMING);

/// Puts the account of `operation` into the head of its answer, if this caller is told; takes out what was copied, whoever
/// asks: the account of a child is none of this operation.
pub(crate) fn tell(headers: &mut HeaderMap, operation: &Operation, trust: Trust, told: bool) {
    take_out(headers);
    if trust == Trust::Outside || !told {
        return;
    }
    let account = Account::of(operation.name(), &operation.ledger(), operation.deadline(), clock::now());
    if let Ok(value) = HeaderValue::try_from(account.to_field()) {
        headers.append(FIELD, value);
    }
}

/// The account in the head of an answer from inside, if there is one.
pub(crate) fn heard(headers: &HeaderMap) -> Option<Account> {
    if !is_there(headers) {
        return None;
    }
    headers.get_all(FIELD).iter().find_map(|value| Account::parse(value.as_bytes()))
}

/// Takes every account out, and leaves what others said.
pub(crate) fn take_out(headers: &mut HeaderMap) {
    if !is_there(headers) {
        return;
    }
    let values: Vec<HeaderValue> = headers.get_all(FIELD).iter().cloned().collect();
    if values.iter().all(|value| Account::taken_out(value.as_bytes()).is_none()) {
        return;
    }
    headers.remove(FIELD);
    for value in values {
        match Account::taken_out(value.as_bytes()) {
            None => {
                headers.append(FIELD, value);
            }
            Some(rest) if rest.is_empty() => {}
            Some(rest) => {
                if let Ok(rest) = HeaderValue::try_from(rest) {
                    headers.append(FIELD, rest);
                }
            }
        }
    }
}

/// Going through a few names costs less than to hash one for every answer.
fn is_there(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str() == SERVER_TIMING)
}
