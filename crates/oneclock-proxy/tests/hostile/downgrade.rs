//! HTTP/2 in, HTTP/1.1 out: what a frame can carry and a line cannot.

use std::fmt::Write as _;

use crate::AMPLE;
use crate::frames::{CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Outcome, block, frame, hello, send};
use crate::raw::{Answer, Answers, Recorder};
use crate::smuggling::{judge, news, others_are_served, proxy};
use crate::vectors::Right;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// A request on stream 1.
struct Vector {
    name: String,
    right: Right,
    fields: Fields,
    /// The frames behind the head, which ends the stream if there are none.
    then: Vec<Vec<u8>>,
}

const SMUGGLED: &[u8] = b"GET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n";

/// The head of a POST to `/T…` with `changes`: an empty value takes the field out, a new name goes to the end.
fn fields(changes: &[(&str, &[u8])]) -> Fields {
    let mut all: Vec<(&str, &[u8])> =
        vec![(":method", b"POST"), (":scheme", b"http"), (":authority", b"shop"), (":path", b"/TNNN")];
    for (name, value) in changes {
        let known = all.iter().position(|(known, _)| known == name && name.starts_with(':'));
        match known {
            Some(at) if value.is_empty() => drop(all.remove(at)),
            Some(at) => all[at].1 = value,
            None => all.push((name, value)),
        }
    }
    all.into_iter().map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec())).collect()
}

fn without_a_body(name: impl Into<String>, right: Right, changes: &[(&str, &[u8])]) -> Vector {
    Vector { name: name.into(), right, fields: fields(changes), then: Vec::new() }
}

fn with(name: &str, right: Right, changes: &[(&str, &[u8])], then: Vec<Vec<u8>>) -> Vector {
    Vector { name: name.to_owned(), right, fields: fields(changes), then }
}

fn data(bytes: &[u8], flags: u8) -> Vec<u8> {
    frame(DATA, flags, 1, bytes)
}

fn trailers(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(fields))
}

