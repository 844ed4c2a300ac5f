//! What holds for every `server-timing` field. The tests here and the fuzz target assert the same functions; the fuzz crate
//! includes this file by its path.

use super::server_timing::{Account, LONGEST_NAME, MAX_ENTRIES};

/// Any bytes: read within the bounds or not at all; what was taken out is gone.
pub fn field(field: &[u8]) {
    let read = Account::parse(field);
    if let Some(read) = &read {
        account(read);
    }
    let rest = Account::taken_out(field);
    assert!(read.is_none() || rest.is_some(), "what can be read can be taken out");
    if let Some(rest) = rest {
        assert!(rest.len() <= field.len() * 2, "only spaces are added");
        assert_eq!(Account::parse(rest.as_bytes()), None, "{rest}");
        assert_eq!(Account::taken_out(rest.as_bytes()), None, "{rest}");
    }
}

/// An account: bounded, and written so that it is read again.
pub fn account(account: &Account) {
    assert!(account.spent.len() + 3 <= MAX_ENTRIES);
    assert!(account.spent.iter().all(|spent| spent.name.as_str().len() <= LONGEST_NAME + 1));
    let field = account.to_field();
    assert!(field.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{field}");
    assert_eq!(Account::parse(field.as_bytes()).as_ref(), Some(account), "{field}");
    assert_eq!(Account::taken_out(field.as_bytes()).as_deref(), Some(""), "{field}");
}
