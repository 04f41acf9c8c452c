"""A folder for a test's stores, in memory where there is room, and gone afterwards, whatever ended the test."""
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from rmqha.testing.errors import EmbeddedError

MEMORY = Path("/dev/shm")
_ROOM = 512 << 20  # bytes that have to be free in memory: a file that has no room there ends the process
_PREFIX = "rmqha-test-"
_LOCK = "in-use"  # locked by the process that has the folder


class TemporaryFolder:
    """`path`, until `close`. A folder that a process which was killed has left goes when the next one is made.

    `parent`: where it is made; None: on the tmpfs /dev/shm if that has 512 MiB free, else where the system keeps
    temporary files.
    """

    def __init__(self, parent: str | os.PathLike[str] | None = None) -> None:
        place = Path(parent) if parent is not None else _default_parent()
        try:
            _sweep(place)
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        except OSError as error:
            raise EmbeddedError(f"no folder for the stores can be made in {place}: {os.strerror(error.errno or 0)}; "
                                "choose another one") from error
        new = self.path / "new"
        self._lock = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        new.rename(self.path / _LOCK)  # nobody sees it before it is locked

    def close(self) -> None:
        """Delete it. Idempotent."""
        if self._lock >= 0:
            _delete(self.path)
            os.close(self._lock)
            self._lock = -1


def _default_parent() -> Path:
    try:
        if os.access(MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(MEMORY).free >= _ROOM:
            return MEMORY
    except OSError:  # there is none
        return Path(tempfile.gettempdir())
    return Path(tempfile.gettempdir())


def _sweep(parent: Path) -> None:
    """Delete what this user's processes that are no more have left."""
    for lock_file in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            lock = os.open(lock_file, os.O_RDWR)
        except OSError:  # another user's, or just gone
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _delete(lock_file.parent)
        except BlockingIOError:  # in use
            continue
        finally:
            os.close(lock)


def _delete(folder: Path) -> None:
    """The lock goes last: what is left because somebody still writes there goes with a later sweep."""
    for path in folder.iterdir():
        if path.name != _LOCK:
            shutil.rmtree(path, ignore_errors=True)
    if [path.name for path in folder.iterdir()] == [_LOCK]:
        shutil.rmtree(folder, ignore_errors=True)
