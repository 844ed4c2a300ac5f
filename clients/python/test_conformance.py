"""Every case of conformance/*.json that applies to this client; what is skipped is named with its reason."""

import json
import pathlib
import sys
import unittest

import oneclock

HERE = pathlib.Path(__file__).resolve().parent
VECTORS = HERE.parents[1] / "conformance"
VALUES = ("grpc-timeout", "milliseconds", "seconds", "absolute")

# Lists that are not run, with the reason. A list that is in no file any more, or not named here, fails.
SKIPPED = {
    "retries.json pushback": "this client makes one attempt and never repeats",
    "retries.json plans": "this client makes one attempt and never repeats",
    "retries.json tokens": "this client makes one attempt and never repeats",
}
SKIPPED_COLUMNS = {
    "statuses.json grpc": "plain HTTP only",
    "statuses.json connect": "plain HTTP only",
    "statuses.json repeat": "this client makes one attempt and never repeats",
}
# Rows of statuses.json that this client never answers.
OTHER_REASONS = {
    "shed": "no admission here, so nothing is refused for load",
    "shutdown": "shutting down belongs to the WSGI server",
    "shutdown_midway": "shutting down belongs to the WSGI server",
    "caller_gone": "a WSGI application is not told that its caller left",
    "request_body": "the WSGI server reads the upload; whether a handler waits for it cannot be told",
}
# Scenarios: the test of test_sockets.py that plays it, or why none does.
BEHAVIOUR = {
    "V1": "skipped: no retries here",
    "V2": "skipped: no queue here",
    "V3": "test_v3_connecting_spends_the_budget",
    "V4": "skipped: no gRPC here",
    "V5": "test_v5_what_cannot_be_written_is_not_sent",
    "V6": "test_v6_a_reset_once_the_clock_has_passed_is_our_deadline",
    "V7": "skipped: no retries here",
    "V8": "test_v8_the_wall_clock_has_no_say",
    "V9": "skipped: no admission here",
    "V10": "test_v10_an_error_names_the_bound_that_made_the_deadline",
    "V11": "test_v11_detached_work_has_its_own_deadline",
    "V12": "test_v12_hops_in_a_row_never_lengthen",
    "V13": "skipped: no gRPC here",
    "V14": "test_v14_a_stalled_body_is_cut",
}


def load(name):
    document = json.loads((VECTORS / f"{name}.json").read_text())
    assert document.pop("version") == 1, f"{name}.json has a version that this test does not know"
    document.pop("about")
    return document


def fields(case, *known):
    """A key that this harness does not know could change what the case means."""
    unknown = set(case) - set(known)
    assert not unknown, f"unknown in {case}: {unknown}"


def value_of(case):
    if ("value" in case) == ("value_hex" in case):
        raise AssertionError(f"one of value and value_hex: {case}")
    return case["value"] if "value" in case else bytes.fromhex(case["value_hex"]).decode("latin-1")


def kind_of(case):
    if "declared" in case:
        return case["declared"]
    return oneclock.FIELDS[case["field"]]


def wanted(want):
    if isinstance(want, dict):
        fields(want, "valid_ns")
        return ("valid", int(want["valid_ns"]))
    assert want in ("absent", "expired", "malformed"), want
    return (want, 0)


def decode_differs(case, parse=oneclock.parse):
    """None, or how the result differs."""
    fields(case, "rule", "field", "value", "value_hex", "declared", "wall_ns", "want")
    said = parse(kind_of(case), value_of(case), int(case.get("wall_ns", 0)))
    got, want = (said.word, said.left_ns), wanted(case["want"])
    return None if got == want else f"{case}: got {got}"


