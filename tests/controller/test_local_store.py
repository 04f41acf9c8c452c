"""Stores of a controller's decisions: the same tests for file and etcd, and tests of the file alone."""
import os
import threading
import time
from dataclasses import replace

import pytest

from rmqha.controller import local_store
from rmqha.controller.etcd_store import EtcdStore
from rmqha.controller.local_store import (
    ControllerStore,
    LocalStore,
    NotLeaderError,
    StoreConflictError,
    StoreFailedError,
    Versioned,
)
from rmqha.controller.replicas_info_manager import Replica, ReplicaSet
from tests.support.etcd import etcd_config, require_etcd
from tests.support.nodes import EtcdNode
from tests.support.wait import wait_until

# The file of a single controller.

SET = ReplicaSet("c", "b", {1: Replica("h:1", "h:1;5")}, 2, 1, 3, frozenset({1}), 4)
OTHER = ReplicaSet("c", "名", {2: Replica("h:2", 'a"};{')}, 3)


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "store")


def opened(folder):
    store = LocalStore(folder, "n0", "h:9878")
    store.start()
    return store


def test_put_values_survive_a_restart(folder):
    store = opened(folder)
    assert store.leads and (store.leader_id, store.leader_address) == ("n0", "h:9878")
    seen = store.put("b", store.get("b").version, SET)
    store.put("名", 0, OTHER)
    store.shutdown()
    with pytest.raises(NotLeaderError):
        store.get("b")
    again = opened(folder)
    assert again.get("b").replica_set == SET and again.get("名").replica_set == OTHER
    assert seen.replica_set == SET and sorted(again.names()) == ["b", "名"]
    again.shutdown()


def test_only_the_first_start_does_not_wait_for_earlier_leases(folder):
    first, before_ns = opened(folder), time.monotonic_ns()
    assert first.leads_since_ns < before_ns - 10**15
    first.shutdown()
    again = opened(folder)
    assert again.leads_since_ns >= before_ns, "the file exists, so a controller has led before"
    again.shutdown()


def test_change_needs_the_latest_version(folder):
    store = opened(folder)
    first = store.put("b", 0, SET)
    with pytest.raises(StoreConflictError):
        store.put("b", 0, None)
    gone = store.put("b", first.version, None)
    assert store.names() == [] and store.get("b").replica_set is None
    with pytest.raises(StoreConflictError):
        store.put("b", 0, SET)
    store.put("b", gone.version, SET)
    store.shutdown()


def test_folder_can_be_used_by_one_controller_only(folder):
    store = opened(folder)
    with pytest.raises(OSError, match="used by another controller"):
        opened(folder)
    store.shutdown()
    opened(folder).shutdown()


@pytest.mark.parametrize("damage", [
    lambda text: text.replace('"masterEpoch": 3', '"masterEpoch": 2'), lambda text: text[:-5], lambda text: "",
    lambda text: "[]", lambda text: text.replace('"crc32": ', '"crc32": 1'),
    lambda text: text.replace('"replicas"', '"x'),
])
def test_damaged_file_is_refused(folder, damage):
    store = opened(folder)
    store.put("b", 0, SET)
    store.shutdown()
    with open(store.file, encoding="utf-8") as file:
        text = file.read()
    with open(store.file, "w", encoding="utf-8") as file:
        file.write(damage(text))
    with pytest.raises(ValueError, match=r"replicaSets.json can't be used: .*\.bak"):
        opened(folder)


def test_missing_file_is_refused_after_the_first_start(folder):
    store = opened(folder)
    store.put("b", 0, SET)
    store.shutdown()
    os.remove(store.file)
    with pytest.raises(ValueError, match="the file is missing"):
        opened(folder)


def test_full_disk_changes_nothing(folder, monkeypatch):
    store = opened(folder)
    store.put("b", 0, SET)

    def full(*_arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(local_store, "string2file_not_safe", full)
        with pytest.raises(StoreFailedError):
            store.put("b", 1, None)
    assert store.leads and store.get("b").replica_set == SET
    store.put("b", 1, None)
    store.shutdown()


def test_leadership_ends_when_the_state_on_disk_is_unknown(folder, monkeypatch):
    store, told = opened(folder), []
    store.on_leader_changed = lambda: told.append(store.leads)

    def broken(*_arguments):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(local_store, "replace_and_force", broken)
    with pytest.raises(StoreFailedError):
        store.put("b", 0, SET)
    assert told == [False] and not store.leads and store.leader_id is None
    with pytest.raises(NotLeaderError):
        store.put("b", 0, SET)
    store.shutdown()


# The behavior of every store of a controller's decisions: the same tests for the file and etcd.

ONE = ReplicaSet("cluster", "broker-a", {1: Replica("127.0.0.1:10911", "127.0.0.1:10911;17")}, 2, 1, 1,
                 frozenset({1}), 1)
NAMES = ("broker-a", "a/b", "broker ä 名", ".", "..", "", "leader", "x" * 255)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory, module_nodes):
    require_etcd()
    # a disk may take longer than a lease
    node = EtcdNode(tmp_path_factory.mktemp("etcd"), sync=False)
    module_nodes.append(node)
    return node.start()


