//! HTTP/2 frames that cost their sender little: the connection is ended, or they are read at no cost; never hoarded.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oneclock_test::caller::{Caller, H1Outcome};
use oneclock_test::{Protocol, peer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE,
    block, frame, frames, get, hello, settings_ack,
};
use crate::process::{Alone, Bystander, now};
use crate::raw::{Answers, Recorder};
use crate::{AMPLE, ms};

/// How many do it at once, and how many bytes each sends at most, in how much time.
const CALLERS: usize = 4;
const BYTES: usize = 8 << 20;
const TIME: Duration = ms(1_000);

/// What may be held for one kind of flood, in KiB.
const GROWTH: u64 = 32 * 1024;

const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const FRAME_SIZE_ERROR: u32 = 6;
const ENHANCE_YOUR_CALM: u32 = 11;

/// What becomes of the connection.
#[derive(Clone, Copy, Debug)]
enum Right {
    /// It is ended, with one of these codes.
    Ended(&'static [u32]),
    /// It may send as much as it wants, or is no longer read from.
    Harmless,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    GoAway(u32),
    Closed,
    /// All was taken, or as much as goes in that time.
    Taken,
    /// The other side does not read any more.
    Blocked,
}

/// What is sent first, and what then again and again, by its number.
struct Flood {
    name: &'static str,
    right: Right,
    reads: bool,
    first: Vec<u8>,
    unit: fn(u32) -> Vec<u8>,
}

/// The head of a POST whose body follows.
fn post() -> Vec<u8> {
    let fields: [(&[u8], &[u8]); 4] =
        [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"shop"), (b":path", b"/flood")];
    frame(HEADERS, END_HEADERS, 1, &block(&fields))
}

fn odd(nth: u32) -> u32 {
    2 * nth + 1
}

fn all() -> Vec<Flood> {
    use Right::{Ended, Harmless};
    const CALM: Right = Ended(&[ENHANCE_YOUR_CALM]);
    let flood = |name, right, first: Vec<u8>, unit| Flood {
        name,
        right,
        reads: true,
        first: [hello(&[]), settings_ack(), first].concat(),
        unit,
    };
    let unread = |name, first, unit| Flood { reads: false, ..flood(name, Harmless, first, unit) };
    let half = || frame(HEADERS, END_STREAM, 1, &block(&[(b":method", b"GET"), (b":scheme", b"http")]));
    // An entry of the dynamic table that is as large as it can be, and a head that repeats it.
    let large = || {
        let mut entry = vec![0x40, 3, b'x', b'-', b'a'];
        entry.extend(block(&[(b"", &[b'b'; 4_000])]).split_off(2));
        let pseudo = block(&[(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"shop"), (b":path", b"/")]);
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &[pseudo, entry].concat())
    };
    vec![
        flood("rapid reset", CALM, Vec::new(), |nth| {
            [get(odd(nth), "/flood", END_STREAM), frame(RST_STREAM, 0, odd(nth), &8_u32.to_be_bytes())].concat()
        }),
        flood("rapid reset by mistakes (MadeYouReset)", CALM, Vec::new(), |nth| {
            [get(odd(nth), "/flood", 0), frame(WINDOW_UPDATE, 0, odd(nth), &0x7fff_ffff_u32.to_be_bytes())].concat()
        }),
        flood("continuations without end", CALM, half(), |_| {
            frame(CONTINUATION, 0, 1, &block(&[(b"x-a", &[b'b'; 900])]))
        }),
        flood("continuations of a few bytes", CALM, half(), |_| frame(CONTINUATION, 0, 1, &block(&[(b"a", b"b")]))),
        flood("empty continuations", CALM, half(), |_| frame(CONTINUATION, 0, 1, &[])),
        flood("a head that unpacks to 60 MB", Ended(&[ENHANCE_YOUR_CALM, PROTOCOL_ERROR]), large(), |nth| {
            let pseudo =
                block(&[(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"shop"), (b":path", b"/")]);
            frame(HEADERS, END_HEADERS | END_STREAM, odd(nth + 1), &[pseudo, vec![0xbe; 15_000]].concat())
        }),
        flood("bodies of one byte to a frame", Harmless, post(), |_| frame(DATA, 0, 1, b"x")),
        flood("empty frames of a body", Harmless, post(), |_| frame(DATA, 0, 1, &[])),
        flood("padding alone", Harmless, post(), |_| frame(DATA, 8, 1, &[&[255][..], &[0; 255]].concat())),
        flood("pings", Harmless, Vec::new(), |nth| frame(PING, 0, 0, &u64::from(nth).to_be_bytes())),
        flood("settings", Harmless, Vec::new(), |_| frame(SETTINGS, 0, 0, &[])),
        flood("settings that change the table", Harmless, Vec::new(), |nth| {
            frame(SETTINGS, 0, 0, &[&[0, 1][..], &(nth % 4096).to_be_bytes()].concat())
        }),
        unread("pings, the answers unread", Vec::new(), |nth| frame(PING, 0, 0, &u64::from(nth).to_be_bytes())),
        unread("settings, the answers unread", Vec::new(), |_| frame(SETTINGS, 0, 0, &[])),
        flood("priorities", Harmless, Vec::new(), |nth| frame(PRIORITY, 0, odd(nth % 10_000), &[0, 0, 0, 0, 9])),
        flood("frames of no known kind", Harmless, Vec::new(), |_| frame(0xfa, 0, 0, &[0; 64])),
        flood("windows that grow beyond all", Ended(&[FLOW_CONTROL_ERROR]), Vec::new(), |_| {
            frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes())
        }),
        flood("a window that grows by nothing", Ended(&[PROTOCOL_ERROR]), Vec::new(), |_| {
            frame(WINDOW_UPDATE, 0, 0, &0_u32.to_be_bytes())
        }),
        flood("a frame beyond its size", Ended(&[FRAME_SIZE_ERROR]), post(), |_| frame(DATA, 0, 1, &[0; 20_000])),
    ]
}

