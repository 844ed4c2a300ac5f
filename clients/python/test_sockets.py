"""The client's behaviour over real sockets. What matters is also done once the naive way, which has to fail."""

import http.client
import json
import socket
import threading
import time
import unittest
from unittest import mock

import oneclock
from oneclock import Client, Deadline, Ingress, OutOfTime, Policy, current
from peers import peer, raw, reset, serving

PLENTY = 5.0  # seconds: ten times what anything here is given


def ok(start_response, body=b"ok", fields=()):
    start_response("200 OK", list(fields))
    return [body]


def get(base, fields=(), path="/"):
    """Status, fields and body, without any budget of ours."""
    connection = http.client.HTTPConnection(base.removeprefix("http://"), timeout=PLENTY)
    try:
        connection.putrequest("GET", path)
        for name, value in fields:
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


class Seen:
    """An application that notes what each request was told and what it has."""

    def __init__(self, then=lambda environ, start_response: ok(start_response)):
        self.then, self.told, self.had, self.environs = then, [], [], []

    def __call__(self, environ, start_response):
        self.environs.append(dict(environ))
        self.told.append(environ.get("HTTP_X_REMAINING_MS"))
        self.had.append(current())
        return self.then(environ, start_response)


class Sockets(unittest.TestCase):
    def reduced(self, told, had, spent_ms):
        """Each hop was told, and has, at most what the one before had been told and had, less what that had spent."""
        told = [int(value) for value in told]
        self.assertLessEqual(had[1].limit_ns, had[0].limit_ns - spent_ms * oneclock.MS)
        for above, below in zip(told, told[1:]):
            self.assertLessEqual(below, above - spent_ms)
            self.assertGreater(below, 0)

    def chain(self, forward):
        """caller → A → B, 40 ms of work in A; what each was told and has."""
        b = Seen()
        with serving(Ingress(b, inside=True)) as url_b:

            def call_b(environ, start_response):
                time.sleep(0.04)  # work
                forward(url_b, environ)
                return ok(start_response)

            a = Seen(call_b)
            with serving(Ingress(a, inside=True)) as url_a, Deadline.begin(3_000).scope():
                with Client("a", url_a, cap_ms=9_000).request("GET", "/") as answer:
                    self.assertEqual(answer.status, 200)
                    answer.read()
            self.assertLessEqual(int(a.told[0]), 3_000)
        return a.told + b.told, a.had + b.had

    def test_v12_hops_in_a_row_never_lengthen(self):
        def forward(url, environ):
            Client("b", url, cap_ms=15_000).request("GET", "/", fields=[("x-remaining-ms", "9000")]).read()

        self.reduced(*self.chain(forward), 40)

    def test_the_naive_forward_of_the_field_lengthens(self):
        def forward(url, environ):
            get(url, [("x-remaining-ms", environ["HTTP_X_REMAINING_MS"])])

        told, had = self.chain(forward)
        with self.assertRaises(AssertionError):
            self.reduced(told, had, 40)

    def test_p4_expired_is_answered_and_the_handler_does_not_run(self):
        seen = Seen()
        with serving(Ingress(seen)) as url:
            for field, reason in [
                (("x-remaining-ms", "0"), "expired_before_start"),
                (("grpc-timeout", "0n"), "expired_before_start"),
                (("x-request-deadline", "2020-01-01T00:00:00Z"), "expired_before_start"),
                (("x-remaining-ms", "4"), "insufficient_budget"),
            ]:
                status, fields, body = get(url, [field])
                self.assertEqual((status, fields["oneclock-reason"]), (504, reason))
                self.assertEqual(fields["content-type"], "application/problem+json")
                self.assertEqual(json.loads(body)["type"], f"urn:oneclock:{reason}")
        self.assertEqual(seen.had, [])

    def test_p3_malformed_is_rejected_or_clamped_and_never_unlimited(self):
        seen, counted = Seen(), []
        with serving(Ingress(seen, Policy(count=lambda *what: counted.append(what)))) as url:
            status, fields, body = get(url, [("x-remaining-ms", "+5000")])
            self.assertEqual((status, fields["oneclock-reason"]), (400, "malformed_deadline"))
            self.assertEqual(json.loads(body)["detail"], "malformed x-remaining-ms")
            self.assertEqual((seen.had, counted), ([], [("malformed_deadline", "x-remaining-ms")]))
        for inside in (False, True):
            with serving(Ingress(seen, Policy(on_malformed="clamp"), inside)) as url:
                for other, limit_ms in [("300", 300), ("9000", 2_000)]:  # what was understood still shortens
                    get(url, [("grpc-timeout", "5s"), ("x-remaining-ms", other)])
                    self.assertEqual(seen.had[-1].limit_ns, limit_ms * oneclock.MS)

    def test_c2_absent_ceiling_and_trust(self):
        policy, seen = Policy(when_absent_ms=800, ceiling_ms=2_000), Seen()
        for inside, asked, limit_ms, bound in [
            (False, None, 800, "absent"),
            (False, "5000", 800, "absent"),
            (False, "300", 300, "caller"),
            (True, None, 800, "absent"),
            (True, "1500", 1_500, "caller"),
            (True, "5000", 2_000, "ceiling"),
        ]:
            with serving(Ingress(seen, policy, inside)) as url:
                get(url, [("x-remaining-ms", asked)] if asked else [])
            self.assertEqual((seen.had[-1].limit_ns // oneclock.MS, seen.had[-1].bound), (limit_ms, bound))

    def test_c3_what_outsiders_send_is_read_and_stripped(self):
        sent = [("x-remaining-ms", "500"), ("grpc-timeout", "400m"), ("x-envoy-max-retries", "9"), ("x-mine", "1")]
        known = {**oneclock.DEFAULT_SET, "x-mine": "remaining-seconds"}
        for inside, left in [(False, set()), (True, {"x-remaining-ms", "grpc-timeout", "x-envoy-max-retries"})]:
            seen = Seen()
            with serving(Ingress(seen, Policy(known=known), inside)) as url:
                get(url, sent)
            self.assertEqual(seen.had[0].limit_ns, 400 * oneclock.MS)
            kept = {name for name, _ in sent if "HTTP_" + name.upper().replace("-", "_") in seen.environs[0]}
            self.assertEqual(kept, left)

    def test_envoy_is_believed_from_trusted_peers_only(self):
        seen, known = Seen(), oneclock.FIELDS
        for inside, limit_ms in [(True, 100), (False, 2_000)]:
            with serving(Ingress(seen, Policy(known=known), inside)) as url:
                get(url, [("x-envoy-upstream-rq-timeout-ms", "100")])
            self.assertEqual(seen.had[-1].limit_ns, limit_ms * oneclock.MS)

    def test_p8_the_same_field_twice(self):
        seen = Seen()
        with serving(Ingress(seen)) as url:
            get(url, [("grpc-timeout", "5S"), ("grpc-timeout", "100m")])
            self.assertEqual(seen.had[0].limit_ns, 100 * oneclock.MS)
            self.assertEqual(get(url, [("grpc-timeout", "5S"), ("grpc-timeout", "5s")])[0], 400)

    def test_e7_every_convention_the_same_deadline_and_no_stale_copy(self):
        heads = []

        def answer(connection, head, stop):
            heads.append(head.decode())
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

        with peer(answer) as url, Deadline.begin(3_000).scope():
            incoming = [(name, "1") for name in [*oneclock.STALE, "connection", "x-mine"]] + [
                ("X-Remaining-Ms", "9000")
            ]
            writes = {"x-remaining-ms": "remaining-ms", "grpc-timeout": "grpc", "x-mine": "remaining-seconds"}
            client = Client("peer", url, cap_ms=2_000, writes=writes)
            with client.request("GET", "/", fields=[*incoming, ("x-other", "7")]) as answer:
                self.assertEqual(answer.read(), b"ok")
        sent = [line.split(": ", 1) for line in heads[0].split("\r\n")[1:] if line]
        names = sorted(name.lower() for name, _ in sent)
        want = "accept-encoding connection content-length grpc-timeout host x-mine x-other x-remaining-ms".split()
        self.assertEqual(names, want)
        said = {name: oneclock.parse(kind, dict(sent)[name]).left_ns for name, kind in writes.items()}
        self.assertLessEqual(said["x-remaining-ms"], said["grpc-timeout"])
        self.assertLess(said["grpc-timeout"] - said["x-remaining-ms"], oneclock.MS)
        self.assertLess(said["grpc-timeout"], 2_000 * oneclock.MS)
        self.assertEqual(said["x-mine"], oneclock.SEC)  # rounded down in its own unit
        self.assertIn("connection: close", heads[0])

    def test_v5_what_cannot_be_written_is_not_sent(self):
        heads = []
        with peer(lambda connection, head, stop: heads.append(head)) as url:
            with mock.patch("oneclock.time.monotonic_ns", return_value=7_000_000_000):  # time stands still
                operation = Deadline(7_000_600_000, "caller", 600_000)
                client = Client("peer", url, cap_ms=1, min_useful_ms=0)
                with operation.scope(), self.assertRaises(OutOfTime) as caught:
                    client.request("GET", "/")
                self.assertEqual(caught.exception.outcome, "not_sent")
                self.assertIsNone(oneclock.encode("remaining-ms", operation.remaining_ns()))
                naive = max(1, round(operation.remaining_ns() / oneclock.MS))
                self.assertGreater(naive * oneclock.MS, operation.remaining_ns(), "told more than there is")
        self.assertEqual(b"".join(heads), b"", "no byte of a request")

    def test_v3_connecting_spends_the_budget(self):
        listener, held = socket.create_server(("127.0.0.1", 0), backlog=0), []
        try:
            for _ in range(8):  # more than it queues: further connects hang
                one = socket.socket()
                one.setblocking(False)
                one.connect_ex(listener.getsockname())
                held.append(one)
            began = time.monotonic()
            with Deadline.begin(200).scope(), self.assertRaises(OutOfTime) as caught:
                Client("full", f"http://127.0.0.1:{listener.getsockname()[1]}", cap_ms=9_000).request("GET", "/")
            self.assertEqual((caught.exception.stage, caught.exception.outcome), ("connect", "not_sent"))
            self.assertLess(time.monotonic() - began, PLENTY)
        finally:
            for one in (*held, listener):
                one.close()

    def test_v14_a_stalled_body_is_cut(self):
        def stalls(connection, head, stop):
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfive!")
            stop.wait(PLENTY)

        with peer(stalls) as url, Deadline.begin(500).scope() as deadline:
            answer = Client("stalls", url, cap_ms=9_000).request("GET", "/")
            self.assertEqual(answer.status, 200)
            began = time.monotonic()
            with self.assertRaises(OutOfTime) as caught:
                answer.read()
            self.assertEqual((caught.exception.stage, caught.exception.outcome), ("body", "unknown"))
            self.assertEqual(deadline.remaining_ns(), 0, "not before")
            self.assertLess(time.monotonic() - began, PLENTY - 1)
            answer.close()

    def test_an_upload_that_nobody_takes_is_cut(self):
        with peer(lambda connection, head, stop: stop.wait(PLENTY)) as url, Deadline.begin(300).scope():
            with self.assertRaises(OutOfTime) as caught:
                Client("full", url, cap_ms=9_000).request("POST", "/", bytes(50_000_000))
            self.assertEqual((caught.exception.stage, caught.exception.outcome), ("send", "unknown"))

    def test_s3_pieces_in_time_do_not_make_a_whole_in_time(self):
        """A peer that trickles: each wait is short, all together are not; a naive socket timeout sees nothing."""

        def trickles(connection, head, stop):
            in_head = b"/head " in head
            text = b"HTTP/1.1 200 OK\r\nx-a: " + b"a" * 40 + b"\r\ncontent-length: 40\r\n\r\n" + b"b" * 40
            fast = 10 if in_head else text.index(b"\r\n\r\n") + 4
            connection.sendall(text[:fast])
            for byte in text[fast:]:
                if stop.wait(0.03):
                    return
                connection.sendall(bytes([byte]))

        with peer(trickles) as url:
            for path in ("/head", "/body"):
                with Deadline.begin(400).scope(), self.assertRaises(OutOfTime):
                    with Client("trickles", url, cap_ms=9_000).request("GET", path) as answer:
                        answer.read()
            connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=0.4)
            began = time.monotonic()
            connection.request("GET", "/body")
            self.assertEqual(connection.getresponse().read(), b"b" * 40)
            self.assertGreater(time.monotonic() - began, 1.1, "the naive way took three times what it was given")
            connection.close()

    def test_v6_a_reset_once_the_clock_has_passed_is_our_deadline(self):
        shift, real = [0], time.monotonic_ns

        def resets(connection, head, stop):
            shift[0] = 10 * oneclock.SEC if b"/late " in head else 0
            reset(connection)

        with peer(resets) as url, mock.patch("oneclock.time.monotonic_ns", lambda: real() + shift[0]):
            client = Client("resets", url, cap_ms=5_000)
            with self.assertRaises(ConnectionError):
                client.request("GET", "/in-time")
            with self.assertRaises(OutOfTime) as caught:
                client.request("GET", "/late")
            self.assertEqual(caught.exception.stage, "wait")

            def passes_then_fails():  # while it waits
                shift[0] += 10 * oneclock.SEC
                raise ConnectionResetError

            def passes_then_closes():
                shift[0] += 10 * oneclock.SEC
                return 0

            for waits in (passes_then_fails, passes_then_closes):
                with oneclock._Socket() as sock, self.assertRaises(OutOfTime):
                    sock.name, sock.deadline = "peer", Deadline.begin(5_000)
                    sock._within(waits)

    def test_v8_the_wall_clock_has_no_say(self):
        deadline = Deadline.begin(1_000)
        with mock.patch("oneclock.time.time_ns", return_value=time.time_ns() + 3600 * oneclock.SEC):
            self.assertGreater(deadline.remaining_ns(), 0)
            self.assertLessEqual(deadline.remaining_ns(), 1_000 * oneclock.MS)

    def test_v10_an_error_names_the_bound_that_made_the_deadline(self):
        with peer(lambda connection, head, stop: stop.wait(PLENTY)) as url_c:
            c = Client("c", url_c, cap_ms=3_000)
            with serving(Ingress(lambda environ, begin: ok(begin, c.request("GET", "/").read()), inside=True)) as url_b:
                status, fields, body = get(url_b, [("x-remaining-ms", "300")])
        self.assertEqual((status, fields["oneclock-reason"]), (504, "deadline"))
        document = json.loads(body)
        self.assertEqual((document["bound"], document["budget_ms"], document["stage"]), ("caller", 300, "wait"))
        self.assertGreaterEqual(document["elapsed_ms"], 300)

    def test_a_cap_is_told_apart_while_the_caller_has_time(self):
        with peer(lambda connection, head, stop: stop.wait(PLENTY)) as url_c:
            c = Client("c", url_c, cap_ms=100)
            with serving(Ingress(lambda environ, begin: ok(begin, c.request("GET", "/").read()))) as url_b:
                status, fields, body = get(url_b, [("x-remaining-ms", "1900")])
        self.assertEqual((status, fields["oneclock-reason"]), (504, "cap"))
        self.assertEqual(set(json.loads(body)), {"type", "title", "status"})

    def test_v11_detached_work_has_its_own_deadline(self):
        with Deadline.begin(100).scope() as parent:
            detached = Deadline.begin(500)
        self.assertGreater(detached.at_ns, parent.at_ns)
        with parent.scope(), detached.scope():  # as current one, it would be a child
            self.assertEqual(current(), parent)

    def test_x3_what_comes_too_late_is_not_sent_unless_it_is_whole(self):
        counted = []

        def late(environ, start_response):
            start_response("200 OK", [("oneclock-reason", "shed")])
            while current().remaining_ns():
                time.sleep(0.005)
            return [b"whole"] if environ["PATH_INFO"] == "/whole" else iter([b"a", b"b"])

        with serving(Ingress(late, Policy(count=lambda *what: counted.append(what)))) as url:
            status, fields, body = get(url, [("x-remaining-ms", "100")], "/parts")
            self.assertEqual((status, fields["oneclock-reason"]), (504, "deadline"))
            status, fields, body = get(url, [("x-remaining-ms", "100")], "/whole")
            self.assertEqual((status, body, counted), (200, b"whole", [("late", None)]))
            self.assertNotIn("oneclock-reason", fields, "a copied reason is none of ours")

    def test_x3_after_the_head_an_answer_is_cut_and_does_not_look_complete(self):
        closed = threading.Event()

        class Streams:
            def __iter__(self):
                yield b"first"
                while True:
                    time.sleep(0.01)
                    yield b"."

            def close(self):
                closed.set()

        def streams(environ, start_response):
            start_response("200 OK", [("content-length", "100000")])
            return Streams()

        with serving(Ingress(streams)) as url, self.assertRaises(http.client.IncompleteRead) as caught:
            get(url, [("x-remaining-ms", "300")])
        self.assertTrue(caught.exception.partial.startswith(b"first"))
        self.assertTrue(closed.wait(PLENTY), "the application's iterator is closed")

    def test_the_current_deadline_belongs_to_the_request(self):
        def parts(environ, start_response):
            start_response("200 OK", [("x-left", str(current().remaining_ns()))])
            for _ in range(2):
                yield str(current().limit_ns).encode() + b" "

        self.assertEqual(b"".join(Ingress(parts)({"HTTP_GRPC_TIMEOUT": "1S"}, lambda *head: None)), b"1000000000 " * 2)
        self.assertIsNone(current())
        with Deadline.begin(100).scope():  # an outer one can only be shortened
            self.assertEqual(b"".join(Ingress(parts)({}, lambda *head: None)), b"100000000 " * 2)

    def test_c6_outside_of_a_request_a_call_has_its_cap(self):
        with peer(lambda connection, head, stop: stop.wait(PLENTY)) as url, self.assertRaises(OutOfTime) as caught:
            Client("silent", url, cap_ms=100).request("GET", "/")
        self.assertEqual((caught.exception.deadline.bound, caught.exception.deadline.limit_ns), ("cap", 100_000_000))
        self.assertRegex(
            str(caught.exception), r"^silent: out of time in stage wait after \d+ms of 100ms \(bound: cap\)"
        )

    def test_c1_grants(self):
        parent = Deadline.begin(800, "caller")
        self.assertEqual(parent.child(cap_ms=300).bound, "cap")
        self.assertEqual(parent.child(cap_ms=900).at_ns, parent.at_ns)
        self.assertEqual(parent.child(reserve_ms=-150).at_ns, parent.at_ns, "never extended")
        self.assertEqual(parent.child(reserve_ms=150).at_ns, parent.at_ns - 150 * oneclock.MS)
        for refused in [dict(reserve_ms=797), dict(reserve_ms=800), dict(min_useful_ms=900)]:
            with self.assertRaises(OutOfTime) as caught:
                parent.child(**refused)
            self.assertEqual(caught.exception.outcome, "not_sent")
        with self.assertRaises(ValueError):
            parent.child(cap_ms=4)

    def test_limits_that_contradict_are_refused_at_construction(self):
        for wrong in [
            dict(when_absent_ms=0),
            dict(when_absent_ms=3_000, ceiling_ms=2_000),
            dict(min_useful_ms=2_001),
            dict(ceiling_ms=float("inf")),
            dict(on_malformed="ignore"),
            dict(known={"x-mine": "milliseconds"}),
        ]:
            with self.subTest(wrong), self.assertRaises(ValueError):
                Policy(**wrong)
        for wrong in [
            dict(base="https://a", cap_ms=9),
            dict(base="http://a", cap_ms=4),
            dict(base="http://a", cap_ms=float("inf")),
        ]:
            with self.subTest(wrong), self.assertRaises(ValueError):
                Client("a", **wrong)

    def test_non_ascii_is_malformed(self):
        with serving(Ingress(Seen())) as url:
            got = raw(url, b"GET / HTTP/1.0\r\nx-remaining-ms: 5\xb2\r\n\r\n")
        self.assertIn(b"oneclock-reason: malformed_deadline", got)


if __name__ == "__main__":
    unittest.main()
