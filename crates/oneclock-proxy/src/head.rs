//! Heads that are not passed on: those which the next hop could read in another way than we did (request smuggling).
//!
//! Decides about what the parsers below leave open. They refuse what has two lengths, folded lines, control characters or a
//! field twice that may come once; of a request that came with `transfer-encoding` and `content-length` the former counts,
//! its connection is closed after it, and the head that goes out is written anew with one of them. Left to
//! [`hop`](crate::hop): which fields stay behind.

use http::header::{self, HeaderValue};
use http::uri::Authority;
use http::{Method, Request, Response, StatusCode, Version};
use oneclock_http::Problem;

/// Why `request` is not passed on, if it is not.
pub(crate) fn refused<B>(request: &Request<B>) -> Option<Problem> {
    let bad = |title| Some(Problem::with_status(StatusCode::BAD_REQUEST, title));
    let not_here = |title| Some(Problem::with_status(StatusCode::NOT_IMPLEMENTED, title));
    if request.method() == Method::CONNECT {
        return not_here("tunnels are not opened here");
    }
    if !names_one_host(request) {
        return bad("a request names one host, in one field");
    }
    if request.headers().get(header::HOST).is_some_and(|host| !is_host(host)) {
        return bad("host is a name or an address, and a port");
    }
    if !is_of_a_form(request) {
        return bad("the target of a request is a path, or a whole URI without a user");
    }
    if !is_chunked_at_most(request) {
        return not_here("no transfer coding but chunked, once, is understood here"); // RFC 9112 section 6.1
    }
    None
}

/// Makes `answer` the last one of an HTTP/1 connection: what follows a head that is refused could be read in another way, too.
pub(crate) fn last<B>(mut answer: Response<B>, version: Version) -> Response<B> {
    if version < Version::HTTP_2 && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

/// Two fields would be read differently by two hops, and so would none over HTTP/1.1 (RFC 9112 section 3.2).
fn names_one_host<B>(request: &Request<B>) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).into_iter();
    let (first, second) = (hosts.next(), hosts.next());
    second.is_none() && (first.is_some() || request.version() != Version::HTTP_11)
}

fn is_host(host: &HeaderValue) -> bool {
    is_plain(host.as_bytes()) || Authority::try_from(host.as_bytes()).is_ok_and(|host| !has_a_user(&host))
}

/// A name and a port as nearly every request has them, which the parser would copy to say the same.
fn is_plain(host: &[u8]) -> bool {
    let mut parts = host.split(|byte| *byte == b':');
    let (name, port) = (parts.next().unwrap_or_default(), parts.next().unwrap_or(b"80"));
    let is_name = !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(byte));
    is_name && (1..=4).contains(&port.len()) && port.iter().all(u8::is_ascii_digit) && parts.next().is_none()
}

/// To be treated as an error where the URI is not our own (RFC 9110 section 4.2.4).
fn has_a_user(authority: &Authority) -> bool {
    authority.as_str().contains('@')
}

/// A path, `*` where the server itself is asked, or a whole URI (RFC 9112 section 3.2).
fn is_of_a_form<B>(request: &Request<B>) -> bool {
    let uri = request.uri();
    let authority_alone = uri.authority().is_some() && uri.scheme().is_none();
    !uri.authority().is_some_and(has_a_user)
        && !authority_alone
        && (uri.path() != "*" || request.method() == Method::OPTIONS)
}

/// The coding is taken off here, and another hop's is put on. What else was done to the body would not be said to anybody.
fn is_chunked_at_most<B>(request: &Request<B>) -> bool {
    let mut codings = request.headers().get_all(header::TRANSFER_ENCODING).into_iter();
    match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(coding), None) => coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn is_refused(method: Method, target: &str, fields: &[(&str, &str)], status: Option<u16>) {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("a request");
        assert_eq!(refused(&request).map(|problem| problem.status()), status, "{target} {fields:?}");
    }

    #[test]
    fn one_host_that_is_one() {
        for host in ["shop", "shop:81", "192.0.2.7:80", "[2001:db8::1]:80"] {
            is_refused(Method::GET, "/", &[("host", host)], None);
        }
        for host in ["", "a b", "shop/evil", "user@shop", "shop:81:82", "a, b"] {
            is_refused(Method::GET, "/", &[("host", host)], Some(400));
        }
        is_refused(Method::GET, "/", &[], Some(400));
        is_refused(Method::GET, "/", &[("host", "a"), ("host", "a")], Some(400));
    }

    #[test]
    fn a_target_in_a_form_of_its_method() {
        let host = [("host", "shop")];
        is_refused(Method::GET, "http://shop/cart", &host, None);
        is_refused(Method::GET, "http://user:word@shop/cart", &host, Some(400));
        is_refused(Method::OPTIONS, "*", &host, None);
        is_refused(Method::GET, "*", &host, Some(400));
        is_refused(Method::GET, "shop:80", &host, Some(400));
        is_refused(Method::CONNECT, "shop:80", &host, Some(501));
    }

    #[test]
    fn chunked_once_and_nothing_else() {
        let coded = |codings: &[&'static str]| {
            let codings: Vec<_> = codings.iter().map(|coding| ("transfer-encoding", *coding)).collect();
            [&[("host", "shop")][..], &codings].concat()
        };
        is_refused(Method::POST, "/", &coded(&["Chunked"]), None);
        for codings in [&["gzip, chunked"][..], &["chunked, chunked"], &[", chunked"], &["identity", "chunked"]] {
            is_refused(Method::POST, "/", &coded(codings), Some(501));
        }
    }
}
