"""What the two Python peers share: the log, the words of a call, and what is written on stdout.

The messages, the services and google.rpc's types come from generated code that `cargo xtask interop` makes.
"""

import base64
import json
import sys
import threading
import time

import grpc
from google.protobuf import json_format
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

import probe_pb2

ECHOED = "x-probe-"
CODES = {code.value[0]: code for code in grpc.StatusCode}
OPTIONS = [("grpc.so_reuseport", 0)]


def say(line):
    """One JSON object a line; several threads may speak."""
    with _speaking:
        print(json.dumps(line), flush=True)


_speaking = threading.Lock()


class Log:
    """The calls of this service, as they saw themselves."""

    def __init__(self):
        self._lock = threading.Lock()
        self._lines = []

    def begin(self, method, ask, context):
        line = Line(method, ask.id, dict(context.invocation_metadata()), context.time_remaining())
        with self._lock:
            self._lines.append(line)
        return line

    def told(self, ask):
        with self._lock:
            lines = [line for line in self._lines if line.entry.id == ask.id]
        return probe_pb2.LogTold(entries=[line.now() for line in lines])


class Line:
    """One call."""

    def __init__(self, method, id, metadata, left):
        self.began = time.monotonic()
        self.entry = probe_pb2.Entry(
            id=id,
            method=method,
            grpc_timeout=metadata.get("grpc-timeout", ""),
            # Without a deadline the library says nothing, or something enormous.
            has_deadline=left is not None and left < 1e6,
        )
        if self.entry.has_deadline:
            self.entry.left_ms = max(0, -int(-left * 1000 // 1))

    def told(self, item=0):
        entry = self.entry
        return probe_pb2.Told(
            id=entry.id,
            item=item,
            grpc_timeout=entry.grpc_timeout,
            left_ms=entry.left_ms,
            has_deadline=entry.has_deadline,
        )

    def end(self, how):
        if not self.entry.ended:
            self.entry.after_ms = self._after_ms()
            self.entry.ended = how

    def now(self):
        entry = probe_pb2.Entry()
        entry.CopyFrom(self.entry)
        if not entry.ended:
            entry.after_ms = self._after_ms()
        return entry

    def _after_ms(self):
        return int((time.monotonic() - self.began) * 1000)


def echo(context):
    return [(key, value) for key, value in context.invocation_metadata() if key.startswith(ECHOED)]


def failure(ask, context):
    """The code, the text and the trailers of a failure that was asked for."""
    status = status_pb2.Status(code=ask.fail, message="as asked")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="PROBE", domain="probe.example"))
    trailers = echo(context) + [("grpc-status-details-bin", status.SerializeToString())]
    return CODES[ask.fail], status.message, trailers


class Command:
    """A line from stdin that asks for a call."""

    def __init__(self, line):
        self.number = line["n"]
        self.method = line["method"]
        self.target = line["target"]
        self.tls = line.get("tls")
        self.ask = json_format.ParseDict(line["ask"], probe_pb2.Ask())
        timeout = line.get("timeoutMs")
        self.timeout = None if timeout is None else timeout / 1000
        self.metadata = [
            (key, base64.b64decode(value) if key.endswith("-bin") else value) for key, value in line.get("metadata", [])
        ]
        send = line.get("send", {})
        self.more = send.get("items", 0)
        self.every = send.get("everyMs", 0) / 1000
        self.open = send.get("open", False)
        self.streams_up = self.method in ("ClientStream", "Bidi")
        self.streams_down = self.method in ("ServerStream", "Bidi")


def channel(library, command):
    """A channel of grpc or grpc.aio to what the command names."""
    if command.tls is None:
        return library.insecure_channel(command.target)
    with open(command.tls, "rb") as roots:
        return library.secure_channel(command.target, grpc.ssl_channel_credentials(roots.read()))


class Result:
    """How a call came out."""

    def __init__(self, number):
        self.line = {"n": number, "items": 0, "told": None, "info": None}
        self.began = time.monotonic()

    def item(self, told):
        self.line["items"] += 1
        self.line["told"] = json_format.MessageToDict(told)

    def end(self, code, message, initial, trailing, call=None):
        self.line["afterMs"] = int((time.monotonic() - self.began) * 1000)
        self.line["code"] = code.name
        self.line["message"] = message or ""
        self.line["initial"] = pairs(initial)
        self.line["trailing"] = pairs(trailing)
        if call is not None:
            try:
                self.line["info"] = error_info(call)
            except Exception as error:
                self.fail(error)  # what grpcio-status makes of it is an end as well
                return
        say(self.line)

    def fail(self, error):
        """The library refused the call."""
        self.line.update(afterMs=0, code="REFUSED", message=f"{type(error).__name__}: {error}", initial=[], trailing=[])
        say(self.line)


def pairs(metadata):
    text = lambda value: base64.b64encode(value).decode() if isinstance(value, bytes) else value
    return [[key, text(value)] for key, value in metadata or ()]


def error_info(call):
    """google.rpc.ErrorInfo of a failed call, read with grpcio-status.

    At its own deadline the library replaces the status and the text of trailers that it has and nobody has read yet, and keeps
    the details in them. grpcio-status takes that for a mistake.
    """
    try:
        status = rpc_status.from_call(call)
    except ValueError:
        if call.code() is grpc.StatusCode.DEADLINE_EXCEEDED and "Deadline Exceeded" in call.details():
            return None
        raise
    for detail in status.details if status else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            return {"reason": info.reason, "domain": info.domain, "metadata": dict(info.metadata)}
    return None


def lines():
    """The commands, until stdin closes."""
    for line in sys.stdin:
        if line.strip():
            yield json.loads(line)