class Conformance(unittest.TestCase):
    counted = {}

    @classmethod
    def tearDownClass(cls):
        total = sum(cls.counted.values())
        print(f"\nconformance (python): {total} cases run: {cls.counted}", file=sys.stderr)
        skipped = {**SKIPPED, **SKIPPED_COLUMNS, **{f"statuses.json {row}": why for row, why in OTHER_REASONS.items()}}
        skipped.update({f"behaviour.json {id}": why for id, why in BEHAVIOUR.items() if why.startswith("skipped")})
        for what, why in skipped.items():
            print(f"  not run: {what}: {why.replace('skipped: ', '')}", file=sys.stderr)

    def ran(self, what, count):
        self.assertGreater(count, 0, what)
        self.counted[what] = count

    def test_every_list_is_run_or_named(self):
        lists = {
            f"{path.name} {part}"
            for path in VECTORS.glob("*.json")
            for part, cases in load(path.stem).items()
            if isinstance(cases, list)
        }
        run = {f"{name}.json {part}" for name in VALUES for part in ("decode", "encode")}
        run |= {"absolute.json skew", "several.json decode", "statuses.json cases", "behaviour.json cases"}
        self.assertEqual(lists, run | set(SKIPPED))

    def test_decode(self):
        for name in VALUES:
            cases = load(name)["decode"]
            for case in cases:
                with self.subTest(case):
                    self.assertIsNone(decode_differs(case))
            self.ran(f"{name} decode", len(cases))

    def test_encode(self):
        for name in VALUES:
            cases = load(name)["encode"]
            for case in cases:
                with self.subTest(case):
                    fields(case, "rule", "field", "remaining_ns", "declared", "wall_ns", "want")
                    left, wall = int(case["remaining_ns"]), int(case.get("wall_ns", 0))
                    written = oneclock.encode(kind_of(case), left, wall)
                    self.assertEqual(written, case["want"])
                    if written is not None:  # E1
                        self.assertLessEqual(oneclock.parse(kind_of(case), written, wall).left_ns, left)
            self.ran(f"{name} encode", len(cases))

    def test_several(self):
        document = load("several")
        fields(document, "wall_ns", "decode")
        for case in document["decode"]:
            with self.subTest(case):
                fields(case, "rule", "fields", "want", "source")
                said = oneclock.read(case["fields"], oneclock.FIELDS, True, int(document["wall_ns"]))
                self.assertEqual(((said.word, said.left_ns), said.source), (wanted(case["want"]), case["source"]))
        self.ran("several", len(document["decode"]))

    def test_skew(self):
        cases = load("absolute")["skew"]
        for case in cases:
            with self.subTest(case):
                fields(case, "rule", "field", "values", "wall_ns", "ceiling_ns", "tolerance_ns", "suspected")
                sent = [(case["field"], value) for value in case["values"]]
                said = oneclock.read(sent, oneclock.FIELDS, True, int(case["wall_ns"]))
                suspected = said.skewed(int(case["ceiling_ns"]), int(case["tolerance_ns"]))
                self.assertEqual(suspected, case["suspected"])
        self.ran("skew", len(cases))

    def test_statuses(self):
        rows = load("statuses")["cases"]
        self.assertEqual({row["reason"] for row in rows}, {*oneclock.REASONS, *OTHER_REASONS})
        for row in rows:
            fields(row, "reason", "situation", "http", "grpc", "connect", "repeat", "only_in_logs")
            if row["reason"] in oneclock.REASONS:
                deadline = oneclock.Deadline.begin(100)
                status, sent, body = oneclock.problem(row["reason"], False, deadline, "work")
                document = json.loads(body)
                self.assertEqual((int(status.split()[0]), document["status"]), (row["http"], row["http"]))
                self.assertEqual(dict(sent)["oneclock-reason"], row["reason"])
                self.assertEqual(set(document), {"type", "title", "status"}, "outsiders learn nothing else")
        self.ran("statuses", len(oneclock.REASONS))

    def test_behaviour_is_played_or_named(self):
        import test_sockets

        cases = load("behaviour")["cases"]
        self.assertEqual({case["id"] for case in cases}, set(BEHAVIOUR))
        played = [name for name in BEHAVIOUR.values() if not name.startswith("skipped: ")]
        for name in played:
            self.assertTrue(hasattr(test_sockets.Sockets, name), name)
        self.ran("behaviour", len(played))

    def test_the_naive_way_fails_the_same_cases(self):
        """`int(value)` takes signs, spaces, underscores, any number of digits, and says of zero that it is fine."""

        def naive(kind, value, wall_ns):
            try:
                return oneclock.Reading("valid", int(value) * oneclock.MS)
            except ValueError:
                return oneclock.Reading("malformed")

        failed = [case for case in load("milliseconds")["decode"] if decode_differs(case, naive)]
        values = {case.get("value") for case in failed}
        self.assertLessEqual({"+5", " 5", "5 ", "-5", "0", "12345678901"}, values)
        for value in ("٥", "1_000", "5\n"):  # not among the cases; all digits to Python
            self.assertEqual(naive("remaining-ms", value, 0).word, "valid")
            self.assertEqual(oneclock.parse("remaining-ms", value).word, "malformed")


if __name__ == "__main__":
    unittest.main()
