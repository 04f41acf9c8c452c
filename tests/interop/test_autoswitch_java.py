"""Replication with changing roles between rmqha and the AutoSwitchHAService of a real 5.1.4 store, both ways."""
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import real_rocketmq
from tests.support.auto_switch import (
    SEGMENT,
    TIMEOUT_MS,
    VERSION,
    JavaReplica,
    Replica,
    RmqhaReplica,
    assert_same_logs,
    log_bytes,
    stored_indexes,
    wait_same_end,
)
from tests.support.wait import wait_until

pytestmark = pytest.mark.java

# Every message needs both replicas. The test sets the Java master's sync-state set, as its controller would.
SAFE = {"allAckInSyncStateSet": True, "minInSyncReplicas": 2, "slaveTimeout": 1000}
JAVA, RMQHA = 1, 2
TURNS = int(os.environ.get("RMQHA_ROLE_TURNS", "2"))


@pytest.fixture(autouse=True, scope="module")
def _jars() -> None:
    if shutil.which("mvn") is None and not real_rocketmq.has_jars_of(VERSION):
        pytest.skip(f"not installed: mvn, to fetch {VERSION}")


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Replica]]:
    """Yield make(JAVA or RMQHA, **properties) -> a running replica without a role; kill all replicas at the end."""
    made: list[Replica] = []

    def start(broker_id: int, **properties: object) -> Replica:  # odd ids are Java's
        kind = JavaReplica if broker_id % 2 == JAVA else RmqhaReplica
        made.append(kind(tmp_path / f"replica-{broker_id}", broker_id, **properties))
        return made[-1].start()

    yield start
    for replica in made:
        replica.kill()


def epoch_file(replica: Replica) -> bytes:
    """Return the bytes of a replica's epoch file."""
    return (replica.root / "epochFileCheckpoint").read_bytes()


def lead(master: Replica, epoch: int, slave: Replica) -> None:
    """Make one replica the master of the other, and wait until the slave is in sync."""
    master.promote(epoch)
    if isinstance(master, JavaReplica):
        master.tell("set", f"{JAVA},{RMQHA}")
    slave.follow(master.address, epoch)
    if isinstance(master, JavaReplica):
        wait_until(lambda: any(one == f"TRANSFER/{master.state().max}" for one in master.state().connections),
                   TIMEOUT_MS, "the slave of the Java master catches up")
    else:
        wait_until(lambda: len(master.state().set) == 2, TIMEOUT_MS, f"in sync: {master.state()} {slave.state()}")


@pytest.mark.parametrize("master_id, slave_id", [(JAVA, RMQHA), (RMQHA, JAVA)])
def test_new_slave_gets_all_epochs_and_the_whole_log(make, master_id, slave_id):
    master, slave = make(master_id), make(slave_id)
    for epoch in (1, 2, 5):
        master.promote(epoch)
        master.put(epoch * 1000, 400, 300)
    slave.follow(master.address, 5)
    if master_id == JAVA:
        master.tell("set", f"{JAVA},{RMQHA}")
    wait_same_end(master, slave)
    assert assert_same_logs(master, slave) > 5 * SEGMENT
    assert slave.state().queue == 1200
    assert slave.state().epochs == master.state().epochs == [
        (epoch, start) for epoch, (_, start) in zip((1, 2, 5), master.state().epochs)]
    wait_until(lambda: epoch_file(slave) == epoch_file(master), TIMEOUT_MS, "the same epochs")


@pytest.mark.parametrize("first, second", [(JAVA, RMQHA), (RMQHA, JAVA)])
def test_log_that_only_the_old_master_has_is_truncated(make, first, second):
    old, new = make(first), make(second)
    lead(old, 1, new)
    old.put(0, 300, 300)
    wait_same_end(old, new)
    common = new.state().max
    # while the old master keeps running
    new.promote(2)
    if first == JAVA:
        old.tell("set", str(JAVA))
    wait_until(lambda: not old.state().connections, TIMEOUT_MS, "the slave is gone")
    # The log spans several files, dispatched and indexed.
    old.put(1000, 700, 300)
    wait_until(lambda: old.state().queue == 1000, TIMEOUT_MS, "all dispatched")
    assert old.state().max > common + 2 * SEGMENT
    new.put(2000, 10, 700)
    old.follow(new.address, 2)
    new.put(3000, 300, 300)
    wait_same_end(old, new)
    assert_same_logs(old, new)
    assert log_bytes(old, 0, common) == log_bytes(new, 0, common)
    wait_until(lambda: old.state().queue == new.state().queue, TIMEOUT_MS, "both have dispatched everything")
    wait_until(lambda: old.state().epochs == new.state().epochs, TIMEOUT_MS, "the same epochs")
    assert new.state().epochs == [(1, 0), (2, common)]
    wait_until(lambda: epoch_file(old) == epoch_file(new), TIMEOUT_MS, "the same epochs")


