"""Checksums of blocks of the log, against zlib over its files."""
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.store.record_check import block_checksums
from tests.store.support import FILE_SIZE, message, open_store, put
from tests.support.tiers import drawn

FILES = 5  # of the log; the first is deleted


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A running store, where its log begins, and what its files hold from there on."""
    root = tmp_path_factory.mktemp("log")
    with open_store(root) as store:
        size = 1
        while store.get_max_phy_offset() < FILES * FILE_SIZE - FILE_SIZE // 2:
            put(store, message(body=bytes(value % 251 for value in range(size))))
            size = size * 3 % 2003 + 1
        assert store.commit_log.delete_expired_file(0, 1, 0, True, lambda _ms: True) == 1
        store.commit_log.flush()
        begin, end = store.get_min_phy_offset(), store.get_max_phy_offset()
        assert 0 < begin < end
        files = sorted(Path(root, "commitlog").iterdir())
        yield store, begin, b"".join(file.read_bytes() for file in files)[:end - begin]


def by_zlib(begin: int, data: bytes, offset: int, block_size: int, count: int) -> list[int]:
    starts = (offset - begin + block_size * index for index in range(count)) if offset >= begin else ()
    return [zlib.crc32(data[start:start + block_size]) for start in starts if start + block_size <= len(data)]


@settings(max_examples=drawn(400), deadline=None)
@given(data=st.data())
def test_drawn_ranges_have_the_checksums_of_zlib(log, data):
    store, begin, held = log
    end = begin + len(held)
    edges = st.sampled_from([0, begin, end, *range(begin, end + 1, FILE_SIZE)])
    offset = max(0, data.draw(edges, "edge") + data.draw(st.integers(-40, 40), "beside"))
    block_size = data.draw(st.one_of(st.integers(1, 100), st.integers(1, 3 * FILE_SIZE)), "block size")
    count = data.draw(st.integers(1, 60), "count")
    crcs = by_zlib(begin, held, offset, block_size, count)
    assert block_checksums(store, offset, block_size, count) == crcs
    blocks = []
    assert block_checksums(store, offset, block_size, count, blocks) == crcs
    at = max(offset - begin, 0)
    assert b"".join(blocks) == held[at:at + block_size * len(crcs)] and len(blocks) == len(crcs)


def test_the_whole_log_is_one_block(log):
    store, begin, held = log
    assert block_checksums(store, begin, len(held), 1) == [zlib.crc32(held)]
    assert block_checksums(store, begin, len(held) + 1, 1) == []


def test_nothing_stays_in_use(log):
    store, begin, held = log
    block_checksums(store, begin, 777, 4096)
    assert {file.ref_count for file in store.commit_log.mapped_file_queue.mapped_files} == {1}
    assert block_checksums(store, 0, 8, 1) == []  # the first file begins later
    assert len(held) > 3 * FILE_SIZE
