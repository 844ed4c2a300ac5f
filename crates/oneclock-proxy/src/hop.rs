//! What the next hop is told of the one before.
//!
//! Decides, by what proxies have in common: the caller's `host` is kept (Envoy's default, nginx with
//! `proxy_set_header Host $http_host`), since services build links and check origins with it; `x-forwarded-for` is appended
//! to; `x-forwarded-proto` is set, unless somebody inside has said it already; `via` is not added, as Envoy and nginx do not.
//! What speaks of one connection stays on it, both ways: [`oneclock_http::hop`].

use std::io::Write as _;
use std::net::SocketAddr;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery};
use http::{Uri, request};
use oneclock_core::Trust;
use oneclock_http::hop;

/// How long an address is at most, written out.
const LONGEST: usize = "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255".len();

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Makes the head of a request ready to be passed on: its target a path, whom it is for in `host`, nothing of its own hop.
pub(crate) fn pass_on(head: &mut request::Parts, peer: Option<SocketAddr>, trust: Trust, tls: bool) {
    // Before anything is added: a caller that names `x-forwarded-for` in `connection` must not have it removed.
    hop::strip(&mut head.headers);
    // The accept loop has said "100 Continue" when the upload is first asked for; the next hop is sent it without asking.
    head.headers.remove(header::EXPECT);
    let target = std::mem::take(&mut head.uri).into_parts();
    if let Some(host) = target.authority.as_ref().and_then(host_of) {
        head.headers.insert(header::HOST, host); // it outranks the field (RFC 9112 section 3.2.2, RFC 9113 section 8.3.1)
    }
    head.uri = Uri::from(target.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/")));
    if let Some(peer) = peer {
        let mut text = [0; LONGEST];
        let mut room = text.as_mut_slice();
        let _ = write!(room, "{}", peer.ip().to_canonical()); // there is room
        let written = LONGEST - room.len();
        append(&mut head.headers, &X_FORWARDED_FOR, &text[..written]);
    }
    if trust == Trust::Outside || !head.headers.contains_key(X_FORWARDED_PROTO) {
        head.headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(if tls { "https" } else { "http" }));
    }
}

/// Without a user: it is nobody's business but the caller's own.
fn host_of(authority: &Authority) -> Option<HeaderValue> {
    let text = authority.as_str();
    HeaderValue::from_str(text.rsplit_once('@').map_or(text, |(_, host)| host)).ok()
}

/// One list in one field, so that whoever reads only the first or only the last sees all of it.
fn append(headers: &mut HeaderMap, name: &HeaderName, value: &[u8]) {
    let mut list = Vec::new();
    for said in headers.get_all(name) {
        list.extend_from_slice(said.as_bytes());
        list.extend_from_slice(b", ");
    }
    let list = if list.is_empty() {
        value
    } else {
        list.extend_from_slice(value);
        &list
    };
    if let Ok(list) = HeaderValue::from_bytes(list) {
        headers.insert(name.clone(), list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    const PEER: &str = "192.0.2.7:4242";

    #[track_caller]
    fn passed_on(uri: &str, fields: &[(&str, &str)], trust: Trust) -> (String, Vec<(String, String)>) {
        let mut request = Request::get(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (mut head, ()) = request.body(()).expect("a request").into_parts();
        pass_on(&mut head, PEER.parse().ok(), trust, false);
        let fields = head.headers.iter();
        let fields = fields.map(|(name, value)| (name.to_string(), value.to_str().expect("text").to_owned()));
        (head.uri.to_string(), fields.collect())
    }

    fn field<'f>(fields: &'f [(String, String)], name: &str) -> Option<&'f str> {
        fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn what_speaks_of_one_connection_stays_on_it() {
        let (_, fields) = passed_on(
            "/",
            &[
                ("host", "shop"),
                ("connection", "close, x-hop, x-forwarded-for, host"),
                ("x-hop", "1"),
                ("x-forwarded-for", "198.51.100.1"),
                ("keep-alive", "timeout=5"),
                ("upgrade", "h2c"),
                ("te", "gzip, trailers"),
                ("accept", "*/*"),
            ],
            Trust::Outside,
        );
        let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
        for gone in ["connection", "x-hop", "keep-alive", "upgrade"] {
            assert!(!names.contains(&gone), "{gone} in {names:?}");
        }
        assert_eq!(field(&fields, "host"), Some("shop"));
        assert_eq!(field(&fields, "te"), Some("trailers"));
        assert_eq!(field(&fields, "x-forwarded-for"), Some("192.0.2.7"), "ours is added after theirs is gone");
    }

    #[test]
    fn the_callers_host_is_kept_and_the_target_outranks_it() {
        let (uri, fields) = passed_on("http://u:p@shop:81/cart?id=7", &[("host", "other")], Trust::Outside);
        assert_eq!((uri.as_str(), field(&fields, "host")), ("/cart?id=7", Some("shop:81")));
        let (uri, fields) = passed_on("/cart", &[("host", "shop")], Trust::Outside);
        assert_eq!((uri.as_str(), field(&fields, "host")), ("/cart", Some("shop")));
    }

    #[test]
    fn the_next_hop_is_told_who_came_and_how() {
        let said = [("x-forwarded-for", "198.51.100.1"), ("x-forwarded-proto", "https")];
        let (_, fields) = passed_on("/", &said, Trust::Inside);
        assert_eq!(field(&fields, "x-forwarded-for"), Some("198.51.100.1, 192.0.2.7"));
        assert_eq!(field(&fields, "x-forwarded-proto"), Some("https"), "of the gateway before us");
        let (_, fields) = passed_on("/", &said, Trust::Outside);
        assert_eq!(field(&fields, "x-forwarded-proto"), Some("http"), "not for outsiders to say");
        assert_eq!(field(&fields, "via"), None);
    }
}
