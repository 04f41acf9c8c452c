"""Marker files that a store keeps for its next start: `abort`, `lock` and `consumequeue.ends`.

- `create_temp_file`: creates `abort`, which exists while a store runs; a start that finds it assumes a crash.
- `StoreLock`: the file `lock`, locked on its first byte for the life of the store, so that a store has one broker.
- `RecoveryBase`: the assumptions that recovery may make about the disk.
- `QueueEnds`: `consumequeue.ends`, written by a clean stop so that the next start opens no consume queue. RocketMQ has
  no such file and leaves it alone. It has two lines: the CRC32 of the second line in decimal, and the fields of
  QueueEnds as a JSON array in which those of TopicEnds and QueueEnd are nested.

A scan of the queues opens every queue file, which takes long for a store with many queues. A clean stop knows the ends
already, so it saves them, and the next start only has to make sure that nothing has changed since. It accepts
`consumequeue.ends` if the checkpoint has its number, if exactly the listed folders and files exist, and if each was
last changed at the listed time. Otherwise it logs the reason and scans the queues; a wrong guess would give two
messages the same queue offset. The check reads the length and time of each queue file and opens none. The file is
deleted before the queues change (`forget`), so a crash never leaves a stale one.
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
    """Commit log offsets below which everything is on disk, whatever happened to the machine.

    Later bytes were not forced to disk, or no process recorded that they were: any sector of them may be missing.
    """

    log_flushed: int
    # Consume queue units and index keys of all earlier records are on disk.
    dispatched: int
    # True: recorded by a store of ours; otherwise derived from the original's timestamps.
    is_noted: bool
    by_slave: bool
    # A slave wrote the log, and power may have been lost: pieces of records reached the disk in any order.
    doubts_heads: bool
    # The store was stopped cleanly: everything was flushed.
    was_stopped: bool


def create_temp_file(file_name: str) -> None:
    """Create the file and force its name to disk.

    Differs: the abort file is on disk before anything that a power loss may tear; the original leaves that to chance.
    """
    exists = os.path.exists(file_name)
    os.close(os.open(file_name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
    fsync_folder(os.path.dirname(file_name))
    log.info("%s%s", file_name, " already exists" if exists else " create OK")


def delete_file(file_name: str) -> None:
    """Delete `abort` or another file of the store; log a failure and leave the file."""
    try:
        os.unlink(file_name)
        log.info("%s delete OK", file_name)
    except OSError as error:
        log.info("%s delete Failed: %s", file_name, error.strerror)


_CONTENT = b"lock"
_TAKEN = (errno.EACCES, errno.EAGAIN)


class StoreLock:
    """A lock that excludes other brokers, including Java's: its FileChannel.tryLock(0, 1) is a POSIX lock on byte 0.

    A POSIX lock does not exclude the same process, so a second lock (flock) is taken, which does.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock. RuntimeError when another store holds it."""
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
        """Release the lock; idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


VERSION = 1
# longest step of the clock that file times are taken from
_CLOCK_STEP_S = 0.01


class WrongQueueEndsError(Exception):
    """The reason why the saved queue ends can't be used."""


class QueueEnd(NamedTuple):
    """The end of one queue; offsets are in bytes, and refer to the queue unless noted otherwise."""

    queue_id: int
    # ns since 1970, as all times here
    folder_mtime: int
    # offset at which its first file begins
    first: int
    # of consecutive files
    file_mtimes: list[int]
    end: int
    # commit log offset
    max_physic_offset: int
    min_logic_offset: int
    # low, high and end of ConsumeQueue's _MinOf; None: the minimum has to be searched for
    min_is_of: list[int] | None


class TopicEnds(NamedTuple):
    """The queues of one topic."""

    topic: str
    folder_mtime: int
    queues: list[QueueEnd]


class QueueEnds(NamedTuple):
    """The ends of all queues of a store."""

    version: int
    # number of the checkpoint's last write
    number: int
    file_size: int
    # of the folder that contains all topics
    folder_mtime: int
    topics: list[TopicEnds]


def encode(ends: QueueEnds) -> bytes:
    """Return the contents of the file."""
    text = json.dumps(ends, separators=(",", ":")).encode()
    return b"%d\n%b\n" % (zlib.crc32(text), text)


def decode(data: bytes) -> QueueEnds:
    """Return what `encode` was given. WrongQueueEndsError for anything else."""
    crc, _, text = data.removesuffix(b"\n").partition(b"\n")
    if crc != b"%d" % zlib.crc32(text):
        raise WrongQueueEndsError("checksum mismatch")
    try:
        version, number, file_size, folder_mtime, topics = parse_json(text, "its text")
        if version != VERSION:
            raise WrongQueueEndsError(f"unsupported version {version}")
        return QueueEnds(version, number, file_size, folder_mtime, [
            TopicEnds(topic, mtime, [QueueEnd(*queue) for queue in queues]) for topic, mtime, queues in topics])
    except (ValueError, TypeError) as error:
        raise WrongQueueEndsError(f"not a valid list of queue ends: {error}") from error


def write(root: str, ends: Callable[[], QueueEnds]) -> None:
    """Save `ends` for the store at `root`, which has stopped and is entirely on disk. A failure leaves no file."""
    path = paths.get_queue_ends(root)
    try:
        data = encode(ends())
        # A process that changes a file from now on gives it another time.
        time.sleep(_CLOCK_STEP_S)
        with open(path + ".tmp", "wb") as file:
            # No fsync is needed: whatever a power loss leaves of the file fails its checksum.
            file.write(data)
        os.replace(path + ".tmp", path)
    except (OSError, WrongQueueEndsError) as error:
        log.warning("the ends of the consume queues were not saved; the next start scans the queues instead: %s", error)


def read(root: str, checkpoint: StoreCheckpoint, file_size: int) -> QueueEnds | None:
    """Return the queue ends saved at the last stop of the store at `root`.

    None when there is no such file, or when it does not describe the store as it is now, whose queues have files of
    `file_size` bytes.
    """
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
    """Delete the saved queue ends of the store at `root`, because its queues are about to change."""
    with suppress(FileNotFoundError):
        os.unlink(paths.get_queue_ends(root))


def _check(ends: QueueEnds, root: str, checkpoint: StoreCheckpoint, file_size: int) -> None:
    if checkpoint.found is None or ends.number != checkpoint.number:
        raise WrongQueueEndsError(f"it belongs to write {ends.number} of the checkpoint, which has been written since")
    if ends.file_size != file_size:
        raise WrongQueueEndsError(f"queue files had {ends.file_size} bytes, and have {file_size} now")
    check_mtime(paths.get_store_path_consume_queue(root), ends.folder_mtime)


def tell_wrong(error: Exception) -> None:
    """Log the reason why the saved queue ends are not used."""
    log.warning("discarding the queue ends saved at the last shutdown; scanning the queues instead: %s", error)


def mtime_of(path: str) -> int:
    """Return the time (ns since 1970) at which a file or folder was last changed. OSError."""
    return os.stat(path).st_mtime_ns


def check_mtime(path: str, mtime: int, size: int = -1) -> None:
    """Raise WrongQueueEndsError when a file or folder has another modification time or size, or does not exist."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise WrongQueueEndsError(f"{path} does not exist") from None
    if found.st_mtime_ns != mtime or size not in (-1, found.st_size):
        raise WrongQueueEndsError(f"{path} was changed since")
