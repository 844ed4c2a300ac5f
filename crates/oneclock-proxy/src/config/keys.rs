//! The keys of a configuration: every one, with what it is, what holds without it, and what it means.

use super::shape::Is::{ByName, Count, Duration, Either, Flag, List, Map, Share, Text, Word};
use super::shape::{Is, Key, Shape};

/// The words of a trust.
const TRUST: Is = Word(&["inside", "outside"]);
/// A duration, or the word for none.
const DURATION_OR_NONE: Is = Either(&[Duration, Word(&["none"])]);
const ADDRESS: Is = Text("127.0.0.1:8080");
const NAME: Is = Text("orders");
const LOG_FILE: Is = Text("/var/log/oneclock.json");
const CONVENTIONS: Is = List(&Either(&[Text("grpc-timeout"), Map(&CONVENTION)]));
/// The methods that Gateway API knows.
pub(super) const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// What the names of path matches are; the third is known and not supported.
pub(super) const PATH_TYPES: &[&str] = &["PathPrefix", "Exact"];

/// The document of this file's own.
pub(super) static FILE_SHAPE: Shape = Shape {
    what: "the configuration",
    keys: &[
        Key::optional(
            "listeners",
            List(&Map(&LISTENER)),
            "one, on 127.0.0.1:8080",
            "where requests come in; no two on one address",
        ),
        Key::optional("upstreams", ByName(&UPSTREAM), "those of HTTPRoute documents", "where requests go, by name"),
        Key::optional(
            "routes",
            List(&Map(&ROUTE)),
            "those of HTTPRoute documents",
            "which request goes where, and what it may spend; the one that says most about a request is taken, whatever \
             the order",
        ),
        Key::optional(
            "admin",
            Either(&[ADDRESS, Word(&["none"])]),
            "127.0.0.1:9902",
            "where the admin pages are served; keep it on loopback",
        ),
        Key::optional(
            "accessLog",
            Either(&[Word(&["none", "stdout"]), LOG_FILE, Map(&ACCESS_LOG)]),
            "none",
            "where a line of JSON for each request goes: nowhere, to standard output, or to the end of a file, whose path \
             begins with a slash; or that, and which requests leave one",
        ),
        Key::optional(
            "shutdownGrace",
            Duration,
            "10s",
            "the most that live work gets once the proxy was told to stop; 0s ends it at once",
        ),
    ],
    unsupported: &[],
};

pub(super) static ACCESS_LOG: Shape = Shape {
    what: "the access log",
    keys: &[
        Key::required(
            "to",
            Either(&[Word(&["stdout"]), LOG_FILE]),
            "where lines go: to standard output, or to the end of a file",
        ),
        Key::optional(
            "sample",
            Share,
            "1",
            "the share of requests that leave a line; those that a deadline ended leave one in any case",
        ),
        Key::optional(
            "refusals",
            Count(0, 1_000_000),
            "100",
            "how many lines a second there are, besides those of the share, of requests that were refused before they began",
        ),
    ],
    unsupported: &[],
};

pub(super) static LISTENER: Shape = Shape {
    what: "a listener",
    keys: &[
        Key::optional("name", NAME, "`http`, then `http-2`, …", "what it is called in logs, metrics and errors"),
        Key::required("address", ADDRESS, "the address and the port on which it listens; port 0 takes a free one"),
        Key::optional("protocol", Word(&["http"]), "http", "HTTP/1.1, and HTTP/2 by prior knowledge or as TLS agrees"),
        Key::optional("tls", Map(&TLS), "without TLS", "the files of TLS"),
        Key::optional(
            "trust",
            TRUST,
            "outside",
            "whether its peers are ours; outsiders may shorten their budget, never lengthen it",
        ),
        Key::optional(
            "reads",
            CONVENTIONS,
            "the bold rows of the contract's table",
            "the deadline fields that count, each by its name, or with what it is",
        ),
        Key::optional("maxConnections", Count(1, 1_000_000), "10000", "how many connections are open at once"),
    ],
    unsupported: &[],
};

pub(super) static TLS: Shape = Shape {
    what: "the files of TLS",
    keys: &[
        Key::required(
            "certificate",
            Text("/etc/oneclock/tls.crt"),
            "the certificate and those between it and a root, in PEM",
        ),
        Key::required("key", Text("/etc/oneclock/tls.key"), "its private key, in PEM"),
        Key::optional(
            "clientCa",
            Text("/etc/oneclock/clients.crt"),
            "peers show no certificate",
            "the roots of the peers' certificates, in PEM: who shows none of them is turned away",
        ),
    ],
    unsupported: &[],
};

pub(super) static CONVENTION: Shape = Shape {
    what: "a deadline field",
    keys: &[
        Key::required("field", Text("x-our-budget"), "its name, in lower case"),
        Key::required(
            "is",
            Word(&["remaining-ms", "remaining-seconds", "decimal-seconds", "epoch-ms", "rfc3339"]),
            "what its value is",
        ),
    ],
    unsupported: &[],
};

