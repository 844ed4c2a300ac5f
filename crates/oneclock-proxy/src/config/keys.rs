//! The keys of a configuration: every one, with what it is, what holds without it, and what it means. Those of a route are
//! `route_keys`'s.

use super::route_keys::ROUTE;
use super::shape::Is::{ByName, Count, Duration, Either, List, Map, Share, Text, Word};
use super::shape::{Is, Key, Shape};

/// The words of a trust.
pub(super) const TRUST: Is = Word(&["inside", "outside"]);
/// A duration, or the word for none.
pub(super) const DURATION_OR_NONE: Is = Either(&[Duration, Word(&["none"])]);
const ADDRESS: Is = Text("127.0.0.1:8080");
pub(super) const NAME: Is = Text("orders");
const LOG_FILE: Is = Text("/var/log/oneclock.json");
const CONVENTIONS: Is = List(&Either(&[Text("grpc-timeout"), Map(&CONVENTION)]));
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
            Either(&[ADDRESS, Word(&["none"]), Map(&ADMIN)]),
            "127.0.0.1:9902",
            "where the admin pages are served; keep it on loopback; or that, and where probes are answered",
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

pub(super) static ADMIN: Shape = Shape {
    what: "`admin`",
    keys: &[
        Key::optional(
            "pages",
            Either(&[ADDRESS, Word(&["none"])]),
            "127.0.0.1:9902",
            "where the admin pages are served; keep it on loopback",
        ),
        Key::optional(
            "probes",
            Either(&[Text("0.0.0.0:9903"), Word(&["none"])]),
            "none",
            "where `/live` and `/ready` are served and nothing else, for who asks over a network",
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
            "the share of requests that leave a line; those that a deadline ended, or that the upstream failed, leave one in any case",
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