#[allow(clippy::too_many_lines, reason = "a table")]
fn all() -> Vec<Vector> {
    use Right::{AtMostOne, Broken, One, Refused};
    let mut all = vec![
        without_a_body("nothing wrong", One(None), &[]),
        with("a body", One(Some("hello")), &[], vec![data(b"hello", END_STREAM)]),
    ];
    // What speaks of a connection has no meaning on a stream (RFC 9113 section 8.2.2).
    for (name, value) in [
        ("transfer-encoding", "chunked"),
        ("connection", "close"),
        ("connection", "content-length"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "close"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
    ] {
        let then = vec![data(b"0\r\n\r\n", 0), data(SMUGGLED, END_STREAM)];
        all.push(with(&format!("{name}: {value}"), Refused, &[(name, value.as_bytes())], then));
    }
    all.push(without_a_body("te: trailers", One(None), &[("te", b"trailers")]));
    // Bytes that end a line, or a word, over there.
    for (name, value) in [
        ("CR and LF in a value", &b"a\r\ntransfer-encoding: chunked"[..]),
        ("a whole request in a value", b"a\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        ("a LF in a value", b"a\ntransfer-encoding: chunked"),
        ("a CR in a value", b"a\rb"),
        ("a NUL in a value", b"a\0b"),
    ] {
        all.push(without_a_body(name, Refused, &[("x-a", value)]));
    }
    for (name, field) in [
        ("CR and LF in a name", "x-a: b\r\ntransfer-encoding"),
        ("a colon in a name", "transfer-encoding: chunked\r\nx"),
        ("a space in a name", "transfer-encoding "),
        ("capitals in a name", "Transfer-Encoding"),
        ("a NUL in a name", "x\0a"),
        ("no name", ""),
    ] {
        all.push(without_a_body(name, Refused, &[(field, b"chunked")]));
    }
    for (name, path) in [
        ("a space", &b"/TNNN HTTP/1.1 x"[..]),
        ("a whole request", b"/TNNN HTTP/1.1\r\nhost: shop\r\n\r\nGET /SNNN"),
        ("CR and LF", b"/TNNN\r\nx-a: b"),
        ("a NUL", b"/TNNN\0"),
        ("a tab", b"/TNNN\tx"),
        ("no slash", b"TNNN"),
        ("an at sign", b"@evil/TNNN"),
        ("a whole URI", b"http://evil/TNNN"),
        ("an asterisk", b"*"),
    ] {
        all.push(without_a_body(format!(":path with {name}"), Refused, &[(":path", path)]));
    }
    for (name, method) in [
        ("a space", &b"GET /SNNN HTTP/1.1"[..]),
        ("a whole request", b"GET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\nPOST"),
        ("a LF", b"POST\n"),
    ] {
        all.push(without_a_body(format!(":method with {name}"), Refused, &[(":method", method)]));
    }
    for (name, authority) in [
        ("a space", &b"shop evil"[..]),
        ("CR and LF", b"shop\r\nx-a: b"),
        ("a path", b"shop/evil"),
        ("a user", b"user@shop"),
        ("two users", b"a@b@shop"),
    ] {
        all.push(without_a_body(format!(":authority with {name}"), Refused, &[(":authority", authority)]));
    }
    all.extend([
        without_a_body(":authority, and another host", One(None), &[("host", b"evil")]),
        without_a_body(":authority, and two hosts", Refused, &[("host", b"shop"), ("host", b"evil")]),
        without_a_body("host alone", One(None), &[(":authority", b""), ("host", b"shop")]),
        without_a_body("two hosts alone", Refused, &[(":authority", b""), ("host", b"shop"), ("host", b"evil")]),
        without_a_body("a host with a space", Refused, &[(":authority", b""), ("host", b"shop evil")]),
        without_a_body(":scheme with CR and LF", Refused, &[(":scheme", b"http\r\nx-a: b")]),
        without_a_body("no :method", Refused, &[(":method", b"")]),
        without_a_body("no :path", Refused, &[(":path", b"")]),
        without_a_body("no :scheme", Refused, &[(":scheme", b"")]),
        without_a_body(":status", Refused, &[(":status", b"200")]),
        without_a_body(":unknown", Refused, &[(":unknown", b"a")]),
        without_a_body("CONNECT with a path", Refused, &[(":method", b"CONNECT")]),
        without_a_body(
            "CONNECT",
            Refused,
            &[(":method", b"CONNECT"), (":path", b""), (":scheme", b""), (":authority", b"shop:80")],
        ),
        without_a_body("CONNECT for a websocket", Refused, &[(":method", b"CONNECT"), (":protocol", b"websocket")]),
        without_a_body("content-length without a body", Refused, &[("content-length", b"5")]),
        with(
            "two content-lengths that differ",
            Refused,
            &[("content-length", b"5"), ("content-length", b"39")],
            vec![data(b"hello", END_STREAM)],
        ),
        with("content-length: 5, 5", Refused, &[("content-length", b"5, 5")], vec![data(b"hello", END_STREAM)]),
        with("content-length: +5", Refused, &[("content-length", b"+5")], vec![data(b"hello", END_STREAM)]),
        with("less than content-length", Broken, &[("content-length", b"39")], vec![data(b"hello", END_STREAM)]),
        with(
            "more than content-length, in one frame",
            Broken,
            &[("content-length", b"5")],
            vec![data(&[b"hello", SMUGGLED].concat(), END_STREAM)],
        ),
        with(
            "more than content-length, in two frames",
            AtMostOne,
            &[("content-length", b"5")],
            vec![data(b"hello", 0), data(SMUGGLED, END_STREAM)],
        ),
        with("content-length: 0 and a body", AtMostOne, &[("content-length", b"0")], vec![data(SMUGGLED, END_STREAM)]),
        with(
            "a body behind the end",
            AtMostOne,
            &[("content-length", b"5")],
            vec![data(b"hello", END_STREAM), data(SMUGGLED, END_STREAM)],
        ),
        with(
            "a head behind the end",
            AtMostOne,
            &[],
            vec![data(b"hello", END_STREAM), trailers(&[(b"transfer-encoding", b"chunked")])],
        ),
        with(
            "chunks as a body",
            One(Some("0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n")),
            &[],
            vec![data(b"0\r\n\r\n", 0), data(SMUGGLED, END_STREAM)],
        ),
        with(
            "lengths as trailers",
            AtMostOne,
            &[("te", b"trailers"), ("trailer", b"content-length, host")],
            vec![data(b"hello", 0), trailers(&[(b"content-length", b"34"), (b"host", b"evil")])],
        ),
        with(
            "a coding as a trailer",
            AtMostOne,
            &[("trailer", b"transfer-encoding")],
            vec![data(b"hello", 0), trailers(&[(b"transfer-encoding", b"chunked")])],
        ),
        with("a pseudo-field as a trailer", AtMostOne, &[], vec![data(b"hello", 0), trailers(&[(b":path", b"/SNNN")])]),
        with(
            "trailers that do not end the stream",
            AtMostOne,
            &[],
            vec![data(b"hello", 0), frame(HEADERS, END_HEADERS, 1, &block(&[(b"x-a", b"b")]))],
        ),
        with(
            "a continuation of nothing",
            AtMostOne,
            &[],
            vec![data(b"hello", 0), frame(CONTINUATION, END_HEADERS, 1, &block(&[(b"x-a", b"b")]))],
        ),
    ]);
    let mut pseudo_behind = fields(&[(":path", b"")]);
    pseudo_behind.extend([(b"x-a".to_vec(), b"b".to_vec()), (b":path".to_vec(), b"/TNNN".to_vec())]);
    let mut twice = fields(&[]);
    twice.push((b":path".to_vec(), b"/SNNN".to_vec()));
    for (name, fields) in [(":path behind the fields", pseudo_behind), (":path twice", twice)] {
        all.push(Vector { name: name.to_owned(), right: Refused, fields, then: Vec::new() });
    }
    all
}

impl Vector {
    fn bytes(&self, nth: usize) -> Vec<u8> {
        let fields: Vec<(&[u8], &[u8])> = self.fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let ends = if self.then.is_empty() { END_STREAM } else { 0 };
        let head = frame(HEADERS, END_HEADERS | ends, 1, &block(&fields));
        let mut bytes = [hello(&[]), head, self.then.concat()].concat();
        crate::vectors::number(&mut bytes, nth);
        bytes
    }
}

#[tokio::test]
async fn what_a_line_cannot_carry_is_refused_and_one_request_stays_one() {
    let recorder = Recorder::start(Answers::Whole).await;
    let proxy = proxy(recorder.addr, AMPLE).await;
    let addr = proxy.addresses()[0].1;
    let (mut report, mut wrong, mut known) = (String::new(), 0, Vec::new());
    for (nth, vector) in all().iter().enumerate() {
        let mark = recorder.mark();
        let outcome = send(addr, &vector.bytes(nth)).await;
        others_are_served(addr, nth).await;
        let answers = match outcome {
            Outcome::Answered(status) => vec![Answer { status, body: String::new() }],
            Outcome::Reset(_) | Outcome::GoAway(_) | Outcome::Closed => Vec::new(),
        };
        let read = recorder.requests();
        let judged = match &read {
            Err(doubt) => Err(format!("the upstream is in doubt: {doubt}")),
            Ok(seen) => {
                let new = news(seen.clone(), &mut known);
                let judged = judge(vector.right, &new, &format!("/T{nth:03}"), &answers);
                let host = new.into_iter().find(|seen| seen.field("host") != Some("shop"));
                match (judged, host) {
                    (Ok(_), Some(seen)) => Err(format!("another host: {:?}", seen.field("host"))),
                    (judged, _) => judged,
                }
            }
        };
        let how = judged.as_ref().map_or_else(|why| format!("WRONG: {why}"), |how| (*how).to_owned());
        writeln!(report, "  {:<52} {how:<14} {outcome:?}", vector.name).expect("a string");
        if judged.is_err() {
            wrong += 1;
            writeln!(report, "    the upstream saw:\n      {}", recorder.shown(&mark)).expect("a string");
        }
        if read.is_err() {
            break;
        }
    }
    println!("{report}");
    assert_eq!(wrong, 0, "{report}");
    proxy.shutdown().await;
}

/// The naive way: fields written into lines as they are.
#[tokio::test]
async fn naive_fields_written_into_lines_are_noticed() {
    let mut noticed = 0;
    for (nth, vector) in all().iter().enumerate() {
        let of = |name: &[u8]| {
            let found = vector.fields.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let mut bytes =
            [&of(b":method")[..], b" ", &of(b":path"), b" HTTP/1.1\r\nhost: ", &of(b":authority"), b"\r\n"].concat();
        for (name, value) in vector.fields.iter().filter(|(name, _)| !name.starts_with(b":")) {
            bytes.extend([&name[..], b": ", value, b"\r\n"].concat());
        }
        bytes.extend_from_slice(b"\r\n");
        for data in vector.then.iter().filter(|frame| frame[3] == DATA) {
            bytes.extend_from_slice(&data[9..]);
        }
        crate::vectors::number(&mut bytes, nth);
        let clear = crate::oracle::requests(&bytes).is_ok_and(|seen| seen.len() == 1 && seen[0].whole);
        noticed += usize::from(!clear);
        assert!(!clear || !matches!(vector.right, Right::Broken), "{}: not noticed", vector.name);
    }
    assert!(noticed * 3 > all().len() * 2, "{noticed} of {}", all().len());
}
