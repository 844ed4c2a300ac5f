//! What a caller speaks, and so in whose words it is told that its request ended.
//!
//! Decides from what the head of a request says. gRPC and Connect share one frame for messages (a byte of flags, four of
//! length), which [`Messages`] follows, so that an end in the middle of an answer can be said between two of them
//! (contract X3).

use http::{HeaderMap, HeaderValue, Method, Uri, Version, header};
use oneclock_core::wire::names as wire;

/// How a caller expects to be told of an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// By a status and a problem document.
    #[default]
    Http,
    /// By a status in the trailers, or in the head where there is nothing else.
    Grpc,
    /// As gRPC, with its trailers at the end of the body. What a proxy translates for us arrives as gRPC.
    GrpcWeb,
    /// gRPC-Web in base64: told by the head only.
    GrpcWebText,
    /// By a status of HTTP and a JSON document of its own.
    ConnectUnary,
    /// By the last message of the body.
    ConnectStream(Codec),
}

/// What the messages of a Connect stream are written in; its last one is JSON in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Codec {
    /// The binary form of protobuf.
    Proto,
    /// JSON.
    Json,
}

/// Collects what a head says of its protocol.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spoken {
    content: Option<Content>, // of the first field, which is the one that services look at
    connect: bool,            // a field that only Connect has
}

#[derive(Clone, Copy, Debug)]
enum Content {
    Other,
    Says(Protocol),
    MayBeConnect,
}

/// Where in a sequence of messages a body stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Messages {
    flags: u8,      // of the message that is begun, else of the one before
    prefix: u8,     // bytes of a begun prefix
    length: u32,    // what they say so far
    remaining: u32, // bytes of a begun message
}

const PREFIX: u8 = 5;

/// Connect's flag on the last message of a stream.
pub(crate) const END_OF_STREAM: u8 = 0b10;
/// gRPC-Web's flag on its trailers.
pub(crate) const TRAILERS: u8 = 0b1000_0000;

// === Spoken ===

impl Spoken {
    /// A `content-type` of the request.
    pub(crate) fn content_type(&mut self, value: &HeaderValue) {
        self.content.get_or_insert_with(|| match value.as_bytes() {
            kind if kind.iter().any(u8::is_ascii_uppercase) => Content::of(&kind.to_ascii_lowercase()),
            kind => Content::of(kind),
        });
    }

    /// A field that is not `content-type`.
    pub(crate) fn field(&mut self, name: &str) {
        self.connect |= name == wire::CONNECT_TIMEOUT_MS || name == wire::CONNECT_PROTOCOL_VERSION;
    }

    /// What the head says as a whole.
    pub(crate) fn protocol(self, method: &Method, uri: &Uri) -> Protocol {
        match self.content.unwrap_or(Content::Other) {
            Content::Says(protocol) => protocol,
            Content::MayBeConnect if self.connect => Protocol::ConnectUnary,
            // Connect's form for calls without side effects; the fields of its own need not be there.
            Content::Other if *method == Method::GET && is_connect_query(uri) => Protocol::ConnectUnary,
            Content::MayBeConnect | Content::Other => Protocol::Http,
        }
    }
}

impl Content {
    fn of(value: &[u8]) -> Self {
        let Some(kind) = value.strip_prefix(b"application/") else { return Self::Other };
        let kind = kind.split(|byte| matches!(byte, b';' | b' ')).next().unwrap_or_default();
        let (kind, format) = match kind.iter().position(|byte| *byte == b'+') {
            Some(plus) => kind.split_at(plus),
            None => (kind, &b""[..]),
        };
        match (kind, format) {
            (b"grpc", _) => Self::Says(Protocol::Grpc),
            (b"grpc-web", _) => Self::Says(Protocol::GrpcWeb),
            (b"grpc-web-text", _) => Self::Says(Protocol::GrpcWebText),
            (b"connect", b"+json") => Self::Says(Protocol::ConnectStream(Codec::Json)),
            (b"connect", _) => Self::Says(Protocol::ConnectStream(Codec::Proto)),
            (b"json" | b"proto", b"") => Self::MayBeConnect,
            _ => Self::Other,
        }
    }
}

/// Such a call has its message and its encoding in the query, always.
fn is_connect_query(uri: &Uri) -> bool {
    let has =
        |name: &str| uri.query().is_some_and(|query| query.split('&').any(|pair| pair.split('=').next() == Some(name)));
    has("message") && has("encoding")
}

// === Protocol ===

impl Protocol {
    /// What the head of a request says that its caller speaks.
    pub fn of(head: &http::request::Parts) -> Self {
        let mut spoken = Spoken::default();
        for (name, value) in &head.headers {
            if name == header::CONTENT_TYPE { spoken.content_type(value) } else { spoken.field(name.as_str()) }
        }
        spoken.protocol(&head.method, &head.uri)
    }

    /// What the `content-type` of a message says by itself, if that is enough: Connect's unary calls need more.
    pub(crate) fn of_content(headers: &HeaderMap) -> Option<Self> {
        let mut spoken = Spoken::default();
        spoken.content_type(headers.get(header::CONTENT_TYPE)?);
        match spoken.content {
            Some(Content::Says(protocol)) => Some(protocol),
            _ => None,
        }
    }

