//! What no client would send: frames by hand.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use oneclock_queue::rabbitmq::lapin::uri::AMQPUri;

use crate::support::{BOUND, address, soon};

/// A value of a kind that has its length before it.
pub(crate) fn value(kind: u8, bytes: &[u8]) -> Vec<u8> {
    [&[kind], &*long(bytes)].concat()
}

/// One entry of a table.
pub(crate) fn entry(name: &[u8], value: &[u8]) -> Vec<u8> {
    [&*short(name), value].concat()
}

/// Flags and properties: a table of header fields, and nothing else.
pub(crate) fn head(table: &[u8]) -> Vec<u8> {
    [&(1_u16 << 13).to_be_bytes()[..], &long(table)].concat()
}

/// Publishes a message with these flags and properties into a queue, and waits until it is there.
pub(crate) async fn publish(queue: &str, head: &[u8], body: &[u8]) {
    let (queue, head, body) = (queue.as_bytes().to_vec(), head.to_vec(), body.to_vec());
    soon(tokio::task::spawn_blocking(move || publish_now(&queue, &head, &body))).await.unwrap();
}

fn publish_now(queue: &[u8], head: &[u8], body: &[u8]) {
    let uri: AMQPUri = address().parse().unwrap();
    let mut stream = TcpStream::connect((uri.authority.host.as_str(), uri.authority.port)).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    stream.write_all(b"AMQP\0\0\x09\x01").unwrap();
    let user = uri.authority.userinfo;
    let login = [b"\0", user.username.as_bytes(), b"\0", user.password.as_bytes()].concat();
    read(&mut stream, 10, 10);
    method(&mut stream, 0, 10, 11, &[&*long(b""), &short(b"PLAIN"), &long(&login), &short(b"en_US")].concat());
    read(&mut stream, 10, 30);
    method(&mut stream, 0, 10, 31, &[7, 0xff, 0, 2, 0, 0, 0, 0]);
    method(&mut stream, 0, 10, 40, &[&*short(uri.vhost.as_bytes()), &[0, 0]].concat());
    read(&mut stream, 10, 41);
    method(&mut stream, 1, 20, 10, &[0]);
    read(&mut stream, 20, 11);
    method(&mut stream, 1, 85, 10, &[0]); // confirms
    read(&mut stream, 85, 11);
    method(&mut stream, 1, 60, 40, &[&[0, 0, 0], &*short(queue), &[0]].concat());
    let size = u64::try_from(body.len()).unwrap().to_be_bytes();
    frame(&mut stream, 2, 1, &[&[0, 60, 0, 0], &size[..], head].concat());
    frame(&mut stream, 3, 1, body);
    read(&mut stream, 60, 80);
}

fn short(bytes: &[u8]) -> Vec<u8> {
    [&[u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

fn long(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

fn method(stream: &mut TcpStream, channel: u16, class: u16, method: u16, arguments: &[u8]) {
    frame(stream, 1, channel, &[&class.to_be_bytes()[..], &method.to_be_bytes(), arguments].concat());
}

fn frame(stream: &mut TcpStream, kind: u8, channel: u16, payload: &[u8]) {
    stream.write_all(&[&[kind], &channel.to_be_bytes()[..], &long(payload), &[0xce]].concat()).unwrap();
}

/// Reads frames until this method comes.
fn read(stream: &mut TcpStream, class: u16, method: u16) {
    loop {
        let mut before = [0; 7];
        stream.read_exact(&mut before).unwrap();
        let size = u32::from_be_bytes(*before.last_chunk().unwrap());
        let mut rest = vec![0; usize::try_from(size).unwrap() + 1];
        stream.read_exact(&mut rest).unwrap();
        let found = (u16::from_be_bytes([rest[0], rest[1]]), u16::from_be_bytes([rest[2], rest[3]]));
        if found == (class, method) {
            return;
        }
        assert!(!matches!(found, (10, 50) | (20, 40)), "the broker refuses: {:?}", String::from_utf8_lossy(&rest));
    }
}
