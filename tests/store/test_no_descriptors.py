"""No more descriptors for a while: nothing was asked of the disk, nothing is lost, and the store goes on after it."""
import errno
import os

import pytest

from rmqha.store import mapped_file
from rmqha.store.results import PutMessageStatus
from tests.store.support import bodies, message, open_store, put, wait_dispatched
from tests.support.wait import wait_until


class NoDescriptors:
    """os.open that fails for files below one folder while `folder` says which."""

    def __init__(self, monkeypatch):
        self.real, self.folder, self.failed, self.number = os.open, None, 0, errno.EMFILE
        monkeypatch.setattr(mapped_file.os, "open", self)

    def __call__(self, path, *arguments, **keys) -> int:
        if self.folder is not None and f"{os.sep}{self.folder}{os.sep}" in str(path):
            self.failed += 1
            raise OSError(self.number, os.strerror(self.number), path)
        return self.real(path, *arguments, **keys)


@pytest.fixture
def descriptors(monkeypatch):
    return NoDescriptors(monkeypatch)


def flushed(store) -> int:
    """Bytes of the consume queue that are on the disk."""
    return store.consume_queue_table["T"][0].mapped_file_queue.flushed_where


@pytest.mark.parametrize("folder", ["consumequeue", "index"])
def test_flush_without_descriptors_is_tried_again_and_stops_no_puts(tmp_path, descriptors, folder):
    with open_store(tmp_path, flushIntervalConsumeQueue=10, flushConsumeQueueThoroughInterval=0) as store:
        put(store, message(KEYS="a"))
        wait_dispatched(store)
        descriptors.folder = folder
        put(store, message(KEYS="b"))
        wait_until(lambda: descriptors.failed >= 3, 60_000, "flushes that found no descriptor")
        assert not store.running_flags.is_flush_error and store.running_flags.is_writeable
        descriptors.folder = None
        put(store, message(KEYS="c"))
        wait_until(lambda: flushed(store) == 3 * 20, 60_000, "all is flushed")
        assert len(bodies(store)) == 3


def test_index_file_waits_for_a_descriptor_for_as_long_as_it_takes(tmp_path, descriptors, monkeypatch):
    monkeypatch.setattr("rmqha.store.index.index_service._RETRY_MS", 10)
    with open_store(tmp_path) as store:
        descriptors.folder = "index"
        put(store, message(KEYS="a"))
        wait_until(lambda: descriptors.failed > 10, 60_000, "tries to make the file")
        assert store.put_message(message(KEYS="b")).put_message_status is PutMessageStatus.PUT_OK
        descriptors.folder = None
        wait_dispatched(store)
        for key in ("a", "b"):
            found = store.query_message("T", key, 32, 0, 1 << 62)
            assert len(found.message_maped_list) == 1
            found.release()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("folder", ["consumequeue", "index"])
def test_dispatch_waits_for_the_end_of_a_shortage_for_as_long_as_it_takes(tmp_path, descriptors, monkeypatch, folder,
                                                                          number):
    monkeypatch.setattr("rmqha.store.index.index_service._RETRY_MS", 1)
    monkeypatch.setattr("rmqha.store.consume_queue._RETRY_MS", 1)
    descriptors.number = number
    with open_store(tmp_path) as store:
        descriptors.folder = folder
        put(store, message(KEYS="a"))
        wait_until(lambda: descriptors.failed > 60, 60_000, "tries to make the file")
        assert store.put_message(message(KEYS="b")).put_message_status is PutMessageStatus.PUT_OK
        descriptors.folder = None
        wait_dispatched(store)
        assert len(bodies(store)) == 2 and store.running_flags.is_writeable
