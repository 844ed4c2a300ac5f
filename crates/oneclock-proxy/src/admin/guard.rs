//! Who is turned away from the admin pages although they reach them.
//!
//! A browser on the operator's machine reaches them for any page that it shows. Decides against two ways in: a name of somebody
//! else's that was made to point here (DNS rebinding), which the `host` of the request gives away, and a page of somebody
//! else's that has something changed here, whose `origin` a browser tells. Who reaches the listener without a browser is
//! nobody's to stop here: it belongs on loopback.

use std::net::{IpAddr, SocketAddr};

use http::header::{HOST, HeaderName, ORIGIN};
use http::request::Parts;
use http::uri::Authority;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a request is turned away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TurnedAway {
    /// It is for somebody else.
    #[error(
        "this is asked of {host}, and these pages are asked by an address of theirs, or as localhost: a name could be made to \
         point here by anybody"
    )]
    Host { host: String },
    /// Nobody says whom it is for.
    #[error("a request says whom it is for, in `host`")]
    NoHost,
    /// A page in a browser asks for a change.
    #[error("a page in a browser may change nothing here: ask with curl, from a shell")]
    Browser,
}

/// Whether a request, which changes something or does not, may come in to the pages at `address`.
pub(super) fn may_ask(head: &Parts, changes: bool, address: SocketAddr) -> Result<(), TurnedAway> {
    let mut hosts: Vec<Option<Authority>> = Vec::new();
    hosts.extend(head.uri.authority().cloned().map(Some));
    hosts.extend(head.headers.get_all(HOST).iter().map(|host| Authority::try_from(host.as_bytes()).ok()));
    if hosts.is_empty() {
        return Err(TurnedAway::NoHost);
    }
    for host in hosts {
        let host = host.as_ref().map_or("", Authority::host);
        if !is_ours(host, address.ip()) {
            return Err(TurnedAway::Host { host: host.chars().take(100).collect() });
        }
    }
    let from_a_page = head.headers.contains_key(ORIGIN)
        || head.headers.get(SEC_FETCH_SITE).is_some_and(|site| site.as_bytes() != b"none");
    if changes && from_a_page { Err(TurnedAway::Browser) } else { Ok(()) }
}

/// Nobody can make an address point elsewhere, nor `localhost`. Ports may be forwarded, so they are not compared.
fn is_ours(host: &str, address: IpAddr) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    if host == "localhost" || host.ends_with(".localhost") {
        return true;
    }
    let Ok(ip) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() else { return false };
    let ip = ip.to_canonical();
    ip.is_loopback() || address.is_unspecified() || ip == address.to_canonical()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const LOOPBACK: &str = "127.0.0.1:9902";

    fn head(fields: &[(&str, &str)]) -> Parts {
        let request =
            fields.iter().fold(Request::get("/config"), |request, (name, value)| request.header(*name, *value));
        request.body(()).expect("a request").into_parts().0
    }

    #[track_caller]
    fn host(host: &str, address: &str, may: bool) {
        let asked = may_ask(&head(&[("host", host)]), false, address.parse().expect("an address"));
        assert_eq!(asked.is_ok(), may, "{host} at {address}: {asked:?}");
    }

    #[test]
    fn only_addresses_and_localhost_are_ours() {
        for ours in
            ["127.0.0.1:9902", "127.0.0.1", "localhost:19902", "LOCALHOST.", "[::1]:9902", "127.9.9.9", "me.localhost"]
        {
            host(ours, LOOPBACK, true);
        }
        for theirs in
            ["evil.example", "evil.example:9902", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.5", ""]
        {
            host(theirs, LOOPBACK, false);
        }
        host("10.0.0.5:9902", "10.0.0.5:9902", true);
        host("10.0.0.6:9902", "10.0.0.5:9902", false);
        host("10.0.0.6:9902", "0.0.0.0:9902", true);
        host("pod.example:9902", "0.0.0.0:9902", false);
    }

    #[test]
    fn each_host_counts_and_one_there_must_be() {
        let address = LOOPBACK.parse().expect("an address");
        assert_eq!(may_ask(&head(&[]), false, address), Err(TurnedAway::NoHost));
        let two = may_ask(&head(&[("host", "localhost"), ("host", "evil.example")]), false, address);
        assert_eq!(two, Err(TurnedAway::Host { host: "evil.example".to_owned() }));
        let garbage = may_ask(&head(&[("host", "a b")]), false, address);
        assert_eq!(garbage, Err(TurnedAway::Host { host: String::new() }));
    }

    #[test]
    fn a_page_in_a_browser_may_look_and_change_nothing() {
        let address = LOOPBACK.parse().expect("an address");
        for fields in [("origin", "null"), ("origin", "http://localhost:9902"), ("sec-fetch-site", "cross-site")] {
            let head = head(&[("host", "localhost"), fields]);
            assert_eq!(may_ask(&head, true, address), Err(TurnedAway::Browser), "{fields:?}");
            assert_eq!(may_ask(&head, false, address), Ok(()), "{fields:?}");
        }
        assert_eq!(may_ask(&head(&[("host", "localhost"), ("sec-fetch-site", "none")]), true, address), Ok(()));
    }
}
