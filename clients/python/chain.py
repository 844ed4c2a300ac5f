"""A chain of languages: Python → a Rust service of oneclock → Node. No hop is told more than the one before had left.

`python3 clients/python/chain.py PATH_OF_THE_RELAY` (a binary of relay.rs); needs `node`. Says what each hop had, and
fails if one had too much.
"""

import contextlib
import json
import pathlib
import subprocess
import sys

from oneclock import Client, Deadline, OutOfTime

HERE = pathlib.Path(__file__).resolve().parent
WORK_MS = 40  # of the relay


@contextlib.contextmanager
def hop(*command):
    """The URL that this program prints; it ends when its standard input does."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().strip()
            if not url:
                sys.exit(f"{command[0]} did not start")
            yield url
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def ask(url, budget_ms):
    """What was left here, and what the hops say."""
    client = Client("relay", url, cap_ms=60_000)
    with Deadline.begin(budget_ms).scope() as operation:
        left_us = operation.remaining_ns() / 1_000
        with client.request("GET", "/") as answer:
            return left_us, answer.status, json.loads(answer.read())


def main(relay):
    with hop("node", str(HERE.parent / "node" / "echo.mjs")) as node, hop(relay, node) as rust:
        for budget_ms in (5_000, 3_000, 1_000):
            left_us, status, said = ask(rust, budget_ms)
            assert status == 200, (status, said)
            behind = said["behind"]
            print(
                f"left here {left_us / 1_000:.1f}ms → rust had {said['had_us'] / 1_000:.1f}ms, worked {WORK_MS}ms "
                f"→ node was told {behind['told_ms']}ms, had {behind['had_us'] / 1_000:.1f}ms"
            )
            assert 0 < said["had_us"] <= left_us
            assert 0 < behind["told_ms"] * 1_000 <= said["had_us"] - WORK_MS * 1_000
            assert 0 < behind["had_us"] <= behind["told_ms"] * 1_000
        try:  # less than the relay needs: it cannot have reached the end
            _, status, said = ask(rust, WORK_MS - 10)
            assert status == 504, (status, said)
            print(f"with {WORK_MS - 10}ms: {status} {said['title']}")
        except OutOfTime as error:
            print(f"with {WORK_MS - 10}ms: {error}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
