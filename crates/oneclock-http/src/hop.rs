//! What of a head speaks of one connection only, and so stays on it (RFC 9110 section 7.6.1).
//!
//! Decides what is removed on the way from one connection to another, for the client and for whoever forwards. Left to
//! others: what the next hop is told of this one.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Fields that speak of one connection only. `te` is looked at apart.
static OF_ONE_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"), // without its upgrade, for whoever looks for it alone
];

/// Whom a message is for, where it ends and whether trailers are read belong to the message, whatever `connection` says.
static OF_THE_MESSAGE: [HeaderName; 3] = [header::HOST, header::CONTENT_LENGTH, header::TE];

/// Removes what speaks of one connection, and what `connection` names. Of `te`, `trailers` stays, which gRPC asks with.
///
/// ```
/// # use http::HeaderMap; use oneclock_http::hop;
/// let mut headers = HeaderMap::new();
/// headers.insert("connection", "keep-alive, x-hop, host".parse()?);
/// headers.insert("x-hop", "1".parse()?);
/// headers.insert("host", "shop".parse()?);
/// headers.insert("te", "gzip, trailers".parse()?);
/// hop::strip(&mut headers);
/// assert_eq!((headers.len(), &headers["host"], &headers["te"]), (2, &"shop".parse()?, &"trailers".parse()?));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
pub fn strip(headers: &mut HeaderMap) {
    // Nearly every head has none of them, and to look one name up costs more than to go through the few that are there.
    if !headers.keys().any(is_of_one_hop) {
        return;
    }
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> =
            tokens(headers, &header::CONNECTION).filter_map(|name| HeaderName::from_bytes(name).ok()).collect();
        for name in named {
            if !OF_THE_MESSAGE.contains(&name) {
                headers.remove(name);
            }
        }
    }
    while let Some(name) = headers.keys().find(|name| OF_ONE_HOP.contains(name)).cloned() {
        headers.remove(name);
    }
    if headers.contains_key(header::TE) {
        if tokens(headers, &header::TE).any(|token| token.eq_ignore_ascii_case(b"trailers")) {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        } else {
            headers.remove(header::TE);
        }
    }
}

/// Told by the length of a name for most of them.
fn is_of_one_hop(name: &HeaderName) -> bool {
    let may_be = matches!(name.as_str().len(), 2 | 7 | 10 | 14 | 16..=19);
    may_be && (OF_ONE_HOP.contains(name) || *name == header::TE)
}

/// The members of a field that lists them, in all of its lines, each without the space around it.
///
/// ```
/// # use http::{HeaderMap, header}; use oneclock_http::hop;
/// let mut headers = HeaderMap::new();
/// headers.append("connection", "keep-alive, Upgrade".parse()?);
/// headers.append("connection", "x-hop".parse()?);
/// let tokens: Vec<&[u8]> = hop::tokens(&headers, &header::CONNECTION).collect();
/// assert_eq!(tokens, [&b"keep-alive"[..], b"Upgrade", b"x-hop"]);
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
pub fn tokens<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h [u8]> + use<'h> {
    let all = headers.get_all(name).into_iter();
    all.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn stay(fields: &[(&'static str, &'static str)], want: &[(&str, &str)]) {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        strip(&mut headers);
        let mut left: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().expect("text"))).collect();
        let mut want = want.to_vec();
        left.sort_unstable(); // removing one field moves another
        want.sort_unstable();
        assert_eq!(left, want, "{fields:?}");
    }

    #[test]
    fn what_speaks_of_one_connection_stays_on_it() {
        let fields = [
            ("connection", "keep-alive, x-hop"),
            ("connection", "X-Other"),
            ("x-hop", "1"),
            ("x-other", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("te", "gzip"),
            ("accept", "*/*"),
        ];
        stay(&fields, &[("accept", "*/*")]);
    }

    #[test]
    fn connection_cannot_name_what_belongs_to_the_message() {
        let fields =
            [("connection", "host, content-length, te"), ("host", "shop"), ("content-length", "3"), ("te", "trailers")];
        stay(&fields, &fields[1..]);
    }

    #[test]
    fn trailers_stay_in_whatever_list_they_stand() {
        stay(&[("te", "gzip, Trailers;q=1")], &[]);
        stay(&[("te", "gzip;q=0.5 , trailers")], &[("te", "trailers")]);
        stay(&[("te", "gzip"), ("te", "TRAILERS")], &[("te", "trailers")]);
        stay(&[("te", "gzip")], &[]);
    }
}
