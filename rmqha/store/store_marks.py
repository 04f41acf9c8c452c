"""Marker files that a store keeps for its next start: `abort`, `lock` and `consumequeue.ends`.

- `create_temp_file`: makes `abort`, which exists while a store runs; a start that finds it assumes a crash.
- `StoreLock`: the file `lock`, locked on its first byte for the life of the store, so that a store has one broker.
- `RecoveryBase`: the assumptions that recovery may make about the disk.
- `QueueEnds`: `consumequeue.ends`, written by a clean stop so that the next start opens no consume queue. RocketMQ has
  no such file and leaves it alone. It has two lines: the CRC32 of the second line in decimal, and the fields of
  QueueEnds as a JSON array in which those of TopicEnds and QueueEnd are nested.

A start believes `consumequeue.ends` if the checkpoint has its number, if exactly the listed folders and files exist,
and if each was last changed at the listed time. Otherwise it logs the reason and scans the queues. The check takes the
length and time of each queue file and opens none.
"""
from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import time
import zlib
from collections.abc import Callable
from contextlib import suppress

from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.texts import parse_json
from rmqha.store import store_path_config_helper as paths
from rmqha.store.mapped_file import fsync_folder
from rmqha.store.store_checkpoint import StoreCheckpoint

log = logging.getLogger("RocketmqStore")


class RecoveryBase(NamedTuple):
    """Offsets of the commit log: what lies before is on the disk, whatever happened to the machine.

    What lies behind was not forced to the disk, or nobody has noted it: of it, any sector may be missing.
    """

    log_flushed: int
    dispatched: int  # units and keys of the records before are on the disk
    is_noted: bool  # by a store of ours; otherwise it follows from the original's times
    by_slave: bool
    doubts_heads: bool  # a slave wrote, and power may be lost: pieces of records came to the disk in any order
    was_stopped: bool  # in order: everything was flushed


