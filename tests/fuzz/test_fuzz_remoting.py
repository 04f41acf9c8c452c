"""A few thousand broken requests in each run of the tests; `python -m tests.fuzz.remoting` sends any number of them."""
import struct

import pytest

from tests.fuzz.frames import MAX_FRAME, Call, Fuzzer, Input, framed
from tests.fuzz.remoting import MIB, fuzz, slips_in_logs, stocked

INPUTS = 5_000
SEED = 49
HEADER = {"code": 105, "language": "JAVA", "version": 409, "flag": 0, "extFields": {"topic": "T", "n": "5"}}
CALLS = [Call(HEADER, b"x")]


def test_broken_requests_leave_name_server_and_broker_well(nodes, tmp_path):
    servers = stocked("rmqha", tmp_path, nodes)
    found = fuzz(servers, INPUTS, SEED, 64 * MIB)
    servers.close()
    assert not found.faults, "\n".join(found.faults[:10])
    outcomes = found.outcomes
    for what in ("broker: 0", "broker: 1", "broker: closed", "namesrv: 0", "namesrv: 1", "namesrv: closed"):
        assert outcomes[what] > 50, outcomes


def test_same_seed_gives_the_same_inputs():
    one, two = Fuzzer(CALLS, 7), Fuzzer(CALLS, 7)
    assert [one.next() for _ in range(200)] == [two.next() for _ in range(200)]


def test_some_inputs_are_right_and_others_wrong_in_many_ways():
    fuzzer = Fuzzer(CALLS, 1)
    inputs = [fuzzer.next() for _ in range(2000)]
    assert 50 < sum(not one.mutations for one in inputs) < 400
    assert {one.data[4] for one in inputs if len(one.data) > 4} >= {0, 1, 5}
    assert any(one.is_complete for one in inputs) and not all(one.is_complete for one in inputs)


@pytest.mark.parametrize("data, complete", [
    (framed(CALLS[0]), True), (framed(CALLS[0]) * 2, True), (framed(CALLS[0])[:-1], False), (b"\0\0\0", False),
    (struct.pack(">i", -1), True), (struct.pack(">i", MAX_FRAME - 3), True), (struct.pack(">i", MAX_FRAME - 4), False),
])
def test_inputs_that_a_server_waits_behind_are_known(data, complete):
    assert Input(data, [], 1).is_complete == complete


def test_stacks_and_dead_threads_in_logs_are_found(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "broker.log").write_text(
        "2026 ERROR x - failed\nTraceback (most recent call last):\n  File \"a.py\", line 1, in f\n    g()\n"
        "TypeError: no\n2026 INFO x - fine\n")
    (tmp_path / "broker.out").write_text("Exception in thread Thread-1:\n")
    assert slips_in_logs(tmp_path) == ["broker.log: TypeError: no", "broker.out: Exception in thread Thread-1:"]