    /// The word for logs: its own, or that of the HTTP below it, as ALPN names it.
    pub(crate) fn over(self, version: Version) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::GrpcWeb | Self::GrpcWebText => "grpc-web",
            Self::ConnectUnary | Self::ConnectStream(_) => "connect",
            Self::Http => match version {
                Version::HTTP_2 => "h2",
                Version::HTTP_3 => "h3",
                Version::HTTP_11 => "http/1.1",
                _ => "http/1.0",
            },
        }
    }

    /// Whether it is another one than plain HTTP.
    pub(crate) fn is_rpc(self) -> bool {
        self != Self::Http
    }

    /// Whether a deadline of its callers covers the whole of a stream (contract S1).
    pub(crate) fn covers_streams(self) -> bool {
        match self {
            Self::Grpc | Self::GrpcWeb | Self::GrpcWebText | Self::ConnectStream(_) => true,
            Self::Http | Self::ConnectUnary => false,
        }
    }

    /// Follows the messages of an answer whose end can be said between two of them.
    pub(crate) fn messages(self, head: &HeaderMap) -> Option<Messages> {
        let framed = match self {
            Self::Http | Self::GrpcWebText | Self::ConnectUnary => return None,
            Self::Grpc | Self::GrpcWeb | Self::ConnectStream(_) => Self::of_content(head)?,
        };
        // Which form the messages of a Connect stream have is the answer's to say.
        (std::mem::discriminant(&framed) == std::mem::discriminant(&self)).then(Messages::default)
    }
}

// === Messages ===

impl Messages {
    /// These bytes went out.
    pub(crate) fn went_out(&mut self, mut data: &[u8]) {
        while let Some((first, rest)) = data.split_first() {
            if self.remaining > 0 {
                let here = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(data.len());
                self.remaining -= u32::try_from(here).unwrap_or(self.remaining);
                data = data.get(here..).unwrap_or_default();
                continue;
            }
            if self.prefix > 0 {
                self.length = self.length << 8 | u32::from(*first);
            } else {
                self.flags = *first;
            }
            self.prefix += 1;
            if self.prefix == PREFIX {
                *self = Self { flags: self.flags, prefix: 0, length: 0, remaining: self.length };
            }
            data = rest;
        }
    }

    /// Whether no message is begun.
    pub(crate) fn at_boundary(self) -> bool {
        self.prefix == 0 && self.remaining == 0
    }

    /// Whether the last one has begun that says how all ended: nothing may be said after it.
    pub(crate) fn said_the_last(self, protocol: Protocol) -> bool {
        let last = match protocol {
            Protocol::GrpcWeb => TRAILERS,
            Protocol::ConnectStream(_) => END_OF_STREAM,
            Protocol::Http | Protocol::Grpc | Protocol::GrpcWebText | Protocol::ConnectUnary => 0,
        };
        self.flags & last != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use proptest::prelude::*;

    #[track_caller]
    fn speaks(content_type: &str, others: &[&str], want: Protocol) {
        let mut spoken = Spoken::default();
        spoken.content_type(&HeaderValue::from_str(content_type).expect("a value"));
        others.iter().for_each(|name| spoken.field(name));
        assert_eq!(spoken.protocol(&Method::POST, &Uri::from_static("/shop.Pricing/Price")), want, "{content_type}");
    }

    #[test]
    fn the_content_type_tells() {
        let version = ["connect-protocol-version"];
        for grpc in ["application/grpc", "application/grpc+proto", "application/grpc;x=1", "application/grpc+json"] {
            speaks(grpc, &[], Protocol::Grpc);
        }
        speaks("Application/gRPC", &[], Protocol::Grpc);
        speaks("application/grpc-web+proto", &[], Protocol::GrpcWeb);
        speaks("application/grpc-web-text", &[], Protocol::GrpcWebText);
        speaks("application/connect+proto", &[], Protocol::ConnectStream(Codec::Proto));
        speaks("application/connect+json", &[], Protocol::ConnectStream(Codec::Json));
        speaks("application/json", &version, Protocol::ConnectUnary);
        speaks("application/json; charset=utf-8", &["connect-timeout-ms"], Protocol::ConnectUnary);
        speaks("application/proto", &version, Protocol::ConnectUnary);
        for http in ["application/json", "application/grpcx", "text/plain", "application/problem+json", "grpc"] {
            speaks(http, &[], Protocol::Http);
        }
        speaks("text/plain", &version, Protocol::Http);
    }

    #[test]
    fn connect_calls_without_side_effects_say_it_in_the_query() {
        let of = |uri: &str| {
            let request = Request::get(uri).body(()).expect("a request");
            Spoken::default().protocol(request.method(), request.uri())
        };
        assert_eq!(of("/shop.Pricing/Price?encoding=json&message=%7B%7D&connect=v1"), Protocol::ConnectUnary);
        assert_eq!(of("/shop.Pricing/Price?connect=v1&encoding=json&message="), Protocol::ConnectUnary);
        for http in ["/reports?message=hello", "/reports", "/reports?encodings=x&messages=y"] {
            assert_eq!(of(http), Protocol::Http, "{http}");
        }
    }

    fn message(length: usize) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(u32::try_from(length).expect("small").to_be_bytes());
        bytes.resize(5 + length, 7);
        bytes
    }

    proptest! {
        /// However messages are cut into pieces: only between two of them is a boundary.
        #[test]
        fn a_boundary_is_where_no_message_is_begun(
            lengths in prop::collection::vec(0_usize..40, 0..6),
            cuts in prop::collection::vec(1_usize..9, 1..80),
        ) {
            let mut ends = vec![0];
            let mut bytes = Vec::new();
            for length in lengths {
                bytes.extend(message(length));
                ends.push(bytes.len());
            }
            let mut messages = Messages::default();
            let mut at = 0;
            for cut in cuts {
                let next = (at + cut).min(bytes.len());
                messages.went_out(&bytes[at..next]);
                at = next;
                prop_assert_eq!(messages.at_boundary(), ends.contains(&at), "after {} of {}", at, bytes.len());
            }
        }

        #[test]
        fn no_bytes_are_too_strange(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20)) {
            let mut messages = Messages::default();
            for piece in pieces {
                messages.went_out(&piece);
            }
        }
    }
}
