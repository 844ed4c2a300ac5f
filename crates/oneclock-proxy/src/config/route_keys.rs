//! The keys of a route: every one, with what it is, what holds without it, and what it means.

use super::keys::{DURATION_OR_NONE, NAME, TRUST};
use super::shape::Is::{Count, Duration, Either, Flag, List, Map, Text, Word};
use super::shape::{Key, Shape};

/// The methods that Gateway API knows.
pub(super) const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// What the names of path matches are; the third is known and not supported.
pub(super) const PATH_TYPES: &[&str] = &["PathPrefix", "Exact"];

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
