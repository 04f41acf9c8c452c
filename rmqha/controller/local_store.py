"""What every store of a controller's decisions can do.

Decisions in one file of this host: there is one controller, which leads.

    <folder>/replicaSets.json       {"crc32": of the text of the list, "replicaSets": [documents]}
    <folder>/replicaSets.json.bak   what it held before the last change
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

_MAX_TERM = (1 << 62) - 1  # it is on the wire, as a long


class NotLeaderError(Exception):
    """Another controller leads, or nobody is known to: nothing was written, and nothing ever will be by this call."""


class StoreConflictError(Exception):
    """The replica set is not the one that was read any more: read it again, decide again."""


class StoreFailedError(Exception):
    """The change was not written; or that is not known, then this controller has stopped leading before it says so."""


@dataclass(frozen=True)
class Versioned:
    """A replica set, None when there is none of that name, and the version that a change of it has to name."""

    replica_set: ReplicaSet | None
    version: int


def new_term() -> int:
    """The number of a leadership. Drawn, not counted: a store that was lost or restored would count anew."""
    return secrets.randbelow(_MAX_TERM) + 1


class ControllerStore(Protocol):
    """Replica sets by broker name, which only the leader may read and change.

    Any thread may call it. What `leads` says is of that moment; `put` alone decides, and checks both the leadership and
    the version within one transaction.
    """

    on_leader_changed: Callable[[], None] | None
    """Called, on a thread of the store's, after this controller has begun or ceased to lead."""

    def start(self) -> None:
        """Open it, and try to lead. OSError or ValueError says why it can't be used."""

    def shutdown(self) -> None:
        """Give the leadership back, and close. May be called twice."""

    @property
    def leads(self) -> bool:
        """Whether this controller leads, as far as it can know: false once its lease may have run out."""

    @property
    def leads_since_ns(self) -> int:
        """When (monotonic) this leadership began; of no meaning while it does not lead."""

    @property
    def term(self) -> int:
        """Which time of leading this is: no two are the same, of whichever controller. 0 while it does not lead."""

    @property
    def leader_id(self) -> str | None:
        """The id of the controller that leads; None when nobody is known to."""

    @property
    def leader_address(self) -> str | None:
        """Its `host:port`; None when nobody is known to lead."""

    def confirm(self, since_ns: int) -> None:
        """Make sure that this controller led at some moment behind that one (monotonic), asking who knows it.

        So what it has read was true then. NotLeaderError; StoreFailedError: nobody answers.
        """

    def names(self) -> list[str]:
        """All broker names. NotLeaderError when another one leads."""

    def places_taken(self, broker_name: str) -> int:
        """How many other names there are, with those that were forgotten. NotLeaderError when another one leads."""

    def get(self, broker_name: str) -> Versioned:
        """The replica set of a name, as it was last written. NotLeaderError when another one leads."""

    def put(self, broker_name: str, version: int, replica_set: ReplicaSet | None,
            term: int | None = None) -> Versioned:
        """Write it, durably, if this one leads and the stored one still has that version; None deletes it.

        `term`: as it was before the version was read and the decision taken. If another controller has led since, which
        may have written nothing, and granted a lease, nothing is written.

        NotLeaderError, StoreConflictError, StoreFailedError.
        """


log = logging.getLogger("RocketmqController")

FILE_NAME, LOCK_NAME = "replicaSets.json", "lock"
_ABSENT = Versioned(None, 0)


