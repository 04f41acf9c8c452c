"""The epochs of a commit log: the offset at which each master began to write it. Also the identity of a replica.

    master      --append_entry-->                   EpochFileCache <--> epochFileCheckpoint
    HAClient    --append_entry, truncate_suffix-->                      (one line per epoch: "epoch-startOffset")
    connections --find, next-->

The problem: after a failover, the old master may hold bytes that no other replica has, and the new master writes other
bytes at the same offsets. When the old one returns as a slave, it has to find out where the logs part, without reading
them. The rule: each master writes under an epoch, a number higher than all before, and records the offset at which it
began. Only one broker ever is the master of an epoch. So two logs that both contain epoch 3 from offset 800 on have the
same bytes in it, up to where the shorter one ends; and they are identical up to the end of the newest epoch that they
share (`find_consistent_point`). The slave truncates its log there, adopts the master's later epochs, and continues.

    A  epoch 1 from 0, 2 from 500, ends at 900       shared: epoch 2, which ends at 900 in A and at 700 in B
    B  epoch 1 from 0, 2 from 500, 3 from 700        -> A truncates at 700

This requires the file to be ahead of the log: an epoch is on disk before the first byte is written under it, on the
master and on a slave. If it were lost, bytes of epoch 3 would seem to belong to epoch 2. Truncation is the other way
round: first the log, then the epochs that began after it. Epochs whose log was deleted are dropped from the front.

The identity of a replica among those of its broker's name, whatever its role, is in a small file of its own:
`cluster#name#id`.
"""
from __future__ import annotations

import bisect
import os
import threading
from collections.abc import Callable, Iterable

from rmqha.common import mix_all
from rmqha.common.config_manager import CheckpointFile
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.lazy_tuples import NamedTuple

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1


class EpochEntry(NamedTuple):
    """An epoch: its master wrote the log from `start_offset` to `end_offset`, which is LONG_MAX for the last one."""

    epoch: int
    start_offset: int
    end_offset: int = LONG_MAX


class EpochError(ValueError):
    """Entries that are invalid, or not in ascending order."""


class EpochFileCache:
    """The epochs and their start offsets, both ascending; written through to the file at `path` (None: memory only).

    Two neighbours may start at the same offset if nothing was written under the first. Safe from any thread. A change
    raises OSError when the file can't be written; the entries in memory are unchanged then.

    Java: org.apache.rocketmq.store.ha.autoswitch.EpochFileCache (5.1.4)
    """

    def __init__(self, path: str | None = None) -> None:
        self._lock = threading.Lock()
        self._entries: tuple[EpochEntry, ...] = ()  # replaced whole under _lock, read without it
        self._checkpoint = None if path is None else CheckpointFile(path, _to_line, _from_line)

    def init_cache_from_file(self) -> None:
        """Read the file. CheckpointFileError or EpochError name it when it can't be used.

        Differs: an epoch file that can't be read is an error. The original logs it and continues without epochs, like a
        new replica, which never compares its log.
        """
        checkpoint = self._checkpoint
        assert checkpoint is not None  # this cache has a path
        entries = checkpoint.read()
        with self._lock:
            self._entries = _chained(entries, f"{checkpoint.file_path}: ")

    def init_cache_from_entries(self, entries: Iterable[EpochEntry]) -> None:
        """Replace all entries. EpochError when they are not in ascending order."""
        with self._lock:
            self._replace(_chained(entries))

    @property
    def entry_size(self) -> int:
        """The number of entries."""
        return len(self._entries)

    def append_entry(self, entry: EpochEntry) -> bool:
        """Add an epoch; return False when it is not newer than the last one, or starts below it.

        Differs: an epoch that starts where the last one does is added. The original refuses it, and writes the new
        master's messages under the old epoch, so that two logs can differ within one epoch.
        """
        with self._lock:
            last = self._entries[-1] if self._entries else None
            if last is not None and (entry.epoch <= last.epoch or entry.start_offset < last.start_offset):
                return False
            self._replace(_chained((*self._entries, entry)))
            return True

    def set_last_epoch_entry_end_offset(self, end_offset: int) -> None:
        """Set the end of the last epoch for a comparison; only in memory."""
        with self._lock:
            if self._entries and self._entries[-1].start_offset <= end_offset:
                self._entries = (*self._entries[:-1], self._entries[-1]._replace(end_offset=end_offset))

    def first_entry(self) -> EpochEntry | None:
        """Return the oldest epoch; None when there is none."""
        entries = self._entries
        return entries[0] if entries else None

    def last_entry(self) -> EpochEntry | None:
        """Return the newest epoch; None when there is none."""
        entries = self._entries
        return entries[-1] if entries else None

    def last_epoch(self) -> int:
        """Return the number of the newest epoch; -1 when there is none."""
        entries = self._entries
        return entries[-1].epoch if entries else -1

    def get_entry(self, epoch: int) -> EpochEntry | None:
        """Return the entry of an epoch; None when there is none."""
        entries = self._entries
        at = bisect.bisect_left(entries, epoch, key=_epoch)
        return entries[at] if at < len(entries) and entries[at].epoch == epoch else None

    def find_epoch_entry_by_offset(self, offset: int) -> EpochEntry | None:
        """Return the epoch under which the byte at `offset` was, or will be, written."""
        entries = self._entries
        at = bisect.bisect_right(entries, offset, key=_start) - 1
        return entries[at] if at >= 0 and offset < entries[at].end_offset else None

    def get_all_entries(self) -> tuple[EpochEntry, ...]:
        """Return all entries, the oldest first."""
        return self._entries

    def find_consistent_point(self, compare_cache: EpochFileCache) -> int:
        """Return the offset up to which both logs are identical: the end of the newest shared epoch; -1 for none."""
        for entry in reversed(self._entries):
            other = compare_cache.get_entry(entry.epoch)
            if other is not None and other.start_offset == entry.start_offset:
                return min(entry.end_offset, other.end_offset)
        return -1

    def truncate_suffix_by_offset(self, truncate_offset: int) -> None:
        """Remove the epochs that start at or after `truncate_offset`."""
        self._keep(lambda entry: entry.start_offset < truncate_offset)

    def truncate_prefix_by_offset(self, truncate_offset: int) -> None:
        """Remove the epochs that end at or before `truncate_offset`."""
        self._keep(lambda entry: entry.end_offset > truncate_offset)

    def _keep(self, wanted: Callable[[EpochEntry], bool]) -> None:
        with self._lock:
            kept = tuple(filter(wanted, self._entries))
            if len(kept) < len(self._entries):
                self._replace(_chained(kept))

    def _replace(self, entries: tuple[EpochEntry, ...]) -> None:
        if self._checkpoint is not None:
            self._checkpoint.write(entries)
        self._entries = entries


