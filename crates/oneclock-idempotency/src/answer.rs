//! The answer of a completed run, as it is kept and replayed.
//!
//! Decides what of an answer is kept: its status, the headers that still mean something later, and its body if that is not
//! too large. `Set-Cookie` and whatever else belongs to one exchange is not (contract M7).

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};

use crate::names;

/// The answer of a completed run.
///
/// One without a body was too large to be kept, or ended with trailers: it is known that it was given, and cannot be
/// given again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Option<Bytes>,
}

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

/// The first byte of an answer as bytes: the version of what follows.
const VERSION: u8 = 1;

impl Answer {
    /// An answer, for a probe that found out what a run did: see [`Found`](crate::Probed::Applied).
    pub fn new(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self { status, headers: Vec::new(), body: Some(body.into()) }
    }

    /// An answer that was given and is not known any more: it is done, and who asks again is told only that.
    pub fn not_kept(status: StatusCode) -> Self {
        Self { status, headers: Vec::new(), body: None }
    }

    /// The same with this header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// What is kept of a whole answer. `None` for a body: it was too large.
    pub(crate) fn of(status: StatusCode, headers: &HeaderMap, also: &[HeaderName], body: Option<Bytes>) -> Self {
        let kept = |name: &HeaderName| KEPT.contains(name) || also.contains(name);
        let headers = headers.iter().filter(|(name, _)| kept(name));
        Self { status, headers: headers.map(|(name, value)| (name.clone(), value.clone())).collect(), body }
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

    /// The replay: what was kept, and that it is one. `None` if the body was not kept.
    pub fn replay(&self) -> Option<Response<Bytes>> {
        let mut response = self.again()?;
        response.headers_mut().insert(names::REPLAYED, HeaderValue::from_static("true"));
        Some(response)
    }

    /// The same without saying that it is a replay: of an answer that nothing was kept for.
    pub(crate) fn again(&self) -> Option<Response<Bytes>> {
        let mut response = Response::new(self.body.clone()?);
        *response.status_mut() = self.status;
        response.headers_mut().extend(self.headers.iter().cloned());
        Some(response)
    }

    /// For stores.
    pub fn to_bytes(&self) -> Vec<u8> {
        let body = self.body.as_deref().unwrap_or_default();
        let mut bytes = BytesMut::with_capacity(body.len() + 256);
        bytes.put_u8(VERSION);
        bytes.put_u16(self.status.as_u16());
        bytes.put_u8(u8::from(self.body.is_some()));
        for (name, value) in &self.headers {
            let part = |bytes: &mut BytesMut, part: &[u8]| {
                bytes.put_u32(u32::try_from(part.len()).unwrap_or(u32::MAX));
                bytes.put_slice(part);
            };
            part(&mut bytes, name.as_str().as_bytes());
            part(&mut bytes, value.as_bytes());
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
        let mut headers = Vec::new();
        loop {
            let name = part(&mut rest)?;
            if name.is_empty() {
                break;
            }
            let value = part(&mut rest)?;
            headers.push((HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?));
        }
        let status = StatusCode::from_u16(u16::from_be_bytes([high, low])).ok()?;
        let body = (has_body == 1).then(|| Bytes::copy_from_slice(rest));
        Some(Self { status, headers, body })
    }
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

    #[test]
    fn m7_what_belongs_to_one_exchange_is_not_kept() {
        let mut headers = HeaderMap::new();
        for name in NEVER.iter().chain(&KEPT) {
            headers.append(name, HeaderValue::from_static("x"));
        }
        let answer = Answer::of(StatusCode::CREATED, &headers, &[], Some(Bytes::from_static(b"{}")));
        assert_eq!(answer.headers().count(), KEPT.len());
        let replay = answer.replay().expect("a body");
        assert_eq!(replay.status(), StatusCode::CREATED);
        assert_eq!(replay.headers()["idempotent-replayed"], "true");
        assert!(!replay.headers().contains_key(header::SET_COOKIE));
        assert!(Answer { body: None, ..answer }.replay().is_none());
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            status in 200u16..600,
            headers in prop::collection::vec(("[a-z-]{1,20}", "[ -~]{0,40}"), 0..6),
            body in prop::option::of(prop::collection::vec(any::<u8>(), 0..100)),
        ) {
            let answer = Answer {
                status: StatusCode::from_u16(status).unwrap(),
                headers: headers.iter().map(|(name, value)| {
                    (HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap())
                }).collect(),
                body: body.map(Bytes::from),
            };
            prop_assert_eq!(Answer::from_bytes(&answer.to_bytes()), Some(answer));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Answer::from_bytes(&bytes);
        }
    }
}
