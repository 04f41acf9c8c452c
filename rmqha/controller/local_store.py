"""The interface of all stores of a controller's decisions, and the one that uses a file of this host.

With the file there is a single controller, which leads.

    <folder>/replicaSets.json       {"crc32": of the text of the list, "replicaSets": [documents]}
    <folder>/replicaSets.json.bak   the contents before the last change
    <folder>/lock                   locked while a controller uses the folder
"""
from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import threading
import time
import zlib
from collections.abc import Callable
from typing import Protocol

from rmqha.common.filesystem import NotAskedError, replace_and_force
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.mix_all import file2string, keep_as, string2file_not_safe
from rmqha.common.texts import parse_json
from rmqha.common.util_all import LONG_AGO
from rmqha.controller.replicas_info_manager import ReplicaSet, ReplicaSetError

# It is sent as a long.
_MAX_TERM = (1 << 62) - 1


class NotLeaderError(Exception):
    """Another controller leads, or no leader is known: nothing was written, and this call will never write anything."""


class StoreConflictError(Exception):
    """The replica set has changed since it was read: read it again, and decide again."""


class StoreFailedError(Exception):
    """The change was not written; or the outcome is unknown, and this controller has already stopped leading."""


@dataclass(frozen=True)
class Versioned:
    """A replica set, None if the name has none, and the version that a change of it must name."""

    replica_set: ReplicaSet | None
    version: int


def new_term() -> int:
    """Return a number for a leadership. It is random: a counter would repeat after the store was lost or restored."""
    return secrets.randbelow(_MAX_TERM) + 1


class ControllerStore(Protocol):
    """Replica sets by broker name, which only the leader may read and change.

    Any thread may call it. `leads` is true for the moment only; `put` alone decides, and checks both the leadership and
    the version in one transaction.
    """

    on_leader_changed: Callable[[], None] | None
    """Called, on a thread of the store, after this controller has begun or ceased to lead."""

    def start(self) -> None:
        """Open the store, and try to lead. OSError or ValueError says why it can't be used."""

    def shutdown(self) -> None:
        """Give up the leadership, and close. May be called twice."""

    @property
    def leads(self) -> bool:
        """True while this controller leads, as far as it can know: false once its lease may have run out."""

    @property
    def leads_since_ns(self) -> int:
        """The time (monotonic) at which this leadership began; meaningless while this controller does not lead."""

    @property
    def term(self) -> int:
        """The number of this leadership, unique among all leaderships of all controllers. 0 while it does not lead."""

    @property
    def leader_id(self) -> str | None:
        """The id of the controller that leads; None if no leader is known."""

    @property
    def leader_address(self) -> str | None:
        """The leader's `host:port`; None if no leader is known."""

    def confirm(self, since_ns: int) -> None:
        """Make sure that this controller led at some moment after `since_ns` (monotonic), by asking the store itself.

        So what it has read was true at that moment. NotLeaderError; StoreFailedError if the store does not answer.
        """

    def names(self) -> list[str]:
        """Return all broker names. NotLeaderError if another controller leads."""

    def places_taken(self, broker_name: str) -> int:
        """Return the number of other names, including forgotten ones. NotLeaderError if another controller leads."""

    def get(self, broker_name: str) -> Versioned:
        """Return the replica set of a name as last written. NotLeaderError if another controller leads."""

    def put(self, broker_name: str, version: int, replica_set: ReplicaSet | None,
            term: int | None = None) -> Versioned:
        """Write it, durably, if this controller leads and the stored one still has that version; None deletes it.

        `term`: the term before the version was read and the decision made. If another controller has led since, nothing
        is written: it may have written nothing, but granted a lease.

        NotLeaderError, StoreConflictError, StoreFailedError.
        """


log = logging.getLogger("RocketmqController")

FILE_NAME, LOCK_NAME = "replicaSets.json", "lock"
_ABSENT = Versioned(None, 0)


