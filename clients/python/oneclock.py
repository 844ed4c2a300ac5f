"""One operation, one clock: the oneclock contract for plain HTTP services in Python. Standard library only.

Decides what deadline fields mean (`read`), what a request may spend (`Policy`, `Ingress`), what a call may spend and is
told (`Deadline.child`, `Client`), and that a call ends in time, head and body. Rules in brackets are the contract's
(docs/contract.md). Times are nanoseconds as whole numbers (`_ns`), and milliseconds where people write them (`_ms`).
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import http.client
import json
import re
import socket
import time
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union
from urllib.parse import urlsplit

MS, SEC = 1_000_000, 1_000_000_000
U64, I64 = 2**64 - 1, 2**63 - 1

# === Spellings: what the value of one field says, and how one is written ===


class Codec(NamedTuple):
    """One spelling. `read` gets the grammar's groups and the wall clock and gives what is left; None says nothing."""

    grammar: re.Pattern[str]
    read: Callable[[Tuple[str, ...], int], Optional[int]]
    write: Callable[[int, int], Optional[str]]  # what is left, wall clock; None: below one unit, not to be sent [E2]
    moment: Optional[Callable[[Tuple[str, ...], int], int]] = None  # absolute ones: how far off, negative when past


GRPC_UNITS = {"n": 1, "u": 1_000, "m": MS, "S": SEC, "M": 60 * SEC, "H": 3600 * SEC}
L5D_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
EPOCH_DAY, DAYS_PER_400_YEARS = date(1970, 1, 1).toordinal(), 146_097
LAST_EPOCH_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z


def _write_grpc(left: int, _wall: int) -> Optional[str]:
    for unit, size in GRPC_UNITS.items():  # the finest unit that fits eight digits [E1]
        if left // size <= 99_999_999:
            return f"{left // size}{unit}" if left > 0 else None
    return "99999999H"