@pytest.mark.parametrize("crash", [False, True], ids=["handed over", "killed"])
def test_roles_change_under_load_and_nothing_acknowledged_is_lost(make, crash):
    java, rmqha = make(JAVA, **SAFE), make(RMQHA, **SAFE)
    acked: set[int] = set()
    for turn in range(TURNS):
        master, slave = (java, rmqha) if turn % 2 else (rmqha, java)
        lead(master, turn + 1, slave)
        master.load(turn * 1_000_000, 200)
        before = len(master.acked())
        wait_until(lambda: len(master.acked()) > before + 150, TIMEOUT_MS, f"{master.name} acknowledges")
        if crash:
            acked |= kill_and_start_again(master)
        else:
            master.follow(None, turn + 1)  # while it receives messages
            master.stop()
            acked |= master.acked()
    lead(rmqha, TURNS + 2, java)
    rmqha.put((TURNS + 2) * 1_000_000, 5)
    acked |= rmqha.acked()
    wait_same_end(rmqha, java)
    assert_same_logs(rmqha, java)
    stored = stored_indexes(rmqha)
    assert len(stored) == len(set(stored)) == java.state().queue
    assert len(acked) > 150 * TURNS and acked <= set(stored), sorted(acked - set(stored))[:10]


def kill_and_start_again(master: Replica) -> set[int]:
    """Kill a master under load, start it again, and return the messages that it acknowledged."""
    if isinstance(master, JavaReplica):
        # Later acknowledgements do not count.
        acked = master.acked()
        master.kill()
    else:
        master.crash_under_load()
        acked = master.acked()
    master.start()
    return acked


def test_each_continues_with_the_store_that_the_other_wrote(tmp_path):
    epochs, count = [], 0
    for turn, kind in enumerate((RmqhaReplica, JavaReplica, RmqhaReplica), 1):
        replica = kind(tmp_path, turn).start()
        try:
            assert replica.state().epochs == epochs
            end = replica.state().max
            replica.promote(turn)
            epochs.append((turn, end))
            assert replica.state().epochs == epochs
            replica.put(count, 50, 200)
            count += 50
            wait_until(lambda one=replica: one.state().queue == count, TIMEOUT_MS, "all in the queue")
        finally:
            replica.shutdown()
        lines = epoch_file(replica).decode().splitlines()
        assert lines[2:] == [f"{epoch}-{start}" for epoch, start in epochs]


@pytest.mark.parametrize("master_id, slave_id", [(JAVA, RMQHA), (RMQHA, JAVA)])
def test_learner_that_starts_at_the_last_file_is_never_in_sync(make, master_id, slave_id):
    master = make(master_id)
    master.promote(1)
    master.put(0, 1000, 300)
    slave = make(slave_id, asyncLearner=True, syncFromLastFile=True)
    if master_id == JAVA:
        master.tell("auto")
    slave.follow(master.address, 1)
    wait_same_end(master, slave)
    end = assert_same_logs(master, slave)
    assert slave.state().min == end - end % SEGMENT > 0
    master.put(1000, 10)
    wait_same_end(master, slave)
    assert master.state().set == [master_id]
    other = make(slave_id + 2)
    other.follow(master.address, 1)
    wait_until(lambda: master.state().set == [master_id, slave_id + 2], TIMEOUT_MS, "the replica that can join does")
    assert_same_logs(master, slave)


def test_rmqha_replicas_change_roles_under_load(tmp_path):
    one, two = (RmqhaReplica(tmp_path / str(broker_id), broker_id, **SAFE).start() for broker_id in (2, 4))
    acked: set[int] = set()
    try:
        for turn in range(TURNS + 1):
            master, slave = (two, one) if turn % 2 else (one, two)
            lead(master, turn + 1, slave)
            master.load(turn * 1_000_000, 200)
            before = len(master.acked())
            wait_until(lambda: len(master.acked()) > before + 100, TIMEOUT_MS, f"{master.name} acknowledges")
            if turn % 3 == 2:
                acked |= kill_and_start_again(master)
            else:
                master.follow(None, turn + 1)
                master.stop()
                acked |= master.acked()
        lead(one, TURNS + 3, two)
        wait_same_end(one, two)
        assert_same_logs(one, two)
        stored = stored_indexes(one)
        assert len(stored) == len(set(stored)) and acked <= set(stored), sorted(acked - set(stored))[:10]
        assert stored_indexes(two) == stored
        wait_until(lambda: epoch_file(one) == epoch_file(two), TIMEOUT_MS, "the same epochs")
    finally:
        one.shutdown()
        two.shutdown()
