"""Stores for the comparisons: loaded, but without their services, so that whatever is done is done by who compares."""
from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from unittest import mock

from rmqha.common import filesystem
from rmqha.common.broker_config import BrokerConfig
from rmqha.store import commit_log
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.dispatch import MessageArrivingListener
from rmqha.store.mapped_file import MappedFile
from rmqha.store.running_flags import RunningFlags
from tests.store.support import new_store

NOW = 1_700_000_000_000
_SHARED_MEMORY, _ROOM = "/dev/shm", 512 << 20
NEVER = 1 << 60  # a threshold that nothing reaches


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one case. Nothing is forced to the disk, and nothing logged: neither is compared."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory(dir=_in_memory()) as folder, mock.patch.object(os, "fsync", _nothing), \
                mock.patch.object(os, "fdatasync", _nothing), mock.patch.object(filesystem, "fsync_path", _nothing):
            yield Path(folder)
    finally:
        logging.disable(before)


def _in_memory() -> str | None:
    """A folder that no disk is behind, if there is one with room for some stores."""
    with contextlib.suppress(OSError):
        found = os.statvfs(_SHARED_MEMORY)
        if os.access(_SHARED_MEMORY, os.W_OK) and found.f_bavail * found.f_frsize >= _ROOM:
            return _SHARED_MEMORY
    return None


def _nothing(*_args: object) -> None:
    """The disk has all."""


class _Caller:
    """In the place of a pool: who submits something does it."""

    def submit(self, call: Callable[..., object], *args: object) -> None:
        """At once."""
        call(*args)

    def shutdown(self) -> None:
        """Nothing waits."""


class _FilesAtOnce:
    """Makes the files of the log as AllocateMappedFileService does, when they are asked for, on the caller's thread."""

    def __init__(self, store: DefaultMessageStore) -> None:
        self.store = store

    def put_request_and_return_mapped_file(self, path: str, _next_path: str, size: int) -> MappedFile | None:
        """A file; None when there is no room for it."""
        pool, queue = self.store.transient_store_pool, self.store.commit_log.mapped_file_queue
        made = MappedFile(path, size, queue.allocation_unit, queue.keep_descriptor, pool if pool.is_in_use else None)
        try:
            if queue.allocation_unit:
                made.allocate(0, 1)
            return made
        except OSError:
            made.destroy(0)
            return None


@contextlib.contextmanager
def loaded_store(root: Path, listener: MessageArrivingListener | None = None, broker: BrokerConfig | None = None,
                 **keys: object) -> Iterator[DefaultMessageStore]:
    """A store that takes puts and pieces of a log; nothing is dispatched or flushed unless the caller does it."""
    store = new_store(root, listener, broker, **keys)
    assert store.load(), root
    store.commit_log.mapped_file_queue.allocate_mapped_file_service = _FilesAtOnce(store)
    store.index_service.shutdown()
    store.index_service._flush_pool = _Caller()
    store.state.is_shutdown = False
    try:
        yield store
    finally:
        store.state.is_shutdown = True  # nothing is flushed, and no end noted
        store.shutdown()


@contextlib.contextmanager
def counting(taken: Counter[str], *calls: tuple[object, str, str]) -> Iterator[None]:
    """Count calls in `taken`: of a class or module, the name of its function, and which way that is."""
    with contextlib.ExitStack() as stack:
        for owner, name, way in calls:
            stack.enter_context(mock.patch.object(owner, name, _counted(getattr(owner, name), taken, way)))
        yield


def _counted(function: Callable[..., object], taken: Counter[str], way: str) -> Callable[..., object]:
    def call(*args: object, **kwargs: object) -> object:
        taken[way] += 1
        return function(*args, **kwargs)

    return call


def stopped_clock() -> contextlib.AbstractContextManager[object]:
    """Have the log store all messages at the same time."""
    return mock.patch.object(commit_log, "current_time_millis", lambda: NOW)


def has_space_again(store: DefaultMessageStore) -> None:
    """Forget that a write found no room."""
    store.state.running_flags = store.running_flags = RunningFlags()


def log_state(store: DefaultMessageStore) -> list[tuple[object, ...]]:
    """Each file of the log: its place and its positions."""
    return [(file.file_from_offset, file.wrote_position, file.read_position, file.is_full, file.write_buffer is None)
            for file in store.commit_log.mapped_file_queue.mapped_files]


def log_bytes(store: DefaultMessageStore) -> list[bytes]:
    """The files of the log as a reader of the disk sees them, which is what their maps show."""
    found = []
    for file in store.commit_log.mapped_file_queue.mapped_files:
        with open(file.file_name, "rb") as stream:
            found.append(stream.read())
        assert file.slice_byte_buffer() == found[-1], f"the map of {file.file_name} shows something else"
    return found


def same(fast: object, plain: object, what: str) -> None:
    """AssertionError, with the first place where they differ."""
    if fast == plain:
        return
    if isinstance(fast, bytes) and isinstance(plain, bytes):
        at = next((at for at, pair in enumerate(zip(fast, plain)) if pair[0] != pair[1]), min(len(fast), len(plain)))
        raise AssertionError(f"{what}: {len(fast)} and {len(plain)} bytes differ at {at}: "
                             f"{fast[at:at + 40]!r}, plain {plain[at:at + 40]!r}")
    if isinstance(fast, dict) and isinstance(plain, dict):
        same(sorted(fast), sorted(plain), f"{what}: names")
        for name, value in fast.items():
            same(value, plain[name], f"{what}: {name}")
    if isinstance(fast, (list, tuple)) and isinstance(plain, (list, tuple)) and len(fast) == len(plain):
        for number, pair in enumerate(zip(fast, plain)):
            same(*pair, f"{what}: {number}")
    raise AssertionError(f"{what}: {fast!r:.1500}, plain {plain!r:.1500}")


def cuts(data: bytes | bytearray, positions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Where the pieces of `data` begin and end that is cut at `positions`."""
    begin = 0
    for end in [*sorted(position for position in positions if 0 < position < len(data)), len(data)]:
        if end > begin:
            yield begin, end
        begin = end
