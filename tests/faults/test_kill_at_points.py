"""kill -9 at each named point: what was acknowledged is there, and the store is whole; see tests.faults.

RMQHA_FAULT_SEEDS=20 tries more seeds; `python -m tests.faults` does so with a table.
"""
import os
import queue
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.faults.harness import Nursery, Outcome, Rounds
from tests.faults.points import AGAIN, LOAD, POINTS, RECOVERY, SHUTDOWN, START, Trap
from tests.support import tiers

SEEDS = range(1, int(os.environ.get("RMQHA_FAULT_SEEDS", tiers.pick(1, long=2))) + 1)
JOBS = 4  # the processes mostly wait


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory) -> dict[tuple[str, int], Future]:
    """All selected rounds, several stores at a time."""
    wanted = [item.callspec.params for item in request.session.items
              if item.path == request.path and "point_name" in getattr(getattr(item, "callspec", None), "params", ())]
    free: queue.SimpleQueue[Rounds] = queue.SimpleQueue()
    nurseries = [Nursery() for _ in range(JOBS)]
    for number, nursery in enumerate(nurseries):
        free.put(Rounds(nursery, tmp_path_factory.mktemp(f"stores{number}"), number))

    def run(point_name: str, seed: int) -> Outcome:
        rounds = free.get()
        try:
            return rounds.run(POINTS[point_name], seed)
        finally:
            free.put(rounds)

    with ThreadPoolExecutor(JOBS) as pool:
        yield {(each["point_name"], each["seed"]): pool.submit(run, **each) for each in wanted}
    for nursery in nurseries:
        nursery.close()


@tiers.in_all
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("point_name", POINTS)
def test_nothing_acknowledged_is_lost_and_all_is_whole_after_a_kill(point_name, seed, outcomes):
    outcome = outcomes[point_name, seed].result()
    assert not outcome.failure, f"passage {outcome.passage}: {outcome.failure}"
    assert outcome.records > 0


def test_points_cover_every_part_of_a_store_s_life():
    assert len(POINTS) >= 20
    assert {point.phase for point in POINTS.values()} == {LOAD, SHUTDOWN, START, RECOVERY, AGAIN}
    assert all(point.first in POINTS for point in POINTS.values() if point.phase in (RECOVERY, AGAIN))


def test_a_passage_counts_only_once_armed():
    trap = Trap(2, lambda: None)
    assert not trap.is_due()
    trap.armed = True
    assert [trap.is_due(), trap.is_due(), trap.is_due()] == [False, True, False]
