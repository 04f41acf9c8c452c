"""The parts that clusters of all backends share: errors, waiting, brokers' places, free ports, a temporary folder.

- `EmbeddedError`, `NotSupportedError`: the errors of a test's cluster.
- `wait_until`: waits with a time limit.
- `parse_topology`: returns the brokers of a cluster; "2m-2s" is two masters with one slave each.
- `free_broker_port`: finds a listenPort. A broker's other ports are computed from it, so three arbitrary free ports are
  not enough.
- `check_new_topic`, `config_of`: check the name of a topic, and read KEY=VALUE texts.
- `TemporaryFolder`: is in memory if there is enough space. It is always deleted: at the end of the test, or, if the
  process is killed, when the next one is created.

It imports no server code.
"""
from __future__ import annotations

import fcntl
import os
import random
import re
import shutil
import string
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rmqha.common import threads, topics
from rmqha.remoting.addresses import is_free

_STEP_S = 0.002


class EmbeddedError(Exception):
    """The test's cluster can't do what was requested. The text states the problem and what to do."""


class NotSupportedError(EmbeddedError):
    """The backend of the test's cluster can't do what was requested, and another backend can."""


def wait_until(predicate: Callable[[], object], timeout_s: float, what: str) -> None:
    """Wait until `predicate` is true. After the timeout, raise an EmbeddedError with `what`, the expected condition."""
    if not threads.wait_until(predicate, timeout_s, _STEP_S):
        raise EmbeddedError(f"timed out after {timeout_s:g} s, waiting until {what}")


# Below the ports that Linux uses for outgoing connections, so that a restarted broker can bind its old ports again.
_LOWEST, _HIGHEST = 12_000, 22_900
_TRIES = 1000


def free_broker_port() -> int:
    """Return a free listenPort. The fast port (two below) and the HA port (one above) are free too."""
    # Not the shared generator: tests that seed `random` would all choose the same ports
    chooser = random.SystemRandom()
    for _ in range(_TRIES):
        port = chooser.randrange(_LOWEST + 2, _HIGHEST)
        if all(map(is_free, (port - 2, port, port + 1))):
            return port
    raise EmbeddedError(f"found no free ports for a broker between {_LOWEST} and {_HIGHEST}")


_FORM = re.compile(r"([1-9])m(?:-([1-9])s)?")


class Place(NamedTuple):
    """A broker's place in the cluster. `node` is a unique name; a master and its slaves share `broker_name`."""

    node: str
    broker_name: str
    broker_id: int  # 0: the master


def parse_topology(topology: str) -> list[Place]:
    """Return the places, masters first. "1m-2s" is one master with two slaves. EmbeddedError for another form."""
    found = _FORM.fullmatch(topology)
    masters, slaves = (int(found[1]), int(found[2] or 0)) if found else (1, 0)
    if not found or slaves % masters:
        raise EmbeddedError(f"invalid topology {topology!r}; use numbers of masters and slaves, the same number of "
                            "slaves for each master: 1m, 1m-1s, 2m, 2m-2s, 1m-2s ...")
    names = [f"broker-{letter}" for letter in string.ascii_lowercase[:masters]]
    places = [Place(name, name, 0) for name in names]
    for number in range(1, slaves // masters + 1):
        places += [Place(f"{name}-s{number if number > 1 else ''}", name, number) for name in names]
    return places


def config_of(texts: Sequence[str]) -> dict[str, str]:
    """Return the keys and values of KEY=VALUE texts; EmbeddedError for another form."""
    pairs = [text.partition("=") for text in texts]
    for key, equals, _value in pairs:
        if not equals or not key.strip():
            raise EmbeddedError(f"config {key!r} is not KEY=VALUE")
    return {key.strip(): value.strip() for key, _equals, value in pairs}


MOST_QUEUES = 65_536  # the limit of rmqha's broker


def check_new_topic(name: str, queues: int) -> None:
    """Raise EmbeddedError for a topic that can't be created with this name or this number of queues."""
    problem = topics.check_topic(name)
    if problem or topics.is_system_topic(name):
        raise EmbeddedError(f"topic {name!r}: {problem or 'it is the name of a topic of the system'}")
    if not 1 <= queues <= MOST_QUEUES:
        raise EmbeddedError(f"topic {name!r} can't have {queues} queues; use 1 to {MOST_QUEUES}")


MEMORY = Path("/dev/shm")
# The required free space in memory, in bytes: writing to a mapped file without space there would kill the process.
_ROOM = 512 << 20
_PREFIX = "rmqha-test-"
_LOCK = "in-use"  # locked by the process that owns the folder


class TemporaryFolder:
    """A folder at `path` that exists until `close`. Creating one deletes the folders that killed processes have left.

    `parent`: its parent folder; None: the tmpfs /dev/shm if it has 512 MiB free, else the system's folder for temporary
    files.
    """

    def __init__(self, parent: str | os.PathLike[str] | None = None) -> None:
        place = Path(parent) if parent is not None else _default_parent()
        try:
            _sweep(place)
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        except OSError as error:
            raise EmbeddedError(f"can't create a folder for the stores in {place}: {os.strerror(error.errno or 0)}; "
                                "choose another one") from error
        new = self.path / "new"
        self._lock = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Other processes must not see the lock file before it is locked, or they would delete the folder
        new.rename(self.path / _LOCK)

    def close(self) -> None:
        """Delete the folder. Idempotent."""
        if self._lock >= 0:
            _delete(self.path)
            os.close(self._lock)
            self._lock = -1


def _default_parent() -> Path:
    try:
        if os.access(MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(MEMORY).free >= _ROOM:
            return MEMORY
    except OSError:  # /dev/shm does not exist
        return Path(tempfile.gettempdir())
    return Path(tempfile.gettempdir())


def _sweep(parent: Path) -> None:
    """Delete the folders that this user's processes have left behind."""
    for lock_file in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            lock = os.open(lock_file, os.O_RDWR)
        except OSError:  # another user's, or already deleted
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _delete(lock_file.parent)
        except BlockingIOError:  # in use
            continue
        finally:
            os.close(lock)


def _delete(folder: Path) -> None:
    """Delete a folder, and the lock file last.

    If other files remain, because another process is still writing there, a later sweep deletes them.
    """
    for path in folder.iterdir():
        if path.name != _LOCK:
            shutil.rmtree(path, ignore_errors=True)
    if [path.name for path in folder.iterdir()] == [_LOCK]:
        shutil.rmtree(folder, ignore_errors=True)
