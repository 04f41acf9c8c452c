"""The file of a controller that is alone."""
import os
import time

import pytest

from rmqha.controller import local_store
from rmqha.controller.local_store import LocalStore, NotLeaderError, StoreConflictError, StoreFailedError
from rmqha.controller.replicas_info_manager import Replica, ReplicaSet

SET = ReplicaSet("c", "b", {1: Replica("h:1", "h:1;5")}, 2, 1, 3, frozenset({1}), 4)
OTHER = ReplicaSet("c", "名", {2: Replica("h:2", 'a"};{')}, 3)


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "store")


def opened(folder):
    store = LocalStore(folder, "n0", "h:9878")
    store.start()
    return store


def test_what_was_put_is_there_after_a_restart(folder):
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


def test_only_the_first_start_need_not_wait_for_leases_of_before(folder):
    first, before_ns = opened(folder), time.monotonic_ns()
    assert first.leads_since_ns < before_ns - 10**15
    first.shutdown()
    again = opened(folder)
    assert again.leads_since_ns >= before_ns, "the file was there: somebody has led"
    again.shutdown()


def test_only_who_has_seen_the_last_version_changes_it(folder):
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


def test_folder_belongs_to_one_controller(folder):
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


def test_missing_file_is_refused_where_there_was_one(folder):
    store = opened(folder)
    store.put("b", 0, SET)
    store.shutdown()
    os.remove(store.file)
    with pytest.raises(ValueError, match="it is missing"):
        opened(folder)


def test_disk_that_is_full_changes_nothing(folder, monkeypatch):
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


def test_who_does_not_know_what_is_on_the_disk_leads_no_more(folder, monkeypatch):
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
