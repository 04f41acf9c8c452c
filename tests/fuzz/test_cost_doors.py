"""The doors of a cluster beside the main ports: the bystander and strangers ask at each, and faults are found."""
import sys

import pytest

from tests.fuzz.cost import Kind, measure
from tests.fuzz.cost_doors import CONSOLE, CONTROLLER, FAST, HA, METRICS, inputs_at
from tests.fuzz.cost_inputs import MIB
from tests.interop.request_code_cases import BROKER, NAMESRV
from tests.support.tiers import in_all, in_long

SEED = 7
PATIENCE_S = 1.5  # as in test_cost
DOORS = {BROKER, NAMESRV, FAST, HA, CONTROLLER, CONSOLE, METRICS}


@pytest.fixture
def kind_of(nodes, tmp_path):
    """Makes a cluster with all doors, whose broker has a fault."""
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
def test_every_door_is_asked_by_strangers_and_bystanders_and_makes_nobody_wait(kind_of, how):
    report = measure([kind_of("none", **how)], range(220), SEED, slack_mib=128, more_s=PATIENCE_S)
    assert not report.faults, "\n".join(report.faults)
    assert {name.removeprefix("rmqha ") for name in report.told} == DOORS
    assert all(told.questions > 20 for told in report.told.values())
    for door in DOORS:
        assert sum(count for name, count in report.outcomes.items() if name.startswith(f"rmqha {door}: ")) >= 15, door


@in_long
@pytest.mark.parametrize("fault, door", [("ha", HA), ("metrics", METRICS)])
def test_planted_slow_path_of_a_door_is_found(kind_of, fault, door):
    report = measure([kind_of(fault)], range(60), SEED)
    assert any(f"the bystander of the rmqha {door} waited" in one for one in report.faults), report.faults
    assert not any("bystander of the rmqha controller" in one for one in report.faults), report.faults


@pytest.mark.parametrize("door", [HA, METRICS, CONSOLE, CONTROLLER])
def test_inputs_of_a_door_are_many_and_made_from_their_number(door):
    inputs = [inputs_at(door, SEED).input(number) for number in range(200)]
    assert inputs[17] == inputs_at(door, SEED).input(17) != inputs_at(door, SEED + 1).input(17)
    assert len({one.data for one in inputs}) > 100 and max(len(one.data) for one in inputs) > MIB // 8
    assert len({one.what.split(" of ")[0].split(", ")[1 if "HTTP" in one.what else 0] for one in inputs}) >= 5
