"""Where the consume queues end: a file of ours that a clean stop writes, so that the next start opens none of them.

Two lines: the CRC32 of the second in decimal, and the fields of QueueEnds, those of TopicEnds and QueueEnd nested in
them, as a JSON array.

A start believes the file when the checkpoint has its number, when all folders and files are those that it tells of, and
when each was changed last when it says. Otherwise the log has the reason, and the queues themselves are looked at.
Each file of a queue is asked for its length and time; none is opened.

Java has no such file, and leaves it alone.
"""
from __future__ import annotations

import json
import logging
import os
import time
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from rmqha.common.texts import parse_json
from rmqha.store.config import store_path_config_helper as paths

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore

log = logging.getLogger("RocketmqStore")

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