class LocalStore:
    """A ControllerStore in a folder. Each change is on the disk before `put` returns.

    A damaged file is refused: what is older than the last decision may name a replica that lacks acknowledged messages.
    """

    def __init__(self, folder: str, self_id: str, self_address: str,
                 clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.on_leader_changed: Callable[[], None] | None = None
        self.file = os.path.join(folder, FILE_NAME)
        self._folder, self._self_id, self._self_address, self._clock = folder, self_id, self_address, clock
        self._lock = threading.Lock()  # one change at a time; guards all below
        self._table: dict[str, Versioned] = {}
        self._leads, self._leads_since_ns = False, 0
        self._term = new_term()
        self._lock_fd = -1

    def start(self) -> None:
        """Read the file, and lead. ValueError: it is damaged; OSError: another controller uses it, or the disk does."""
        with self._lock:
            if self._leads:
                return
            os.makedirs(self._folder, exist_ok=True)
            self._take_folder()
            is_new = not os.path.exists(self.file)
            try:
                self._table = self._read()
                self._write(self._table)  # what was read is on the disk, and can be written
            except StoreFailedError as failure:
                self._release_folder()
                raise OSError(f"controllerStorePath {self._folder}: {failure}") from failure
            except BaseException:
                self._release_folder()
                raise
            # nobody has led before who could have granted a lease
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
                raise ValueError(self._damaged("it is missing"))
            return {}
        try:
            return decode_table(text)
        except ReplicaSetError as failure:
            raise ValueError(self._damaged(f"{failure}")) from failure

    def _damaged(self, what: str) -> str:
        return (f"{self.file} can't be used: {what}. Restore it. Or put {FILE_NAME}.bak in its place, which is older "
                "by one decision: if that was an election or another sync-state set, acknowledged messages may be lost")

    def shutdown(self) -> None:
        """Lead no more."""
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
        """From start to shutdown, as long as it is known what is on the disk."""
        return self._leads

    @property
    def leads_since_ns(self) -> int:
        """When it was started; long ago if its file was made then."""
        return self._leads_since_ns

    @property
    def term(self) -> int:
        """The same for as long as it leads."""
        return self._term if self._leads else 0

    @property
    def leader_id(self) -> str | None:
        """This controller's id while it leads."""
        return self._self_id if self._leads else None

    @property
    def leader_address(self) -> str | None:
        """Its address while it leads."""
        return self._self_address if self._leads else None

    def confirm(self, since_ns: int) -> None:
        """It leads as long as it has the folder."""
        with self._lock:
            self._check_leads()

    def names(self) -> list[str]:
        """All broker names."""
        with self._lock:
            self._check_leads()
            return [name for name, each in self._table.items() if each.replica_set is not None]

    def places_taken(self, broker_name: str) -> int:
        """How many other names there are, with those that were forgotten since this one was started."""
        with self._lock:
            self._check_leads()
            return len(self._table) - (broker_name in self._table)

    def get(self, broker_name: str) -> Versioned:
        """As it was last written."""
        with self._lock:
            self._check_leads()
            return self._table.get(broker_name, _ABSENT)

    def put(self, broker_name: str, version: int, replica_set: ReplicaSet | None,
            term: int | None = None) -> Versioned:
        """Write the file anew. A StoreFailedError behind which this one still leads: nothing was written."""
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
                # a name that is forgotten keeps its version: who has read it before can't bring it back
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
            log.exception("%s: whether it was changed is not known", self.file)
            self._leads = False
            raise StoreFailedError(str(failure)) from failure


def encode_table(table: dict[str, Versioned]) -> str:
    """The file's text."""
    documents = [each.replica_set.encode().decode() for _name, each in sorted(table.items()) if each.replica_set]
    text = "[" + ",\n ".join(documents) + "]"
    return f'{{"crc32": {zlib.crc32(text.encode())},\n"replicaSets":\n{text}}}\n'


def decode_table(text: str) -> dict[str, Versioned]:
    """What the file's text holds. ReplicaSetError: nothing that can be trusted."""
    head, mark, rest = text.partition('"replicaSets":\n')
    body = rest.rstrip().removesuffix("}")
    try:
        expected = parse_json(head.rstrip().removesuffix(",") + "}", "its head")["crc32"]
        found = zlib.crc32(body.encode())
        if not mark or found != expected:
            raise ReplicaSetError(f"its crc32 is {found}, and should be {expected}")
        sets = [ReplicaSet.decode(json.dumps(document).encode()) for document in parse_json(body, "its body")]
    except (ValueError, KeyError, TypeError) as failure:
        raise failure if isinstance(failure, ReplicaSetError) else ReplicaSetError(repr(failure)) from failure
    return {each.broker_name: Versioned(each, 1) for each in sets}
