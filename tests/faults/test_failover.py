"""A few cycles of each kind of failover: nothing acknowledged is lost, one master at a time, all logs are the same.

The long campaigns are `python -m tests.faults.failover`; see failover/__main__.py.
"""
import pytest

from tests.faults.failover import lives as campaign
from tests.faults.failover.__main__ import why_not
from tests.faults.failover.cluster import Plan
from tests.faults.failover.lives import KINDS, Life, Outcome, run_life
from tests.support import tiers

LOCAL, ETCD = Plan(), Plan(store="etcd")
JAVA, MIXED = Plan("java", brokers="java"), Plan("java", brokers="mixed")
OURS_WITH_JAVA = Plan("rmqha", brokers="mixed")
# name -> kind, plan, cycles
LIVES = {
    "kill": ("kill", LOCAL, tiers.pick(1, all=3)), "hang": ("hang", LOCAL, 1), "switch": ("switch", LOCAL, 2),
    "mixed": ("mixed", LOCAL, 3),
    "partition": ("partition", Plan(partitions=True, clocks=True), 1), "kill with etcd": ("kill", ETCD, 2),
    "partition with etcd": ("partition", Plan(store="etcd", partitions=True), 1),
    "kill of Java's": ("kill", JAVA, 1), "kill of both under Java's": ("kill", MIXED, 2),
    "kill of both under ours": ("kill", OURS_WITH_JAVA, 2),
}
_OF_ETCD = {name for name, (_, plan, _) in LIVES.items() if plan.store == "etcd"}
_OF_JAVA = {name for name, (_, plan, _) in LIVES.items() if "java" in (plan.controller, plan.brokers)
            or plan.brokers == "mixed"}
SEED = 5
SECONDS = 15.0  # of a sequence
STALE = 6  # of 16 producers; only a broker of rmqha relays their messages
# Most of a cycle is waiting, except for starts.
JOBS = 2


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory) -> dict[str, Outcome]:
    """Run all selected lives."""
    wanted = [item.callspec.params["name"] for item in request.session.items
              if item.path == request.path and "name" in getattr(getattr(item, "callspec", None), "params", ())]
    folder = tmp_path_factory.mktemp("failover")
    lives = {}
    for name in wanted:
        kind, plan, cycles = LIVES[name]
        if why_not(kind, plan) is None:
            lives[name] = Life(kind, plan, SEED, cycles, folder / name.replace(" ", "-"), seconds=SECONDS,
                               stale=0 if name in _OF_JAVA else STALE)
    by_life = {outcome.life: outcome for outcome in campaign.run(lives.values(), JOBS)}
    return {name: by_life[life] for name, life in lives.items()}


# The first test waits for all lives.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.java if name in _OF_JAVA else pytest.mark.etcd if name in _OF_ETCD else
                 () if name == "kill" else tiers.in_all) for name in LIVES])
def test_nothing_acknowledged_is_lost_in_a_failover(name, outcomes):
    kind, plan, cycles = LIVES[name]
    reason = why_not(kind, plan)
    if reason:
        pytest.skip(reason)
    outcome = outcomes[name]
    assert not outcome.failure
    assert outcome.cycles == cycles and outcome.acknowledged >= 100
    assert outcome.relayed or name in _OF_JAVA


@tiers.in_all
@pytest.mark.parametrize(("plants", "rules"), [(("ack_before_replica", "slow_slave"), "ABC"),
                                               (("ack_before_write",), "ABC"), (("relay_repeats_sends",), "D")])
def test_planted_failover_fault_is_found(plants, rules, tmp_path):
    stale = 16 if rules == "D" else 0
    # A kill finds the relays' fault only while they wait for an answer, so a life may miss it.
    for seed in (SEED, *((SEED + 1, SEED + 2) if stale else ())):
        outcome = run_life(Life("kill", Plan(plants=plants), seed, 12, tmp_path / f"life{seed}", stale=stale))
        if outcome.failure:
            break
    assert any(f": {rule}: " in outcome.failure for rule in rules), outcome


def test_each_kind_of_failover_has_its_cycles():
    assert {kind for kind, _, _ in LIVES.values()} == set(KINDS)