class LocalStore:
    """A ControllerStore in a folder. Each change is on disk before `put` returns.

    A damaged file is refused: a state older than the last decision may name a replica that lacks acknowledged messages.
    """

    def __init__(self, folder: str, self_id: str, self_address: str,
                 clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.on_leader_changed: Callable[[], None] | None = None
        self.file = os.path.join(folder, FILE_NAME)
        self._folder, self._self_id, self._self_address, self._clock = folder, self_id, self_address, clock
        # One change at a time; guards all below.
        self._lock = threading.Lock()
        self._table: dict[str, Versioned] = {}
        self._leads, self._leads_since_ns = False, 0
        self._term = new_term()
        self._lock_fd = -1

    def start(self) -> None:
        """Read the file, and lead. ValueError if it is damaged; OSError if another controller uses it, or the disk
        fails.
        """
        with self._lock:
            if self._leads:
                return
            os.makedirs(self._folder, exist_ok=True)
            self._take_folder()
            is_new = not os.path.exists(self.file)
            try:
                self._table = self._read()
                # Now what was read is on disk, and the disk can be written.
                self._write(self._table)
            except StoreFailedError as failure:
                self._release_folder()
                raise OSError(f"controllerStorePath {self._folder}: {failure}") from failure
            except BaseException:
                self._release_folder()
                raise
            # In a new folder, no controller can have led before and granted a lease.
            self._term = new_term()
            self._leads, self._leads_since_ns = True, LONG_AGO if is_new else self._clock()
        log.info("local store %s: %d broker names", self.file, len(self._table))
        self._tell()

    def _take_folder(self) -> None:
        fd = os.open(os.path.join(self._folder, LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as failure:
            os.close(fd)
            raise OSError(f"controllerStorePath {self._folder} is used by another controller") from failure
        self._lock_fd = fd

    def _release_folder(self) -> None:
        fd, self._lock_fd = self._lock_fd, -1
        if fd >= 0:
            os.close(fd)

    def _read(self) -> dict[str, Versioned]:
        try:
            text = file2string(self.file)
        except UnicodeDecodeError as failure:
            raise ValueError(self._damaged(f"{failure}")) from failure
        if text is None:
            if os.path.exists(self.file + ".bak"):
                raise ValueError(self._damaged("the file is missing"))
            return {}
        try:
            return decode_table(text)
        except ReplicaSetError as failure:
            raise ValueError(self._damaged(f"{failure}")) from failure

    def _damaged(self, what: str) -> str:
        return (f"{self.file} can't be used: {what}. Restore it, or replace it by {FILE_NAME}.bak, which lacks the "
                "last decision: if that was an election or a change of the sync-state set, acknowledged messages may "
                "be lost")

    def shutdown(self) -> None:
        """Stop leading."""
        with self._lock:
            led, self._leads = self._leads, False
            self._release_folder()
        if led:
            self._tell()

    def _tell(self) -> None:
        if self.on_leader_changed is not None:
            self.on_leader_changed()

    @property
    def leads(self) -> bool:
        """True from start to shutdown, as long as the state of the disk is known."""
        return self._leads

    @property
    def leads_since_ns(self) -> int:
        """The time at which it was started; long ago if its file was created then."""
        return self._leads_since_ns

    @property
    def term(self) -> int:
        """The term, which is the same for as long as it leads."""
        return self._term if self._leads else 0

    @property
    def leader_id(self) -> str | None:
        """This controller's id while it leads."""
        return self._self_id if self._leads else None

    @property
    def leader_address(self) -> str | None:
        """This controller's address while it leads."""
        return self._self_address if self._leads else None

    def confirm(self, since_ns: int) -> None:
        """Check that it leads, as it does while it holds the folder."""
        with self._lock:
            self._check_leads()

    def names(self) -> list[str]:
        """Return all broker names."""
        with self._lock:
            self._check_leads()
            return [name for name, each in self._table.items() if each.replica_set is not None]

    def places_taken(self, broker_name: str) -> int:
        """Return the number of other names, including those forgotten since this controller was started."""
        with self._lock:
            self._check_leads()
            return len(self._table) - (broker_name in self._table)

    def get(self, broker_name: str) -> Versioned:
        """Return it as last written."""
        with self._lock:
            self._check_leads()
            return self._table.get(broker_name, _ABSENT)

    def put(self, broker_name: str, version: int, replica_set: ReplicaSet | None,
            term: int | None = None) -> Versioned:
        """Rewrite the file. If this controller still leads after a StoreFailedError, nothing was written."""
        with self._lock:
            self._check_leads()
            before = self._table.get(broker_name, _ABSENT)
            if before.version != version:
                raise StoreConflictError(f"{broker_name} has version {before.version}, not {version}")
            changed = Versioned(replica_set, version + 1)
            try:
                self._write({**self._table, broker_name: changed})
            except StoreFailedError:
                failed_for_good = not self._leads
            else:
                # A forgotten name keeps its version, so that a decision from an earlier read can't bring it back.
                self._table[broker_name] = changed
                return changed
        if failed_for_good:
            self._tell()
        raise StoreFailedError(f"{self.file} can't be written")

    def _check_leads(self) -> None:
        if not self._leads:
            raise NotLeaderError("this controller does not lead")

    def _write(self, table: dict[str, Versioned]) -> None:
        written = self.file + ".tmp"
        try:
            string2file_not_safe(encode_table(table), written)
            if os.path.exists(self.file):
                keep_as(self.file, self.file + ".bak")
        except OSError as failure:
            log.exception("%s can't be written", written)
            raise StoreFailedError(str(failure)) from failure
        try:
            replace_and_force(written, self.file)
        except NotAskedError as failure:
            log.exception("%s can't be replaced now", self.file)
            raise StoreFailedError(str(failure)) from failure
        except OSError as failure:
            log.exception("%s: it is not known whether it was changed", self.file)
            self._leads = False
            raise StoreFailedError(str(failure)) from failure


def encode_table(table: dict[str, Versioned]) -> str:
    """Return the file's text."""
    documents = [each.replica_set.encode().decode() for _name, each in sorted(table.items()) if each.replica_set]
    text = "[" + ",\n ".join(documents) + "]"
    return f'{{"crc32": {zlib.crc32(text.encode())},\n"replicaSets":\n{text}}}\n'


def decode_table(text: str) -> dict[str, Versioned]:
    """Return the contents of the file's text. ReplicaSetError if it can't be trusted."""
    head, mark, rest = text.partition('"replicaSets":\n')
    body = rest.rstrip().removesuffix("}")
    try:
        expected = parse_json(head.rstrip().removesuffix(",") + "}", "its head")["crc32"]
        found = zlib.crc32(body.encode())
        if not mark or found != expected:
            raise ReplicaSetError(f"its crc32 is {found}, but should be {expected}")
        sets = [ReplicaSet.decode(json.dumps(document).encode()) for document in parse_json(body, "its body")]
    except (ValueError, KeyError, TypeError) as failure:
        raise failure if isinstance(failure, ReplicaSetError) else ReplicaSetError(repr(failure)) from failure
    return {each.broker_name: Versioned(each, 1) for each in sets}
