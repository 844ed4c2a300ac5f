//! The bytes of a fingerprint: what makes two requests with one key the same request (contract M8).

use http::header::CONTENT_TYPE;
use http::request::Parts;
use oneclock_core::idempotency::Fingerprint;
use sha2::{Digest as _, Sha256};

/// SHA-256 over method, path and query, the content type without its parameters, and the body; each with its length before
/// it, so that nothing can move from one into the other. What the layer uses; for claims that are made without it.
pub fn of(parts: &Parts, body: &[u8]) -> Fingerprint {
    let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
    let content_type = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    of_parts(&[parts.method.as_str().as_bytes(), path.as_bytes(), &essence.to_ascii_lowercase(), body])
}

/// The fingerprint of these parts, for what is no request: the same parts in the same order, and nothing else, give the same.
pub fn of_parts(parts: &[&[u8]]) -> Fingerprint {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    Fingerprint(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn print(method: &str, path: &str, content_type: &str, body: &str) -> Fingerprint {
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, content_type);
        of(&request.body(()).expect("a request").into_parts().0, body.as_bytes())
    }

    #[test]
    fn m8_each_part_counts_and_none_flows_into_the_next() {
        let first = print("POST", "/a?x=1", "application/json", "{}");
        assert_eq!(first, print("POST", "/a?x=1", "Application/JSON; charset=utf-8", "{}"));
        for other in [
            print("PUT", "/a?x=1", "application/json", "{}"),
            print("POST", "/a?x=2", "application/json", "{}"),
            print("POST", "/a?x=1", "text/plain", "{}"),
            print("POST", "/a?x=1", "application/json", "{ }"),
            print("POST", "/a?x=1", "application/json{}", ""),
        ] {
            assert_ne!(first, other);
        }
    }
}