@pytest.fixture(params=["local", pytest.param("etcd", marks=pytest.mark.etcd)])
def open_store(request, tmp_path):
    """Yield a function that opens a store, the same one at each call."""
    opened: list[ControllerStore] = []
    if request.param == "etcd":
        config = etcd_config([request.getfixturevalue("etcd").address])

    def make() -> ControllerStore:
        if request.param == "etcd":
            store = EtcdStore(config, "n0", "127.0.0.1:9878")
        else:
            local = pytest.importorskip("rmqha.controller.local_store")
            store = local.LocalStore(str(tmp_path / "store"), "n0", "127.0.0.1:9878")
        opened.append(store)
        store.start()
        wait_until(lambda: store.leads, what="it leads")
        return store
    yield make
    for store in opened:
        store.shutdown()


def test_new_store_leads_alone_and_is_empty(open_store):
    store = open_store()
    assert (store.leader_id, store.leader_address) == ("n0", "127.0.0.1:9878")
    assert store.names() == [] and store.get("broker-a") == Versioned(None, store.get("none").version)


def test_put_values_are_read_back(open_store):
    store = open_store()
    first = store.put("broker-a", store.get("broker-a").version, ONE)
    assert first.replica_set == ONE and store.get("broker-a") == first
    second = store.put("broker-a", first.version, replace(ONE, master_id=None))
    assert second.version != first.version and store.get("broker-a") == second
    assert store.names() == ["broker-a"]


def test_put_needs_the_existing_version(open_store):
    store = open_store()
    absent = store.get("broker-a").version
    first = store.put("broker-a", absent, ONE)
    second = store.put("broker-a", first.version, replace(ONE, master_epoch=2))
    for version in (absent, first.version, second.version + 1):
        for new in (replace(ONE, master_epoch=3), None):
            with pytest.raises(StoreConflictError):
                store.put("broker-a", version, new)
    assert store.get("broker-a") == second


def test_deleted_name_may_be_put_again_with_a_new_version(open_store):
    store = open_store()
    versions = [store.get("broker-a").version]
    for epoch in range(3):
        versions.append(store.put("broker-a", versions[-1], replace(ONE, master_epoch=epoch)).version)
        deleted = store.put("broker-a", versions[-1], None)
        assert deleted.replica_set is None and store.get("broker-a") == deleted and store.names() == []
        versions.append(deleted.version)
    assert len(set(versions)) == len(versions)
    for version in versions[:-1]:
        with pytest.raises(StoreConflictError):
            store.put("broker-a", version, ONE)


def test_names_may_be_any_text_and_are_independent(open_store):
    store = open_store()
    for number, name in enumerate(NAMES):
        store.put(name, store.get(name).version, replace(ONE, broker_name=name, master_epoch=number))
    assert sorted(store.names()) == sorted(NAMES)
    again = _reopened(open_store, store)
    assert sorted(again.names()) == sorted(NAMES)
    assert [again.get(name).replica_set.master_epoch for name in NAMES] == list(range(len(NAMES)))


def test_everything_survives_a_restart(open_store):
    store = open_store()
    kept = store.put("broker-a", store.get("broker-a").version, ONE)
    gone = store.put("broker-b", store.get("broker-b").version, replace(ONE, broker_name="broker-b"))
    store.put("broker-b", gone.version, None)
    again = _reopened(open_store, store)
    assert again.names() == ["broker-a"] and again.get("broker-a") == kept
    again.put("broker-a", kept.version, replace(ONE, master_epoch=7))
    again.put("broker-b", again.get("broker-b").version, replace(ONE, broker_name="broker-b"))
    assert sorted(_reopened(open_store, again).names()) == ["broker-a", "broker-b"]


def _reopened(open_store, store):
    store.shutdown()
    store.shutdown()
    return open_store()


def test_closed_store_does_not_lead(open_store):
    store = open_store()
    version = store.put("broker-a", store.get("broker-a").version, ONE).version
    store.shutdown()
    assert not store.leads
    for act in (store.names, lambda: store.get("broker-a"), lambda: store.put("broker-a", version, None)):
        with pytest.raises(NotLeaderError):
            act()


def test_leadership_is_reported(open_store):
    store = open_store()
    store.shutdown()
    told = []
    store.on_leader_changed = lambda: told.append(store.leads)
    store.start()
    wait_until(lambda: told == [True])
    assert store.leads and store.leads_since_ns <= time.monotonic_ns()


def test_changes_of_many_threads_are_not_lost(open_store):
    store = open_store()
    store.put("broker-a", store.get("broker-a").version, replace(ONE, master_epoch=0))
    conflicts = []

    def count(times: int) -> None:
        while times:
            seen = store.get("broker-a")
            try:
                store.put("broker-a", seen.version,
                          replace(seen.replica_set, master_epoch=seen.replica_set.master_epoch + 1))
                times -= 1
            except StoreConflictError:
                conflicts.append(seen.version)
    threads = [threading.Thread(target=count, args=(10,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get("broker-a").replica_set.master_epoch == 80
    assert _reopened(open_store, store).get("broker-a").replica_set.master_epoch == 80
