//! Heads that are too large: refused, with little memory, whatever protocol carries them.

use oneclock_test::{Protocol, peer};
use tokio::task::JoinSet;

use crate::AMPLE;
use crate::frames::{self, CONTINUATION, END_HEADERS, END_STREAM, HEADERS, Outcome, block, frame, hello};
use crate::process::{Alone, Bystander};
use crate::raw::exchange;

/// How many send the same at once.
const CALLERS: usize = 20;

/// What may be held for them all, in KiB: the most that a connection buffers of a head, and what the allocator keeps.
const GROWTH: u64 = 64 * 1024;

fn http1(line: &str, fields: &str) -> Vec<u8> {
    format!("{line} HTTP/1.1\r\nhost: shop\r\n{fields}\r\n").into_bytes()
}

/// A head on stream 1, on as many frames as it needs of at most 16 KiB.
fn http2(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let all: [(&[u8], &[u8]); 4] =
        [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"shop"), (b":path", b"/")];
    let block = block(&[&all[..], fields].concat());
    let mut bytes = hello(&[]);
    let pieces = block.chunks(16 * 1024);
    let last = pieces.len() - 1;
    for (nth, piece) in pieces.enumerate() {
        let kind = if nth == 0 { HEADERS } else { CONTINUATION };
        let first = if nth == 0 { END_STREAM } else { 0 };
        let end = if nth == last { END_HEADERS } else { 0 };
        bytes.extend(frame(kind, first | end, 1, piece));
    }
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
async fn heads_that_are_too_large_are_refused_and_others_are_served_meanwhile() {
    let megabyte = "a".repeat(1 << 20);
    let names: Vec<String> = (0..10_000).map(|n| format!("x-{n}")).collect();
    let many: String = names.iter().map(|name| format!("{name}: v\r\n")).collect();
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let proxy = Alone::start(upstream.addr(), 1_000, AMPLE).await;
    let bystander = Bystander::start(proxy.addr).await;
    let before = proxy.memory();

    let http1 = [
        ("a field of a megabyte", http1("GET /large", &format!("x-a: {megabyte}\r\n"))),
        ("a name of a megabyte", http1("GET /large", &format!("{megabyte}: b\r\n"))),
        ("10 000 fields", http1("GET /large", &many)),
        ("101 fields", http1("GET /large", &many[..1_000])), // which ends in the middle of one, and has more than 100
        ("a target of a megabyte", http1(&format!("GET /large{megabyte}"), "")),
        ("a target of 65 535 bytes", http1(&format!("GET /large{}", &megabyte[..65_529]), "")),
        ("a method of a megabyte", http1(&format!("{megabyte} /large"), "")),
        ("a head without end", format!("GET /large HTTP/1.1\r\nx-a: {megabyte}").into_bytes()),
    ];
    for (name, bytes) in http1 {
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let (bytes, addr) = (bytes.clone(), proxy.addr);
            callers.spawn(async move { exchange(addr, &bytes, b"").await.first().map(|answer| answer.status) });
        }
        let got = callers.join_all().await;
        // None: it was cut off while it still sent.
        let right = got.iter().all(|status| status.is_none_or(|status| [400, 414, 431].contains(&status)));
        println!("  HTTP/1.1 {name:<28} {:?}, {}", got[0], proxy.memory());
        assert!(right, "{name}: {got:?}");
    }
    let fields: Vec<(&[u8], &[u8])> = names.iter().map(|name| (name.as_bytes(), &b"v"[..])).collect();
    let large: Vec<(&[u8], &[u8])> = vec![(b"x-a", megabyte.as_bytes()); 8];
    let http2 = [
        ("a field of a megabyte", http2(&large[..1])),
        ("eight fields of a megabyte", http2(&large)),
        ("10 000 fields", http2(&fields)),
        ("a field of 70 KB", http2(&[(b"x-a", &megabyte.as_bytes()[..70_000])])),
    ];
    for (name, bytes) in http2 {
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let (bytes, addr) = (bytes.clone(), proxy.addr);
            callers.spawn(async move { frames::send(addr, &bytes).await });
        }
        let got = callers.join_all().await;
        let right = |outcome: &Outcome| match outcome {
            Outcome::Answered(status) => *status == 431,
            Outcome::Reset(_) | Outcome::GoAway(_) | Outcome::Closed => true,
        };
        println!("  HTTP/2   {name:<28} {:?}, {}", got[0], proxy.memory());
        assert!(got.iter().all(right), "{name}: {got:?}");
    }
    let (served, after) = (bystander.stop().await, proxy.memory());
    println!("memory: {before} before, {after} after; {served}");
    served.assert_all();
    assert!(after.peak < before.now + GROWTH, "{before}, {after}");
}
