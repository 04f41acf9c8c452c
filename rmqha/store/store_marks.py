"""Small files that a store leaves for its next start, and its lock.

What recovery may take for granted.

The file `abort`: it is there while a store runs, so a start that finds it knows of a crash.

One broker per store: the file `lock`, locked on its first byte for the life of the store.

Forcing all of a store to the disk when it is closed, and the names of its files after a crash.

Where the dispatch begins when a store starts, and what is known not to be on the disk before it has gone on.

Where the consume queues end: a file of ours that a clean stop writes, so that the next start opens none of them.

Two lines: the CRC32 of the second in decimal, and the fields of QueueEnds, those of TopicEnds and QueueEnd nested in
them, as a JSON array.

A start believes the file when the checkpoint has its number, when all folders and files are those that it tells of, and
when each was changed last when it says. Otherwise the log has the reason, and the queues themselves are looked at.
Each file of a queue is asked for its length and time; none is opened.

Java has no such file, and leaves it alone.
"""
from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import time
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from rmqha.common.filesystem import NotAskedError, fsync_path
from rmqha.common.process import how_to_raise
from rmqha.common.texts import parse_json
from rmqha.store import store_path_config_helper as paths
from rmqha.store.flush_consume_queue_service import RETRY_TIMES_OVER
from rmqha.store.mapped_file import fsync_folder
from rmqha.store.message_store_config import MULTI_PATH_SPLITTER, SLAVE

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore
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


def recovery_base(store: DefaultMessageStore, last_exit_ok: bool) -> RecoveryBase:
    """What the checkpoint says.

    Differs: offsets are believed, not times: after a clock that was set back the original begins behind records that
    never got their units. Times count when the original, or nobody, has written the checkpoint last.
    """
    found = store.store_checkpoint.found
    if found is not None:
        base = RecoveryBase(found.log_flushed, found.dispatched, True, found.by_slave,
                            found.by_slave and not found.is_same_boot, last_exit_ok)
    elif last_exit_ok:
        base = RecoveryBase(0, 0, False, False, False, True)
    else:
        start = store.commit_log.begin_of_recovery_by_times()
        base = RecoveryBase(start, start, False, False, False, False)
    log.info("recover from %s", base)
    return base


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


def flush_all(store: DefaultMessageStore) -> bool:
    """All services have ended: flush what they have left, log before queues before checkpoint; whether all is there.

    Differs: the original asks nobody, and takes a store for stopped well whose flush services have given up.
    """
    if store.running_flags.is_flush_error:
        return False
    try:
        if not _flush_log(store):
            return False
        store.flush_consume_queue_service.do_flush(RETRY_TIMES_OVER)
        behind = [queue for queue in store.all_consume_queues() if not queue.is_flushed_to(queue.written_to())]
        for queue in behind:
            log.error("consume queue %s-%s is not flushed", queue.topic, queue.queue_id)
        store.store_checkpoint.flush()
    except NotAskedError as error:
        log.error("the last flush could not ask the disk, and the next start looks at the files as after a crash: %s%s",
                  error, how_to_raise(error))
        return False
    except OSError as error:
        log.exception("the last flush failed")
        store.running_flags.make_flush_error(f"the last flush: {error!r}")
        return False
    return not behind


def _flush_log(store: DefaultMessageStore) -> bool:
    queue = store.commit_log.mapped_file_queue
    end = queue.get_max_wrote_position()
    if store.commit_log.flush_up_to(end):
        return True
    log.error("the log ends at %s, and is flushed up to %s", end, queue.flushed_where)
    return False


def _doubtful_topics(store: DefaultMessageStore, root: str) -> list[str]:
    """The folders below that of the queues of which not all names are known to be on the disk."""
    known = {topic for topic, queues in store.consume_queue_table.items()
             if queues and all(queue.has_its_names for queue in queues.values())}
    with os.scandir(root) as entries:
        return [entry.path for entry in entries if entry.name not in known]


def sync_files(store: DefaultMessageStore) -> None:
    """What a crashed process has made, and not flushed, is not on the disk yet. OSError.

    All names of files, but those of topics whose queues' names are known to be there; and the length of the log's last
    file, the only one that may not have it: a file is made when the one before it is there.
    """
    root, queues = store.message_store_config.storePathRootDir, store.get_store_path_logic()
    fsync_folder(queues)
    for top in (*store.get_store_path_physic().strip().split(MULTI_PATH_SPLITTER), *_doubtful_topics(store, queues),
                paths.get_store_path_consume_queue_ext(root), paths.get_store_path_index(root)):
        for folder, _folders, _files in os.walk(top):
            fsync_folder(folder)
    fsync_folder(root)
    last = store.commit_log.mapped_file_queue.get_last_mapped_file()
    if last is not None:
        fsync_path(last.file_name)


_STEP_MS = 1000


