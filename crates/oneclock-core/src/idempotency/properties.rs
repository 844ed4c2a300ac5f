//! What holds for every key, and an oracle that reads the grammar in another way. The tests here and the fuzz target assert
//! the same functions; the fuzz crate includes this file by its path.

use super::{Handle, Key, NotAKey, prefers_to_wait};

/// The field is read as the grammar says, what is read writes back to the same key, and nothing panics.
pub fn key(field: &[u8]) {
    let read = Key::parse(field);
    assert_eq!(read.as_ref().ok().map(|key| key.as_str().as_bytes().to_vec()), oracle(field), "{field:?}");
    let Ok(key) = read else { return };
    assert!((1..=Key::LONGEST).contains(&key.as_str().len()));
    assert_eq!(Key::parse(key.to_field().as_bytes()).as_ref(), Ok(&key), "written and read again");
    assert_eq!(Key::new(key.as_str()).as_ref(), Ok(&key));
    assert_eq!(Key::parse_all([field, field]), Err(NotAKey::MoreThanOne));
    let _ = key.made();
}

/// A monitor's path segment: what is read writes back to itself.
pub fn handle(text: &str) {
    if let Some(handle) = Handle::parse(text) {
        assert_eq!(handle.to_string(), text.to_ascii_lowercase());
    }
}

/// A `Prefer` field: what counts does not hang on what follows, on how many fields it is spread over, or on case.
pub fn prefer(field: &[u8]) {
    let read = prefers_to_wait([field]);
    assert_eq!(prefers_to_wait([field, field]), read);
    assert_eq!(prefers_to_wait([&field.to_ascii_uppercase()[..]]), read);
    assert_eq!(prefers_to_wait([&b"a, b=c; d=\"e, wait=1\""[..], field]), read, "{field:?}");
    if let Some(wait) = read {
        let before = [b"wait=", wait.as_secs().to_string().as_bytes(), b", ", field].concat();
        assert_eq!(prefers_to_wait([&before[..]]), read);
    }
}

/// Backwards: strips the quotes from both ends first, then takes the escapes out by splitting.
fn oracle(field: &[u8]) -> Option<Vec<u8>> {
    let text = String::from_utf8(field.to_vec()).ok()?;
    let text = text.trim_matches([' ', '\t', '\n', '\r', '\x0c']);
    let plain = match text.strip_prefix('"') {
        Some(rest) => {
            let inner = rest.strip_suffix('"')?;
            let mut parts = Vec::new();
            for part in inner.split("\\\\") {
                if part.replace("\\\"", "").contains(['"', '\\']) {
                    return None;
                }
                parts.push(part.replace("\\\"", "\""));
            }
            parts.join("\\")
        }
        None if text.contains([' ', '\t', ',', ';', '"']) => return None,
        None => text.to_owned(),
    };
    let printable = plain.chars().all(|c| c == ' ' || c.is_ascii_graphic());
    (printable && !plain.is_empty() && plain.len() <= 255).then(|| plain.into_bytes())
}
