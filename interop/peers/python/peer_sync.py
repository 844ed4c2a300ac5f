"""The probe with grpcio's threads: serves it, and calls it as stdin says."""

import threading
from concurrent import futures

import grpc

import probe_pb2_grpc
from common import OPTIONS, Command, Log, Result, channel, echo, failure, lines, say

log = Log()


class Cancelled(Exception):
    """The call is over, and not through its handler."""


class Probe(probe_pb2_grpc.ProbeServicer):
    def Unary(self, ask, context):
        with Call("Unary", ask, context) as call:
            call.work(ask.work_ms)
            call.stall_or_fail(ask)
            return call.line.told()

    def ServerStream(self, ask, context):
        with Call("ServerStream", ask, context) as call:
            for item in range(ask.items):
                call.work(ask.every_ms if item else ask.work_ms)
                call.line.entry.items += 1
                yield call.line.told(item + 1)
            call.stall_or_fail(ask)

    def ClientStream(self, asks, context):
        ask = next(asks)
        with Call("ClientStream", ask, context) as call:
            call.line.entry.read = 1
            for _ in call.read(asks):
                call.line.entry.read += 1
            call.work(ask.work_ms)
            call.stall_or_fail(ask)
            return call.line.told(call.line.entry.read)

    def Bidi(self, asks, context):
        ask = next(asks)
        with Call("Bidi", ask, context) as call:
            while ask is not None:
                call.line.entry.read += 1
                call.work(ask.work_ms)
                call.stall_or_fail(ask)
                call.line.entry.items += 1
                yield call.line.told(call.line.entry.items)
                ask = next(call.read(asks), None)

    def Log(self, ask, context):
        return log.told(ask)


class Call:
    """One call of ours that is being served."""

    def __init__(self, method, ask, context):
        self.context = context
        self.line = log.begin(method, ask, context)
        self.over = threading.Event()
        self.cut = not context.add_callback(self.over.set)
        context.send_initial_metadata(echo(context))

    def work(self, milliseconds):
        if self.cut or self.over.wait(milliseconds / 1000):
            raise Cancelled

    def stall_or_fail(self, ask):
        if ask.stall:
            self.over.wait()
            raise Cancelled
        if ask.fail:
            code, message, trailers = failure(ask, self.context)
            self.context.set_trailing_metadata(trailers)
            self.line.end("finished")
            self.context.abort(code, message)

    def read(self, asks):
        try:
            yield from asks
        except grpc.RpcError as error:
            raise Cancelled from error
        except Exception as error:
            raise Cancelled from error

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.line.end("cancelled" if kind in (Cancelled, GeneratorExit) else "finished")
        # Nobody hears the answer of a call that is over.
        return kind is Cancelled


channels = {}
running = {}
# A cancel can overtake the thread of its call.
cancelled = set()
order = threading.Lock()


def run(command):
    result = Result(command.number)
    try:
        if command.target not in channels:
            channels[command.target] = channel(grpc, command)
        stub = probe_pb2_grpc.ProbeStub(channels[command.target])
        method = getattr(stub, command.method)
        call_over = threading.Event()
        request = messages(command, call_over) if command.streams_up else command.ask
        begin = method if command.streams_down else method.future
        call = begin(request, timeout=command.timeout, metadata=command.metadata)
        call.add_callback(call_over.set)
    except Exception as error:
        result.fail(error)
        return
    with order:
        running[command.number] = call
        if command.number in cancelled:
            call.cancel()
    try:
        if command.streams_down:
            for told in call:
                result.item(told)
        elif call.code() is grpc.StatusCode.OK:
            result.item(call.result())
    except grpc.RpcError:
        pass  # its code says it
    running.pop(command.number)
    failed = call.code() is not grpc.StatusCode.OK
    result.end(call.code(), call.details(), call.initial_metadata(), call.trailing_metadata(), call if failed else None)


def messages(command, call_over):
    yield command.ask
    for _ in range(command.more):
        if call_over.wait(command.every):
            return
        yield command.ask
    if command.open:
        call_over.wait()


def main():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=32), options=OPTIONS)
    probe_pb2_grpc.add_ProbeServicer_to_server(Probe(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    say({"listening": f"127.0.0.1:{port}", "is": f"grpcio {grpc.__version__}"})
    for line in lines():
        if line["do"] == "cancel":
            with order:
                cancelled.add(line["n"])
                call = running.get(line["n"])
            if call is not None:
                call.cancel()
        else:
            threading.Thread(target=run, args=(Command(line),), daemon=True).start()
    server.stop(None)


main()
