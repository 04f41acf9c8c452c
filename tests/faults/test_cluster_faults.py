"""A few cycles of each kind of fault: nothing that was acknowledged is lost, both logs are the same bytes at the end.

The long forms are `python -m tests.faults --minutes N --seed S`; see __main__.py.
"""
import pytest

from tests.faults import campaign
from tests.support.tiers import in_all

# kind of fault -> cycles
CYCLES = {"kill": 2, "points": 1, "link": 2, "power": 1, "stop": 1, "proxy": 2, "sync": 1, "full": 1, "tail": 1,
          "liars": 1, "clock": 1, "descriptors": 1, "probes": 1, "idle": 1}
BASIC = ("kill", "link")
SEED = 3
JOBS = 4  # most of a cycle is waiting


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory) -> dict[str, campaign.Outcome]:
    """All selected kinds, several lives at a time."""
    wanted = [item.callspec.params["kind"] for item in request.session.items
              if item.path == request.path and "kind" in getattr(getattr(item, "callspec", None), "params", ())]
    folder = tmp_path_factory.mktemp("pairs")
    lives = [campaign.Life(kind, ("rmqha", "rmqha"), SEED, CYCLES[kind], folder / kind, small=True) for kind in wanted
             if campaign.KINDS[kind].why_not() is None]
    return {outcome.life.kind: outcome for outcome in campaign.run(iter(lives), JOBS, float("inf"))}


@pytest.mark.timeout(600)  # the first one waits for all
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind in BASIC else in_all) for kind in CYCLES])
def test_nothing_acknowledged_is_lost_and_both_logs_are_the_same(kind, outcomes):
    reason = campaign.KINDS[kind].why_not()
    if reason:
        pytest.skip(reason)
    outcome = outcomes[kind]
    assert not outcome.failure
    assert outcome.cycles == CYCLES[kind] and outcome.acknowledged >= 20


def test_each_kind_has_its_cycles():
    assert set(CYCLES) == set(campaign.KINDS)


def test_the_same_seed_gives_the_same_schedule(tmp_path):
    def schedule(seed: int) -> list[campaign.Life]:
        return list(campaign.lives_of(["kill", "link"], ("rmqha", "java"), seed, 60, 1.0, tmp_path))
    assert schedule(1) == schedule(1)
    assert not {life.seed for life in schedule(1)} & {life.seed for life in schedule(2)}
    assert sum(life.cycles for life in schedule(1)) == 2 * 60
