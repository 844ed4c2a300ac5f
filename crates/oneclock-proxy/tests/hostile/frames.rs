//! HTTP/2, byte for byte: frames as nobody's library would write them, and just enough reading to tell what came of them.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::AMPLE;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// What came of stream 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Answered(u16),
    /// The stream was reset, with this code.
    Reset(u32),
    /// The connection was ended, with this code.
    GoAway(u32),
    Closed,
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The preface and settings.
pub(crate) fn hello(settings: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> = settings.iter().flat_map(|(id, value)| setting(*id, *value)).collect();
    [PREFACE, &frame(SETTINGS, 0, 0, &payload)].concat()
}

fn setting(id: u16, value: u32) -> Vec<u8> {
    [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// Fields as literals that are not indexed, names and values as they are.
pub(crate) fn block(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            integer(&mut block, text.len());
            block.extend_from_slice(text);
        }
    }
    block
}

/// With a prefix of seven bits (RFC 7541 section 5.1), not Huffman.
fn integer(block: &mut Vec<u8>, length: usize) {
    if length < 127 {
        block.push(u8::try_from(length).expect("seven bits"));
        return;
    }
    block.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        block.push(u8::try_from(rest % 128).expect("seven bits") | 128);
        rest /= 128;
    }
    block.push(u8::try_from(rest).expect("seven bits"));
}

/// The head of a request to `path`, on one frame.
pub(crate) fn get(stream: u32, path: &str, flags: u8) -> Vec<u8> {
    let fields: [(&[u8], &[u8]); 4] =
        [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"shop"), (b":path", path.as_bytes())];
    frame(HEADERS, END_HEADERS | flags, stream, &block(&fields))
}

/// Sends `bytes` and tells what becomes of stream 1.
pub(crate) async fn send(addr: SocketAddr, bytes: &[u8]) -> Outcome {
    let sent = async {
        let mut socket = TcpStream::connect(addr).await.expect("a connection");
        let _ = socket.write_all(bytes).await; // what was read tells how it ended
        let mut got = Vec::new();
        loop {
            if let Some(outcome) = outcome(&got) {
                return outcome;
            }
            if matches!(socket.read_buf(&mut got).await, Ok(0) | Err(_)) {
                return outcome(&got).unwrap_or(Outcome::Closed);
            }
        }
    };
    timeout(AMPLE, sent).await.unwrap_or_else(|_| panic!("no end to {}", bytes.escape_ascii()))
}

/// Gives the frames in `bytes` that are whole: kind, flags, stream, payload.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<(u8, u8, u32, &[u8])> {
    let mut all = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(9) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        all.push((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload));
        bytes = rest;
    }
    all
}

fn outcome(bytes: &[u8]) -> Option<Outcome> {
    let code = |payload: &[u8]| u32::from_be_bytes(payload.try_into().expect("a code"));
    frames(bytes).into_iter().find_map(|(kind, _, stream, payload)| match kind {
        HEADERS if stream == 1 => Some(Outcome::Answered(status(payload))),
        RST_STREAM if stream == 1 => Some(Outcome::Reset(code(payload))),
        GOAWAY => Some(Outcome::GoAway(code(&payload[4..8]))),
        _ => None,
    })
}

/// `:status`, which is the first field: one of the static table, or a literal with the name from there.
fn status(block: &[u8]) -> u16 {
    const WHOLE: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    // A table size update may come first.
    let block = if block[0] & 0xe0 == 0x20 { &block[1..] } else { block };
    match block[0] {
        indexed @ 0x88..=0x8e => WHOLE[usize::from(indexed - 0x88)],
        _ => {
            let (length, value) = (usize::from(block[1] & 0x7f), &block[2..]);
            let text = if block[1] & 0x80 == 0 { value[..length].to_vec() } else { digits(&value[..length]) };
            String::from_utf8_lossy(&text).parse().expect("a status")
        }
    }
}

/// Huffman's code of digits: five bits for 0 to 2, six for the others (RFC 7541, appendix B).
fn digits(bytes: &[u8]) -> Vec<u8> {
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let number = |bits: &[u8]| bits.iter().fold(0, |number, bit| number << 1 | bit);
    let mut text = Vec::new();
    let mut rest = &bits[..];
    while text.len() < 3 {
        let short = number(&rest[..5]);
        let (digit, used) = if short < 3 { (short, 5) } else { (number(&rest[..6]) - 0b01_1001 + 3, 6) };
        text.push(b'0' + digit);
        rest = &rest[used..];
    }
    text
}

/// An acknowledgement of settings.
pub(crate) fn settings_ack() -> Vec<u8> {
    frame(SETTINGS, ACK, 0, &[])
}

#[test]
fn a_status_is_read() {
    assert_eq!(status(&[0x8c]), 400);
    assert_eq!(status(&[0x48, 3, b'5', b'0', b'1']), 501);
    assert_eq!(status(&[0x48, 0x82, 0x64, 0x02]), 302, "the example of RFC 7541, C.6.1");
    assert_eq!(status(&[0x48, 0x83, 0x64, 0x0e, 0xff]), 307, "and that of C.6.2");
}
