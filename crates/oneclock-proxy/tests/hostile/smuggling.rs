//! HTTP/1.1: requests that two readers could take for one and for two.
//!
//! Each vector carries a second request where some reader would look for one. Right is: the upstream reads one request whose
//! end is beyond doubt, or the caller is refused; and whoever comes next gets its own answer. The oracle is shown to notice:
//! the same bytes passed on as they are (what a forwarder does that copies both lengths) do not pass it.

use std::fmt::Write as _;
use std::time::Duration;

use oneclock_core::Trust;
use oneclock_proxy::config::{Config, UpstreamProtocol};
use oneclock_proxy::{Proxy, Running};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::AMPLE;
use crate::oracle::Seen;
use crate::raw::{Answer, Answers, Recorder, exchange};
use crate::vectors::{Right, Vector, all};

/// A proxy with one route for everything, whose requests have `budget`.
pub(crate) async fn proxy(upstream: std::net::SocketAddr, budget: Duration) -> Running {
    let mut config =
        Config::simple(([127, 0, 0, 1], 0).into(), &format!("http://{upstream}")).expect("a configuration");
    config.admin = None;
    config.listeners[0].trust = Trust::Inside;
    for upstream in config.upstreams.values_mut() {
        upstream.protocol = UpstreamProtocol::Http1;
    }
    config.routes[0].when_absent = budget;
    config.routes[0].ceiling = budget;
    Proxy::start(config).await.expect("it starts")
}

/// How what the upstream read of one vector is not right, or which way it was right.
pub(crate) fn judge(right: Right, requests: &[Seen], target: &str, answers: &[Answer]) -> Result<&'static str, String> {
    let first = answers.first().map(|answer| answer.status);
    let whole = requests.iter().filter(|seen| seen.whole).count();
    if let Some(other) = requests.iter().find(|seen| seen.whole && seen.target != target) {
        return Err(format!("a request that nobody sent: {} {}", other.method, other.target));
    }
    if whole > 1 || requests.len() > 1 {
        return Err(format!("{} requests, {whole} of them whole", requests.len()));
    }
    let refused = first.is_none_or(|status| status >= 400);
    match right {
        Right::Refused if requests.is_empty() && refused => Ok("refused"),
        Right::Refused => Err(format!("not refused: {first:?}, {} requests", requests.len())),
        Right::One(_) if whole == 1 && first == Some(200) => Ok("one request"),
        Right::One(_) => Err(format!("not one whole request: {first:?}, {whole}")),
        Right::Broken if whole == 0 && first.is_none_or(|status| status == 400) => Ok("never whole"),
        Right::Waits if whole == 0 && matches!(first, Some(408 | 504)) => Ok("never whole"),
        Right::Broken | Right::Waits => Err(format!("not broken off: {first:?}, {whole}")),
        Right::AtMostOne => Ok(if whole == 1 { "one request" } else { "never whole" }),
    }
}

/// Two requests on one connection get their own answers, in their order.
pub(crate) async fn others_are_served(addr: std::net::SocketAddr, nth: usize) {
    let first = format!("GET /own{nth:03}a HTTP/1.1\r\nhost: shop\r\n\r\n");
    let both = format!("{first}GET /own{nth:03}b HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n");
    let got = exchange(addr, both.as_bytes(), b"").await;
    let want = ["a", "b"].map(|which| Answer { status: 200, body: format!("/own{nth:03}{which}") });
    assert_eq!(got, want, "what others get after vector {nth}");
}

/// What the upstream read that is not `known`, nor of [`others_are_served`] or of [`after`]. Then it is known.
pub(crate) fn news(seen: Vec<Seen>, known: &mut Vec<Seen>) -> Vec<Seen> {
    let mut before = std::mem::take(known);
    let of_vectors = |seen: &Seen| !seen.target.starts_with("/own") && !seen.target.starts_with("/after");
    let (mut all, mut new) = (Vec::new(), Vec::new());
    for one in seen.into_iter().filter(of_vectors) {
        match before.iter().position(|known| *known == one) {
            Some(at) => drop(before.swap_remove(at)),
            None => new.push(one.clone()),
        }
        all.push(one);
    }
    *known = all;
    new
}

fn after(nth: usize) -> String {
    format!("GET /after{nth:03} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n")
}

