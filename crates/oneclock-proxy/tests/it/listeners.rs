//! Listeners that come, go and change while others are under load.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::StatusCode;
use oneclock::clock;
use oneclock_core::{Name, Trust};
use oneclock_proxy::config::{Config, Listener, Tls};
use oneclock_proxy::{Running, StartFailed};
use oneclock_test::caller::{Caller, H1Outcome, H2Outcome, How};
use oneclock_test::{PATIENCE, Protocol, peer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::certificates::{Ca, shake_hands, shown};
use crate::common::{AMPLE, address, config, loopback, ms, start, text, told, whole_h1, whole_h2};

fn another(name: &'static str) -> Listener {
    Listener::new(Name::from(name), loopback())
}

#[track_caller]
fn address_of(proxy: &Running, name: &str) -> SocketAddr {
    let found = proxy.addresses().iter().find(|(listener, _)| listener.as_str() == name);
    found.unwrap_or_else(|| panic!("no listener {name}")).1
}

/// Callers of one listener, over connections of their own for each request and over one for all, until they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    callers: JoinSet<()>,
}

impl Load {
    /// `stays`: whether connections have to stay open, too.
    fn on(addr: SocketAddr, stays: bool) -> Self {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut callers = JoinSet::new();
        for _ in 0..2 {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            callers.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let (status, ..) = whole_h1(Caller::h1(addr).get("/").answer().await.expect("sent"));
                    assert_eq!(status, StatusCode::OK);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        if stays {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            callers.spawn(async move {
                let caller = Caller::h2(addr).connect().await.expect("a connection");
                while !stop.load(Ordering::Relaxed) {
                    let (status, ..) = whole_h2(caller.get("/").send().await.expect("sent").answer().await);
                    assert_eq!(status, StatusCode::OK);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { stop, answered, callers }
    }

    /// Waits for some more answers.
    async fn goes_on(&mut self) {
        let before = self.answered.load(Ordering::Relaxed);
        let more = async {
            while self.answered.load(Ordering::Relaxed) < before + 10 {
                tokio::select! {
                    () = tokio::task::yield_now() => {}
                    Some(ended) = self.callers.join_next() => panic!("a caller ended: {ended:?}"),
                }
            }
        };
        timeout(AMPLE, more).await.expect("answers");
    }

    async fn stops(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.callers.join_all().await;
    }
}

/// Whoever asks one thing after another hears it from an answer, and does not find its connection closed (RFC 9112 section 9.6).
#[tokio::test]
async fn a_connection_of_a_listener_that_changes_ends_with_its_next_answer() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let mut proxy = start(config(upstream.addr(), Protocol::Http1)).await;
    let mut caller = TcpStream::connect(address(&proxy)).await.expect("a connection");
    for is_last in [false, true] {
        if is_last {
            let mut file = proxy.config();
            file.listeners[0].max_connections = 100;
            proxy.reload(file).await.expect("it changes");
        }
        caller.write_all(b"GET / HTTP/1.1\r\nhost: shop\r\n\r\n").await.expect("sent");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(caller.read_u8().await.expect("an answer"));
        }
        let head = String::from_utf8(head).expect("text").to_lowercase();
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert_eq!(head.contains("\r\nconnection: close\r\n"), is_last, "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.expect("a length")];
        caller.read_exact(&mut body).await.expect("a body");
    }
    assert_eq!(timeout(PATIENCE, caller.read(&mut [0])).await.expect("closed").expect("in order"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_stays_loses_nothing_while_another_comes_changes_and_goes() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let mut proxy = start(config(upstream.addr(), Protocol::Http1)).await;
    let mut load = Load::on(address(&proxy), true);
    load.goes_on().await;
    for nth in 0..5 {
        let mut file = proxy.config();
        file.listeners.push(another("more"));
        proxy.reload(file).await.expect("it comes");
        let more = address_of(&proxy, "more");
        let mut on_more = Load::on(more, false);
        on_more.goes_on().await;

        let mut file = proxy.config();
        file.listeners[1].max_connections = 100 + nth;
        proxy.reload(file).await.expect("it changes");
        assert_eq!(address_of(&proxy, "more"), more, "its socket is kept");
        on_more.goes_on().await;
        on_more.stops().await;

        let mut file = proxy.config();
        file.listeners.truncate(1);
        proxy.reload(file).await.expect("it goes");
        let refused = TcpStream::connect(more).await;
        assert!(refused.is_err(), "{refused:?}");
        load.goes_on().await;
    }
    load.stops().await;
    let drained = proxy.shutdown().await;
    assert!(drained.grace <= ms(2_000), "{drained:?}");
}

#[tokio::test]
async fn a_listener_that_cannot_be_bound_keeps_everything_as_it_was() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let mut proxy = start(config(upstream.addr(), Protocol::Http1)).await;
    let taken = TcpListener::bind(loopback()).await.expect("a port");
    let (free, mut file) = (another("free"), proxy.config());
    file.listeners[0].max_connections = 7;
    file.listeners.extend([free, Listener::new(Name::from("taken"), taken.local_addr().expect("an address"))]);
    let refused = proxy.reload(file).await.expect_err("it is taken");
    assert!(matches!(&refused, StartFailed::Bind { listener, .. } if listener.as_str() == "taken"), "{refused}");
    assert_eq!((proxy.addresses().len(), proxy.config().listeners[0].max_connections), (1, 10_000));
    assert!(proxy.last_reload().refused.is_some_and(|why| why.starts_with("listener taken cannot listen on ")));
    whole_h1(Caller::h1(address(&proxy)).get("/").answer().await.expect("sent"));
}

#[tokio::test]
async fn what_is_under_way_on_a_listener_that_goes_is_answered() {
    let slow = peer::slow(Protocol::Http1, ms(500)).expect("a port");
    let mut file = config(slow.addr(), Protocol::Http1);
    file.listeners.push(another("more"));
    let mut proxy = start(file).await;
    let more = address_of(&proxy, "more");
    let call = Caller::h1(more).get("/").send(How::Close).await.expect("sent");
    slow.await_request().await.expect("a request");
    let idle = TcpStream::connect(more).await.expect("a connection"); // accepted, or not yet: it is closed either way
    let mut file = proxy.config();
    file.listeners.truncate(1);
    proxy.reload(file).await.expect("it goes");
    let (status, _, body) = whole_h1(call.answer().await);
    assert_eq!((status, &body[..]), (StatusCode::OK, &b"late"[..]));
    is_closed(idle).await;
}

/// Its listener is in no table any more, and its connection has not been told yet.
#[tokio::test]
async fn what_still_comes_on_a_listener_that_goes_is_answered_under_what_held() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let mut file = config(upstream.addr(), Protocol::Http1);
    file.listeners.push(another("more"));
    let mut proxy = start(file).await;
    let caller = Caller::h2(address_of(&proxy, "more")).connect().await.expect("a connection");
    whole_h2(caller.get("/").send().await.expect("sent").answer().await); // it is accepted
    let (mut file, began) = (proxy.config(), clock::now());
    file.listeners.truncate(1);
    proxy.reload(file).await.expect("it goes");
    let asked = async { Some(caller.get("/").send().await.ok()?.answer().await) };
    match asked.await {
        Some(H2Outcome::Complete { status, .. }) => assert_eq!(status, StatusCode::OK),
        other => assert!(clock::now().since(began) > ms(900), "it was not told to go yet: {other:?}"),
    }
}

/// Waits for the end of a connection, however it is told.
async fn is_closed(mut socket: impl tokio::io::AsyncRead + Unpin) {
    let read = timeout(PATIENCE, socket.read(&mut [0; 16])).await.expect("it ends");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

/// The grace is for what a listener leaves behind, as it is in a shutdown.
#[tokio::test]
async fn what_takes_too_long_on_a_listener_that_goes_is_ended_and_told_why() {
    let upstream = peer::stall(Protocol::Http1).expect("a port");
    let mut file = config(upstream.addr(), Protocol::Http1);
    file.shutdown_grace = ms(300);
    file.listeners.push(another("more"));
    let mut proxy = start(file).await;
    let call = Caller::h1(address_of(&proxy, "more")).get("/").header("x-remaining-ms", "9000");
    let call = call.send(How::Close).await.expect("sent");
    upstream.await_request().await.expect("a request");
    let mut file = proxy.config();
    file.listeners.truncate(1);
    proxy.reload(file).await.expect("it goes");
    let (status, headers, _) = whole_h1(call.answer().await);
    assert_eq!((status, text(&headers, "oneclock-reason")), (StatusCode::SERVICE_UNAVAILABLE, "shutdown_midway"));
    upstream.caller_left().await.expect("it is told");
}

/// What is said otherwise of a listener holds for who comes next; who is there already is told to go and loses nothing.
#[tokio::test]
async fn a_listener_that_changes_is_another_for_who_comes_next() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let mut proxy = start(config(upstream.addr(), Protocol::Http1)).await;
    let addr = address(&proxy);
    let caller = Caller::h2(addr).connect().await.expect("a connection");
    let asks = || async {
        let call = caller.get("/").header("x-remaining-ms", "9000").send().await.ok()?;
        Some(call.answer().await)
    };
    whole_h2(asks().await.expect("sent"));
    assert!(told(&upstream.await_requests(1).await.expect("a request").headers) > 2_000, "of one of ours");
    let mut file = proxy.config();
    file.listeners[0].trust = Trust::Outside;
    proxy.reload(file).await.expect("it is taken");
    whole_h1(Caller::h1(addr).get("/").header("x-remaining-ms", "9000").answer().await.expect("sent"));
    assert!(told(&upstream.await_requests(2).await.expect("a request").headers) <= 2_000, "of an outsider");
    let goes = async {
        let mut answered = 2;
        loop {
            match asks().await {
                Some(H2Outcome::Complete { status, .. }) => assert_eq!(status, StatusCode::OK),
                // It crossed the GOAWAY, which says that nobody looked at it.
                None | Some(H2Outcome::ConnectionLost { status: None, .. }) => return answered,
                Some(other) => panic!("an answer was lost: {other:?}"),
            }
            answered += 1;
        }
    };
    let answered = timeout(AMPLE, goes).await.expect("it is told to go");
    assert_eq!(upstream.requests(), answered, "whatever went in was answered");
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_in_the_next_handshake_and_nobody_is_disturbed() {
    let (ca, folder) = (Ca::named("ours"), tempfile::tempdir().expect("a folder"));
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let (before, after) = (ca.signs("localhost"), ca.signs("localhost"));
    let (certificate, key) = before.write(folder.path(), "listener");
    let mut proxy = start(secured(upstream.addr(), &certificate, &key)).await;
    let port = address(&proxy).port();
    let mut open = shake_hands(port, ca.client()).await.expect("a handshake");
    assert_eq!(shown(&open), before.der());
    asks(&mut open).await;

    std::fs::write(&certificate, &after.certificate).expect("written"); // and its key not yet
    let file = proxy.config();
    let refused = proxy.reload(file).await.expect_err("they do not belong together");
    assert!(matches!(refused, StartFailed::Tls { .. }), "{refused}");
    assert_eq!(shown(&shake_hands(port, ca.client()).await.expect("a handshake")), before.der());

    after.write(folder.path(), "listener");
    let file = proxy.config();
    proxy.reload(file).await.expect("it is taken");
    assert_eq!(shown(&shake_hands(port, ca.client()).await.expect("a handshake")), after.der());
    asks(&mut open).await;
}

fn secured(upstream: SocketAddr, certificate: &std::path::Path, key: &std::path::Path) -> Config {
    let mut secured = config(upstream, Protocol::Http1);
    let tls = format!(
        "listeners: [{{ address: 127.0.0.1:0, tls: {{ certificate: {}, key: {} }} }}]\n\
         upstreams: {{ app: {{ url: 'http://127.0.0.1:1' }} }}\nroutes: [{{ upstream: app }}]\n",
        certificate.display(),
        key.display()
    );
    let tls: Option<Tls> = Config::parse(&tls).expect("a configuration").listeners[0].tls.clone();
    secured.listeners[0].tls = tls;
    secured
}

async fn asks(socket: &mut (impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin)) {
    socket.write_all(b"HEAD / HTTP/1.1\r\nhost: shop\r\n\r\n").await.expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(PATIENCE, socket.read_u8()).await.expect("in time").expect("a head"));
    }
    assert!(head.starts_with(b"HTTP/1.1 200 "), "{head:?}");
}

/// A port is not taken from itself, and what served it without TLS makes room for what serves it with.
#[tokio::test]
async fn tls_can_be_switched_on_at_the_same_address() {
    let (ca, folder) = (Ca::named("ours"), tempfile::tempdir().expect("a folder"));
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let mut proxy = start(config(upstream.addr(), Protocol::Http1)).await;
    let addr = address(&proxy);
    let (certificate, key) = ca.signs("localhost").write(folder.path(), "listener");
    let file = secured(upstream.addr(), &certificate, &key);
    proxy.reload(file).await.expect("it is taken");
    assert_eq!(address(&proxy), addr);
    asks(&mut shake_hands(addr.port(), ca.client()).await.expect("a handshake")).await;
    let outcome = Caller::h1(addr).get("/").answer().await.expect("sent");
    assert!(!matches!(outcome, H1Outcome::Complete { .. }), "{outcome:?}");
}

/// Who comes during a drain goes elsewhere at once, and is not left with a connection that nobody reads until the process ends.
#[tokio::test]
async fn who_comes_during_a_drain_is_refused() {
    let upstream = peer::stall(Protocol::Http1).expect("a port");
    let proxy = start(config(upstream.addr(), Protocol::Http1)).await;
    let addr = address(&proxy);
    let call = Caller::h1(addr).get("/stock").header("x-remaining-ms", "1500").send(How::Close).await.expect("sent");
    upstream.await_request().await.expect("a request");
    let draining = tokio::spawn(proxy.shutdown());
    let refused = async {
        while TcpStream::connect(addr).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, refused).await.expect("refused");
    assert!(!draining.is_finished(), "while the first is under way");
    whole_h1(call.answer().await);
    draining.await.expect("no panic");
}

/// A rush of callers is let in: beyond the usual 128 that may wait to be accepted, each would have to knock again a second later.
#[tokio::test]
#[cfg_attr(not(target_os = "linux"), ignore = "systems count differently")]
async fn a_rush_of_callers_is_let_in() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let proxy = start(config(upstream.addr(), Protocol::Http1)).await;
    let addr = address(&proxy);
    // On this one thread, so that nothing is accepted meanwhile.
    let connected: Result<Vec<_>, _> = (0..600).map(|_| std::net::TcpStream::connect_timeout(&addr, ms(500))).collect();
    assert_eq!(connected.expect("none is left at the door").len(), 600);
}
