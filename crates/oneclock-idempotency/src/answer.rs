//! The answer of a completed run, as it is kept and replayed.
//!
//! Decides what of an answer is kept: its status, the headers that still mean something later, its trailers, and its body if
//! that is not too large. `Set-Cookie` and whatever else belongs to one exchange is not (contract M7).

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode, response};
use oneclock_core::Trust;
use oneclock_core::wire::names as wire;
use oneclock_http::{Problem, Protocol, grpc, grpc_message};

use crate::body::{Body, Whole};
use crate::names;

/// The answer of a completed run.
///
/// One without a body was too large to be kept: it is known that it was given, and cannot be given again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    status: StatusCode,
    headers: Fields,
    trailers: Fields,
    body: Option<Bytes>,
}

type Fields = Vec<(HeaderName, HeaderValue)>;

/// The headers that are kept unless more are named.
pub(crate) const KEPT: [HeaderName; 9] = [
    header::CONTENT_TYPE,
    header::CONTENT_LANGUAGE,
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING, // of the body as it was when it passed here
    header::LOCATION,
    header::CONTENT_LOCATION,
    header::ETAG,
    header::LAST_MODIFIED,
    header::LINK,
];

/// The headers that belong to one exchange, so that nobody may have them kept.
pub(crate) const NEVER: [HeaderName; 12] = [
    header::SET_COOKIE,
    header::WWW_AUTHENTICATE,
    header::PROXY_AUTHENTICATE,
    header::AUTHORIZATION,
    header::DATE,
    header::CONTENT_LENGTH, // made anew
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::TRAILER,
    header::UPGRADE,
    header::TE,
    header::RETRY_AFTER,
];

/// Whether it says something of one call, by this layer or one further out: never the service's to repeat.
fn is_of_one_call(name: &HeaderName) -> bool {
    *name == names::REPLAYED || wire::OF_ONE_CALL.contains(&name.as_str())
}

/// Of gRPC: how the messages are compressed.
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// Of Connect: what gRPC has in trailers stands in the head, behind this.
const CONNECT_TRAILER: &str = "trailer-";

/// Before the name of a trailer among the headers of an answer as bytes: no header's name has it. Who does not know trailers
/// reads none of it, instead of an answer that lacks them.
const IS_TRAILER: u8 = b':';

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The first byte of an answer as bytes: the version of what follows.
const VERSION: u8 = 1;

impl Answer {
    /// An answer, for a probe that found out what a run did: see [`Probed::Applied`](crate::Probed::Applied).
    pub fn new(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self { status, headers: Fields::new(), trailers: Fields::new(), body: Some(body.into()) }
    }

    /// The answer of a unary gRPC call that went well, for a probe: this message, encoded, and status 0 behind it. One that is
    /// longer than gRPC's messages can be (4 GiB) is [not kept](Self::not_kept).
    ///
    /// ```
    /// # use oneclock_idempotency::Answer;
    /// let answer = Answer::grpc(b"\x08\x07");
    /// assert_eq!(answer.trailers().next().unwrap().1, "0");
    /// ```
    pub fn grpc(message: &[u8]) -> Self {
        let answer = grpc_message(message)
            .map_or_else(|| Self::not_kept(StatusCode::OK), |message| Self::new(StatusCode::OK, message));
        answer
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"))
            .trailer(grpc::STATUS, HeaderValue::from_static("0"))
    }

    /// Why work ended without a run, as a problem document: for who [settles](crate::Settle) it so. `word` is the last part of its
    /// type, from a bounded set.
    ///
    /// ```
    /// # use oneclock_idempotency::Answer; use http::StatusCode;
    /// let gone = Answer::saying(StatusCode::GONE, "expired", "it expired before it was begun");
    /// let document = String::from_utf8_lossy(gone.body().unwrap());
    /// assert!(document.contains(r#""type":"urn:oneclock:expired""#));
    /// ```
    pub fn saying(status: StatusCode, word: &'static str, title: &'static str) -> Self {
        let problem = Problem::with_status(status, title).typed(word, 2);
        let body = problem.to_response(Trust::Outside).into_body();
        Self::new(status, body).header(header::CONTENT_TYPE, PROBLEM_JSON)
    }

    /// The problem document that it is, if it is one.
    pub(crate) fn problem(&self) -> Option<serde_json::Value> {
        let is_problem = self.headers().any(|(name, value)| *name == header::CONTENT_TYPE && *value == PROBLEM_JSON);
        serde_json::from_slice(self.body().filter(|_| is_problem)?).ok()
    }

