//! The vectors of HTTP/1.1. `/TNNN` is whom the request is for, `/SNNN` what some reader would take for a second one.

/// What is to become of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// Its caller is refused, and the upstream sees nothing of it.
    Refused,
    /// The upstream reads one request, with this body if one is given.
    One(Option<&'static str>),
    /// Its body is not readable: the upstream may see its head, never its end.
    Broken,
    /// The same, after its deadline: something is still to come.
    Waits,
    /// One request or none that is whole: what is wrong comes too late to tell.
    AtMostOne,
}

/// A request, byte for byte.
pub(crate) struct Vector {
    pub(crate) name: &'static str,
    pub(crate) right: Right,
    bytes: &'static [u8],
    harmless: bool,
}

/// The second request. As long as `022` in hexadecimal, whatever its number.
const SMUGGLED: &str = "GET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n";

impl Vector {
    /// With the numbers of the `nth` vector.
    pub(crate) fn bytes(&self, nth: usize) -> Vec<u8> {
        let mut bytes = self.bytes.to_vec();
        number(&mut bytes, nth);
        bytes
    }

    pub(crate) fn target(&self, nth: usize) -> String {
        format!("/T{nth:03}")
    }

    /// Whether an upstream could be given it as it is.
    pub(crate) fn is_harmless(&self) -> bool {
        self.harmless
    }
}

/// Writes a number where `NNN` stands.
pub(crate) fn number(bytes: &mut [u8], nth: usize) {
    let number = format!("{nth:03}");
    for at in 0..bytes.len().saturating_sub(2) {
        if &bytes[at..at + 3] == b"NNN" {
            bytes[at..at + 3].copy_from_slice(number.as_bytes());
        }
    }
}

/// A vector.
const fn v(name: &'static str, right: Right, bytes: &'static [u8]) -> Vector {
    Vector { name, right, bytes, harmless: false }
}

/// One that a careful sender could have written.
const fn clear(name: &'static str, right: Right, bytes: &'static [u8]) -> Vector {
    Vector { name, right, bytes, harmless: true }
}

