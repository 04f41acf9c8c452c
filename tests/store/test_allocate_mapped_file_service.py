"""Making files of the commit log beforehand."""
import errno
import os

import pytest

from rmqha.store.mapped_file import MappedFile
from rmqha.store.results import PutMessageStatus
from tests.store.support import bodies, message, open_store, put


@pytest.mark.parametrize("preallocate", [True, False])
def test_warmed_files_are_written(tmp_path, preallocate):
    with open_store(tmp_path, warmMapedFileEnable=True, preallocateMappedFile=preallocate) as store:
        put(store, *(message(body=b"%03d" % number * 200) for number in range(60)))
    with open_store(tmp_path) as store:
        assert len(bodies(store)) == 60


def test_file_that_can_not_be_warmed_leaves_no_descriptor_open(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, "no warmth")
    with open_store(tmp_path, warmMapedFileEnable=True) as store:
        with monkeypatch.context() as patch:
            patch.setattr(MappedFile, "warm_mapped_file", fail)
            assert store.put_message(message()).put_message_status is PutMessageStatus.CREATE_MAPEDFILE_FAILED
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(5):
                store.put_message(message())
            assert len(os.listdir("/proc/self/fd")) <= before + 2  # the requests that are still to be served
        put(store, message())
