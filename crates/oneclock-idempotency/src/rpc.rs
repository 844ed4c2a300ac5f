//! What an answer says of its run, in the protocol that it is written in (contract R8, M4).
//!
//! Decides where the status of a remote procedure call stands: gRPC's in the trailers, or in the head where there is nothing
//! else; Connect's in the document of an error. HTTP's status says nothing of a gRPC call that was answered, which is 200 also
//! when it failed. What never says how it ended proves nothing. Whose end stands in the middle of a body is not judged, and
//! gets no keys.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, response};
use oneclock_core::Outcome;
use oneclock_core::effect::{Seen, outcome};
use oneclock_core::idempotency::{self, Verdict};
use oneclock_http::{Protocol, grpc, grpc_status_of_connect};

/// Whether a call in this protocol can have a key.
pub(crate) fn has_keys(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Http | Protocol::Grpc | Protocol::ConnectUnary)
}

/// What an answer says of its run. `None` for a body: it was too large to be looked at.
pub(crate) fn verdict(
    protocol: Protocol,
    head: &response::Parts,
    trailers: &HeaderMap,
    body: Option<&[u8]>,
    nothing_happened: bool,
) -> Verdict {
    let of_http = || idempotency::verdict(head.status.as_u16(), nothing_happened);
    if nothing_happened {
        return Verdict::Nothing;
    }
    match protocol {
        Protocol::Grpc => {
            match [trailers, &head.headers].into_iter().find(|fields| fields.contains_key(grpc::STATUS)) {
                Some(fields) => of_status(grpc::status(fields)),
                None if head.status.is_success() => Verdict::Doubtful,
                None => of_http(), // no service of gRPC's said it
            }
        }
        Protocol::ConnectUnary if !head.status.is_success() && is_json(&head.headers) => of_status(code(body)),
        _ => of_http(),
    }
}

/// By gRPC's status, of which 0 and the definite errors are answers to keep. Of the others none says that nothing happened:
/// `RESOURCE_EXHAUSTED` and `ABORTED` are said in the middle of work as well.
fn of_status(status: Option<u8>) -> Verdict {
    let Some(status) = status else { return Verdict::Doubtful };
    match outcome(Seen::GrpcAnswer { status, reason: None }, false) {
        Outcome::Applied | Outcome::Failed => Verdict::Keep,
        Outcome::NotSent | Outcome::Rejected => Verdict::Nothing,
        _ => Verdict::Doubtful,
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}

/// The status in an error of Connect's.
fn code(document: Option<&[u8]>) -> Option<u8> {
    let document: serde_json::Value = serde_json::from_slice(document?).ok()?;
    grpc_status_of_connect(document.get("code")?.as_str()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderValue, Response};
    use oneclock_core::idempotency::Verdict::{Doubtful, Keep, Nothing};

    fn status(status: &str) -> HeaderMap {
        HeaderMap::from_iter([(grpc::STATUS, HeaderValue::from_str(status).expect("a value"))])
    }

    fn head(status: u16, headers: HeaderMap) -> response::Parts {
        let mut head = Response::builder().status(status).body(()).expect("a status").into_parts().0;
        head.headers = headers;
        head
    }

    #[test]
    fn m4_grpc_is_judged_by_its_own_status_wherever_that_stands() {
        let none = HeaderMap::new();
        for (code, want) in
            (0..=17).map(|code| (code, if [1, 2, 4, 8, 10, 13, 14, 15, 17].contains(&code) { Doubtful } else { Keep }))
        {
            let said = status(&code.to_string());
            assert_eq!(verdict(Protocol::Grpc, &head(200, none.clone()), &said, Some(b""), false), want, "{code}");
            assert_eq!(verdict(Protocol::Grpc, &head(200, said.clone()), &none, Some(b""), false), want, "{code}");
            assert_eq!(verdict(Protocol::Grpc, &head(200, none.clone()), &said, None, true), Nothing, "{code}");
            // As HTTP sees it every one of them went well, which is how failures come to be kept.
            assert_eq!(idempotency::verdict(200, false), Keep);
        }
    }

    #[test]
    fn m4_what_never_says_how_it_ended_proves_nothing() {
        let none = HeaderMap::new();
        for said in [none.clone(), status("x"), status("+5"), status("256"), status("")] {
            assert_eq!(
                verdict(Protocol::Grpc, &head(200, none.clone()), &said, Some(b"x"), false),
                Doubtful,
                "{said:?}"
            );
        }
        let foreign =
            |status| verdict(Protocol::Grpc, &head(status, HeaderMap::new()), &HeaderMap::new(), Some(b""), false);
        assert_eq!((foreign(404), foreign(429), foreign(502)), (Keep, Nothing, Doubtful));
    }

    #[test]
    fn m4_connect_says_it_in_the_document_of_an_error() {
        let json = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let of = |status, body: &str| {
            verdict(
                Protocol::ConnectUnary,
                &head(status, json.clone()),
                &HeaderMap::new(),
                Some(body.as_bytes()),
                false,
            )
        };
        assert_eq!(of(200, "{}"), Keep);
        assert_eq!(of(409, r#"{"code":"already_exists"}"#), Keep);
        assert_eq!(of(409, r#"{"code":"aborted"}"#), Doubtful, "one status of HTTP's for two");
        assert_eq!(of(501, r#"{"code":"unimplemented"}"#), Keep);
        assert_eq!(of(429, r#"{"code":"resource_exhausted"}"#), Doubtful);
        assert_eq!((of(400, "{"), of(400, r#"{"code":7}"#)), (Doubtful, Doubtful));
    }
}
