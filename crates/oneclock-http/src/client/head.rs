//! The head of a request before it leaves, and of an answer when it is there.
//!
//! Decides what the wire needs and callers should not have to: the target under the base URI, `host` or `:authority`, the
//! version. No field that speaks of one connection travels over another ([`hop`]). A client speaks to one destination: a
//! request for another one is refused, not sent astray.

use http::header::{self, HeaderMap};
use http::uri::{Authority, InvalidUri, PathAndQuery, Scheme};
use http::{HeaderValue, Method, Request, Uri, Version, request};
use http_body::Body;

use super::builder::default_port;
use super::tls::Tls;
use crate::hop;

/// Where the destination is.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) scheme: Scheme,
    pub(super) authority: Authority,
    pub(super) host: Box<str>,
    pub(super) port: u16,
    pub(super) path: Box<str>, // without its last slash
    pub(super) tls: Option<Tls>,
}

/// A request that this client does not send. Nothing left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotARequest {
    /// It is addressed to somebody else.
    #[error("the request is for {wanted}, this client speaks to {this} only")]
    Elsewhere {
        /// Whom the request names.
        wanted: String,
        /// Whom the client speaks to.
        this: String,
    },
    /// Its path cannot be parsed.
    #[error("the path of the request cannot be parsed")]
    NotAPath(#[from] InvalidUri),
    /// A value that was to be its body cannot be JSON.
    #[error("the body of the request cannot be written as JSON")]
    NotJson(#[source] serde_json::Error),
    /// What was to be a header field is none.
    #[error("a header field of the request cannot be sent")]
    NotAField(#[source] http::Error),
    /// Tunnels are no calls: nothing would end them.
    #[error("CONNECT opens a tunnel, which is no call and has no deadline")]
    Connect,
}

// === Base ===

impl Base {
    /// The target of a path given as text, with or without its first slash; an absolute URI is taken as one.
    pub(super) fn target(&self, path: &str) -> Result<Uri, NotARequest> {
        if path.starts_with("http://") || path.starts_with("https://") {
            return Ok(Uri::try_from(path)?);
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Uri::from(PathAndQuery::try_from(format!("{slash}{path}"))?))
    }

    /// Makes `head` fit for the wire.
    pub(super) fn address(&self, head: &mut request::Parts, http2: bool) -> Result<(), NotARequest> {
        if head.method == Method::CONNECT {
            return Err(NotARequest::Connect);
        }
        let target = std::mem::take(&mut head.uri).into_parts();
        let path = target.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
        let path = match target.authority {
            // Addressed as a whole: it has to be this destination, and the base path is in it already.
            Some(authority) => {
                let scheme = target.scheme.unwrap_or_else(|| self.scheme.clone());
                if scheme != self.scheme || !self.is(&authority) {
                    return Err(NotARequest::Elsewhere {
                        wanted: format!("{scheme}://{}", authority.host()),
                        this: format!("{}://{}", self.scheme, self.authority),
                    });
                }
                path
            }
            None if self.path.is_empty() => path,
            None => PathAndQuery::try_from(format!("{}{path}", self.path))?,
        };
        hop::strip(&mut head.headers);
        (head.uri, head.version) = self.written(path, &mut head.headers, http2);
        Ok(())
    }

    /// Makes what [`address`](Self::address) made for one protocol fit for the other.
    pub(super) fn address_again<B>(&self, request: &mut Request<B>, http2: bool) {
        let target = std::mem::take(request.uri_mut()).into_parts();
        let path = target.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
        if let Some(authority) = target.authority
            && let Ok(host) = HeaderValue::from_str(authority.as_str())
        {
            request.headers_mut().insert(header::HOST, host);
        }
        let (uri, version) = self.written(path, request.headers_mut(), http2);
        *request.uri_mut() = uri;
        *request.version_mut() = version;
    }

    fn written(&self, path: PathAndQuery, headers: &mut HeaderMap, http2: bool) -> (Uri, Version) {
        if http2 {
            let authority = headers.remove(header::HOST);
            let authority = authority.and_then(|host| Authority::try_from(host.as_bytes()).ok());
            let mut parts = http::uri::Parts::default();
            parts.scheme = Some(self.scheme.clone());
            parts.authority = Some(authority.unwrap_or_else(|| self.authority.clone()));
            parts.path_and_query = Some(path.clone());
            // All three are there, so this cannot fail; if it did, origin form is what is left.
            (Uri::from_parts(parts).unwrap_or_else(|_| Uri::from(path)), Version::HTTP_2)
        } else {
            if !headers.contains_key(header::HOST)
                && let Ok(host) = HeaderValue::from_str(self.authority.as_str())
            {
                headers.insert(header::HOST, host);
            }
            (Uri::from(path), Version::HTTP_11)
        }
    }

    fn is(&self, authority: &Authority) -> bool {
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        host.eq_ignore_ascii_case(&self.host)
            && authority.port_u16().unwrap_or_else(|| default_port(&self.scheme)) == self.port
            && !authority.as_str().contains('@')
    }
}

/// Says over HTTP/1.1 that a body of unknown length follows. For most methods hyper does; of a GET or a HEAD it would leave the
/// body out, without a word.
pub(super) fn announce<B: Body>(request: &mut Request<B>) {
    let is_said = |name| request.headers().contains_key(name);
    let body = request.body();
    let has_to = request.version() != Version::HTTP_2
        && !body.is_end_stream()
        && body.size_hint().exact().is_none()
        && !is_said(header::CONTENT_LENGTH)
        && !is_said(header::TRANSFER_ENCODING);
    if has_to {
        request.headers_mut().insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(path: &str) -> Base {
        Base {
            scheme: Scheme::HTTP,
            authority: Authority::from_static("inventory:8080"),
            host: "inventory".into(),
            port: 8080,
            path: path.into(),
            tls: None,
        }
    }

    #[track_caller]
    fn goes(base_path: &str, path: &str, h1: &str, h2: &str) {
        let base = base(base_path);
        for (http2, want) in [(false, h1), (true, h2)] {
            let uri = base.target(path).expect(path);
            let (mut head, ()) = Request::builder().uri(uri).body(()).expect("a request").into_parts();
            base.address(&mut head, http2).expect(path);
            assert_eq!(head.uri.to_string(), want, "{base_path} + {path}");
            assert_eq!(head.headers.contains_key("host"), !http2);
        }
    }

    #[test]
    fn a_path_is_joined_to_the_base() {
        goes("", "/stock?id=7", "/stock?id=7", "http://inventory:8080/stock?id=7");
        goes("", "stock", "/stock", "http://inventory:8080/stock");
        goes("/v1", "/stock", "/v1/stock", "http://inventory:8080/v1/stock");
        goes("/v1", "http://inventory:8080/v2/x", "/v2/x", "http://inventory:8080/v2/x");
        goes("", "//elsewhere/x", "//elsewhere/x", "http://inventory:8080//elsewhere/x");
    }

    #[test]
    fn a_head_for_one_protocol_can_be_made_one_for_the_other() {
        for (own_host, authority) in [(None, "inventory:8080"), (Some("stock"), "stock")] {
            let mut builder = Request::builder().uri("/stock?id=7");
            if let Some(host) = own_host {
                builder = builder.header("host", host);
            }
            let (mut head, ()) = builder.body(()).expect("a request").into_parts();
            base("/v1").address(&mut head, false).expect("a path");
            let mut request = Request::from_parts(head, ());
            for http2 in [true, true, false, false, true] {
                base("/v1").address_again(&mut request, http2);
                let (uri, host) = (request.uri().to_string(), request.headers().get("host"));
                match request.version() {
                    Version::HTTP_2 => assert_eq!(uri, format!("http://{authority}/v1/stock?id=7")),
                    _ => assert_eq!(uri, "/v1/stock?id=7"),
                }
                assert_eq!(host.map(HeaderValue::as_bytes), (!http2).then_some(authority.as_bytes()));
                assert_eq!(request.version() == Version::HTTP_2, http2);
            }
        }
    }

    #[test]
    fn a_request_for_somebody_else_is_refused() {
        for uri in ["http://pricing:8080/x", "http://inventory/x", "https://inventory:8080/x"] {
            let (mut head, ()) = Request::builder().uri(uri).body(()).expect("a request").into_parts();
            let refused = base("").address(&mut head, false).expect_err(uri);
            assert!(matches!(refused, NotARequest::Elsewhere { .. }), "{uri}");
        }
    }

    #[test]
    fn a_body_of_unknown_length_is_announced_whatever_the_method() {
        let asks = |version, fields: &[(&str, &str)]| {
            let unknown = http_body_util::StreamBody::new(futures_util::stream::empty::<
                Result<http_body::Frame<bytes::Bytes>, ()>,
            >());
            let mut request = Request::get("/").version(version);
            for (name, value) in fields {
                request = request.header(*name, *value);
            }
            let mut request = request.body(unknown).expect("a request");
            announce(&mut request);
            request.headers().get(header::TRANSFER_ENCODING).cloned()
        };
        assert_eq!(asks(Version::HTTP_11, &[]), Some(HeaderValue::from_static("chunked")));
        assert_eq!(asks(Version::HTTP_11, &[("content-length", "4")]), None);
        assert_eq!(asks(Version::HTTP_2, &[]), None);
        let mut known = Request::new(http_body_util::Full::new(bytes::Bytes::from("four")));
        announce(&mut known);
        assert!(known.headers().is_empty());
    }
}