impl Flood {
    /// Sends it on one connection.
    async fn send(&self, addr: std::net::SocketAddr) -> Fate {
        let (mut reader, mut writer) = TcpStream::connect(addr).await.expect("a connection").into_split();
        let mut got = Vec::new();
        let sending = async {
            let (mut sent, mut nth, since) = (self.first.len(), 0, now());
            if writer.write_all(&self.first).await.is_err() {
                return Fate::Closed;
            }
            while sent < BYTES && now() - since < TIME {
                let mut piece = Vec::new();
                while piece.len() < 64 * 1024 {
                    piece.extend((self.unit)(nth));
                    nth += 1;
                }
                sent += piece.len();
                match timeout(TIME, writer.write_all(&piece)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Fate::Closed,
                    Err(_elapsed) => return Fate::Blocked,
                }
            }
            Fate::Taken
        };
        let mut fate = if self.reads {
            tokio::select! {
                fate = sending => fate,
                // What comes is of no interest but for its last frame.
                () = drain(&mut reader, &mut got) => Fate::Closed,
            }
        } else {
            sending.await
        };
        if fate == Fate::Closed {
            let _ = timeout(TIME, drain(&mut reader, &mut got)).await;
        }
        if let Right::Ended(_) = self.right {
            let _ = timeout(AMPLE, drain(&mut reader, &mut got)).await;
        }
        if let Some(code) = goaway(&got) {
            fate = Fate::GoAway(code);
        }
        fate
    }
}

async fn drain(reader: &mut tokio::net::tcp::OwnedReadHalf, got: &mut Vec<u8>) {
    while !matches!(reader.read_buf(got).await, Ok(0) | Err(_)) {}
}

