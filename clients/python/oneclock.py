"""One operation, one clock: the oneclock contract for plain HTTP services in Python. Standard library only.

Decides what deadline fields mean (`read`), what a request may spend (`Policy`, `Ingress`), what a call may spend and is
told (`Deadline.child`, `Client`), and that a call ends in time, head and body. Rules in brackets are the contract's
(docs/contract.md). Times are nanoseconds as whole numbers (`_ns`), and milliseconds where people write them (`_ms`).
"""

from __future__ import annotations

import contextlib
import contextvars
import http.client
import json
import re
import socket
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Callable, Iterable, Iterator, Mapping, NamedTuple, Optional
from urllib.parse import urlsplit

MS, SEC = 1_000_000, 1_000_000_000
U64, I64 = 2**64 - 1, 2**63 - 1

# === Spellings: what the value of one field says, and how one is written ===

GRPC_UNITS = {"n": 1, "u": 1_000, "m": MS, "S": SEC, "M": 60 * SEC, "H": 3600 * SEC}
L5D_UNITS = {"ms": MS, "s": SEC, "m": 60 * SEC, "h": 3600 * SEC, "d": 86_400 * SEC}
EPOCH, SECONDS_PER_400_YEARS = datetime(1970, 1, 1), 146_097 * 86_400
LAST_EPOCH_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
RFC3339 = (
    "([0-9]{4})-([0-9]{2})-([0-9]{2})T([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9]|60)"
    r"(?:\.([0-9]+))?(?:Z|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)
Writes = Callable[[int, int], Optional[str]]


def _long(digits: str) -> int:
    return min(int(digits), U64)


def _fraction(digits: str | None) -> int:
    return int((digits or "0")[:9].ljust(9, "0"))  # more digits are cut off, which is rounding down


def _read_rfc3339(groups: tuple[str, ...], wall: int) -> int:
    year, month, day, hour, minute, second = (int(group) for group in groups[:6])
    digits, sign, zone_hour, zone_minute = groups[6:]
    # `datetime` knows no year 0; the calendar repeats every 400 years. It refuses days that do not exist.
    at = datetime(2000 + year % 400, month, day, hour, minute, min(second, 59))
    at -= timedelta(hours=int(zone_hour or 0), minutes=int(zone_minute or 0)) * (-1 if sign == "-" else 1)
    # A leap second is the last nanosecond before it, and only at the end of a month in UTC.
    if second == 60 and f"{at + timedelta(seconds=1):%d %H:%M:%S}" != "01 00:00:00":
        raise ValueError("no leap second there")
    seconds = (at - EPOCH) // timedelta(seconds=1) + (year // 400 - 5) * SECONDS_PER_400_YEARS
    return seconds * SEC + (SEC - 1 if second == 60 else _fraction(digits)) - wall


def _write_grpc(left: int, _wall: int) -> str | None:
    for unit, size in GRPC_UNITS.items():  # the finest unit that fits eight digits [E1]
        if left // size <= 99_999_999:
            return f"{left // size}{unit}" if left > 0 else None
    return "99999999H"


def _whole(unit: int, form: Callable[[int], str] = str, most: int = 9_999_999_999) -> Writes:
    return lambda left, _: form(min(left // unit, most)) if left >= unit else None


def _moment(form: Callable[[int], str]) -> Writes:
    return lambda left, wall: form(min((wall + left) // MS, LAST_EPOCH_MS)) if left >= MS else None


class Codec(NamedTuple):
    grammar: str
    read: Callable[[Any, int], int | None]  # the grammar's groups and the wall clock to what is left; None says nothing
    write: Writes  # back; None: below one unit, not to be sent [E2]
    moment: Callable[[Any, int], int] | None = None  # how far off the moment is that it names, negative when past


CODECS = {
    "grpc": Codec("([0-9]{1,8})([HMSmun])", lambda g, _: int(g[0]) * GRPC_UNITS[g[1]], _write_grpc),
    "remaining-ms": Codec("([0-9]{1,10})", lambda g, _: int(g[0]) * MS, _whole(MS)),
    # Envoy means "no limit" by zero, so zero says nothing here [P2]; only trusted peers are asked.
    "envoy-ms": Codec("([0-9]{1,10})", lambda g, _: int(g[0]) * MS or None, _whole(MS)),
    "remaining-seconds": Codec("([0-9]{1,10})", lambda g, _: int(g[0]) * SEC, _whole(SEC)),
    "decimal-seconds": Codec(
        r"([0-9]+)(?:\.([0-9]+))?",
        lambda g, _: _long(g[0]) * SEC + _fraction(g[1]),
        _whole(MS, lambda ms: f"{ms // 1000}.{ms % 1000:03}", 9_999_999_999_999),
    ),
    "l5d": Codec(
        "([0-9]+)(ms|[smhd])", lambda g, _: min(_long(g[0]) * L5D_UNITS[g[1]], U64 * SEC), _whole(MS, "{}ms".format)
    ),
    "epoch-ms": Codec("([0-9]+)", lambda g, w: _long(g[0]) * MS - w, _moment(str), lambda g, w: _long(g[0]) * MS - w),
    "rfc3339": Codec(
        RFC3339,
        _read_rfc3339,
        _moment(lambda ms: f"{EPOCH + timedelta(milliseconds=ms):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03}Z"),
        _read_rfc3339,
    ),
    "finagle": Codec(
        "([0-9]+) ([0-9]+)",
        # What was left when it was written also bounds what is left now.
        lambda g, wall: min(_long(g[1]) - wall, _long(g[1]) - _long(g[0])),
        lambda left, wall: f"{wall} {min(wall + left, I64)}" if left > 0 and wall < I64 else None,
        lambda g, wall: _long(g[1]) - wall,
    ),
}
# The contract's table. `x-request-timeout` means two things in the wild, so it is read only where its kind is declared:
# Policy(known={**DEFAULT_SET, "x-request-timeout": "remaining-seconds"}).
FIELDS = {
    "grpc-timeout": "grpc",
    "connect-timeout-ms": "remaining-ms",
    "x-remaining-ms": "remaining-ms",
    "x-request-timeout-ms": "remaining-ms",
    "x-request-deadline": "rfc3339",
    "x-envoy-expected-rq-timeout-ms": "remaining-ms",
    "x-envoy-upstream-rq-timeout-ms": "envoy-ms",
    "x-envoy-upstream-rq-per-try-timeout-ms": "envoy-ms",
    "expect-within": "decimal-seconds",
    "context-ttl-ms": "remaining-ms",
    "finagle-ctx-com.twitter.finagle.deadline": "finagle",
    "l5d-timeout": "l5d",
}
DEFAULT_SET = dict(list(FIELDS.items())[:6])
# What never travels on as it came [E7], and what outsiders have no say in beside that [C3].
STALE = {*FIELDS, "x-request-timeout", "x-envoy-attempt-count", "grpc-previous-rpc-attempts"}
RETRIES_AND_HEDGES = set(
    "grpc-retry-pushback-ms oneclock-retried x-envoy-is-timeout-retry l5d-request-timeout l5d-response-timeout "
    "l5d-retry-http l5d-retry-grpc l5d-retry-limit l5d-retry-timeout x-envoy-max-retries x-envoy-retry-on "
    "x-envoy-retry-grpc-on x-envoy-hedge-on-per-try-timeout".split()
)

# === Fields: one request's, read together ===

Fields = Iterable[tuple[str, str]]
Conventions = Mapping[str, str]  # field name, lower case, to a word of CODECS


class Reading(NamedTuple):
    """What a field says, or all fields of one request together: absent, valid, expired or malformed [P2]."""

    word: str
    left_ns: int = 0
    source: str | None = None  # the field that made the result; of equals the first
    at_most_ns: int | None = None  # the least that was understood, zero for expired, also beside a malformed field
    moments: tuple[int, ...] = ()  # how far off the moments are that were named, negative when past

    def skewed(self, ceiling_ns: int, tolerance_ns: int = SEC) -> bool:
        """Whether a sender's clock is suspected not to agree with ours [P10]."""
        return any(moment > ceiling_ns or moment < -tolerance_ns for moment in self.moments)


def parse(kind: str, value: str, wall_ns: int = 0) -> Reading:
    """What one field's value says."""
    codec = CODECS[kind]
    match = re.fullmatch(codec.grammar, value) if len(value) <= 128 else None
    if not match:
        return Reading("malformed")
    try:
        left = codec.read(match.groups(), wall_ns)
    except ValueError:  # a day that does not exist
        return Reading("malformed")
    if left is None:
        return Reading("absent")
    left, moments = max(0, left), (codec.moment(match.groups(), wall_ns),) if codec.moment else ()
    return Reading("valid" if left else "expired", left, None, left, moments)


def encode(kind: str, left_ns: int, wall_ns: int = 0) -> str | None:
    """The value that says so much is left: rounded down, saturating [E1, E6]. None: make no call [E2, E3]."""
    return CODECS[kind].write(left_ns, wall_ns)


def read(fields: Fields, known: Conventions, inside: bool = True, wall_ns: int | None = None) -> Reading:
    """The smallest wins; one malformed field makes the whole malformed [P8, P9]."""
    wall_ns = time.time_ns() if wall_ns is None else wall_ns
    kinds = {name: kind for name, kind in known.items() if inside or kind != "envoy-ms"}
    named = [(name.lower(), value) for name, value in fields if name.lower() in kinds]
    said = [parse(kinds[name], value, wall_ns)._replace(source=name) for name, value in named]
    understood = [one for one in said if one.word in ("valid", "expired")]
    least = min(understood, key=lambda one: one.left_ns, default=Reading("absent"))
    malformed = [one.source for one in said if one.word == "malformed"]
    if malformed:
        least = least._replace(word="malformed", left_ns=0, source=malformed[0])
    return least._replace(moments=tuple(moment for one in said for moment in one.moments))


# === Deadline: the moment after which a result is useless ===


class OutOfTime(TimeoutError):
    """No time is left, or too little. A local error: nothing the other side said [E3, X2]."""

    def __init__(self, what: str, deadline: Deadline, stage: str, outcome: str = "unknown") -> None:
        self.deadline, self.stage, self.outcome = deadline, stage, outcome
        spent, limit = deadline.elapsed_ns() / MS, deadline.limit_ns / MS
        super().__init__(
            f"{what}: out of time in stage {stage} after {spent:.0f}ms of {limit:.0f}ms "
            f"(bound: {deadline.bound}), outcome: {outcome.replace('_', ' ')}"
        )


@dataclass(frozen=True)
class Deadline:
    """A moment on the monotonic clock [K1, K2]. It can be brought forward, never pushed back [C1]."""

    at_ns: int
    bound: str  # what made it: caller, absent, ceiling, cap
    limit_ns: int  # the limit it set, counted from the start

    @staticmethod
    def begin(limit_ms: float, bound: str = "cap") -> Deadline:
        """A new one, for work that nobody asked for by the network, and for detached work."""
        limit_ns = int(limit_ms * MS)
        return Deadline(time.monotonic_ns() + limit_ns, bound, limit_ns)

    def remaining_ns(self) -> int:
        return max(0, self.at_ns - time.monotonic_ns())

    def elapsed_ns(self) -> int:
        return time.monotonic_ns() - (self.at_ns - self.limit_ns)

    def checkpoint(self, what: str = "work", stage: str = "work", outcome: str = "unknown") -> None:
        """Ends work whose time is up. For loops: a thread cannot be ended from outside."""
        if not self.remaining_ns():
            raise OutOfTime(what, self, stage, outcome)

    def child(
        self, what: str = "call", cap_ms: float | None = None, reserve_ms: float = 0, min_useful_ms: float = 5
    ) -> Deadline:
        """What one child may spend: min(remaining - reserve, cap) [C1, E5]."""
        if cap_ms is not None and cap_ms < min_useful_ms:
            raise ValueError(f"{what}: the cap is below the least that is useful")
        now, most_ns = time.monotonic_ns(), self.at_ns - max(0, int(reserve_ms * MS))
        if most_ns - now < max(1, min_useful_ms * MS):  # before the cap
            raise OutOfTime(what, self, "work", "not_sent")
        if cap_ms is not None and now + int(cap_ms * MS) < most_ns:
            return Deadline(now + int(cap_ms * MS), "cap", int(cap_ms * MS))
        return Deadline(most_ns, self.bound, most_ns - now)

    @contextlib.contextmanager
    def scope(self) -> Iterator[Deadline]:
        """Makes it the current one, or the one around it if that ends earlier. Gives whichever it is."""
        around = current()
        deadline = around if around and around.at_ns < self.at_ns else self
        token = _current.set(deadline)
        try:
            yield deadline
        finally:
            _current.reset(token)


_current: contextvars.ContextVar[Deadline | None] = contextvars.ContextVar("oneclock", default=None)


def current() -> Deadline | None:
    """The deadline of the request that this code works for."""
    return _current.get()


# === Policy: what an arriving request may spend, or why it is refused ===

REASONS = {
    "deadline": (504, "the time budget ran out while working"),
    "expired_before_start": (504, "the time budget was spent before the work began"),
    "insufficient_budget": (504, "too little of the time budget was left to begin"),
    "cap": (504, "a local time limit ran out"),
    "malformed_deadline": (400, "a deadline field could not be read"),
}


@dataclass(frozen=True)
class Policy:
    """One service's limits. `count` gets what happened, and the field that made it happen, for metrics [P3, P10]."""

    when_absent_ms: float = 2_000  # nobody said anything; also the most that outsiders get
    ceiling_ms: float = 10_000  # the most that anybody gets
    min_useful_ms: float = 5  # below it a request is refused before any side effect [C4, K4]
    on_malformed: str = "reject"  # or "clamp" [P3]
    known: Conventions = field(default_factory=lambda: DEFAULT_SET)
    count: Callable[[str, str | None], None] = lambda what, field: None

    def __post_init__(self) -> None:
        if not 0 < self.min_useful_ms <= self.when_absent_ms <= self.ceiling_ms < float("inf"):
            raise ValueError("these have to rise, from above zero: min_useful, when_absent, ceiling")
        if self.on_malformed not in ("reject", "clamp") or not all(kind in CODECS for kind in self.known.values()):
            raise ValueError(f"on_malformed is reject or clamp, and a field holds one of {', '.join(CODECS)}")

    def decide(self, reading: Reading, inside: bool, arrived_ns: int) -> tuple[Deadline, str | None]:
        """What it has, from its arrival [K1], and why it is refused, if it is. Then nothing of it has begun.

        Inside: min(caller, ceiling). Outside: min(caller, when_absent) [C2].
        """
        absent_ns, ceiling_ns = int(self.when_absent_ms * MS), int(self.ceiling_ms * MS)
        if reading.skewed(ceiling_ns):
            self.count("skew", reading.source)
        if reading.word == "malformed":
            self.count("malformed_deadline", reading.source)
            if self.on_malformed == "reject":
                return Deadline(arrived_ns, "absent", 0), "malformed_deadline"
        believed = inside and reading.word in ("valid", "expired")
        limit_ns, bound = (ceiling_ns, "ceiling") if believed else (absent_ns, "absent")
        if reading.at_most_ns is not None and reading.at_most_ns <= limit_ns:  # also beside a malformed field
            limit_ns, bound = reading.at_most_ns, "caller"
        deadline = Deadline(arrived_ns + limit_ns, bound, limit_ns)
        left_ns = deadline.remaining_ns()
        if left_ns >= self.min_useful_ms * MS:
            return deadline, None
        refused = "insufficient_budget" if left_ns else "expired_before_start"
        self.count(refused, reading.source)
        return deadline, refused


def problem(
    reason: str, inside: bool, deadline: Deadline, stage: str, field: str | None = None
) -> tuple[str, Any, bytes]:
    """Status line, fields and body of an answer in place of an answer (contract section 5)."""
    status, title = REASONS[reason]
    document: dict[str, Any] = {"type": f"urn:oneclock:{reason}", "title": title, "status": status}
    if reason == "malformed_deadline" and field:
        document["detail"] = f"malformed {field}"
    if inside:  # outsiders learn nothing of our insides
        budget, spent = deadline.limit_ns / MS, deadline.elapsed_ns() / MS
        document.update(bound=deadline.bound, stage=stage, budget_ms=round(budget, 3), elapsed_ms=round(spent, 3))
    body = json.dumps(document).encode()
    fields = [("content-type", "application/problem+json"), ("oneclock-reason", reason)]
    return f"{status} {http.client.responses[status]}", [*fields, ("content-length", str(len(body)))], body


# === Server: a WSGI middleware ===


class Ingress:
    """Gives every request a deadline, or an answer without running the application.

    A WSGI application runs in its server's thread, which nobody can end: its calls end at the deadline by themselves
    (`Client`), its loops by `current().checkpoint()`, and an answer that comes too late is not sent.
    """

    def __init__(self, app: Any, policy: Policy = Policy(), inside: bool = False) -> None:
        self.app, self.policy, self.inside = app, policy, inside  # trust belongs to the listener [C2]

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        arrived_ns = time.monotonic_ns()
        keys = {key: key[5:].lower().replace("_", "-") for key in environ if key.startswith("HTTP_")}
        # WSGI joins a field that came twice with a comma, which no spelling contains.
        fields = [(name, one.strip(" \t")) for key, name in keys.items() for one in environ[key].split(",")]
        reading = read(fields, self.policy.known, self.inside)
        deadline, refused = self.policy.decide(reading, self.inside, arrived_ns)

        def refuse(reason: str, stage: str) -> list[bytes]:
            status, fields, body = problem(reason, self.inside, deadline, stage, reading.source)
            start_response(status, fields)
            return [body]

        if refused:
            return refuse(refused, "arrival")
        for key, name in keys.items():  # read for shortening, then gone [C3]; a name of our own for everybody [E7]
            ours = name in self.policy.known or (not self.inside and name in RETRIES_AND_HEDGES)
            if not self.inside if name in STALE else ours:
                del environ[key]
        with deadline.scope() as deadline:
            run = contextvars.copy_context().run
        head: list[Any] = []
        early: list[bytes] = []

        def begin(status: str, fields: list[tuple[str, str]], exc_info: Any = None) -> Any:
            # Callers build on our reason, so one that was copied from another answer goes.
            head[:] = [status, [field for field in fields if field[0].lower() != "oneclock-reason"]]
            return early.append

        def work() -> Iterator[Any]:
            """Whether the answer is there as a whole, then the answer. When out of time it raises, so the server closes
            without completing it [X3]."""
            chunks = run(self.app, environ, begin)
            try:
                whole = isinstance(chunks, (list, tuple)) and len(chunks) <= 1
                pieces = iter(chunks)
                early.append(run(next, pieces, b""))
                if not whole:
                    deadline.checkpoint("answer", "work")
                elif not deadline.remaining_ns():  # late, but all there [X1]
                    self.policy.count("late", None)
                yield whole
                yield b"".join(early)
                while (piece := run(next, pieces, None)) is not None:
                    deadline.checkpoint("answer", "body")
                    yield piece
            finally:
                run(getattr(chunks, "close", lambda: None))

        answer = work()
        try:
            whole = next(answer)
        except OutOfTime as error:
            is_cap = error.deadline.bound == "cap" and deadline.remaining_ns()
            return refuse("cap" if is_cap else "deadline", error.stage)
        start_response(*head)
        return list(answer) if whole else answer


# === Client ===


class _Socket(socket.socket):
    """A socket whose every wait ends at the call's deadline, so that all of them together do [S3]."""

    name: str
    deadline: Deadline
    stage: str = "connect"
    outcome: str = "not_sent"

    def _within(self, operation: Callable[..., Any], *arguments: Any) -> Any:
        where = self.name, self.stage, self.outcome
        self.deadline.checkpoint(*where)  # the clock, before each piece [X1]
        try:
            self.settimeout(max(self.deadline.remaining_ns(), 1) / SEC)  # zero would mean: do not wait
            done = operation(*arguments)
        except OSError:
            self.deadline.checkpoint(*where)  # past it, a reset is our own deadline [X2]
            raise
        if done == 0:  # so is an early end
            self.deadline.checkpoint(*where)
        return done

    def connect(self, address: Any) -> None:
        self._within(super().connect, address)

    def sendall(self, data: Any, *flags: Any) -> None:
        self._within(super().sendall, data, *flags)

    def recv_into(self, buffer: Any, *arguments: Any) -> int:
        return int(self._within(super().recv_into, buffer, *arguments))


PLAIN_HTTP: Conventions = {"x-remaining-ms": "remaining-ms"}
HOP_BY_HOP = set("connection content-length host keep-alive proxy-connection te transfer-encoding upgrade".split())


class Client:
    """One thing we call over plain HTTP, with its own limit and the fields that it understands.

    A connection for each call: what is left is written once it stands [E4]. Looking up a name is the one wait that
    Python cannot cut off; it spends the budget too. No redirect is followed: it would carry the field on unreduced.
    """

    def __init__(
        self, name: str, base: str, cap_ms: float, writes: Conventions = PLAIN_HTTP, min_useful_ms: float = 5
    ) -> None:
        parts = urlsplit(base)
        if parts.scheme != "http" or not parts.hostname or not min_useful_ms <= cap_ms < float("inf"):
            raise ValueError(f"{name}: needs an http:// URL, and a cap that is not below min_useful")
        self.name, self.cap_ms, self.writes, self.min_useful_ms = name, cap_ms, writes, min_useful_ms
        self.host, self.port, self.path = parts.hostname, parts.port or 80, parts.path.rstrip("/")

    def request(
        self, method: str, path: str, body: bytes = b"", fields: Fields = (), reserve_ms: float = 0
    ) -> http.client.HTTPResponse:
        """The answer's head; its body is read from it within the same deadline. Outside of a request: the cap [C6].

        Raises OutOfTime, and OSError or HTTPException for what else goes wrong.
        """
        around, limits = current(), (self.name, self.cap_ms, reserve_ms, self.min_useful_ms)
        deadline = around.child(*limits) if around else Deadline.begin(self.cap_ms)
        connection = http.client.HTTPConnection(self.host, self.port)
        connection.sock = sock = self._connect(deadline)
        try:
            connection.putrequest(method, self.path + path)
            for name, value in fields:
                if not any(name.lower() in names for names in (STALE, HOP_BY_HOP, self.writes)):
                    connection.putheader(name, value)
            connection.putheader("content-length", str(len(body)))
            connection.putheader("connection", "close")
            left_ns, wall_ns = deadline.remaining_ns(), time.time_ns()  # the last moment [E4]
            for name, kind in self.writes.items():
                said = encode(kind, left_ns, wall_ns)
                if said is None:  # below one unit: never left out, never zero, never rounded up [E2]
                    raise OutOfTime(self.name, deadline, "send", "not_sent")
                connection.putheader(name, said)
            sock.stage, sock.outcome = "send", "unknown"
            connection.endheaders(body)
            sock.stage = "wait"
            answer = connection.getresponse()
            sock.stage = "body"
            sock.close()  # when the answer has been read, or is closed
            return answer
        except BaseException:
            connection.close()
            raise

    def _connect(self, deadline: Deadline) -> _Socket:
        failed = OSError(f"{self.name}: no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            sock = _Socket(family, kind, protocol)
            sock.name, sock.deadline = self.name, deadline
            try:
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return sock
            except OSError as error:  # the next address, in what is left
                sock.close()
                failed = error
        raise failed
