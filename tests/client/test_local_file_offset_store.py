"""Offsets of broadcasting consumers."""

import pytest

from rmqha.client.consumer.offset_stores import LocalFileOffsetStore, ReadOffsetType
from rmqha.client.exception import MQClientException
from rmqha.common.message.message import MessageQueue

MQ = [MessageQueue("T", "a", number) for number in range(3)]
STORE = ReadOffsetType.READ_FROM_STORE


@pytest.fixture
def make_store(tmp_path):
    return lambda: LocalFileOffsetStore("1.1.1.1@x", "g", str(tmp_path))


def test_offsets_come_back_from_the_file(make_store):
    store = make_store()
    store.load()
    store.update_offset(MQ[0], 17, increase_only=False)
    store.update_offset(MQ[1], 5, increase_only=False)
    store.persist_all(MQ[:1])
    again = make_store()
    again.load()
    assert again.read_offset(MQ[0], STORE) == 17 and again.read_offset(MQ[1], STORE) == -1


def test_increase_only_keeps_the_higher_offset(make_store):
    store = make_store()
    for offset, increase_only, expected in ((5, True, 5), (3, True, 5), (3, False, 3), (9, True, 9)):
        store.update_offset(MQ[0], offset, increase_only)
        assert store.read_offset(MQ[0], STORE) == expected
    assert store.clone_offset_table("T") == {MQ[0]: 9} and store.clone_offset_table("U") == {}


def test_backup_is_read_when_the_file_is_damaged(make_store):
    store = make_store()
    for offset in (1, 2):
        store.update_offset(MQ[0], offset, increase_only=False)
        store.persist_all(MQ)
    with open(store.store_path, "w", encoding="utf-8") as file:
        file.write("{broken")
    again = make_store()
    again.load()
    assert again.read_offset(MQ[0], STORE) == 1


def test_file_and_backup_damaged_is_told(make_store):
    store = make_store()
    for _ in range(2):
        store.update_offset(MQ[0], 1, increase_only=False)
        store.persist_all(MQ)
    for path in (store.store_path, store.store_path + ".bak"):
        with open(path, "w", encoding="utf-8") as file:
            file.write("{broken")
    with pytest.raises(MQClientException):
        make_store().load()
