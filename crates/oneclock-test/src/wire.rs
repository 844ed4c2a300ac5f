//! Just enough HTTP/1.1 to misbehave on purpose: heads are parsed by `httparse`; here is how a body tells its end.
//!
//! Nothing here is lenient, and nothing is meant for more than a test: heads above [`HEAD_LIMIT`] are errors.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest head that is read, in bytes.
const HEAD_LIMIT: usize = 1 << 20;
/// The most header fields that are read.
const FIELD_LIMIT: usize = 512;

pub(crate) struct RequestHead {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
}

pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
}

/// How much of a body is still to come, and how its end will be known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The body is complete.
    Nothing,
    /// So many bytes.
    Length(u64),
    /// A chunk size line.
    ChunkSize,
    /// So many bytes of a chunk, then its line end.
    Chunk(u64),
    /// Trailer fields, then an empty line.
    Trailers,
    /// Everything until the connection closes.
    UntilClose,
}

/// Reads a request head into `buffer` and takes it off there. `None`: the connection closed before its first byte.
pub(crate) async fn request_head(
    io: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
) -> io::Result<Option<RequestHead>> {
    loop {
        let mut fields = vec![httparse::EMPTY_HEADER; FIELD_LIMIT];
        let mut parsed = httparse::Request::new(&mut fields);
        if let httparse::Status::Complete(length) = parsed.parse(buffer).map_err(malformed)? {
            let head = RequestHead {
                method: Method::from_bytes(parsed.method.unwrap_or_default().as_bytes()).map_err(malformed)?,
                target: parsed.path.unwrap_or_default().to_owned(),
                headers: header_map(parsed.headers)?,
            };
            buffer.advance(length);
            return Ok(Some(head));
        }
        if more(io, buffer).await? == 0 {
            return if buffer.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
    }
}

/// Reads a response head into `buffer` and takes it off there. An end of the stream is [`io::ErrorKind::UnexpectedEof`].
pub(crate) async fn response_head(
    io: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
) -> io::Result<ResponseHead> {
    loop {
        let mut fields = vec![httparse::EMPTY_HEADER; FIELD_LIMIT];
        let mut parsed = httparse::Response::new(&mut fields);
        if let httparse::Status::Complete(length) = parsed.parse(buffer).map_err(malformed)? {
            let status = StatusCode::from_u16(parsed.code.unwrap_or_default()).map_err(malformed)?;
            let headers = header_map(parsed.headers)?;
            buffer.advance(length);
            if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
                continue; // The answer proper is still to come.
            }
            return Ok(ResponseHead { status, headers });
        }
        if more(io, buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Appends what the next read gives to `buffer`; 0 is the end of the stream.
pub(crate) async fn more(io: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) -> io::Result<usize> {
    if buffer.len() > HEAD_LIMIT {
        return Err(malformed("head longer than 1 MiB"));
    }
    buffer.reserve(16 * 1024);
    io.read_buf(buffer).await
}

fn header_map(fields: &[httparse::Header<'_>]) -> io::Result<HeaderMap> {
    let mut headers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(malformed)?;
        headers.append(name, HeaderValue::from_bytes(field.value).map_err(malformed)?);
    }
    Ok(headers)
}

fn malformed(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

// === Rest ===

impl Rest {
    /// Of a request body.
    pub(crate) fn of_request(headers: &HeaderMap) -> io::Result<Self> {
        Ok(Self::framed(headers)?.unwrap_or(Self::Nothing))
    }

    /// Of the body of an answer to a `method` request.
    pub(crate) fn of_response(head: &ResponseHead, method: &Method) -> io::Result<Self> {
        let bodiless = matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if bodiless || method == Method::HEAD {
            return Ok(Self::Nothing);
        }
        Ok(Self::framed(&head.headers)?.unwrap_or(Self::UntilClose))
    }

    fn framed(headers: &HeaderMap) -> io::Result<Option<Self>> {
        if headers.contains_key(header::TRANSFER_ENCODING) {
            return Ok(Some(Self::ChunkSize));
        }
        let Some(length) = headers.get(header::CONTENT_LENGTH) else { return Ok(None) };
        let length = length.to_str().map_err(malformed)?.parse().map_err(malformed)?;
        Ok(Some(if length == 0 { Self::Nothing } else { Self::Length(length) }))
    }

    /// Takes body bytes off the front of `buffer`. `None`: more has to be read first, or the body is complete.
    pub(crate) fn take(&mut self, buffer: &mut BytesMut) -> io::Result<Option<Bytes>> {
        loop {
            match self {
                Self::Nothing => return Ok(None),
                _ if buffer.is_empty() => return Ok(None),
                Self::UntilClose => return Ok(Some(buffer.split().freeze())),
                Self::Length(left) => {
                    let bytes = split(buffer, left);
                    if *left == 0 {
                        *self = Self::Nothing;
                    }
                    return Ok(Some(bytes));
                }
                Self::ChunkSize => match httparse::parse_chunk_size(buffer) {
                    Ok(httparse::Status::Complete((length, size))) => {
                        buffer.advance(length);
                        *self = if size == 0 { Self::Trailers } else { Self::Chunk(size) };
                    }
                    Ok(httparse::Status::Partial) => return Ok(None),
                    Err(_) => return Err(malformed("invalid chunk size")),
                },
                Self::Chunk(0) => {
                    if buffer.len() < 2 {
                        return Ok(None);
                    }
                    if !buffer.starts_with(b"\r\n") {
                        return Err(malformed("chunk without its line end"));
                    }
                    buffer.advance(2);
                    *self = Self::ChunkSize;
                }
                Self::Chunk(left) => return Ok(Some(split(buffer, left))),
                Self::Trailers => {
                    let Some(end) = buffer.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
                    buffer.advance(end + 2);
                    if end == 0 {
                        *self = Self::Nothing;
                    }
                }
            }
        }
    }
}

fn split(buffer: &mut BytesMut, left: &mut u64) -> Bytes {
    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
    *left -= length as u64;
    buffer.split_to(length).freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `wire` byte by byte, and returns the body with what is then still to come.
    #[track_caller]
    fn body(mut rest: Rest, wire: &str) -> (String, Rest) {
        let (mut buffer, mut body) = (BytesMut::new(), Vec::new());
        for byte in wire.bytes() {
            buffer.extend_from_slice(&[byte]);
            while let Some(bytes) = rest.take(&mut buffer).expect("well formed") {
                body.extend_from_slice(&bytes);
            }
        }
        (String::from_utf8(body).expect("text"), rest)
    }

    #[test]
    fn x3_a_chunked_body_is_complete_only_with_its_final_chunk() {
        assert_eq!(body(Rest::ChunkSize, "5\r\nhello\r\n0\r\n\r\n"), ("hello".into(), Rest::Nothing));
        assert_eq!(body(Rest::ChunkSize, "2;x=y\r\nhe\r\n0\r\na: b\r\n\r\n"), ("he".into(), Rest::Nothing));
        assert_eq!(body(Rest::ChunkSize, "5\r\nhello\r\n"), ("hello".into(), Rest::ChunkSize));
        assert_eq!(body(Rest::ChunkSize, "5\r\nhello\r\n0\r\n"), ("hello".into(), Rest::Trailers));
        assert_eq!(body(Rest::ChunkSize, "5\r\nhel"), ("hel".into(), Rest::Chunk(2)));
    }

    #[test]
    fn x3_a_body_with_a_length_is_complete_only_when_it_is_all_there() {
        assert_eq!(body(Rest::Length(5), "hello"), ("hello".into(), Rest::Nothing));
        assert_eq!(body(Rest::Length(5), "hel"), ("hel".into(), Rest::Length(2)));
    }

    #[test]
    fn a_chunk_without_its_line_end_is_an_error() {
        let mut buffer = BytesMut::from(&b"1\r\nab\r\n"[..]);
        let mut rest = Rest::ChunkSize;
        assert_eq!(rest.take(&mut buffer).expect("the chunk"), Some(Bytes::from_static(b"a")));
        assert!(rest.take(&mut buffer).is_err());
    }
}