pub(super) static UPSTREAM: Shape = Shape {
    what: "an upstream",
    keys: &[
        Key::required("url", Text("http://127.0.0.1:3000"), "`http` or `https`, its host and its port, and no path"),
        Key::optional(
            "protocol",
            Word(&["auto", "http1", "h2c"]),
            "auto",
            "what it is asked in; auto: gRPC in HTTP/2, everything else in HTTP/1.1, and over TLS in what the two agree on; \
             http1: nothing else, over TLS too; h2c: HTTP/2 without TLS",
        ),
        Key::optional(
            "tls",
            Map(&UPSTREAM_TLS),
            "the roots of the web",
            "over `https`: who it has to be, and who we are",
        ),
        Key::optional(
            "tells",
            CONVENTIONS,
            "`x-remaining-ms`, to gRPC and Connect their own beside it",
            "the deadline fields that it understands, each of which gets the same deadline",
        ),
        Key::optional("trust", TRUST, "outside", "whether it is ours, so that the reasons it gives are built on"),
        Key::optional("cap", DURATION_OR_NONE, "what the request has left", "the most that one call may spend"),
        Key::optional(
            "maxConnections",
            Count(1, 1_000_000),
            "64",
            "how many connections one pool holds at once; HTTP, gRPC and Connect each have one, streams and upgraded \
             connections (WebSockets) have one together, and routes with another `reserve`, or a `minUseful` below 5ms, have \
             further ones. Over HTTP/2 calls share connections: a further one is opened where the upstream allows fewer \
             streams than are under way",
        ),
    ],
    unsupported: &[],
};

pub(super) static UPSTREAM_TLS: Shape = Shape {
    what: "the TLS of an upstream",
    keys: &[
        Key::optional(
            "ca",
            Text("/etc/oneclock/ca.crt"),
            "Mozilla's, as they were when this program was built",
            "the roots that its certificate has to come from, in PEM",
        ),
        Key::optional(
            "serverName",
            Text("payment.internal"),
            "the host of `url`",
            "whom its certificate has to be for, and whom it is asked for (SNI)",
        ),
        Key::optional(
            "clientCertificate",
            Text("/etc/oneclock/client.crt"),
            "it is shown none",
            "the certificate that it is shown and those between that and a root, in PEM; with `clientKey`",
        ),
        Key::optional("clientKey", Text("/etc/oneclock/client.key"), "none", "the private key of that, in PEM"),
    ],
    unsupported: &[],
};

pub(super) static ROUTE: Shape = Shape {
    what: "a route",
    keys: &[
        Key::optional("name", NAME, "its first match", "what it is called in logs, metrics and errors"),
        Key::optional(
            "matches",
            List(&Map(&MATCH)),
            "every request",
            "which requests: those that any of these matches",
        ),
        Key::required("upstream", NAME, "where they go, one of the names in `upstreams`"),
        Key::optional("timeouts", Map(&TIMEOUTS), "see `whenAbsent`, `ceiling`", "as in Gateway API"),
        Key::optional(
            "whenAbsent",
            Duration,
            "`timeouts.request`, or 2s",
            "what a request gets that brings no deadline, and the most that an outsider gets",
        ),
        Key::optional("ceiling", Duration, "`timeouts.request`, or 10s", "the most that anybody gets"),
        Key::optional(
            "minUseful",
            Duration,
            "5ms",
            "with less left a request is refused before it costs anything, and no further attempt is made",
        ),
        Key::optional("reserve", Duration, "0s", "what is kept back of a request's budget for the way home"),
        Key::optional(
            "trust",
            TRUST,
            "its listener's",
            "`outside`: whoever comes this way is an outsider; `inside` only where every listener is inside",
        ),
        Key::optional(
            "onMalformed",
            Word(&["reject", "clamp"]),
            "reject",
            "what becomes of a request whose deadline cannot be read: 400, or what one without a deadline gets",
        ),
        Key::optional(
            "kind",
            Either(&[Word(&["unary"]), Map(&KIND)]),
            "unary",
            "what the budget covers: head and body, or the head of a stream that has clocks of its own",
        ),
        Key::optional(
            "retry",
            Map(&RETRY),
            "one attempt",
            "further attempts, where the call may be repeated; a POST is not",
        ),
        Key::optional("idempotency", Map(&IDEMPOTENCY), "keys mean nothing here", "how idempotency keys are kept to"),
        Key::optional(
            "concurrency",
            Either(&[Count(1, 1_000_000), Word(&["adaptive"])]),
            "adaptive",
            "how many requests are worked on at once, or `adaptive`: as many as the upstream turns out to serve",
        ),
        Key::optional("queue", Count(0, 4_096), "1024", "how many wait for their turn at most; 0: nobody waits"),
        Key::optional(
            "mode",
            Word(&["observe", "shadow", "enforce"]),
            "`enforce` beside `concurrency` or `queue`, else `shadow`",
            "whether what these two decide is done, only told, or not even asked",
        ),
    ],
    unsupported: &[],
};

