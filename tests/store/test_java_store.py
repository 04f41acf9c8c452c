"""Stores that RocketMQ 4.9.7 wrote: read, dispatched again and written again."""
import shutil
import struct

import pytest

from rmqha.common.message.message import MessageExtBatch
from rmqha.common.message.message_layout import encode_batch_message
from rmqha.store import commit_log
from rmqha.store.append import MessageExtBrokerInner
from tests.store.support import GOLDEN, describe, new_store, open_store, tree, unpack_golden, wait_dispatched

STORES = ["normal", "kill"]


@pytest.mark.parametrize("name", STORES)
def test_every_message_and_key_is_found_as_java_finds_it(tmp_path, name):
    with open_store(unpack_golden(name, tmp_path)) as store:
        assert describe(store) == (GOLDEN / f"{name}.txt").read_text("utf-8").splitlines()


@pytest.mark.parametrize("name", STORES)
def test_consume_queues_and_index_dispatched_again_are_byte_identical(tmp_path, name):
    root = unpack_golden(name, tmp_path)
    before = tree(root)
    for gone in ("consumequeue", "index"):
        shutil.rmtree(root / gone)
    (root / "checkpoint").unlink()
    with open_store(root):
        pass
    after = tree(root)
    assert {path: data for path, data in after.items() if path.startswith("consumequeue/")} == \
        {path: data for path, data in before.items() if path.startswith("consumequeue/")}
    # index files are named by the time at which they were made
    assert [data for path, data in after.items() if path.startswith("index/")] == \
        [data for path, data in before.items() if path.startswith("index/")]


@pytest.mark.parametrize("name", STORES)
def test_queues_that_are_gone_come_back_whole_after_a_crash_whatever_the_checkpoint_says(tmp_path, name):
    root = unpack_golden(name, tmp_path)
    before = tree(root)
    for gone in ("consumequeue", "index"):
        shutil.rmtree(root / gone)
    (root / "abort").touch()
    all_flushed = struct.pack(">qqq", 1 << 62, 1 << 62, 1 << 62)
    (root / "checkpoint").write_bytes(all_flushed.ljust(4096, b"\0"))
    with open_store(root):
        pass
    after = tree(root)
    assert {path: data for path, data in after.items() if path.startswith("consumequeue/")} == \
        {path: data for path, data in before.items() if path.startswith("consumequeue/")}
    assert [data for path, data in after.items() if path.startswith("index/")] == \
        [data for path, data in before.items() if path.startswith("index/")]


@pytest.mark.parametrize("name", STORES)
def test_opening_changes_no_byte_of_log_and_queues(tmp_path, name):
    root = unpack_golden(name, tmp_path)
    before = tree(root)
    with open_store(root):
        pass
    after = tree(root)
    for path, data in before.items():
        if path.startswith(("commitlog/", "consumequeue/")) and any(data):
            assert after[path] == data, path


def test_writing_javas_messages_again_gives_the_same_log(tmp_path, monkeypatch):
    java = new_store(unpack_golden("normal", tmp_path))
    assert java.load()
    records = list(_messages(java))
    now = [0]
    monkeypatch.setattr(commit_log, "current_time_millis", lambda: now[0])
    with open_store(tmp_path / "ours") as ours:
        ours.schedule_message_service.shutdown()  # it would deliver the delayed messages, which are long due
        for group in _groups(records):
            now[0] = group[0].store_timestamp
            msg = _inner(group[0]) if len(group) == 1 else _batch(group)
            result = ours.put_message(msg) if len(group) == 1 else ours.put_messages(msg)
            assert result.is_ok
        wait_dispatched(ours)
        assert ours.get_max_phy_offset() == java.get_max_phy_offset()
    java.shutdown()
    for path, data in tree(tmp_path / "normal" / "commitlog").items():
        assert (tmp_path / "ours" / "commitlog" / path).read_bytes() == data, path


def _messages(store):
    """All messages of the log in order, properties as the text that is stored."""
    offset, end = store.get_min_phy_offset(), store.get_max_phy_offset()
    for request in store.commit_log.walk_records(offset, end):
        yield store.look_message_by_offset(request.commit_log_offset, request.msg_size)


def _groups(records):
    """Batches (their messages share a key word) apart from single messages."""
    group, name = [], None
    for record in records:
        word = (record.keys or "").split(" ")[0]
        batch = word if word.startswith("batch") else None
        if group and (batch is None or batch != name):
            yield group
            group = []
        group.append(record)
        name = batch
    yield group


def _inner(record) -> MessageExtBrokerInner:
    msg = MessageExtBrokerInner(record.topic, record.body)
    for name in ("queue_id", "flag", "born_timestamp", "born_host", "store_host", "reconsume_times",
                 "prepared_transaction_offset"):
        setattr(msg, name, getattr(record, name))
    msg.sys_flag = record.sys_flag & ~0x30
    msg.properties = {name: value for name, value in record.properties.items() if name != "DELAY"}
    msg.properties_string = _text(record)
    return msg


def _batch(group) -> MessageExtBatch:
    first = group[0]
    msg = MessageExtBatch(first.topic, b"".join(
        encode_batch_message(record.flag, record.body, _text(record).encode()) for record in group))
    for name in ("queue_id", "born_timestamp", "born_host", "store_host", "reconsume_times"):
        setattr(msg, name, getattr(first, name))
    return msg


def _text(record) -> str:
    """The properties in the order in which they were stored."""
    return "\x02".join(f"{name}\x01{value}" for name, value in record.properties.items())
