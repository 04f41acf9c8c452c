"""The named points at which a process can be killed, and how they are planted into a running store.

A point is planted by wrapping a method (of the store or of `os`) in the process to kill. The planting fails if the
method is gone or renamed, and a round fails if its point is not passed, so that the table stays correct.
"""
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass

from rmqha.common.message import message_layout
from rmqha.store import default_message_store, reput_message_service
from rmqha.store.allocate_mapped_file_service import AllocateMappedFileService
from rmqha.store.commit_log import CommitLog
from rmqha.store.commit_log_recovery import CommitLogRecovery
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.dispatch import RecordDispatcher
from rmqha.store.flush_consume_queue_service import FlushConsumeQueueService
from rmqha.store.index.index_file import IndexFile, IndexHeader
from rmqha.store.index.index_service import IndexService
from rmqha.store.mapped_file import MappedFile
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.store_checkpoint import StoreCheckpoint

# The phase in which a point counts: while messages are put, while the store is closed, while a closed or a killed store
# is opened, and while a store is opened that was killed during its last opening.
LOAD, SHUTDOWN, START, RECOVERY, AGAIN = "load", "shutdown", "start", "recovery", "again"

_LOG, _QUEUE, _INDEX = "/commitlog/", "/consumequeue/", "/index/"
_BLANK_LENGTH = 8
_HEADER_HALF = message_layout.LONG.size * 2


class Trap:
    """A trap that kills the process at the n-th passage. It counts only once it is armed."""

    def __init__(self, passage: int, note: Callable[[], None]) -> None:
        self.armed = False
        self._left = passage
        self._lock = threading.Lock()  # guards _left
        self._note = note

    def is_due(self) -> bool:
        """Count one passage. Return True at the last one."""
        if not self.armed:
            return False
        with self._lock:
            self._left -= 1
            return self._left == 0

    def die(self) -> None:
        """Write a note, and kill this process."""
        self._note()
        os.kill(os.getpid(), signal.SIGKILL)

    def step(self) -> None:
        """Count one passage, and kill this process at the last one."""
        if self.is_due():
            self.die()


Plant = Callable[[Trap], None]


@dataclass(frozen=True)
class Point:
    """A named point. `reach`: the highest passage. `first`: where the previous process is killed (RECOVERY, AGAIN)."""

    name: str
    phase: str
    reach: int
    plant: Plant
    first: str | None = None


def wrap(owner, name: str, make: Callable[[Callable, Trap], Callable]) -> Plant:
    """Raise AttributeError at once if `owner` lacks the name: a point may be drawn only once in a hundred cycles."""
    getattr(owner, name)

    def plant(trap: Trap) -> None:
        setattr(owner, name, make(getattr(owner, name), trap))
    return plant


def before(owner, name: str, when: Callable[..., bool] = lambda *_: True) -> Plant:
    def make(original, trap):
        def wrapper(*args, **keys):
            if when(*args):
                trap.step()
            return original(*args, **keys)
        return wrapper
    return wrap(owner, name, make)


def after(owner, name: str, when: Callable[..., bool] = lambda *_: True) -> Plant:
    """Return a plant after the call. `when` gets the result and the arguments."""
    def make(original, trap):
        def wrapper(*args, **keys):
            result = original(*args, **keys)
            if when(result, *args):
                trap.step()
            return result
        return wrapper
    return wrap(owner, name, make)


def all_of(*plants: Plant) -> Plant:
    def plant(trap: Trap) -> None:
        for each in plants:
            each(trap)
    return plant


def torn_write(folder: str, cut: Callable[[int], slice], when: Callable[[int], bool]) -> Plant:
    """Return a plant that writes only a part of the data: as many bytes as `cut(length)` returns."""
    def plant(trap: Trap) -> None:
        original = MappedFile.write_at

        def write_at(self, position, data):
            if folder in self.file_name and when(len(data)) and trap.is_due():
                part = cut(len(data))
                original(self, position + (part.start or 0), bytes(data)[part])
                trap.die()
            original(self, position, data)

        MappedFile.write_at = write_at
    return plant


def _half_header(trap: Trap) -> None:
    original = IndexHeader.update_byte_buffer

    def update_byte_buffer(self):
        if trap.is_due():
            behind = bytes(self._buffer[_HEADER_HALF:])
            original(self)
            self._buffer[_HEADER_HALF:] = behind
            trap.die()
        original(self)
    IndexHeader.update_byte_buffer = update_byte_buffer


