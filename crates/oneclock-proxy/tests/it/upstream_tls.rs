//! Upstreams over TLS: their own roots, who they have to be, who we are; calls, streams and WebSockets.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use oneclock_http::rustls::ServerConfig;
use oneclock_http::serve;
use oneclock_proxy::config::Config;
use oneclock_proxy::{Proxy, StartFailed};
use oneclock_test::PATIENCE;
use oneclock_test::caller::Caller;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::certificates::Ca;
use crate::common::{Answer, address, body, loopback, start, text, whole_h1, whole_h2};

/// Says in which version it was asked, and says everything again that comes in on a WebSocket. Dropped means stopped.
struct Secured {
    addr: SocketAddr,
    requests: Arc<AtomicUsize>,
    _served: AbortOnDropHandle<()>,
}

impl Secured {
    async fn with(tls: ServerConfig) -> Self {
        let listener = TcpListener::bind(loopback()).await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        let service = tower::service_fn(move |request| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, Infallible>(answer(request)) }
        });
        let served = tokio::spawn(async move {
            let _ = serve(oneclock_http::tls(listener, tls), service).await;
        });
        Self { addr, requests, _served: AbortOnDropHandle::new(served) }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn answer(mut request: Request<Incoming>) -> Answer {
    let version = format!("{:?}", request.version());
    if !request.headers().contains_key(UPGRADE) {
        let told = request.headers().get("x-remaining-ms").cloned();
        let mut answer = Response::new(body(Full::from(version)));
        answer.headers_mut().extend(told.map(|told| (http::HeaderName::from_static("x-told"), told)));
        return answer;
    }
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded.await.expect("upgraded")));
        let _ = tokio::io::copy(&mut read, &mut write).await;
        let _ = write.shutdown().await;
    });
    let switches = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    let switches = switches.header(CONNECTION, "upgrade").header(UPGRADE, "websocket").header("x-version", version);
    switches.body(body(Empty::<Bytes>::new())).expect("an answer")
}

/// A route for everything and one for streams, to `upstream`, of which `more` says more.
fn file(upstream: SocketAddr, more: &str) -> Config {
    let file = format!(
        "listeners: [{{ name: http, address: 127.0.0.1:0 }}]\nadmin: none\n\
         upstreams: {{ app: {{ url: 'https://{upstream}', {more} }} }}\n\
         routes:\n- upstream: app\n- matches: [{{ path: {{ value: /events }} }}]\n  upstream: app\n  \
         kind: {{ streaming: {{ idle: 10s, total: 10s }} }}\n"
    );
    Config::parse(&file).unwrap_or_else(|refused| panic!("{refused}\n{file}"))
}

/// With its own roots, in a file of `folder`.
fn with_ca(upstream: SocketAddr, ca: &Ca, folder: &Path, more: &str) -> Config {
    let roots = folder.join("ca.crt");
    std::fs::write(&roots, ca.pem()).expect("written");
    file(upstream, &format!("tls: {{ ca: {}, serverName: app.internal }}, {more}", roots.display()))
}

async fn websocket(addr: SocketAddr) -> (TcpStream, String) {
    let mut socket = TcpStream::connect(addr).await.expect("a connection");
    let asks = b"GET /chat HTTP/1.1\r\nhost: shop\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    socket.write_all(asks).await.expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(PATIENCE, socket.read_u8()).await.expect("in time").expect("a head"));
    }
    (socket, String::from_utf8(head).expect("text").to_ascii_lowercase())
}

#[tokio::test]
async fn calls_streams_and_websockets_go_through_tls_with_a_private_ca() {
    let (ca, folder) = (Ca::named("ours"), tempfile::tempdir().expect("a folder"));
    for (protocol, version) in [("auto", "HTTP/2.0"), ("http1", "HTTP/1.1")] {
        let upstream = Secured::with(ca.server(&ca.signs("app.internal"), false)).await;
        let proxy = start(with_ca(upstream.addr, &ca, folder.path(), &format!("protocol: {protocol}"))).await;
        for path in ["/", "/events"] {
            let (status, headers, said) = whole_h1(Caller::h1(address(&proxy)).get(path).answer().await.expect("sent"));
            assert_eq!((status, &*said), (StatusCode::OK, version.as_bytes()), "{path}");
            assert!(text(&headers, "x-told").parse::<u64>().expect("a number") <= 2_000);
        }
        let caller = Caller::h2(address(&proxy)).connect().await.expect("a connection");
        let (status, _, said, _) = whole_h2(caller.get("/events").send().await.expect("sent").answer().await);
        assert_eq!((status, &*said), (StatusCode::OK, version.as_bytes()));

        let (mut socket, head) = websocket(address(&proxy)).await;
        assert!(head.starts_with("http/1.1 101 ") && head.contains("x-version: http/1.1\r\n"), "{head}");
        socket.write_all(b"twice").await.expect("sent");
        let mut echo = [0; 5];
        timeout(PATIENCE, socket.read_exact(&mut echo)).await.expect("in time").expect("an echo");
        assert_eq!(&echo, b"twice");
    }
}