def create_temp_file(file_name: str) -> None:
    """Make it, on the disk.

    Differs: it is there before anything that a loss of power may tear; the original leaves that to chance.
    """
    exists = os.path.exists(file_name)
    os.close(os.open(file_name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
    fsync_folder(os.path.dirname(file_name))
    log.info("%s%s", file_name, " already exists" if exists else " create OK")


def delete_file(file_name: str) -> None:
    """Delete it, or another file of the store; one that can't be deleted stays, with a line in the log."""
    try:
        os.unlink(file_name)
        log.info("%s delete OK", file_name)
    except OSError as error:
        log.info("%s delete Failed: %s", file_name, error.strerror)


_CONTENT = b"lock"
_TAKEN = (errno.EACCES, errno.EAGAIN)


class StoreLock:
    """Excludes other brokers, Java's too: its FileChannel.tryLock(0, 1) is a POSIX lock on byte 0.

    A POSIX lock does not exclude the same process, so a second one (flock) is taken, which does.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock. RuntimeError when another store has it."""
        if self._fd >= 0:
            return
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
            os.pwrite(fd, _CONTENT, 0)
            os.fsync(fd)
        except OSError as error:
            os.close(fd)
            if error.errno in _TAKEN:
                raise RuntimeError(f"Lock failed,MQ already started: {self.path} is held by another broker") from error
            raise
        self._fd = fd

    def release(self) -> None:
        """Let go of it; idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


VERSION = 1
_CLOCK_STEP_S = 0.01  # of the clock that files get their times from, at most


class WrongQueueEndsError(Exception):
    """The file can't be believed; the reason."""


class QueueEnd(NamedTuple):
    """One queue; offsets in bytes, of the queue where nothing else is said."""

    queue_id: int
    folder_mtime: int  # ns since 1970, as all times here
    first: int  # where its first file begins
    file_mtimes: list[int]  # its files follow one another
    end: int
    max_physic_offset: int  # of the log
    min_logic_offset: int
    min_is_of: list[int] | None  # low, high and end of ConsumeQueue's _MinOf; None: the minimum has to be looked for


class TopicEnds(NamedTuple):
    """The queues of one topic."""

    topic: str
    folder_mtime: int
    queues: list[QueueEnd]


class QueueEnds(NamedTuple):
    """All queues of a store."""

    version: int
    number: int  # of the checkpoint's last write
    file_size: int
    folder_mtime: int  # of the folder of all topics
    topics: list[TopicEnds]


def encode(ends: QueueEnds) -> bytes:
    """The file."""
    text = json.dumps(ends, separators=(",", ":")).encode()
    return b"%d\n%b\n" % (zlib.crc32(text), text)


def decode(data: bytes) -> QueueEnds:
    """What `encode` was given. WrongQueueEndsError for anything else."""
    crc, _, text = data.removesuffix(b"\n").partition(b"\n")
    if crc != b"%d" % zlib.crc32(text):
        raise WrongQueueEndsError("its checksum is wrong")
    try:
        version, number, file_size, folder_mtime, topics = parse_json(text, "its text")
        if version != VERSION:
            raise WrongQueueEndsError(f"its version is {version}")
        return QueueEnds(version, number, file_size, folder_mtime, [
            TopicEnds(topic, mtime, [QueueEnd(*queue) for queue in queues]) for topic, mtime, queues in topics])
    except (ValueError, TypeError) as error:
        raise WrongQueueEndsError(f"it does not say where queues end: {error}") from error


def write(root: str, ends: Callable[[], QueueEnds]) -> None:
    """The store at `root` has stopped, and all of it is on the disk: note `ends`. A failure leaves no file."""
    path = paths.get_queue_ends(root)
    try:
        data = encode(ends())
        time.sleep(_CLOCK_STEP_S)  # whoever changes a file from now on gives it another time
        with open(path + ".tmp", "wb") as file:
            file.write(data)  # not forced to the disk: what a loss of power leaves of it has another checksum
        os.replace(path + ".tmp", path)
    except (OSError, WrongQueueEndsError) as error:
        log.warning("the ends of the consume queues are not noted, the next start looks for them: %s", error)


def read(root: str, checkpoint: StoreCheckpoint, file_size: int) -> QueueEnds | None:
    """What the last stop of the store at `root` has noted; None when there is no such file, or it is not of this store
    as it is now, whose queues have files of `file_size` bytes."""
    path = paths.get_queue_ends(root)
    try:
        with open(path, "rb") as file:
            ends = decode(file.read())
        _check(ends, root, checkpoint, file_size)
        return ends
    except FileNotFoundError:
        return None
    except (OSError, WrongQueueEndsError) as error:
        tell_wrong(error)
        return None


def forget(root: str) -> None:
    """The queues of the store at `root` are about to change."""
    with suppress(FileNotFoundError):
        os.unlink(paths.get_queue_ends(root))


def _check(ends: QueueEnds, root: str, checkpoint: StoreCheckpoint, file_size: int) -> None:
    if checkpoint.found is None or ends.number != checkpoint.number:
        raise WrongQueueEndsError(f"it is of write {ends.number} of the checkpoint, which was written since")
    if ends.file_size != file_size:
        raise WrongQueueEndsError(f"files of queues had {ends.file_size} bytes, and have {file_size} now")
    check_mtime(paths.get_store_path_consume_queue(root), ends.folder_mtime)


def tell_wrong(error: Exception) -> None:
    """Why the file is not believed."""
    log.warning("what the last stop noted of the consume queues is thrown away, they are looked at: %s", error)


def mtime_of(path: str) -> int:
    """When a file or folder was changed last. OSError."""
    return os.stat(path).st_mtime_ns


def check_mtime(path: str, mtime: int, size: int = -1) -> None:
    """WrongQueueEndsError when a file or folder was changed at another time, has another size, or is not there."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise WrongQueueEndsError(f"{path} is not there") from None
    if found.st_mtime_ns != mtime or size not in (-1, found.st_size):
        raise WrongQueueEndsError(f"{path} was changed since")