#[tokio::test]
async fn the_upstream_never_reads_two_requests_where_one_was_sent() {
    let (mut report, mut wrong) = (String::new(), 0);
    let recorder = Recorder::start(Answers::Whole).await;
    let patient = proxy(recorder.addr, AMPLE).await;
    let brief = proxy(recorder.addr, crate::ms(400)).await;
    let mut known = Vec::new();
    for (nth, vector) in all().iter().enumerate() {
        let mark = recorder.mark();
        let through = if vector.right == Right::Waits { &brief } else { &patient };
        let got = exchange(through.addresses()[0].1, &vector.bytes(nth), after(nth).as_bytes()).await;
        others_are_served(patient.addresses()[0].1, nth).await;
        let read = recorder.requests();
        let judged = match &read {
            Err(doubt) => Err(format!("the upstream is in doubt: {doubt}")),
            Ok(seen) => {
                let new = news(seen.clone(), &mut known);
                let judged = judge(vector.right, &new, &vector.target(nth), &got);
                judged.and_then(|how| vector.also(new.last()).map(|()| how))
            }
        };
        let statuses: Vec<_> = got.iter().map(|answer| answer.status).collect();
        let outcome = judged.as_ref().map_or_else(|why| format!("WRONG: {why}"), |how| (*how).to_owned());
        writeln!(report, "  {:<52} {outcome:<14} {statuses:?}", vector.name).expect("a string");
        if judged.is_err() {
            wrong += 1;
            writeln!(report, "    the upstream saw:\n      {}", recorder.shown(&mark)).expect("a string");
        }
        if read.is_err() {
            break; // nothing after it can be told apart
        }
    }
    println!("{report}");
    assert_eq!(wrong, 0, "{report}");
    patient.shutdown().await;
    brief.shutdown().await;
}

/// The naive way: bytes passed on as they came. What would not be noticed then proves nothing above.
#[tokio::test]
async fn naive_passed_on_as_they_are_the_vectors_are_noticed() {
    for (nth, vector) in all().iter().enumerate() {
        let recorder = Recorder::start(Answers::Whole).await;
        let mut socket = TcpStream::connect(recorder.addr).await.expect("a connection");
        let _ = socket.write_all(&vector.bytes(nth)).await; // it may be closed in the middle
        let _ = socket.shutdown().await;
        recorder.closed(1).await;
        let clear = recorder.requests().and_then(|seen| {
            let [one] = &seen[..] else { return Err(format!("{} requests", seen.len())) };
            if one.whole { Ok(()) } else { Err("not whole".into()) }
        });
        assert_eq!(clear.is_ok(), vector.is_harmless(), "{}: {clear:?}\n{}", vector.name, recorder.shown(&[]));
    }
}

/// An upstream that answers at the head and leaves the body unread: what is left of the body must not reach it in front of
/// somebody else's request.
#[tokio::test]
async fn an_answer_before_the_body_does_not_let_the_body_become_a_request() {
    let recorder = Recorder::start(Answers::Early).await;
    let proxy = proxy(recorder.addr, AMPLE).await;
    let addr = proxy.addresses()[0].1;
    let mut open = Vec::new();
    for nth in 0..20 {
        let head = format!("POST /early{nth:03} HTTP/1.1\r\nhost: shop\r\ncontent-length: 100\r\n\r\nhalf of it");
        let mut socket = TcpStream::connect(addr).await.expect("a connection");
        socket.write_all(head.as_bytes()).await.expect("written");
        let mut answer = [0; 15];
        let read = tokio::io::AsyncReadExt::read_exact(&mut socket, &mut answer);
        tokio::time::timeout(AMPLE, read).await.expect("an answer").expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        others_are_served(addr, nth).await;
        open.push(socket); // the rest of its body never comes
    }
    let seen = recorder.requests().expect("beyond doubt");
    let whole = seen.iter().filter(|seen| seen.whole);
    assert!(whole.clone().all(|seen| seen.target.starts_with("/own")), "{}", recorder.shown(&[]));
    assert_eq!(whole.count(), 40);
    proxy.shutdown().await;
}

/// The target outranks the field, also where the field is left out of the message by `connection`.
#[tokio::test]
async fn the_upstream_is_told_one_host_and_it_is_that_of_the_target() {
    let recorder = Recorder::start(Answers::Whole).await;
    let proxy = proxy(recorder.addr, AMPLE).await;
    for (head, host) in [
        ("GET http://shop:81/a HTTP/1.1\r\nhost: other", "shop:81"),
        ("GET /a HTTP/1.1\r\nhost: shop\r\nconnection: close, host", "shop"),
    ] {
        let before = recorder.requests().expect("beyond doubt").len();
        let bytes = format!("{head}\r\n\r\n");
        let close = b"GET /after HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n";
        let got = exchange(proxy.addresses()[0].1, bytes.as_bytes(), close).await;
        assert_eq!(got.first().map(|answer| answer.status), Some(200), "{head}");
        let seen = recorder.requests().expect("beyond doubt");
        assert_eq!((seen[before].target.as_str(), seen[before].field("host")), ("/a", Some(host)), "{head}");
    }
    proxy.shutdown().await;
}

impl Vector {
    /// What this vector asks beyond its kind.
    fn also(&self, seen: Option<&Seen>) -> Result<(), String> {
        let Right::One(Some(body)) = self.right else { return Ok(()) };
        let got = seen.map(|seen| String::from_utf8_lossy(&seen.body).into_owned()).unwrap_or_default();
        // Its numbers were written into it.
        if got.len() == body.len() { Ok(()) } else { Err(format!("another body: {got:?}")) }
    }
}
