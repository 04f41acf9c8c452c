"""A few cycles of each kind of fault, kill -9 at each named point, and random sequences on disks that lose data."""
import os
import queue
import random
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.faults import campaign
from tests.faults.harness import Nursery, Outcome, Rounds
from tests.faults.machine import PAGE, SECTOR, NothingByChance, SyncedDisk, in_use
from tests.faults.points import AGAIN, LOAD, POINTS, RECOVERY, SHUTDOWN, START, Trap
from tests.faults.power_sequences import run_some
from tests.support import tiers
from tests.support.tiers import in_all

# A few cycles of each kind of fault: no acknowledged message is lost, and at the end both logs have the same bytes.
#
# The long campaigns are `python -m tests.faults --minutes N --seed S`; see __main__.py.

# kind of fault -> cycles
CYCLES = {"kill": 2, "points": 1, "link": 2, "power": 1, "stop": 1, "proxy": 2, "sync": 1, "full": 1, "tail": 1,
          "liars": 1, "clock": 1, "descriptors": 1, "probes": 1, "idle": 1}
BASIC = ("kill", "link")
SEED = 3
# Most of a cycle is waiting.
JOBS = 4


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory) -> dict[str, campaign.Outcome]:
    """Run all selected kinds, several lives at a time."""
    wanted = [item.callspec.params["kind"] for item in request.session.items
              if item.path == request.path and "kind" in getattr(getattr(item, "callspec", None), "params", ())]
    folder = tmp_path_factory.mktemp("pairs")
    lives = [campaign.Life(kind, ("rmqha", "rmqha"), SEED, CYCLES[kind], folder / kind, small=True) for kind in wanted
             if campaign.KINDS[kind].why_not() is None]
    return {outcome.life.kind: outcome for outcome in campaign.run(iter(lives), JOBS, float("inf"))}


# The first test waits for all lives.
@pytest.mark.timeout(600)
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


def test_same_seed_gives_the_same_schedule(tmp_path):
    def schedule(seed: int) -> list[campaign.Life]:
        return list(campaign.lives_of(["kill", "link"], ("rmqha", "java"), seed, 60, 1.0, tmp_path))
    assert schedule(1) == schedule(1)
    assert not {life.seed for life in schedule(1)} & {life.seed for life in schedule(2)}
    assert sum(life.cycles for life in schedule(1)) == 2 * 60


# kill -9 at each named point: acknowledged messages survive, and the store is consistent; see tests.faults.
#
# RMQHA_FAULT_SEEDS=20 runs more seeds; `python -m tests.faults` does so and prints a table.

SEEDS = range(1, int(os.environ.get("RMQHA_FAULT_SEEDS", tiers.pick(1, long=2))) + 1)
JOBS = 4  # the processes mostly wait


@pytest.fixture(scope="module")
def kill_at_points_outcomes(request, tmp_path_factory) -> dict[tuple[str, int], Future]:
    """Run all selected rounds, several stores at a time."""
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
def test_killed_store_is_consistent_and_loses_nothing_acknowledged(point_name, seed, kill_at_points_outcomes):
    outcome = kill_at_points_outcomes[point_name, seed].result()
    assert not outcome.failure, f"passage {outcome.passage}: {outcome.failure}"
    assert outcome.records > 0


def test_points_cover_every_phase_of_a_store():
    assert len(POINTS) >= 20
    assert {point.phase for point in POINTS.values()} == {LOAD, SHUTDOWN, START, RECOVERY, AGAIN}
    assert all(point.first in POINTS for point in POINTS.values() if point.phase in (RECOVERY, AGAIN))


def test_passages_count_only_once_armed():
    trap = Trap(2, lambda: None)
    assert not trap.is_due()
    trap.armed = True
    assert [trap.is_due(), trap.is_due(), trap.is_due()] == [False, True, False]


# Random sequences on disks that lose unforced data; the long campaign is in power_sequences.py.

_SEQUENCES = tiers.pick(40, all=200, long=20_000)


@pytest.mark.timeout(3600)
def test_nothing_acknowledged_is_lost_and_queues_match_the_log_after_a_power_loss():
    failures, steps = run_some(1, _SEQUENCES)
    assert not failures
    assert all(any(step.endswith(name) for step in steps) for name in ("power", "kill", "restart", "append", "feed"))


@pytest.mark.parametrize("seed", [513918, 901034, 906421, 1301775, 1303997])
def test_sequences_that_once_failed_hold(seed):
    assert run_some(seed, 1)[0] == []


def test_disk_loses_unforced_data(tmp_path):
    disk = SyncedDisk(tmp_path)
    with in_use(disk):
        with open(tmp_path / "synced", "wb", buffering=0) as file:
            file.write(b"a" * PAGE)
            os.fsync(file.fileno())
            file.seek(0)
            file.write(b"b" * SECTOR)
        (tmp_path / "nameless").write_bytes(b"c")
        with open(tmp_path / "nameless", "rb") as file:
            os.fsync(file.fileno())
        fd = os.open(tmp_path, os.O_RDONLY)
        os.unlink(tmp_path / "nameless")
        os.fsync(fd)
        os.close(fd)
        disk.lose_power(NothingByChance())
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"synced": b"a" * PAGE}


def test_any_later_sectors_may_survive(tmp_path):
    seen = set()
    for seed in range(60):
        path = tmp_path / str(seed)
        disk = SyncedDisk(path)
        with in_use(disk):
            for round_ in (b"a", b"b"):
                with open(path / "file", "wb", buffering=0) as file:
                    file.write(round_ * 2 * SECTOR)
                    if round_ == b"a":
                        os.fsync(file.fileno())
                        fd = os.open(path, os.O_RDONLY)
                        os.fsync(fd)
                        os.close(fd)
            disk.lose_power(random.Random(seed))
            content = (path / "file").read_bytes()
            assert content[:SECTOR] in (b"a" * SECTOR, b"b" * SECTOR)
            seen.add((content[0], content[-1]))
    assert seen == {(first, last) for first in b"ab" for last in b"ab"}