    /// An answer that was given and is not known any more: it is done, and who asks again is told only that.
    pub fn not_kept(status: StatusCode) -> Self {
        Self { status, headers: Fields::new(), trailers: Fields::new(), body: None }
    }

    /// The same with this header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The same with this trailer.
    #[must_use]
    pub fn trailer(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.trailers.push((name, value));
        self
    }

    /// What is kept of an answer to a request in `protocol`. `None` for a body: it was too large.
    ///
    /// Of a remote procedure call that is all that says how it ended, its own metadata there included: the trailers, and the
    /// head where they stand in it. Of other heads it is what is listed.
    pub(crate) fn of(
        protocol: Protocol,
        head: &response::Parts,
        trailers: &HeaderMap,
        also: &[HeaderName],
        body: Option<Bytes>,
    ) -> Self {
        let is_rpc = protocol == Protocol::Grpc;
        let listed = |name: &HeaderName| {
            KEPT.contains(name)
                || also.contains(name)
                || (is_rpc && *name == GRPC_ENCODING)
                || (protocol == Protocol::ConnectUnary && name.as_str().starts_with(CONNECT_TRAILER))
        };
        let lasting = |name: &HeaderName| !NEVER.contains(name) && !is_of_one_call(name);
        let trailers_only = is_rpc && head.headers.contains_key(grpc::STATUS);
        Self {
            status: head.status,
            headers: fields(&head.headers, |name| if trailers_only { lasting(name) } else { listed(name) }),
            trailers: fields(trailers, |name| if is_rpc { lasting(name) } else { listed(name) }),
            body,
        }
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The headers that were kept.
    pub fn headers(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.headers.iter().map(|(name, value)| (name, value))
    }

    /// Its body, if it was kept.
    pub fn body(&self) -> Option<&Bytes> {
        self.body.as_ref()
    }

    /// The trailers that were kept.
    pub fn trailers(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.trailers.iter().map(|(name, value)| (name, value))
    }

    /// The replay: what was kept, and that it is one. `None` if the body was not kept.
    pub fn replay(&self) -> Option<Response<Body>> {
        let mut response = self.again()?;
        response.headers_mut().insert(names::REPLAYED, HeaderValue::from_static("true"));
        Some(response)
    }

    /// The same without saying that it is a replay: of an answer that nothing was kept for.
    pub(crate) fn again(&self) -> Option<Response<Body>> {
        let trailers = self.trailers.iter().cloned().collect();
        let mut response = Response::new(Whole { bytes: self.body.clone()?, trailers }.into());
        *response.status_mut() = self.status;
        response.headers_mut().extend(self.headers.iter().cloned());
        Some(response)
    }

    /// Whether a caller that speaks `protocol` can read it. One that somebody settled by hand, in words of HTTP, says to gRPC
    /// not even that it went well.
    pub(crate) fn is_readable_in(&self, protocol: Protocol) -> bool {
        let has_status = || self.headers().chain(self.trailers()).any(|(name, _)| *name == grpc::STATUS);
        protocol != Protocol::Grpc || !self.status.is_success() || has_status()
    }

    /// For stores.
    pub fn to_bytes(&self) -> Vec<u8> {
        let body = self.body.as_deref().unwrap_or_default();
        let mut bytes = BytesMut::with_capacity(body.len() + 256);
        bytes.put_u8(VERSION);
        bytes.put_u16(self.status.as_u16());
        bytes.put_u8(u8::from(self.body.is_some()));
        let part = |bytes: &mut BytesMut, before: &[u8], part: &[u8]| {
            bytes.put_u32(u32::try_from(before.len() + part.len()).unwrap_or(u32::MAX));
            bytes.put_slice(before);
            bytes.put_slice(part);
        };
        for (before, fields) in [(&[][..], &self.headers), (&[IS_TRAILER][..], &self.trailers)] {
            for (name, value) in fields {
                part(&mut bytes, before, name.as_str().as_bytes());
                part(&mut bytes, &[], value.as_bytes());
            }
        }
        bytes.put_u32(0); // no name is empty: the end of the headers
        bytes.put_slice(body);
        bytes.into()
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote. `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&[version, high, low, has_body], mut rest) = bytes.split_first_chunk::<4>()?;
        if version != VERSION || has_body > 1 {
            return None;
        }
        let (mut headers, mut trailers) = (Fields::new(), Fields::new());
        loop {
            let name = part(&mut rest)?;
            if name.is_empty() {
                break;
            }
            let value = HeaderValue::from_bytes(part(&mut rest)?).ok()?;
            let (fields, name) = match name.strip_prefix(&[IS_TRAILER]) {
                Some(name) => (&mut trailers, name),
                None => (&mut headers, name),
            };
            fields.push((HeaderName::from_bytes(name).ok()?, value));
        }
        let status = StatusCode::from_u16(u16::from_be_bytes([high, low])).ok()?;
        let body = (has_body == 1).then(|| Bytes::copy_from_slice(rest));
        Some(Self { status, headers, trailers, body })
    }
}

fn fields(of: &HeaderMap, kept: impl Fn(&HeaderName) -> bool) -> Fields {
    of.iter().filter(|(name, _)| kept(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let (part, after) = after.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    *rest = after;
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map(names: &[HeaderName]) -> HeaderMap {
        names.iter().map(|name| (name.clone(), HeaderValue::from_static("x"))).collect()
    }

    fn head(status: StatusCode, names: &[HeaderName]) -> response::Parts {
        let mut head = Response::new(()).into_parts().0;
        (head.status, head.headers) = (status, map(names));
        head
    }

    #[test]
    fn m7_what_belongs_to_one_exchange_is_not_kept() {
        let names: Vec<_> = NEVER.into_iter().chain(KEPT).collect();
        let head = head(StatusCode::CREATED, &names);
        let answer = Answer::of(Protocol::Http, &head, &map(&names), &[], Some(Bytes::from_static(b"{}")));
        assert_eq!((answer.headers().count(), answer.trailers().count()), (KEPT.len(), KEPT.len()));
        let replay = answer.replay().expect("a body");
        assert_eq!(replay.status(), StatusCode::CREATED);
        assert_eq!(replay.headers()["idempotent-replayed"], "true");
        assert!(!replay.headers().contains_key(header::SET_COOKIE));
        assert!(Answer { body: None, ..answer }.replay().is_none());
    }

    #[test]
    fn m7_of_a_call_what_says_how_it_ended_is_kept_with_its_own_metadata() {
        let own = HeaderName::from_static("shop-detail-bin");
        let of_one_call = wire::OF_ONE_CALL.map(HeaderName::from_static);
        let names: Vec<_> =
            NEVER.into_iter().chain(of_one_call).chain([names::REPLAYED, own.clone(), grpc::STATUS]).collect();
        let kept = |answer: &Answer| {
            let name = |(name, _): (&HeaderName, &HeaderValue)| name.clone();
            (answer.headers().map(name).collect::<Vec<_>>(), answer.trailers().map(name).collect::<Vec<_>>())
        };
        let of = |head: &[HeaderName], trailers: &[HeaderName]| {
            kept(&Answer::of(Protocol::Grpc, &self::head(StatusCode::OK, head), &map(trailers), &[], None))
        };
        assert_eq!(of(&[], &names), (vec![], vec![own.clone(), grpc::STATUS]));
        assert_eq!(of(&names, &[]), (vec![own.clone(), grpc::STATUS], vec![]), "trailers only");
        let initial = [own, header::CONTENT_TYPE, GRPC_ENCODING];
        assert_eq!(of(&initial, &[]).0, [header::CONTENT_TYPE, GRPC_ENCODING]);
    }

    #[test]
    fn what_was_kept_before_there_were_trailers_is_read() {
        let old = b"\x01\x00\xc9\x01\0\0\0\x04etag\0\0\0\x03\"1\"\0\0\0\0receipt";
        let etag = HeaderValue::from_static("\"1\"");
        let answer = Answer::new(StatusCode::CREATED, "receipt").header(header::ETAG, etag);
        assert_eq!(Answer::from_bytes(old), Some(answer.clone()));
        assert_eq!(answer.to_bytes(), old);
    }

    #[test]
    fn what_somebody_settled_in_words_of_http_says_nothing_to_grpc() {
        assert!(!Answer::new(StatusCode::CREATED, "receipt").is_readable_in(Protocol::Grpc));
        assert!(Answer::grpc(b"receipt").is_readable_in(Protocol::Grpc));
    }

    fn any_fields() -> impl Strategy<Value = Fields> {
        let field = ("[a-z-]{1,20}", "[ -~]{0,40}");
        let field = field.prop_map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")));
        prop::collection::vec(field, 0..6)
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            status in 200u16..600,
            headers in any_fields(),
            trailers in any_fields(),
            body in prop::option::of(prop::collection::vec(any::<u8>(), 0..100)),
        ) {
            let status = StatusCode::from_u16(status).expect("a status");
            let answer = Answer { status, headers, trailers, body: body.map(Bytes::from) };
            prop_assert_eq!(Answer::from_bytes(&answer.to_bytes()), Some(answer));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Answer::from_bytes(&bytes);
        }
    }
}
