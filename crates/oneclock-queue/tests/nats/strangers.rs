//! Messages of others: without an id, without fields, with fields that are none.

use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oneclock_core::Outcome;
use oneclock_core::expiry::Fault;
use oneclock_queue::nats::async_nats::HeaderMap;
use oneclock_queue::{Broker as _, Delivery as _, Lane, Settle};

use super::support::{Queue, Server, secs, within};

#[tokio::test]
async fn a_message_without_anything_is_delivered_and_keeps_its_name() {
    let queue = Queue::open("bare", |queue| queue).await;
    queue.context.publish(format!("{}.main", queue.name), "body".into()).await.unwrap().await.unwrap();
    let got = queue.one(Lane::Main).await;
    let id = got.message().id.clone();
    assert_eq!(&*id, format!("{}:1", queue.nats.stream()));
    assert_eq!((got.message().kind.as_str(), &got.message().faults[..]), ("unknown", &[Fault::ExpiryMissing][..]));
    within(got.settle(&Settle::Late)).await.unwrap();
    assert_eq!(queue.one(Lane::Late).await.message().id, id, "in every lane it is the same message");
}

/// A field that steers the server steers it once: copied, this one would empty the lane that it goes to.
#[tokio::test]
async fn fields_that_steer_the_server_are_not_copied() {
    let server = Server::start();
    let queue = Queue::open_at(&server.address(), "steer", |queue| queue).await;
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Expected-Last-Sequence", "0");
    headers.insert("Nats-Msg-Id", "theirs");
    headers.insert("nats-x", "1");
    queue
        .context
        .publish_with_headers(format!("{}.main", queue.name), headers, "body".into())
        .await
        .unwrap()
        .await
        .unwrap();
    let got = queue.one(Lane::Main).await;
    assert_eq!(&*got.message().id, "theirs");
    assert_eq!(got.message().fields, []);
    within(got.settle(&Settle::Late)).await.unwrap();
    let stored = queue.stored("late").await;
    assert_eq!(stored[0].0.get("ce-id").map(|id| id.as_str()), Some("theirs"));
    assert!(stored[0].0.get("Nats-Expected-Last-Sequence").is_none());
}

/// What no client of Rust would send.
fn put(server: &Server, queue: &Queue, fields: &[u8]) {
    let mut header = b"NATS/1.0\r\nce-id: 7\r\n".to_vec();
    header.extend_from_slice(fields);
    header.extend_from_slice(b"\r\n");
    let body = b"theirs";
    let mut wire = b"CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\n".to_vec();
    wire.extend_from_slice(
        format!("HPUB {}.main {} {}\r\n", queue.name, header.len(), header.len() + body.len()).as_bytes(),
    );
    wire.extend_from_slice(&header);
    wire.extend_from_slice(body);
    wire.extend_from_slice(b"\r\nPING\r\n");
    let mut socket = std::net::TcpStream::connect(server.socket()).unwrap();
    socket.write_all(&wire).unwrap();
    let (mut said, mut all) = ([0; 4096], Vec::new());
    while !all.windows(6).any(|six| six == b"PONG\r\n") {
        let read = socket.read(&mut said).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&all));
        all.extend_from_slice(&said[..read]);
    }
}

#[tokio::test]
async fn fields_that_are_no_text_stop_nobody() {
    let server = Server::start();
    let queue = Queue::open_at(&server.address(), "no-text", |queue| queue.lease(secs(1))).await;
    let before = queue.publish("before").await;
    for fields in [&b"x-name: M\xfcller\r\n"[..], b"no colon\r\n", b"a b: 1\r\n"] {
        put(&server, &queue, fields);
    }
    let after = queue.publish("after").await;
    let mut got = Vec::new();
    while got.len() < 5 {
        let delivery = queue.one(Lane::Main).await;
        got.push((delivery.message().id.to_string(), String::from_utf8_lossy(&delivery.message().body).into_owned()));
        within(delivery.settle(&Settle::Gone)).await.unwrap();
    }
    got.sort();
    let theirs = ("7".to_owned(), "theirs".to_owned());
    let mut want = vec![theirs.clone(), theirs.clone(), theirs];
    want.extend([(before.id.to_string(), "before".to_owned()), (after.id.to_string(), "after".to_owned())]);
    want.sort();
    assert_eq!(got, want);
    assert_eq!(queue.stored("main").await, []);
}

/// This one ends the client, whichever program it is in. It does not end the next one.
#[tokio::test]
async fn a_client_that_a_message_ends_says_so_and_the_next_one_reads_it() {
    let server = Server::start();
    let queue = Queue::open_at(&server.address(), "ends", |queue| queue.lease(secs(1))).await;
    put(&server, &queue, b"x: a\rb\r\n");
    let mut ended = 0;
    let got = within(async {
        loop {
            let nats = queue.again(|queue| queue.lease(secs(1))).await;
            match nats.receive(Lane::Main, 1).await {
                Ok(mut got) => return got.remove(0),
                Err(error) => {
                    ended += 1;
                    assert_eq!(error.outcome, Outcome::NotSent, "{error:?}");
                }
            }
        }
    })
    .await;
    assert!(ended > 0, "the client reads it by now: what is made readable for it can go");
    assert_eq!(&*got.message().body, b"theirs");
    let raw = got.message().fields.iter().find(|(name, _)| &**name == "deadline-raw-fields").unwrap();
    assert_eq!(STANDARD.decode(&*raw.1).unwrap(), b"NATS/1.0\r\nce-id: 7\r\nx: a\rb\r\n\r\n");
}