fn goaway(bytes: &[u8]) -> Option<u32> {
    frames(bytes).into_iter().rev().find_map(|(kind, _, _, payload)| {
        (kind == GOAWAY).then(|| u32::from_be_bytes(payload[4..8].try_into().expect("a code")))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
async fn floods_are_ended_or_cost_nothing_and_others_are_served_meanwhile() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let proxy = Alone::start(upstream.addr(), 1_000, AMPLE).await;
    let mut wrong = Vec::new();
    for flood in all() {
        let (before, bystander) = (proxy.memory(), Bystander::start(proxy.addr).await);
        let addr = proxy.addr;
        let flood = Arc::new(flood);
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let flood = Arc::clone(&flood);
            callers.spawn(async move { flood.send(addr).await });
        }
        let fates = callers.join_all().await;
        let (served, after) = (bystander.stop().await, proxy.memory());
        println!("  {:<40} {:?}; {after}; {served}", flood.name, fates[0]);
        served.assert_all();
        let right = |fate: &Fate| match (flood.right, fate) {
            // A connection that is closed while we still send to it may lose its last word to a reset.
            (Right::Ended(codes), Fate::GoAway(code)) => codes.contains(code),
            (Right::Ended(_), Fate::Closed) => true,
            (Right::Ended(_), Fate::Taken | Fate::Blocked) => false,
            (Right::Harmless, _) => true,
        };
        if !fates.iter().all(right) || after.now > before.now + GROWTH || after.peak > before.peak + GROWTH {
            wrong.push(format!("{}: {fates:?}, {before}, {after}", flood.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// So many streams, each reset with CANCEL once the upstream has read it, until all their calls are cancelled there.
async fn resets_what_was_passed_on(proxy: &Alone, upstream: &Recorder, streams: u32) {
    let mut socket = TcpStream::connect(proxy.addr).await.expect("a connection");
    socket.write_all(&[hello(&[]), settings_ack()].concat()).await.expect("written");
    for nth in 0..streams {
        let (stream, target) = (odd(nth), format!("/hang{nth}"));
        socket.write_all(&get(stream, &target, END_STREAM)).await.expect("written");
        upstream.reads(&target).await;
        socket.write_all(&frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())).await.expect("written");
    }
    upstream.closed(streams as usize).await;
}

/// Streams that are reset only once the upstream is asked: each costs a call, which is cancelled, and nothing is left of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
async fn streams_reset_after_they_were_passed_on_leave_nothing_behind() {
    const STREAMS: u32 = 300;
    let upstream = Recorder::start(Answers::NotAll).await;
    let proxy = Alone::start(upstream.addr, 1_000, AMPLE).await;
    let (bystander, before) = (Bystander::start(proxy.addr).await, proxy.memory());
    resets_what_was_passed_on(&proxy, &upstream, STREAMS).await;
    let (served, after) = (bystander.stop().await, proxy.memory());
    println!("{STREAMS} streams reset after they were passed on, all cancelled; memory: {before}, {after}; {served}");
    served.assert_all();
    assert!(after.peak < before.now + GROWTH, "{before}, {after}");
}

/// All that is known of the upstream is that strangers left it: that is not held against it, nor against those who come next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
async fn strangers_that_leave_before_anybody_is_answered_do_not_shut_others_out() {
    const STREAMS: u32 = 60;
    let upstream = Recorder::start(Answers::NotAll).await;
    let proxy = Alone::start(upstream.addr, 1_000, AMPLE).await;
    resets_what_was_passed_on(&proxy, &upstream, STREAMS).await;
    for nth in 0..40 {
        let answer = Caller::h1(proxy.addr).get("/new").answer().await.expect("an answer");
        let served = matches!(&answer, H1Outcome::Complete { status, .. } if *status == 200);
        assert!(served, "the {nth}th of those who came next: {answer:?}");
    }
}

/// Answers that nobody takes, because the window is closed: what is buffered of them is bounded, and their budget ends them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
async fn answers_into_a_closed_window_are_bounded_and_end_with_their_budget() {
    const WINDOW: u16 = 4; // SETTINGS_INITIAL_WINDOW_SIZE
    const CONNECTIONS: usize = 20;
    const STREAMS: u32 = 50;
    const WHOLE: u8 = 0x88; // `:status: 200`, of the static table
    let upstream = Recorder::start(Answers::Whole).await;
    let proxy = Alone::start(upstream.addr, 1_000, ms(2_000)).await;
    let before = proxy.memory();
    let mut callers = JoinSet::new();
    let ended = Arc::new(AtomicUsize::new(0));
    for _ in 0..CONNECTIONS {
        let (addr, ended) = (proxy.addr, Arc::clone(&ended));
        callers.spawn(async move {
            let mut bytes = [hello(&[(WINDOW, 0)]), settings_ack()].concat();
            let large = format!("/{}", "a".repeat(8_000)); // which the answer says again
            for nth in 0..STREAMS {
                bytes.extend(get(odd(nth), &large, END_STREAM));
            }
            let mut socket = TcpStream::connect(addr).await.expect("a connection");
            socket.write_all(&bytes).await.expect("written");
            // Each is answered and then reset, or refused.
            let (mut got, mut over) = (Vec::new(), HashSet::new());
            while over.len() < STREAMS as usize {
                let read = socket.read_buf(&mut got).await;
                assert!(read.is_ok_and(|read| read > 0), "the connection ended, {} streams over", over.len());
                for (kind, _, stream, payload) in frames(&got) {
                    let refused = || kind == HEADERS && payload[0] != WHOLE;
                    if stream > 0 && (kind == RST_STREAM || refused()) && over.insert(stream) {
                        ended.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            socket
        });
    }
    let all = CONNECTIONS * STREAMS as usize;
    let open = timeout(AMPLE, callers.join_all()).await;
    let open = open.unwrap_or_else(|_| panic!("{} of {all} streams ended", ended.load(Ordering::Relaxed)));
    let after = proxy.memory();
    let bystander = Bystander::start(proxy.addr).await;
    let served = bystander.stop().await;
    println!("{all} answers into closed windows, none left; memory: {before}, {after}; {served}");
    served.assert_all();
    assert!(after.peak < before.now + 2 * GROWTH, "{before}, {after}");
    drop(open);
}