#[tokio::test]
async fn an_upstream_that_is_somebody_else_is_sent_nothing() {
    let (ours, theirs) = (Ca::named("ours"), Ca::named("theirs"));
    let folder = tempfile::tempdir().expect("a folder");
    for shows in [theirs.signs("app.internal"), ours.signs("elsewhere.internal")] {
        let upstream = Secured::with(ours.server(&shows, false)).await;
        let proxy = start(with_ca(upstream.addr, &ours, folder.path(), "trust: outside")).await;
        for path in ["/", "/events"] {
            let (status, ..) = whole_h1(Caller::h1(address(&proxy)).get(path).answer().await.expect("sent"));
            assert_eq!(status, StatusCode::BAD_GATEWAY, "{path}");
        }
        let (_, head) = websocket(address(&proxy)).await;
        assert!(head.starts_with("http/1.1 502 "), "{head}");
        assert_eq!(upstream.requests(), 0);
    }
}

#[tokio::test]
async fn an_upstream_that_asks_is_shown_who_we_are() {
    let (ca, folder) = (Ca::named("ours"), tempfile::tempdir().expect("a folder"));
    let upstream = Secured::with(ca.server(&ca.signs("app.internal"), true)).await;
    let proxy = start(with_ca(upstream.addr, &ca, folder.path(), "protocol: http1")).await;
    let (status, ..) = whole_h1(Caller::h1(address(&proxy)).get("/").answer().await.expect("sent"));
    assert_eq!((status, upstream.requests()), (StatusCode::BAD_GATEWAY, 0));

    let (certificate, key) = ca.signs("proxy.internal").write(folder.path(), "client");
    let more = format!(
        "tls: {{ ca: {}, serverName: app.internal, clientCertificate: {}, clientKey: {} }}",
        folder.path().join("ca.crt").display(),
        certificate.display(),
        key.display()
    );
    let proxy = start(file(upstream.addr, &more)).await;
    let (status, ..) = whole_h1(Caller::h1(address(&proxy)).get("/").answer().await.expect("sent"));
    assert_eq!((status, upstream.requests()), (StatusCode::OK, 1));
}

/// What a file says counts, not only what it is called.
#[tokio::test]
async fn other_roots_in_the_same_file_hold_after_a_reload() {
    let (old, new) = (Ca::named("old"), Ca::named("new"));
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = Secured::with(new.server(&new.signs("app.internal"), false)).await;
    let mut proxy = start(with_ca(upstream.addr, &old, folder.path(), "protocol: auto")).await;
    let (status, ..) = whole_h1(Caller::h1(address(&proxy)).get("/").answer().await.expect("sent"));
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    std::fs::write(folder.path().join("ca.crt"), new.pem()).expect("written");
    let config = proxy.config();
    proxy.reload(config).await.expect("it is taken");
    let (status, ..) = whole_h1(Caller::h1(address(&proxy)).get("/").answer().await.expect("sent"));
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn roots_that_are_none_are_refused_before_anything_is_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = with_ca(([127, 0, 0, 1], 3000).into(), &Ca::named("ours"), folder.path(), "protocol: auto");
    std::fs::write(folder.path().join("ca.crt"), "no certificate").expect("written");
    let refused = Proxy::check(&config).expect_err("no roots");
    assert!(matches!(&refused, StartFailed::UpstreamTls { file, .. } if file.ends_with("ca.crt")), "{refused}");
    assert!(refused.to_string().starts_with("upstream app cannot use "), "{refused}");
}