pub(super) static MATCH: Shape = Shape {
    what: "a match",
    keys: &[
        Key::optional("path", Map(&PATH), "every path", "which paths"),
        Key::optional("method", Word(METHODS), "every method", "which method"),
    ],
    unsupported: &[
        ("headers", "requests are told apart by path and method; leave such a match out, or keep it in the gateway"),
        (
            "queryParams",
            "requests are told apart by path and method; leave such a match out, or keep it in the gateway",
        ),
    ],
};

pub(super) static PATH: Shape = Shape {
    what: "a path",
    keys: &[
        Key::optional(
            "type",
            Word(PATH_TYPES),
            "PathPrefix",
            "this path and all below it (`/a` is `/a/b`, not `/ab`), or no other",
        ),
        Key::optional("value", Text("/orders"), "/", "the path"),
    ],
    unsupported: &[],
};

pub(super) static TIMEOUTS: Shape = Shape {
    what: "`timeouts`",
    keys: &[
        Key::optional("request", Duration, "see `whenAbsent`, `ceiling`", "sets both `whenAbsent` and `ceiling`"),
        Key::optional(
            "backendRequest",
            DURATION_OR_NONE,
            "what the request has left",
            "the most that one attempt at the upstream may take; not above `request`",
        ),
    ],
    unsupported: &[],
};

pub(super) static KIND: Shape = Shape {
    what: "a kind",
    keys: &[Key::required("streaming", Map(&STREAMING), "the clocks of the stream")],
    unsupported: &[],
};

pub(super) static STREAMING: Shape = Shape {
    what: "`streaming`",
    keys: &[
        Key::required("idle", Duration, "the longest time between two frames"),
        Key::required("total", Duration, "the longest life of the stream, from its head"),
    ],
    unsupported: &[],
};

pub(super) static RETRY: Shape = Shape {
    what: "`retry`",
    keys: &[
        Key::optional(
            "codes",
            List(&Count(408, 599)),
            "429, 502, 503, 504",
            "the statuses after which there is another attempt; gRPC: always 4, 8 and 14",
        ),
        Key::optional("attempts", Count(1, 9), "2", "how many attempts there are after the first"),
        Key::optional(
            "backoff",
            Duration,
            "25ms",
            "what is waited before the first of them: anything up to this, then up to twice as long, ten times at most",
        ),
    ],
    unsupported: &[],
};

pub(super) static IDEMPOTENCY: Shape = Shape {
    what: "`idempotency`",
    keys: &[
        Key::required(
            "store",
            Text("sqlite:/var/lib/oneclock/keys.db"),
            "`sqlite:` and the path of a file, or the URL of a PostgreSQL database (`postgres://…`), over TLS with \
             `sslmode=require`",
        ),
        Key::optional(
            "ca",
            Text("/etc/oneclock/database.crt"),
            "Mozilla's, as they were when this program was built",
            "the roots that the database's certificate has to come from, in PEM",
        ),
        Key::required(
            "principal",
            Either(&[Text("x-account"), Word(&["everybody"])]),
            "whose key it is: the header field that tells callers apart, of which a hash is kept; or `everybody`, where \
             callers may see each other's answers",
        ),
        Key::optional(
            "execution",
            Duration,
            "10s, or `ceiling` if that is more",
            "the most that one run may take, whoever waits for it; not below `ceiling`",
        ),
        Key::optional(
            "lease",
            Duration,
            "5s longer than a run can take",
            "how long a run may be silent before it counts as lost, and its outcome as unknown",
        ),
        Key::optional("retention", Duration, "24h", "how long answers are kept; longer than anybody tries again"),
        Key::optional("require", Flag, "false", "whether a POST or a PATCH without a key is refused"),
        Key::optional(
            "maxRequest",
            Count(1, BODY_MOST),
            "262144",
            "the largest body of a request with a key, in bytes; a larger one is refused with 413",
        ),
        Key::optional(
            "maxAnswer",
            Count(1, BODY_MOST),
            "262144",
            "the largest body of an answer that is kept, in bytes; a larger one is given once, and known to have been given",
        ),
        Key::optional(
            "replays",
            List(&Text("x-order-id")),
            "content type, location, `etag` and the like",
            "further header fields of an answer that are kept and given again",
        ),
        Key::optional(
            "monitor",
            Text("/pay/operations"),
            "nobody can ask",
            "the path under which callers ask what became of their operation; a GET below it has to take this route",
        ),
    ],
    unsupported: &[],
};

/// Bodies are held in memory while their request is under way.
pub(super) const BODY_MOST: u64 = 16 * 1024 * 1024;
