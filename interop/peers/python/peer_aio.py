"""The probe with grpcio's asyncio: serves it, and calls it as stdin says."""

import asyncio
import threading

import grpc

import probe_pb2_grpc
from common import OPTIONS, Command, Log, Result, channel, echo, failure, lines, say

log = Log()


class Probe(probe_pb2_grpc.ProbeServicer):
    async def Unary(self, ask, context):
        async with Call("Unary", ask, context) as call:
            await call.work(ask.work_ms)
            await call.stall_or_fail(ask)
            return call.line.told()

    async def ServerStream(self, ask, context):
        async with Call("ServerStream", ask, context) as call:
            for item in range(ask.items):
                await call.work(ask.every_ms if item else ask.work_ms)
                call.line.entry.items += 1
                yield call.line.told(item + 1)
            await call.stall_or_fail(ask)

    async def ClientStream(self, asks, context):
        ask = await anext(asks)
        async with Call("ClientStream", ask, context) as call:
            call.line.entry.read = 1
            async for _ in asks:
                call.line.entry.read += 1
            await call.work(ask.work_ms)
            await call.stall_or_fail(ask)
            return call.line.told(call.line.entry.read)

    async def Bidi(self, asks, context):
        ask = await anext(asks)
        async with Call("Bidi", ask, context) as call:
            while ask is not None:
                call.line.entry.read += 1
                await call.work(ask.work_ms)
                await call.stall_or_fail(ask)
                call.line.entry.items += 1
                yield call.line.told(call.line.entry.items)
                ask = await anext(asks, None)

    async def Log(self, ask, context):
        return log.told(ask)


class Call:
    """One call of ours that is being served."""

    def __init__(self, method, ask, context):
        self.context = context
        self.line = log.begin(method, ask, context)

    async def work(self, milliseconds):
        await asyncio.sleep(milliseconds / 1000)

    async def stall_or_fail(self, ask):
        if ask.stall:
            await asyncio.Event().wait()
        if ask.fail:
            code, message, trailers = failure(ask, self.context)
            self.context.set_trailing_metadata(trailers)
            self.line.end("finished")
            await self.context.abort(code, message)

    async def __aenter__(self):
        await self.context.send_initial_metadata(echo(self.context))
        return self

    async def __aexit__(self, kind, error, trace):
        ended_from_outside = kind is not None and issubclass(kind, (asyncio.CancelledError, GeneratorExit))
        self.line.end("cancelled" if ended_from_outside else "finished")


channels = {}
running = {}


async def run(command):
    result = Result(command.number)
    try:
        if command.target not in channels:
            channels[command.target] = channel(grpc.aio, command)
        stub = probe_pb2_grpc.ProbeStub(channels[command.target])
        request = messages(command) if command.streams_up else command.ask
        call = getattr(stub, command.method)(request, timeout=command.timeout, metadata=command.metadata)
    except Exception as error:
        result.fail(error)
        return
    running[command.number] = call
    try:
        if command.streams_down:
            async for told in call:
                result.item(told)
        else:
            result.item(await call)
    except grpc.RpcError:
        pass  # its code says it
    except asyncio.CancelledError:
        pass  # what a call that we cancelled raises
    except Exception as error:
        result.fail(error)
        return
    finally:
        running.pop(command.number, None)
    code = await call.code()
    trailing = await call.trailing_metadata()
    failed = Failed(await call.details(), code, trailing) if code is not grpc.StatusCode.OK else None
    result.end(code, await call.details(), await call.initial_metadata(), trailing, failed)


class Failed:
    """A call as grpcio-status reads it."""

    def __init__(self, details, code, trailing):
        self.details, self.code = (lambda: details), (lambda: code)
        self.trailing_metadata = lambda: trailing


async def messages(command):
    yield command.ask
    for _ in range(command.more):
        await asyncio.sleep(command.every)
        yield command.ask
    if command.open:
        await asyncio.Event().wait()


async def main():
    server = grpc.aio.server(options=OPTIONS)
    probe_pb2_grpc.add_ProbeServicer_to_server(Probe(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    say({"listening": f"127.0.0.1:{port}", "is": f"grpcio {grpc.__version__}"})
    loop = asyncio.get_running_loop()
    commands = asyncio.Queue()

    def listen():
        for line in lines():
            loop.call_soon_threadsafe(commands.put_nowait, line)
        loop.call_soon_threadsafe(commands.put_nowait, None)

    threading.Thread(target=listen, daemon=True).start()
    tasks = set()
    while (line := await commands.get()) is not None:
        if line["do"] == "cancel":
            call = running.get(line["n"])
            if call is not None:
                call.cancel()
        else:
            task = asyncio.create_task(run(Command(line)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    await server.stop(None)


asyncio.run(main())
