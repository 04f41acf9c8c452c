"""Each kind of damage to a store's files: what opens, with what in it; what is refused, and with which words.

A flaw in the last file of the log ends the log there and all before it is readable; one in an earlier file is refused
with the file's name; consume queues are rebuilt from the log. Nothing hangs, nothing is skipped without a word.
"""
import re
import shutil

import pytest

from rmqha.store.default_message_store import DefaultMessageStore
from tests.store.damages import COUNT, DAMAGES, SIZES, Place, write
from tests.store.support import message, new_store, put, tree, wait_dispatched
from tests.support import store_compare

NUMBER = re.compile(rb"body(\d{3})x{100}")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The store that is damaged, in copies."""
    root = tmp_path_factory.mktemp("written") / "store"
    write(root)
    assert len(list((root / "commitlog").iterdir())) >= 6
    assert len(list((root / "consumequeue" / "T" / "0").iterdir())) == 3
    assert len(list((root / "index").iterdir())) >= 3
    return root


def numbers(store: DefaultMessageStore) -> list[int]:
    """The numbers of all messages that both queues give out, in the order of the log."""
    found = []
    for queue_id in (0, 1):
        offset = store.get_min_offset_in_queue("T", queue_id)
        while offset < store.get_max_offset_in_queue("T", queue_id):
            result = store.get_message("g", "T", queue_id, offset, 32)
            found += [int(NUMBER.search(bytes(buffer))[1]) for buffer in result.message_buffer_list]
            assert result.next_begin_offset > offset
            offset = result.next_begin_offset
            result.release()
    return sorted(found)


def check_usable(store: DefaultMessageStore, kept: int) -> None:
    """The first `kept` messages are there, puts go on behind them, queries by key end."""
    wait_dispatched(store)
    assert numbers(store) == list(range(kept))
    offsets = [put(store, message("T", queue_id, b"body999" + b"x" * 100, KEYS="new"))[0].logics_offset
               for queue_id in (0, 1)]
    assert offsets == [(kept + 1) // 2, kept // 2]
    wait_dispatched(store)
    assert numbers(store) == [*range(kept), 999, 999]
    for key in ("key0", f"key{COUNT - 1}", "new", "none"):
        found = store.query_message("T", key, 32, 0, (1 << 63) - 1)
        assert len(found.message_buffer_list) <= 32
        found.release()


@pytest.mark.parametrize("crashed", [False, True], ids=["stopped", "crashed"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_damage_is_cut_off_rebuilt_or_refused_by_name(written, tmp_path, damage, crashed, caplog):
    root = tmp_path / "store"
    shutil.copytree(written, root)
    if crashed:
        (root / "abort").touch()
    place = Place(root)
    kept = damage.kept(place) if damage.outcome == "cut" else COUNT
    name = damage.names(place) if damage.names else None
    damage.do(place)
    before = tree(root / "commitlog")
    store = new_store(root, **SIZES)
    loaded = store.load()
    if damage.outcome == "refused":
        store.shutdown()
        assert not loaded
        assert name in caplog.text
        assert tree(root / "commitlog") == before
        return
    assert loaded, caplog.text
    try:
        store.start()
        check_usable(store, kept)
    finally:
        store.shutdown()
    if damage.name.startswith(("log", "queue")) and "flipped" not in damage.name:
        store_compare.check_consume_queues(root)


@pytest.mark.parametrize("position", [20, 23, 24, 27])
@pytest.mark.parametrize("number", [80, 118])
def test_record_with_a_wrong_queue_offset_moves_no_other_message(written, tmp_path, number, position, caplog):
    """When its queue is built again the record is left out, or at the index that it says, and nothing else changes."""
    root = tmp_path / "store"
    shutil.copytree(written, root)
    Place(root).flip(number, position)
    shutil.rmtree(root / "consumequeue")
    store = new_store(root, **SIZES)
    assert store.load()
    try:
        store.start()
        wait_dispatched(store)
        assert set(range(COUNT)) - set(numbers(store)) <= {number}
        assert f"{offset_of(written, number)}" in caplog.text
    finally:
        store.shutdown()


def offset_of(root, number: int) -> int:
    """Where the message lies in the log."""
    return Place(root).records[number].offset