def _chained(entries: Iterable[EpochEntry], where: str = "") -> tuple[EpochEntry, ...]:
    """Return the entries, each ending where the next one starts. EpochError when they are not in ascending order."""
    chained: list[EpochEntry] = []
    for entry in entries:
        if not 0 <= entry.epoch <= INT_MAX or not 0 <= entry.start_offset <= LONG_MAX:
            raise EpochError(f"{where}epoch {entry.epoch} at {entry.start_offset} is not valid")
        if chained:
            last = chained[-1]
            if entry.epoch <= last.epoch or entry.start_offset < last.start_offset:
                raise EpochError(f"{where}epoch {entry.epoch} at {entry.start_offset} follows epoch {last.epoch} at "
                                 f"{last.start_offset}")
            chained[-1] = last._replace(end_offset=entry.start_offset)
        chained.append(EpochEntry(entry.epoch, entry.start_offset))
    return tuple(chained)


def _epoch(entry: EpochEntry) -> int:
    return entry.epoch


def _start(entry: EpochEntry) -> int:
    return entry.start_offset


def _to_line(entry: EpochEntry) -> str:
    return f"{entry.epoch}-{entry.start_offset}"


def _from_line(line: str) -> EpochEntry:
    epoch, dash, start = line.partition("-")
    if not dash or not all(part.isascii() and part.isdecimal() and len(part) < 20 for part in (epoch, start)):
        raise ValueError(f"{line[:60]!r} is not a valid epoch")
    return EpochEntry(int(epoch), int(start))


# A broker configured with id 0 has this id while it is not the master.
FIRST_MASTER_ID = 1000


class BrokerMetadataError(ValueError):
    """The file is invalid, or belongs to another broker."""


@dataclass(frozen=True)
class BrokerMetadata:
    """The identity of a replica; `broker_id` stays the same when its role changes.

    Java: org.apache.rocketmq.store.ha.autoswitch.BrokerMetadata (5.1.4)
    """

    cluster_name: str
    broker_name: str
    broker_id: int

    def encode_to_str(self) -> str:
        """The file's text."""
        return f"{self.cluster_name}#{self.broker_name}#{self.broker_id}"

    @classmethod
    def decode_from_str(cls, text: str) -> BrokerMetadata:
        """Return the identity in a file's text. BrokerMetadataError when the text is not one."""
        parts = text.strip().split("#")
        if len(parts) != 3 or not (parts[2].isascii() and parts[2].isdecimal()) or len(parts[2]) > 18:
            raise BrokerMetadataError(f"{text[:80]!r} is not a valid cluster#name#id")
        return cls(parts[0], parts[1], int(parts[2]))


@dataclass(frozen=True)
class TempBrokerMetadata:
    """An id that a replica is about to take; `register_check_code` proves to the controller which replica it was.

    Java: org.apache.rocketmq.store.ha.autoswitch.TempBrokerMetadata (5.1.4)
    """

    cluster_name: str
    broker_name: str
    broker_id: int
    register_check_code: str

    def encode_to_str(self) -> str:
        """The file's text."""
        return f"{self.cluster_name}#{self.broker_name}#{self.broker_id}#{self.register_check_code}"

    @classmethod
    def decode_from_str(cls, text: str) -> TempBrokerMetadata:
        """Return the contents of a file's text. BrokerMetadataError when it is invalid."""
        identity, _hash, code = text.strip().rpartition("#")
        if not code:
            raise BrokerMetadataError(f"{text[:80]!r} is not a valid cluster#name#id#code")
        metadata = BrokerMetadata.decode_from_str(identity)
        return cls(metadata.cluster_name, metadata.broker_name, metadata.broker_id, code)


def load_or_make(path: str, cluster_name: str, broker_name: str, broker_id: int) -> BrokerMetadata:
    """Return the identity in the file; without a file, create one with `broker_id`.

    BrokerMetadataError names the file when it is damaged, or belongs to a broker of another name.
    """
    text = mix_all.file2string(path) if os.path.exists(path) else None
    if text is None:
        metadata = BrokerMetadata(cluster_name, broker_name, broker_id or FIRST_MASTER_ID)
        mix_all.string2file(metadata.encode_to_str(), path)
        return metadata
    try:
        metadata = BrokerMetadata.decode_from_str(text)
    except BrokerMetadataError as error:
        raise BrokerMetadataError(f"{path}: {error}. Rewrite it with an id that no other replica has") from error
    if metadata.broker_name != broker_name:
        raise BrokerMetadataError(f"{path} belongs to broker {metadata.broker_name}, but this broker is {broker_name}: "
                                  "the store was copied. Remove the file, and give this replica an id of its own")
    return metadata
