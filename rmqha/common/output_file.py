"""A file that a command writes because somebody named it: whole under its name, or not there; pipes and devices as they
are.
"""
from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from rmqha.common.fsync import replace_and_force

_MOST_LINKS = 40  # as the kernel follows
_DESCRIPTOR = re.compile(r"/proc/(\d+)/(?:task/\d+/)?fd/(\d+)\Z")


@contextmanager
def writing(path: str, replace: bool) -> Iterator[IO[bytes]]:
    """A stream into `path`. OSError; FileExistsError for a file that is there, unless `replace`.

    Symbolic links are followed, and stay. A file appears when the block has ended well, in the mode of the one that it
    replaces. A pipe, a terminal or another character device is written to; so is what an open descriptor leads to
    (/dev/stdout, /dev/fd/3), where it stands.
    """
    target = _followed(path)
    descriptor = _DESCRIPTOR.match(target)
    if descriptor and int(descriptor[1]) == os.getpid():
        with open(os.dup(int(descriptor[2])), "wb") as file:
            yield file
        return
    there = _status(target)
    if there is not None and (descriptor or not stat.S_ISREG(there.st_mode)):
        with open(_open_as_it_is(target, path, there, replace), "wb") as file:
            yield file
        return
    if there is not None and not replace:
        raise _exists(path)
    fd, part = _new_beside(target)
    try:
        with open(fd, "wb") as file:
            if there is not None:
                os.fchmod(fd, stat.S_IMODE(there.st_mode))
            yield file
            file.flush()
            os.fsync(fd)
        if not replace and os.path.lexists(target):  # made meanwhile
            raise _exists(path)
        replace_and_force(part, target)
    except BaseException:
        with suppress(FileNotFoundError):  # it has its name, and that is perhaps not on the disk
            os.remove(part)
        raise


def _followed(path: str) -> str:
    """Where symbolic links end: an absolute path. What /proc calls a link of a descriptor is not followed: only who
    opens it comes to a pipe."""
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(path)
        path = os.path.join(os.path.realpath(folder or "."), name)
        if not os.path.islink(path) or _DESCRIPTOR.match(path):
            return path
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def _status(target: str) -> os.stat_result | None:
    try:
        return os.stat(target)
    except FileNotFoundError:
        return None


def _open_as_it_is(target: str, path: str, there: os.stat_result, replace: bool) -> int:
    """A pipe, a terminal; or a file that another process has open, written over from its begin."""
    flags = os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC
    if stat.S_ISREG(there.st_mode):
        if not replace:
            raise _exists(path)
        return os.open(target, flags | os.O_TRUNC)
    if not (stat.S_ISFIFO(there.st_mode) or stat.S_ISCHR(there.st_mode)):
        raise OSError(errno.EINVAL, "neither a file nor a pipe or a terminal", path)
    return os.open(target, flags)


def _new_beside(target: str) -> tuple[int, str]:
    """A new file in the same folder, of a name that nothing has: its descriptor and its path."""
    number = 0
    while True:
        part = f"{target}.{number}.part" if number else f"{target}.part"
        try:
            return os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), part
        except FileExistsError:
            number += 1


def _exists(path: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