def _half_zeroed(trap: Trap) -> None:
    original = MappedFile._zero_range

    def zero_range(self, start, end):
        if _LOG in self.file_name and trap.is_due():
            original(self, start, (start + end) // 2)
            trap.die()
        return original(self, start, end)
    MappedFile._zero_range = zero_range


def _half_json(trap: Trap) -> None:
    original = os.fsync

    def fsync(fd):
        if _of_tmp(fd) and trap.is_due():
            os.ftruncate(fd, os.fstat(fd).st_size // 2)
            trap.die()
        original(fd)
    os.fsync = fsync


def _path(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


def _fd_in(folder: str) -> Callable[..., bool]:
    return lambda fd, *_: folder in _path(fd)


def _result_fd_in(folder: str) -> Callable[..., bool]:
    return lambda _result, fd, *_: folder in _path(fd)


def _file_in(folder: str) -> Callable[..., bool]:
    return lambda file, *_: folder in file.file_name


def _result_file_in(folder: str) -> Callable[..., bool]:
    return lambda _result, file, *_: folder in file.file_name


def _is_checkpoint(fd: int) -> bool:
    return _path(fd).endswith("/checkpoint")


def _of_tmp(fd: int) -> bool:
    return _path(fd).endswith(".json.tmp")


def _is_log(_result, queue: MappedFileQueue, *_args) -> bool:
    return (queue.store_path + "/").endswith(_LOG)


_half_record = torn_write(_LOG, lambda size: slice(0, size // 2), lambda size: size > _BLANK_LENGTH)
_TORN = "append: half of the record"
# record by record, or through the bulk kernel
_NOT_DISPATCHED = all_of(before(CommitLogRecovery, "_dispatch_record"), before(ConsumeQueue, "put_units"))

def singly(plant: Plant) -> Plant:
    """Return a plant for a process that dispatches record by record, never in spans."""
    def plant_singly(trap: Trap) -> None:
        reput_message_service.BULK_BYTES = 1 << 40
        plant(trap)
    return plant_singly


_LOAD_POINTS = [
    Point("append: before the record", LOAD, 60, before(CommitLog, "_write")),
    Point("append: before several records", LOAD, 20,
          before(CommitLog, "_append", lambda _self, context: len(context.rows) > 1)),
    Point(_TORN, LOAD, 60, _half_record),
    Point("append: record without its head", LOAD, 60,
          torn_write(_LOG, lambda size: slice(size // 2, size), lambda size: size > _BLANK_LENGTH)),
    Point("append: record written, position not moved", LOAD, 60,
          after(MappedFile, "write_at", lambda _result, file, _at, data: _LOG in file.file_name
                and len(data) > _BLANK_LENGTH)),
    Point("append: position moved, not flushed", LOAD, 60,
          after(CommitLog, "_write")),
    Point("append: several records appended, nobody told", LOAD, 20,
          before(DefaultMessageStore, "on_appended",
                 lambda _self, context=None: context is not None and len(context.rows) > 1)),
    Point("roll: before the blank", LOAD, 4, before(message_layout, "encode_blank")),
    Point("roll: half of the blank", LOAD, 4,
          torn_write(_LOG, lambda size: slice(0, size // 2), lambda size: size == _BLANK_LENGTH)),
    Point("roll: blank written, position not moved", LOAD, 4,
          after(MappedFile, "write_at", lambda _result, file, _at, data: _LOG in file.file_name
                and len(data) == _BLANK_LENGTH)),
    Point("roll: next file in the log", LOAD, 4, after(MappedFileQueue, "do_create_mapped_file", _is_log)),
    Point("allocate: file without length", LOAD, 4, before(os, "ftruncate", _fd_in(_LOG))),
    Point("allocate: file without blocks", LOAD, 4, after(os, "ftruncate", _result_fd_in(_LOG))),
    Point("allocate: file ready", LOAD, 4, after(AllocateMappedFileService, "_mmap_operation")),
    Point("flush: before fdatasync", LOAD, 30, before(os, "fdatasync", _fd_in(_LOG))),
    Point("flush: after fdatasync", LOAD, 30, after(os, "fdatasync", _result_fd_in(_LOG))),
    Point("flush: position moved, nobody told", LOAD, 30, after(MappedFileQueue, "flush", _is_log)),
    Point("dispatch: before the unit", LOAD, 60, singly(before(RecordDispatcher, "do_dispatch"))),
    Point("dispatch: half of the unit", LOAD, 60,
          singly(torn_write(_QUEUE, lambda size: slice(0, 10), lambda size: True))),
    Point("dispatch: unit written, not indexed", LOAD, 60, singly(before(IndexService, "build_index"))),
    Point("dispatch: indexed", LOAD, 60, singly(after(IndexService, "build_index"))),
    Point("dispatch: before a run of units", LOAD, 20, before(ConsumeQueue, "put_units")),
    Point("dispatch: half of a run of units", LOAD, 10,
          torn_write(_QUEUE, lambda size: slice(0, size // 2), lambda size: size > CQ_STORE_UNIT_SIZE)),
    Point("dispatch: runs written, not indexed", LOAD, 10, before(IndexService, "build_index_of_rows")),
    Point("dispatch: keys of a span without counters", LOAD, 10, before(IndexHeader, "update_byte_buffer")),
    Point("dispatch: span indexed", LOAD, 10, after(IndexService, "build_index_of_rows")),
    Point("index: entry without slot", LOAD, 60, singly(after(MappedFile, "write_at", _result_file_in(_INDEX)))),
    Point("index: slot without count", LOAD, 60, singly(before(IndexHeader, "update_byte_buffer"))),
    Point("index: half of the header", LOAD, 60, singly(_half_header)),
    Point("index: new file without length", LOAD, 2, before(os, "ftruncate", _fd_in(_INDEX))),
    Point("index: new file without entry", LOAD, 2, after(os, "ftruncate", _result_fd_in(_INDEX))),
    Point("index: full file not flushed", LOAD, 2, before(IndexService, "flush")),
    Point("consume queue: new file without length", LOAD, 3, before(os, "ftruncate", _fd_in(_QUEUE))),
    Point("consume queue: new file without unit", LOAD, 3, after(os, "ftruncate", _result_fd_in(_QUEUE))),
    Point("consume queue: before fdatasync", LOAD, 10, before(os, "fdatasync", _fd_in(_QUEUE))),
    Point("checkpoint: before the times", LOAD, 3, before(StoreCheckpoint, "flush")),
    Point("checkpoint: times not forced", LOAD, 3, before(os, "fdatasync", _is_checkpoint)),
    Point("json: half of the new file", LOAD, 4, _half_json),
    Point("json: new file not forced", LOAD, 4, before(os, "fsync", _of_tmp)),
    Point("json: new file forced", LOAD, 4, after(os, "fsync", lambda _result, fd: _of_tmp(fd))),
    Point("json: old file linked", LOAD, 4, after(os, "link", lambda _result, _src, to: to.endswith(".bak.tmp"))),
    Point("json: old file kept, before the rename", LOAD, 4,
          before(os, "replace", lambda src, _to: src.endswith(".json.tmp"))),
    Point("json: renamed", LOAD, 4, after(os, "replace", lambda _result, src, _to: src.endswith(".json.tmp"))),
]

_OTHER_POINTS = [
    Point("shutdown: log flushed", SHUTDOWN, 1, after(CommitLog, "shutdown")),
    Point("shutdown: consume queues flushed", SHUTDOWN, 1, after(FlushConsumeQueueService, "shutdown")),
    Point("shutdown: before the abort file goes", SHUTDOWN, 1, before(default_message_store, "delete_file")),
    Point("shutdown: abort file gone", SHUTDOWN, 1, after(default_message_store, "delete_file")),
    Point("start: next offsets known", START, 2, after(DefaultMessageStore, "recover_topic_queue_table")),
    Point("start: before the abort file", START, 1, before(default_message_store, "create_temp_file")),
    Point("start: abort file made", START, 1, after(default_message_store, "create_temp_file")),
    Point("recovery: index cut back", RECOVERY, 1, after(IndexFile, "_cut_back"), "index: slot without count"),
    Point("recovery: consume queue before zeroing", RECOVERY, 3, before(MappedFile, "zero_from", _file_in(_QUEUE)),
          "dispatch: half of the unit"),
    Point("recovery: record not dispatched", RECOVERY, 60, _NOT_DISPATCHED,
          "dispatch: before the unit"),
    Point("recovery: log forced", RECOVERY, 1, after(MappedFile, "force", _result_file_in(_LOG)), _TORN),
    Point("recovery: before zeroing", RECOVERY, 1, before(MappedFile, "zero_from", _file_in(_LOG)), _TORN),
    Point("recovery: half zeroed", RECOVERY, 1, _half_zeroed, _TORN),
    Point("recovery: file behind deleted", RECOVERY, 1, after(MappedFile, "destroy", _result_file_in(_LOG)),
          "allocate: file ready"),
    Point("recovery of the recovery: record not dispatched", AGAIN, 60, _NOT_DISPATCHED,
          "index: entry without slot"),
    Point("recovery of the recovery: half zeroed", AGAIN, 1, _half_zeroed, _TORN),
    Point("recovery of the recovery: before the abort file", AGAIN, 1,
          before(default_message_store, "create_temp_file"), _TORN),
]

POINTS: dict[str, Point] = {point.name: point for point in _LOAD_POINTS + _OTHER_POINTS}
