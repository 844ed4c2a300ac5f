"""One tier under grpcio's asyncio server, which stops a handler at its caller's deadline or when the caller cancels.

`grpcio_server.py SLOTS`. Says its address in its first line, answers `meter` with what was done, ends with its input:
the same lines as the Rust origins.
"""

import asyncio
import json
import sys
import time

import grpc

slots = asyncio.Semaphore(int(sys.argv[1]))
worked: dict[int, int] = {}
for_nobody = 0


async def do(message: bytes, context: grpc.aio.ServicerContext) -> bytes:
    global for_nobody
    tag = dict(context.invocation_metadata())["x-bench"].split(",")
    number, until_us, work_us = int(tag[0]), int(tag[1]), int(tag[2])
    async with slots:
        began = time.monotonic()
        done = False
        try:
            await asyncio.sleep(work_us / 1e6)
            done = True
        finally:
            spent = work_us if done else min(work_us, int((time.monotonic() - began) * 1e6))
            worked[number] = worked.get(number, 0) + spent
            if done and time.time() * 1e6 > until_us:
                for_nobody += 1
    return b""


async def main() -> None:
    server = grpc.aio.server()
    handlers = {"Do": grpc.unary_unary_rpc_method_handler(do)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Work", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(json.dumps({"tiers": [f"127.0.0.1:{port}"]}), flush=True)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        if line.strip() == b"meter":
            requests = {number: {"worked_us": us, "asked": [0, 0, 0]} for number, us in worked.items()}
            print(json.dumps({"requests": requests, "for_nobody": for_nobody}), flush=True)
    await server.stop(0)


asyncio.run(main())
