"""Whether a broker runs on a store: it holds the file `lock` for all of its life, Java's as well as this one."""
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from rmqha.common.filesystem import check_regular, open_regular
from rmqha.tools.store.errors import StoreToolError

_LOCKS = "/proc/locks"
# struct flock of Linux: type, whence, start, length, pid
_FLOCK = "hhqqi0q"


def is_held(path: str) -> bool:
    """Whether somebody holds the lock file. Nothing is locked for it, so a broker that starts is not disturbed.

    NotRegularFileError when it is a pipe or a device, which no broker made.
    """
    try:
        found = os.stat(path)
    except OSError:
        return False
    check_regular(path, found)
    return _is_listed(found) or _is_locked(path)


def _is_listed(found: os.stat_result) -> bool:
    """By the kernel's list, which shows locks of this process too."""
    wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        with open(_LOCKS, encoding="ascii") as lines:
            return any(wanted in line.split() for line in lines)
    except OSError:  # no such list in this container: the question below is left
        return False


def _is_locked(path: str) -> bool:
    try:
        fd = open_regular(path)
    except OSError:
        return False
    try:
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(fd)


@contextmanager
def held(path: str) -> Iterator[None]:
    """Keep brokers out while a store is written to. StoreToolError when one runs."""
    if is_held(path):
        raise _taken(path)
    fd = open_regular(path, os.O_RDWR | os.O_CREAT)
    try:
        _lock(fd, path)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, path: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise _taken(path) from error
        raise


def _taken(path: str) -> StoreToolError:
    return StoreToolError(f"{path} is held: a broker runs on this store. Stop it, or write elsewhere with --out.")