def _units(left: int, unit: int, form: str = "{}") -> Optional[str]:
    return form.format(min(left // unit, 9_999_999_999)) if left >= unit else None


def _write_decimal(left: int, _wall: int) -> Optional[str]:
    millis = min(left // MS, 9_999_999_999_999)
    return f"{millis // 1000}.{millis % 1000:03}" if millis else None


def _read_l5d(groups: Tuple[str, ...], _wall: int) -> int:
    number, unit = min(int(groups[0]), U64), groups[1]
    return number * MS if unit == "ms" else min(number * L5D_SECONDS[unit], U64) * SEC


def _read_decimal(groups: Tuple[str, ...], _wall: int) -> int:
    return min(int(groups[0]), U64) * SEC + _fraction(groups[1])


def _fraction(digits: Optional[str]) -> int:
    return int((digits or "0")[:9].ljust(9, "0"))  # more digits are cut off, which is rounding down


def _rfc3339(groups: Tuple[str, ...], wall: int) -> int:
    year, month, day, hour, minute, second = (int(group) for group in groups[:6])
    # `date` knows no year 0; the calendar repeats every 400 years. It refuses days that do not exist: malformed.
    days = date(2000 + year % 400, month, day).toordinal() - EPOCH_DAY + (year // 400 - 5) * DAYS_PER_400_YEARS
    sign, zone_hour, zone_minute = groups[7:]
    east = (int(zone_hour or 0) * 3600 + int(zone_minute or 0) * 60) * (-1 if sign == "-" else 1)
    seconds, nanos = days * 86_400 + hour * 3600 + minute * 60 + min(second, 59) - east, _fraction(groups[6])
    if second == 60:  # a leap second is the last nanosecond before it, and only at the end of a month in UTC
        next_day, of_day = divmod(seconds + 1, 86_400)
        if of_day or date.fromordinal(next_day % DAYS_PER_400_YEARS + EPOCH_DAY).day != 1:
            raise ValueError("no leap second there")
        nanos = SEC - 1
    return seconds * SEC + nanos - wall


def _read_epoch(groups: Tuple[str, ...], wall: int) -> int:
    return min(int(groups[0]), U64) * MS - wall


def _epoch_ms(left: int, wall: int) -> Optional[int]:
    return min((wall + left) // MS, LAST_EPOCH_MS) if left >= MS else None


def _write_epoch(left: int, wall: int) -> Optional[str]:
    at = _epoch_ms(left, wall)
    return None if at is None else str(at)


def _write_rfc3339(left: int, wall: int) -> Optional[str]:
    at = _epoch_ms(left, wall)
    moment = None if at is None else datetime(1970, 1, 1) + timedelta(milliseconds=at)
    return None if moment is None else moment.isoformat(timespec="milliseconds") + "Z"


def _read_finagle(groups: Tuple[str, ...], wall: int) -> int:
    stamp, end = (min(int(group), U64) for group in groups)
    return min(end - wall, end - stamp)  # what was left when it was written also bounds what is left now


def _write_finagle(left: int, wall: int) -> Optional[str]:
    return f"{wall} {min(wall + left, I64)}" if left > 0 and wall < I64 else None


_TIME = (
    "([0-9]{4})-([0-9]{2})-([0-9]{2})T([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9]|60)"
    r"(?:\.([0-9]+))?(?:Z|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)
_re = re.compile
CODECS: Dict[str, Codec] = {
    "grpc": Codec(_re("([0-9]{1,8})([HMSmun])"), lambda g, _: int(g[0]) * GRPC_UNITS[g[1]], _write_grpc),
    "remaining-ms": Codec(_re("([0-9]{1,10})"), lambda g, _: int(g[0]) * MS, lambda left, _: _units(left, MS)),
    # Envoy means "no limit" by zero, so zero says nothing here [P2]; only trusted peers are asked.
    "envoy-ms": Codec(_re("([0-9]{1,10})"), lambda g, _: int(g[0]) * MS or None, lambda left, _: _units(left, MS)),
    "remaining-seconds": Codec(_re("([0-9]{1,10})"), lambda g, _: int(g[0]) * SEC, lambda left, _: _units(left, SEC)),
    "decimal-seconds": Codec(_re(r"([0-9]+)(?:\.([0-9]+))?"), _read_decimal, _write_decimal),
    "l5d": Codec(_re("([0-9]+)(ms|[smhd])"), _read_l5d, lambda left, _: _units(left, MS, "{}ms")),
    "epoch-ms": Codec(_re("([0-9]+)"), _read_epoch, _write_epoch, _read_epoch),
    "rfc3339": Codec(_re(_TIME), _rfc3339, _write_rfc3339, _rfc3339),
    "finagle": Codec(_re("([0-9]+) ([0-9]+)"), _read_finagle, _write_finagle, lambda g, w: min(int(g[1]), U64) - w),
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

# === Fields: one request's, read together and written together ===

Conventions = Mapping[str, str]  # field name, lower case, to a word of CODECS
Fields = Iterable[Tuple[str, str]]


class Reading(NamedTuple):
    """What a field says, or all fields of one request together: absent, valid, expired or malformed [P2]."""

    word: str
    left_ns: int = 0
    source: Optional[str] = None  # the field that made the result; of equals the first
    at_most_ns: Optional[int] = None  # the least that was understood, zero for expired, also beside a malformed field
    moments: Tuple[int, ...] = ()  # how far off the moments are that were named, negative when past

    def skewed(self, ceiling_ns: int, tolerance_ns: int = SEC) -> bool:
        """Whether a sender's clock is suspected not to agree with ours [P10]."""
        return any(moment > ceiling_ns or moment < -tolerance_ns for moment in self.moments)


def parse(kind: str, value: str, wall_ns: int = 0) -> Reading:
    """What one field's value says."""
    codec = CODECS[kind]
    match = codec.grammar.fullmatch(value) if len(value) <= 128 else None
    if not match:
        return Reading("malformed")
    try:
        left = codec.read(match.groups(), wall_ns)
    except ValueError:  # a day that does not exist
        return Reading("malformed")
    if left is None:
        return Reading("absent")
    moments = (codec.moment(match.groups(), wall_ns),) if codec.moment else ()
    left = max(0, left)
    return Reading("valid" if left else "expired", left, None, left, moments)


def encode(kind: str, left_ns: int, wall_ns: int = 0) -> Optional[str]:
    """The value that says so much is left: rounded down, saturating [E1, E6]. None: make no call [E2, E3]."""
    return CODECS[kind].write(left_ns, wall_ns)


def read(fields: Fields, known: Conventions, inside: bool = True, wall_ns: Optional[int] = None) -> Reading:
    """The smallest wins; one malformed field makes the whole malformed [P8, P9]."""
    wall_ns = time.time_ns() if wall_ns is None else wall_ns
    least, malformed, moments = Reading("absent"), None, ()  # type: Reading, Optional[str], Tuple[int, ...]
    for name, value in fields:
        name = name.lower()
        kind = known.get(name)
        if kind is None or (kind == "envoy-ms" and not inside):
            continue
        said = parse(kind, value, wall_ns)
        moments += said.moments
        if said.word == "malformed":
            malformed = malformed or name
        elif said.word != "absent" and (least.word == "absent" or said.left_ns < least.left_ns):
            least = said._replace(source=name)
    if malformed:
        least = least._replace(word="malformed", left_ns=0, source=malformed)
    return least._replace(moments=moments)


# === Deadline: the moment after which a result is useless ===


class OutOfTime(TimeoutError):
    """No time is left, or too little. A local error: nothing the other side said [E3, X2]."""

    def __init__(self, what: str, deadline: "Deadline", stage: str, outcome: str = "unknown") -> None:
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
    def begin(limit_ms: float, bound: str = "cap") -> "Deadline":
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
        self, what: str = "call", cap_ms: Optional[float] = None, reserve_ms: float = 0, min_useful_ms: float = 5
    ) -> "Deadline":
        """What one child may spend: min(remaining - reserve, cap) [C1, E5]."""
        if cap_ms is not None and cap_ms < min_useful_ms:
            raise ValueError(f"{what}: the cap is below the least that is useful")
        now, most_ns = time.monotonic_ns(), self.at_ns - max(0, int(reserve_ms * MS))
        if most_ns - now <= 0 or most_ns - now < min_useful_ms * MS:  # before the cap
            raise OutOfTime(what, self, "work", "not_sent")
        if cap_ms is not None and now + int(cap_ms * MS) < most_ns:
            return Deadline(now + int(cap_ms * MS), "cap", int(cap_ms * MS))
        return Deadline(most_ns, self.bound, most_ns - now)

    @contextlib.contextmanager
    def scope(self) -> Iterator["Deadline"]:
        """Makes it the current one, or the one around it if that ends earlier."""
        around = current()
        token = _current.set(around if around and around.at_ns < self.at_ns else self)
        try:
            yield self
        finally:
            _current.reset(token)


_current: contextvars.ContextVar[Optional[Deadline]] = contextvars.ContextVar("oneclock", default=None)


def current() -> Optional[Deadline]:
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


class Refused(NamedTuple):
    """Nothing of the request began."""

    reason: str
    deadline: Deadline
    field: Optional[str]


@dataclass(frozen=True)
class Policy:
    """One service's limits. `count` gets what happened, and the field that made it happen, for metrics [P3, P10]."""

    when_absent_ms: float = 2_000  # nobody said anything; also the most that outsiders get
    ceiling_ms: float = 10_000  # the most that anybody gets
    min_useful_ms: float = 5  # below it a request is refused before any side effect [C4, K4]
    on_malformed: str = "reject"  # or "clamp" [P3]
    known: Conventions = dataclasses.field(default_factory=lambda: DEFAULT_SET)
    count: Callable[[str, Optional[str]], None] = lambda what, field: None

    def __post_init__(self) -> None:
        if not 0 < self.min_useful_ms <= self.when_absent_ms <= self.ceiling_ms < float("inf"):
            raise ValueError("these have to rise, from above zero: min_useful, when_absent, ceiling")
        if self.on_malformed not in ("reject", "clamp") or not all(kind in CODECS for kind in self.known.values()):
            raise ValueError(f"on_malformed is reject or clamp, and a field holds one of {', '.join(CODECS)}")

    def decide(self, reading: Reading, inside: bool, arrived_ns: int) -> Union[Deadline, Refused]:
        """Counted from the arrival [K1]. Inside: min(caller, ceiling). Outside: min(caller, when_absent) [C2]."""
        absent_ns, ceiling_ns = int(self.when_absent_ms * MS), int(self.ceiling_ms * MS)
        if reading.skewed(ceiling_ns):
            self.count("skew", reading.source)
        limit_ns, bound = absent_ns, "absent"
        if reading.word == "malformed":
            self.count("malformed_deadline", reading.source)
            if self.on_malformed == "reject":
                return Refused("malformed_deadline", Deadline(arrived_ns, bound, 0), reading.source)
        asked_ns = reading.at_most_ns  # beside a malformed field: what was understood still shortens
        if asked_ns is not None and not (reading.word == "malformed" and asked_ns >= absent_ns):
            most_ns, by = (ceiling_ns, "ceiling") if inside else (absent_ns, "absent")
            limit_ns, bound = (most_ns, by) if asked_ns > most_ns else (asked_ns, "caller")
        deadline = Deadline(arrived_ns + limit_ns, bound, limit_ns)
        left_ns = deadline.remaining_ns()
        if left_ns < self.min_useful_ms * MS:
            reason = "insufficient_budget" if left_ns else "expired_before_start"
            self.count(reason, reading.source)
            return Refused(reason, deadline, reading.source)
        return deadline


Answer = Tuple[str, List[Tuple[str, str]], bytes]


def problem(reason: str, inside: bool, deadline: Deadline, stage: str, detail: Optional[str] = None) -> Answer:
    """Status line, fields and body of an answer in place of an answer (contract section 5)."""
    status, title = REASONS[reason]
    document: Dict[str, Any] = {"type": f"urn:oneclock:{reason}", "title": title, "status": status}
    if detail:
        document["detail"] = detail
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

    def __call__(self, environ: Dict[str, Any], start_response: Any) -> Any:
        arrived_ns = time.monotonic_ns()
        keys = {key: key[5:].lower().replace("_", "-") for key in environ if key.startswith("HTTP_")}
        # WSGI joins a field that came twice with a comma, which no spelling contains.
        fields = [(name, one.strip(" \t")) for key, name in keys.items() for one in environ[key].split(",")]
        reading = read(fields, self.policy.known, self.inside)
        decided = self.policy.decide(reading, self.inside, arrived_ns)
        if isinstance(decided, Refused):
            detail = f"malformed {decided.field}" if decided.reason == "malformed_deadline" else None
            return self._answer(start_response, decided.reason, decided.deadline, "arrival", detail)
        for key, name in keys.items():  # read for shortening, then gone [C3]; a name of our own for everybody [E7]
            outside = not self.inside and (name in STALE or name in RETRIES_AND_HEDGES)
            if outside or (name in self.policy.known and name not in STALE):
                del environ[key]
        around = current()
        deadline = around if around and around.at_ns < decided.at_ns else decided
        run = contextvars.copy_context().run
        run(_current.set, deadline)
        head: List[Any] = []
        early: List[bytes] = []

        def begin(status: str, fields: List[Tuple[str, str]], exc_info: Any = None) -> Any:
            # Callers build on our reason, so one that was copied from another answer goes.
            head[:] = [status, [field for field in fields if field[0].lower() != "oneclock-reason"]]
            return early.append

        chunks: Any = ()
        try:
            chunks = run(self.app, environ, begin)
            whole = isinstance(chunks, (list, tuple)) and len(chunks) <= 1
            pieces = iter(chunks)
            early.append(run(next, pieces, b""))
            if not deadline.remaining_ns():  # late: sent only if it is all there [X1]
                if not whole:
                    deadline.checkpoint("answer", "work")
                self.policy.count("late", None)
        except OutOfTime as error:
            run(getattr(chunks, "close", lambda: None))
            reason = "cap" if error.deadline.bound == "cap" and deadline.remaining_ns() else "deadline"
            return self._answer(start_response, reason, deadline, error.stage)
        except BaseException:
            run(getattr(chunks, "close", lambda: None))
            raise
        start_response(*head)
        return [b"".join(early)] if whole else _Pieces(deadline, run, b"".join(early), pieces, chunks)

    def _answer(self, start_response: Any, reason: str, deadline: Deadline, stage: str, detail: Any = None) -> Any:
        status, fields, body = problem(reason, self.inside, deadline, stage, detail)
        start_response(status, fields)
        return [body]


class _Pieces:
    """The rest of an answer. Out of time it raises, so the server closes without completing it [X3]."""

    def __init__(self, deadline: Deadline, run: Any, first: bytes, pieces: Iterator[bytes], chunks: Any) -> None:
        self.deadline, self.run, self.first, self.pieces, self.chunks = deadline, run, first, pieces, chunks

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        first, self.first = self.first, b""
        if first:
            return first
        self.deadline.checkpoint("answer", "body")
        piece: bytes = self.run(next, self.pieces)
        self.deadline.checkpoint("answer", "body")
        return piece

    def close(self) -> None:
        self.run(getattr(self.chunks, "close", lambda: None))


# === Client ===


class _Socket(socket.socket):
    """A socket whose every wait ends at the call's deadline, so that all of them together do [S3]."""

    name: str
    deadline: Deadline
    stage: str = "connect"
    outcome: str = "not_sent"

    def _within(self, operation: Callable[..., Any], *arguments: Any) -> Any:
        self.deadline.checkpoint(self.name, self.stage, self.outcome)  # the clock, before each piece [X1]
        try:
            self.settimeout(self.deadline.remaining_ns() / SEC or 1e-9)  # zero would mean: do not wait
            done = operation(*arguments)
        except socket.timeout as error:
            raise OutOfTime(self.name, self.deadline, self.stage, self.outcome) from error
        except OSError:
            self.deadline.checkpoint(self.name, self.stage, self.outcome)  # past it, a reset is our own deadline [X2]
            raise
        if done == 0:  # so is an early end
            self.deadline.checkpoint(self.name, self.stage, self.outcome)
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
        around = current()
        deadline = (
            around.child(self.name, self.cap_ms, reserve_ms, self.min_useful_ms)
            if around
            else Deadline.begin(self.cap_ms)
        )
        sock = self._connect(deadline)
        connection = http.client.HTTPConnection(self.host, self.port)
        connection.sock = sock
        try:
            connection.putrequest(method, self.path + path)
            for name, value in fields:
                if name.lower() not in STALE and name.lower() not in self.writes and name.lower() not in HOP_BY_HOP:
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
        failed: OSError = OSError(f"{self.name}: no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            sock = _Socket(family, kind, protocol)
            sock.name, sock.deadline = self.name, deadline
            try:
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return sock
            except OutOfTime:
                sock.close()
                raise
            except OSError as error:  # the next address, in what is left
                sock.close()
                failed = error
        raise failed