pub(crate) fn all() -> Vec<Vector> {
    use Right::{Broken, One, Refused, Waits};
    vec![
        // Two lengths
        v("content-length, then chunked", One(None), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("chunked, then content-length", One(None), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\ncontent-length: 39\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("content-length ends inside the chunk", One(Some(SMUGGLED)), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n22\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n\r\n0\r\n\r\n"),
        v("content-length: 0 and chunked", One(Some(SMUGGLED)), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 0\r\ntransfer-encoding: chunked\r\n\r\n22\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n\r\n0\r\n\r\n"),
        v("two content-lengths that differ", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 0\r\ncontent-length: 34\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("two content-lengths that differ, the other way", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 34\r\ncontent-length: 0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("two content-lengths that agree", One(Some(SMUGGLED)), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 34\r\ncontent-length: 34\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("content-length: 34, 34", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 34, 34\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("content-length: 34, 0", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 34, 0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("content-length: 0,34", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 0,34\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("content-length: +34", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: +34\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("content-length: -34", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: -34\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("content-length: 0x22", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 0x22\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("content-length: 3 4", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 3 4\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("content-length: 34.0", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 34.0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("content-length: 34;", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 34;\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("content-length: nothing", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: \r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("content-length: 34 and a vertical tab", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 34\x0b\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("content-length: 99999999999999999999999", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 99999999999999999999999\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("content-length: 18446744073709551650", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 18446744073709551650\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        clear("content-length with zeros before it", One(Some(SMUGGLED)), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 000034\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        clear("a body of a GET", One(Some(SMUGGLED)), b"GET /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 34\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        clear("a chunked body of a GET", One(Some(SMUGGLED)), b"GET /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n22\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n\r\n0\r\n\r\n"),
        // Codings
        v("transfer-encoding: xchunked", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: chunkedx", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding: chunkedx\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: chunke", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding: chunke\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: (VT)chunked", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: chunked(VT)", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding: chunked\x0b\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: 'chunked'", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding: \"chunked\"\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: chunked;q=1", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding: chunked;q=1\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: chunked, identity", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: identity", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: identity, chunked", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding: identity, chunked\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: gzip, chunked", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: chunked, chunked", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: chunked,", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding: chunked,\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: ,chunked", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding: ,chunked\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: chunked(NUL)", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding: chunked\x00\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: (FF)chunked", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding: \xffchunked\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: chunked identity", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding: chunked identity\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: chunked, then identity", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: identity, then chunked", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: identity\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: chunked twice", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("transfer-encoding: CHUNKED", One(Some("hello")), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        clear("transfer-encoding with tabs around it", One(Some("hello")), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\nTRANSFER-Encoding:\t chunked\t \r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        v("a space before the colon", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a tab before the colon", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding\t: chunked\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a NUL in the name", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer\x00-encoding: chunked\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("no colon", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding chunked\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("chunked in HTTP/1.0", Refused, b"POST /TNNN HTTP/1.0\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        // Lines
        v("a folded coding", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\ntransfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a field folded with a tab", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\nx-a: b\r\n\tcontent-length: 34\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a coding folded behind another field", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\nx-a: b\r\n transfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a CR in a value", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\nx-a: b\rtransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a LF in a value, which ends the line", One(None), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\nx-a: b\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a NUL in a value", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\nx-a: b\x00\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a CR before the line end", Refused, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 39\r\nx-a: b\r\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("bare LF at every line", One(Some("hello")), b"POST /TNNN HTTP/1.1\nhost: shop\ncontent-length: 5\n\nhello"),
        v("a bare LF for the blank line", One(Some(SMUGGLED)), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 34\r\n\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("bare CR at every line", Refused, b"POST /TNNN HTTP/1.1\rhost: shop\rcontent-length: 5\r\r\n\r\nhello"),
        v("a space before the first field", Refused, b"POST /TNNN HTTP/1.1\r\n host: shop\r\ncontent-length: 34\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a coding before the first field", Refused, b"POST /TNNN HTTP/1.1\r\n transfer-encoding: chunked\r\nhost: shop\r\ncontent-length: 39\r\n\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("blank lines before the request", One(Some("hello")), b"\r\n\r\nPOST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 5\r\n\r\nhello"),
        v("a space before the request", Refused, b" POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 5\r\n\r\nhello"),
        // Request lines
        v("HTTP/0.9", Refused, b"GET /TNNN\r\n\r\n"),
        v("version HTTP/0.9", Refused, b"GET /TNNN HTTP/0.9\r\nhost: shop\r\n\r\n"),
        v("version HTTP/1.2", Refused, b"GET /TNNN HTTP/1.2\r\nhost: shop\r\n\r\n"),
        v("version HTTP/2.0", Refused, b"GET /TNNN HTTP/2.0\r\nhost: shop\r\n\r\n"),
        v("version HTTP/3", Refused, b"GET /TNNN HTTP/3\r\nhost: shop\r\n\r\n"),
        v("version http/1.1", Refused, b"GET /TNNN http/1.1\r\nhost: shop\r\n\r\n"),
        v("version HTTP/1.10", Refused, b"GET /TNNN HTTP/1.10\r\nhost: shop\r\n\r\n"),
        v("version HTTP/1.1 x", Refused, b"GET /TNNN HTTP/1.1 x\r\nhost: shop\r\n\r\n"),
        v("two spaces", Refused, b"GET  /TNNN  HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("tabs for spaces", Refused, b"GET\t/TNNN\tHTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a space in the target", Refused, b"GET /TNNN x HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a request line in the target", Refused, b"GET /TNNN HTTP/1.1\rGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a NUL in the target", Refused, b"GET /TNNN\x00 HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a target without a slash", Refused, b"GET TNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("an authority as the target of a GET", Refused, b"GET evil:80 HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("an asterisk as the target of a GET", Refused, b"GET * HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a fragment in the target", One(None), b"GET http://shop/TNNN#x HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a whole URI and another host", One(None), b"GET http://shop/TNNN HTTP/1.1\r\nhost: other\r\n\r\n"),
        v("a user in the target", Refused, b"GET http://user:word@shop/TNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a tunnel", Refused, b"CONNECT shop:80 HTTP/1.1\r\nhost: shop\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a method with a colon", Refused, b"GE:T /TNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        // Hosts
        v("no host", Refused, b"GET /TNNN HTTP/1.1\r\nx-a: b\r\n\r\n"),
        v("two hosts", Refused, b"GET /TNNN HTTP/1.1\r\nhost: shop\r\nhost: evil\r\n\r\n"),
        v("the same host twice", Refused, b"GET /TNNN HTTP/1.1\r\nhost: shop\r\nHost: shop\r\n\r\n"),
        v("an empty host", Refused, b"GET /TNNN HTTP/1.1\r\nhost:\r\n\r\n"),
        v("a list of hosts", Refused, b"GET /TNNN HTTP/1.1\r\nhost: shop, evil\r\n\r\n"),
        v("a host with a user", Refused, b"GET /TNNN HTTP/1.1\r\nhost: shop@evil\r\n\r\n"),
        v("a host with a path", Refused, b"GET /TNNN HTTP/1.1\r\nhost: shop/evil\r\n\r\n"),
        // Fields of one hop
        v("connection: content-length", One(Some(SMUGGLED)), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\nconnection: content-length\r\ncontent-length: 34\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("connection: transfer-encoding", One(Some("hello")), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\nconnection: transfer-encoding\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        v("connection: host", One(Some("hello")), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\nconnection: host\r\ncontent-length: 5\r\n\r\nhello"),
        clear("a websocket with a body", One(Some(SMUGGLED)), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\nconnection: upgrade\r\nupgrade: websocket\r\ncontent-length: 34\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("an upgrade to h2c with a body", One(Some(SMUGGLED)), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\ncontent-length: 34\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("an upgrade to h2c that hides its settings", One(Some(SMUGGLED)), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\nconnection: upgrade\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\ncontent-length: 34\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("an upgrade to h2c and its preface", One(None), b"GET /TNNN HTTP/1.1\r\nhost: shop\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        clear("expect: 100-continue", One(Some(SMUGGLED)), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\nexpect: 100-continue\r\ncontent-length: 34\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        clear("expect with another word before it", One(Some(SMUGGLED)), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\nexpect: y 100-continue\r\ncontent-length: 34\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        // Chunks
        v("an extension", One(Some("hello")), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n"),
        v("a space behind the size", One(Some("hello")), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n"),
        v("zeros before the size", One(Some("hello")), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n0000000000005\r\nhello\r\n0\r\n\r\n"),
        v("a size beyond 64 bits", Broken, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a size of sixteen digits and one", Broken, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a negative size", Broken, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a size with a plus", Broken, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a size with 0x", Broken, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a space before the size", Broken, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n 5\r\nhello\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("no size", Broken, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a size that is none", Broken, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n5g\r\nhello\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("two sizes", Broken, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n5 5\r\nhello\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a bare LF behind the size", Broken, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a bare LF in an extension", Broken, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n5;a\nhello\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a bare CR in an extension", Broken, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n5;a\rb\r\nhello\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a LF that hides a chunk in an extension", Broken, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n2;\nxx\r\n22\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a chunk longer than its size", Broken, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello!\r\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a chunk without its line end", Broken, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a chunk that ends with a bare LF", Broken, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("the last chunk with bare LFs", Broken, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\n\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("the last line end is a bare LF, and what follows a trailer", One(Some("hello")), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("a request for the last line end", Broken, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nGET /SNNN HTTP/1.1\r\nhost: shop\r\n\r\n"),
        v("no last line end", Waits, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"),
        v("no last chunk", Waits, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"),
        v("a body shorter than its length", Waits, b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ncontent-length: 50\r\n\r\nhello"),
        v("lengths as trailers", One(Some("hello")), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\ncontent-length: 34\r\ntransfer-encoding: chunked\r\nhost: evil\r\n\r\n"),
        v("lengths as announced trailers", One(Some("hello")), b"POST /TNNN HTTP/1.1\r\nhost: shop\r\nte: trailers\r\ntrailer: content-length, host, transfer-encoding, x-a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\ncontent-length: 34\r\ntransfer-encoding: chunked\r\nhost: evil\r\nx-a: b\r\n\r\n"),
    ]
}
