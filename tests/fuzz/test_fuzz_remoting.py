"""Broken requests at the main ports, and strangers at all other doors of a cluster."""
import struct
import sys

import pytest

from tests.fuzz.cost import CONSOLE, CONTROLLER, FAST, HA, METRICS, Kind, inputs_at, measure
from tests.fuzz.cost_inputs import MIB as COST_DOORS_MIB
from tests.fuzz.remoting import MAX_FRAME, MIB, Call, Fuzzer, Input, framed, fuzz, slips_in_logs, stocked
from tests.interop.request_code_cases import BROKER, NAMESRV
from tests.support.tiers import in_all, in_long

# A few thousand broken requests in each test run; `python -m tests.fuzz.remoting` sends any number.

INPUTS = 5_000
SEED = 49
HEADER = {"code": 105, "language": "JAVA", "version": 409, "flag": 0, "extFields": {"topic": "T", "n": "5"}}
CALLS = [Call(HEADER, b"x")]


def test_broken_requests_leave_name_server_and_broker_healthy(nodes, tmp_path):
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


def test_some_inputs_are_valid_and_others_invalid_in_many_ways():
    fuzzer = Fuzzer(CALLS, 1)
    inputs = [fuzzer.next() for _ in range(2000)]
    assert 50 < sum(not one.mutations for one in inputs) < 400
    assert {one.data[4] for one in inputs if len(one.data) > 4} >= {0, 1, 5}
    assert any(one.is_complete for one in inputs) and not all(one.is_complete for one in inputs)


@pytest.mark.parametrize("data, complete", [
    (framed(CALLS[0]), True), (framed(CALLS[0]) * 2, True), (framed(CALLS[0])[:-1], False), (b"\0\0\0", False),
    (struct.pack(">i", -1), True), (struct.pack(">i", MAX_FRAME - 3), True), (struct.pack(">i", MAX_FRAME - 4), False),
])
def test_incomplete_inputs_are_recognized(data, complete):
    assert Input(data, [], 1).is_complete == complete


def test_stacks_and_dead_threads_in_logs_are_found(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "broker.log").write_text(
        "2026 ERROR x - failed\nTraceback (most recent call last):\n  File \"a.py\", line 1, in f\n    g()\n"
        "TypeError: no\n2026 INFO x - fine\n")
    (tmp_path / "broker.out").write_text("Exception in thread Thread-1:\n")
    assert slips_in_logs(tmp_path) == ["broker.log: TypeError: no", "broker.out: Exception in thread Thread-1:"]


# The other doors of a cluster: the bystander and strangers use each of them, and faults are found.

COST_DOORS_SEED = 7
PATIENCE_S = 1.5  # as in test_cost
DOORS = {BROKER, NAMESRV, FAST, HA, CONTROLLER, CONSOLE, METRICS}


@pytest.fixture
def kind_of(nodes, tmp_path):
    """Yield a function that makes a cluster with all doors, whose broker has a fault."""
    pytest.importorskip("uvicorn"), pytest.importorskip("prometheus_client")
    kinds = []

    def make(fault: str, **how: bool) -> Kind:
        kinds.append(Kind("rmqha", tmp_path, nodes, how.get("acl", False),
                          [sys.executable, "-m", "tests.fuzz.planted_broker", fault], True, how.get("tls", False)))
        return kinds[-1]
    yield make
    for kind in kinds:
        kind.servers.close()


@in_all
@pytest.mark.parametrize("how", [
    {"tls": True, "acl": True}, pytest.param({}, marks=in_long)], ids=["TLS and access control", "open"])
def test_strangers_at_every_door_delay_no_bystander(kind_of, how):
    report = measure([kind_of("none", **how)], range(220), COST_DOORS_SEED, slack_mib=128, more_s=PATIENCE_S)
    assert not report.faults, "\n".join(report.faults)
    assert {name.removeprefix("rmqha ") for name in report.told} == DOORS
    assert all(told.questions > 20 for told in report.told.values())
    for door in DOORS:
        assert sum(count for name, count in report.outcomes.items() if name.startswith(f"rmqha {door}: ")) >= 15, door


@in_long
@pytest.mark.parametrize("fault, door", [("ha", HA), ("metrics", METRICS)])
def test_planted_slow_path_of_a_door_is_found(kind_of, fault, door):
    report = measure([kind_of(fault)], range(60), COST_DOORS_SEED)
    assert any(f"the bystander of the rmqha {door} waited" in one for one in report.faults), report.faults
    assert not any("bystander of the rmqha controller" in one for one in report.faults), report.faults


@pytest.mark.parametrize("door", [HA, METRICS, CONSOLE, CONTROLLER])
def test_inputs_of_a_door_vary_and_depend_only_on_their_number(door):
    inputs = [inputs_at(door, COST_DOORS_SEED).input(number) for number in range(200)]
    assert inputs[17] == inputs_at(door, COST_DOORS_SEED).input(17) != inputs_at(door, COST_DOORS_SEED + 1).input(17)
    assert len({one.data for one in inputs}) > 100 and max(len(one.data) for one in inputs) > COST_DOORS_MIB // 8
    assert len({one.what.split(" of ")[0].split(", ")[1 if "HTTP" in one.what else 0] for one in inputs}) >= 5