def start_dispatch(store: DefaultMessageStore, checkpoint: StoreCheckpoint) -> None:
    """Start the ReputMessageService and wait until everything is dispatched, or the store goes down.

    The next queue offsets come from the consume queues, so nothing may be put before.
    """
    service = store.reput_message_service
    service.reput_from_offset = _first_offset(store)
    _lower_checkpoint(store, checkpoint, service.reput_from_offset)
    service.start()
    while not service.wait_caught_up(_STEP_MS) and not store.pause(0):
        log.info("Try to finish doing reput the messages fall behind during the starting, reputOffset=%s "
                 "maxOffset=%s behind=%s", service.reput_from_offset, store.get_max_phy_offset(),
                 store.dispatch_behind_bytes())
        if service.has_only_part_of_a_record():
            break


def _first_offset(store: DefaultMessageStore) -> int:
    """Everything before the end of the furthest consume queue is dispatched."""
    commit_log = store.commit_log
    min_offset, furthest = commit_log.get_min_offset(), store.consume_queue_table.max_physic_offset()
    offset = max(furthest, min_offset, 0)
    if max(furthest, 0) < min_offset:
        log.warning("[TooSmallCqOffset] maxPhysicalPosInLogicQueue=%s clMinOffset=%s", furthest, min_offset)
    log.info("[SetReputOffset] maxPhysicalPosInLogicQueue=%s clMinOffset=%s clMaxOffset=%s clConfirmedOffset=%s",
             offset, min_offset, commit_log.get_max_offset(), commit_log.get_confirm_offset())
    return store.reput_message_service.take_start(offset)


def _lower_checkpoint(store: DefaultMessageStore, checkpoint: StoreCheckpoint, offset: int) -> None:
    """What lies behind `offset` has no units and keys yet.

    Differs: so the checkpoint must not say that they are on disk, for the case of a power loss before they are; the
    original leaves it at what it said of files that somebody has deleted since.
    """
    request = next(store.commit_log.walk_records(offset, store.get_max_phy_offset()), None)
    checkpoint.by_slave |= store.message_store_config.brokerRole is SLAVE
    checkpoint.dispatched = min(checkpoint.dispatched, offset)
    if request is not None and request.store_timestamp < max(checkpoint.logics_msg_timestamp,
                                                             checkpoint.index_msg_timestamp):
        checkpoint.logics_msg_timestamp = min(checkpoint.logics_msg_timestamp, request.store_timestamp)
        checkpoint.index_msg_timestamp = min(checkpoint.index_msg_timestamp, request.store_timestamp)
        checkpoint.flush()
    checkpoint.flush_positions()


_VERSION = 1
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
        if version != _VERSION:
            raise WrongQueueEndsError(f"its version is {version}")
        return QueueEnds(version, number, file_size, folder_mtime, [
            TopicEnds(topic, mtime, [QueueEnd(*queue) for queue in queues]) for topic, mtime, queues in topics])
    except (ValueError, TypeError) as error:
        raise WrongQueueEndsError(f"it does not say where queues end: {error}") from error


def write(store: DefaultMessageStore) -> None:
    """The store has stopped, and all of it is on the disk: note where its queues end. A failure leaves no file."""
    path = paths.get_queue_ends(store.message_store_config.storePathRootDir)
    try:
        data = encode(_ends_of(store))
        time.sleep(_CLOCK_STEP_S)  # whoever changes a file from now on gives it another time
        with open(path + ".tmp", "wb") as file:
            file.write(data)  # not forced to the disk: what a loss of power leaves of it has another checksum
        os.replace(path + ".tmp", path)
    except (OSError, WrongQueueEndsError) as error:
        log.warning("the ends of the consume queues are not noted, the next start looks for them: %s", error)


def _ends_of(store: DefaultMessageStore) -> QueueEnds:
    root, topics = store.get_store_path_logic(), []
    for topic, queues in store.consume_queue_table.items():
        ends = [end for queue in queues.values() if (end := queue.noted_end()) is not None]
        if ends:
            topics.append(TopicEnds(topic, mtime_of(os.path.join(root, topic)), ends))
    return QueueEnds(_VERSION, store.store_checkpoint.number,
                     store.message_store_config.get_mapped_file_size_consume_queue(), mtime_of(root), topics)


def read(store: DefaultMessageStore) -> QueueEnds | None:
    """What the last stop has noted; None when there is no such file, or it is not of this store as it is now."""
    path = paths.get_queue_ends(store.message_store_config.storePathRootDir)
    try:
        with open(path, "rb") as file:
            ends = decode(file.read())
        _check(ends, store)
        return ends
    except FileNotFoundError:
        return None
    except (OSError, WrongQueueEndsError) as error:
        tell_wrong(error)
        return None


def forget(store: DefaultMessageStore) -> None:
    """The queues are about to change."""
    with suppress(FileNotFoundError):
        os.unlink(paths.get_queue_ends(store.message_store_config.storePathRootDir))


def _check(ends: QueueEnds, store: DefaultMessageStore) -> None:
    checkpoint = store.store_checkpoint
    if checkpoint.found is None or ends.number != checkpoint.number:
        raise WrongQueueEndsError(f"it is of write {ends.number} of the checkpoint, which was written since")
    file_size = store.message_store_config.get_mapped_file_size_consume_queue()
    if ends.file_size != file_size:
        raise WrongQueueEndsError(f"files of queues had {ends.file_size} bytes, and have {file_size} now")
    check_mtime(store.get_store_path_logic(), ends.folder_mtime)


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
