"""Two brokers that were told the same epoch number, and begin it at the same offset: each has what the other lacks."""
import contextlib
import shutil

import pytest

from rmqha.store.ha import ha_client
from rmqha.store.ha.peers import HAConnectionState
from tests.store.ha.autoswitch.support import WAIT_MS, open_replica
from tests.store.ha.test_record_comparison import shown_by
from tests.store.support import bodies, message, put
from tests.support.wait import wait_until


@pytest.fixture(autouse=True)
def quick_waits(monkeypatch):
    monkeypatch.setattr(ha_client, "_RETRY_MS", 50)


def send(store, first: int, count: int, size: int = 300) -> None:
    put(store, *[message("T", 0, b"%03d|" % number + b"x" * size) for number in range(first, first + count)])


class Shown:
    """The log of a real store, as its main port shows it."""

    def __init__(self, store) -> None:
        self._store = store

    def log(self, offset: int) -> bytes:
        result = self._store.get_commit_log_data(offset)
        if result is None:
            return b""
        with result:
            return bytes(result.buffer)

    def get_min_phy_offset(self) -> int:
        return self._store.get_min_phy_offset()


@pytest.fixture(params=[300, 517], ids=["equal sizes", "other sizes"])
def two(request, tmp_path):
    """(this, other, end of what both hold): both are masters of epoch 2 since then, and have written."""
    with contextlib.ExitStack() as stack:
        this = stack.enter_context(open_replica(tmp_path / "this", 1))
        assert this.ha_service.change_to_master(1)
        send(this, 0, 10)
        common = this.get_max_phy_offset()
        this.shutdown()
        shutil.copytree(tmp_path / "this", tmp_path / "other")
        (tmp_path / "other" / "brokerIdentity").unlink()
        this = stack.enter_context(open_replica(tmp_path / "this", 1))
        other = stack.enter_context(open_replica(tmp_path / "other", 2))
        for store, first, count, size in ((this, 100, 5, 300), (other, 200, 9, request.param)):
            assert store.ha_service.change_to_master(2)
            send(store, first, count, size)
        assert this.ha_service.epoch_cache.get_all_entries() == other.ha_service.epoch_cache.get_all_entries()
        this.ha_service.ha_client.ask_record = lambda _address, offset: shown_by(Shown(other))(offset)
        yield this, other, common


def follow(this, other) -> None:
    assert this.ha_service.change_to_slave(f"127.0.0.1:{other.ha_service.ha_listen_port}", 2)


def test_slave_with_other_bytes_under_the_same_epoch_is_refused_and_tells(two):
    this, other, common = two
    end = this.get_max_phy_offset()
    follow(this, other)
    client = this.ha_service.ha_client
    wait_until(lambda: client.state is HAConnectionState.DIVERGED, WAIT_MS, "refused")
    found = this.ha_service.divergence.found
    assert found.offset == common and "two brokers were told" in found.reason
    assert this.get_max_phy_offset() == end
    assert not other.ha_service.slave_count() and other.ha_service.sync_state_set.members == {2}


def test_slave_with_other_bytes_under_the_same_epoch_rejoins(two, tmp_path):
    this, other, common = two
    end = this.get_max_phy_offset()
    follow(this, other)
    client = this.ha_service.ha_client
    wait_until(lambda: client.state is HAConnectionState.DIVERGED, WAIT_MS, "refused")
    client.rejoin()
    wait_until(lambda: this.get_max_phy_offset() == other.get_max_phy_offset(), WAIT_MS, "the same end")
    assert Shown(this).log(0) == Shown(other).log(0)
    wait_until(lambda: len(bodies(this)) == len(bodies(other)) == 19, WAIT_MS, "dispatched")
    assert bodies(this) == bodies(other)
    (kept,) = (tmp_path / "this" / "diverged").iterdir()
    assert kept.stat().st_size == end - common
    assert this.ha_service.divergence.found is None


def test_replica_of_one_of_them_is_told_apart_as_well(two, tmp_path):
    """It was never the master of the epoch: its bytes tell, not its history."""
    this, other, common = two
    this.shutdown()
    shutil.copytree(tmp_path / "this", tmp_path / "third")
    (tmp_path / "third" / "brokerIdentity").unlink()
    with open_replica(tmp_path / "third", 3) as third:
        third.ha_service.ha_client.ask_record = lambda _address, offset: shown_by(Shown(other))(offset)
        follow(third, other)
        wait_until(lambda: third.ha_service.ha_client.state is HAConnectionState.DIVERGED, WAIT_MS, "refused")
        assert third.ha_service.divergence.found.offset == common


def test_epoch_that_a_log_knows_is_not_begun_again(two):
    this, _other, _common = two
    assert not this.ha_service.change_to_master(2)
    assert not this.ha_service.change_to_master(1)
    assert this.ha_service.is_master
