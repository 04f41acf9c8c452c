"""Access to files and folders by name: fsync, atomic writes, safe opening, and the locations of rmqha's own files.

- `fsync_path`, `replace_and_force`: force files and folders to disk.
- `open_regular`: opens files that others created. It never waits for a pipe, and never touches a device.
- `Segment`, `list_segments`, `read_at`: files named by the offset of their first byte (commit logs, consume queues and
  their extensions), read-only.
- `writing`: writes a file that the user of a command named. A file is complete or absent; pipes and devices are written
  to directly.
- `rocketmq_home`: the folder of `conf/`: ROCKETMQ_HOME, else the checkout, else a folder in the user's config folder.
- `how_to_install`: the pip command for an optional library, for the Python and the place that rmqha runs from.

A failed fsync must be distinguished from a failed open. Linux reports a failed write-back to a descriptor once, and
marks the pages clean: the next fsync succeeds although the data is lost. An error of fsync is therefore final, and the
caller must give up the file. But when the file cannot even be opened, for lack of descriptors or memory, the disk was
never asked and has lost nothing: the caller may try again. Treating the second case like the first would stop a healthy
store; treating the first like the second would acknowledge lost messages. `NotAskedError` marks the second.
"""
from __future__ import annotations

import errno
import functools
import os
import re
import shlex
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.program import ROCKETMQ_HOME_ENV
from rmqha.common.texts import parse_json


class NotAskedError(OSError):
    """The file or folder to force to disk could not be opened. The disk was not asked, and has lost nothing.

    The caller may try again later. Any other OSError of a function that forces to disk may come from the disk. Linux
    reports it once: a second attempt succeeds although the data is lost.
    """


def open_to_force(path: str, flags: int = os.O_RDONLY) -> int:
    """Open a file or folder to force it to disk; return its descriptor.

    FileNotFoundError; NotAskedError for all other errors.
    """
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise NotAskedError(error.errno, error.strerror, path) from error


def fsync_path(path: str) -> None:
    """Force a file's bytes, or a folder's names, to disk. OSError; NotAskedError when it cannot be opened."""
    fd = open_to_force(path)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_and_force(source: str, target: str) -> None:
    """Rename `source` to `target`, and force the name to disk. OSError; NotAskedError: nothing was renamed."""
    folder = os.path.dirname(os.path.abspath(target))
    try:
        # Open it first: after the rename nothing may fail for lack of a descriptor.
        fd = open_to_force(folder)
    except FileNotFoundError as error:
        raise NotAskedError(error.errno, error.strerror, folder) from error
    try:
        os.replace(source, target)
        os.fsync(fd)
    finally:
        os.close(fd)


_KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket",
          stat.S_IFDIR: "a folder"}


class NotRegularFileError(OSError):
    """A path leads to a pipe, a device, a socket or a folder instead of a regular file."""

    def __init__(self, path: str, mode: int) -> None:
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        super().__init__(errno.EINVAL, f"{path} is {kind}, not a regular file: remove it")

    def __str__(self) -> str:
        return str(self.strerror)


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Open a regular file with os.open's flags; return its descriptor. Never blocks.

    NotRegularFileError for anything else; OSError.
    """
    name = os.fspath(path)
    try:
        # Checked before opening, because opening has an effect on some devices.
        check_regular(name, os.stat(name))
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    fd = os.open(name, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, mode)
    try:
        check_regular(name, os.fstat(fd))
    except NotRegularFileError:
        os.close(fd)
        raise
    return fd


def check_regular(path: str, found: os.stat_result) -> None:
    """Raise NotRegularFileError unless `found`, the status of `path`, is that of a regular file."""
    if not stat.S_ISREG(found.st_mode):
        raise NotRegularFileError(path, found.st_mode)


NAME_LENGTH = 20  # digits


class Segment(NamedTuple):
    """One file; `size` is its size when the folder was listed."""

    start: int
    path: str
    size: int

    @property
    def name(self) -> str:
        """Return the file's name."""
        return os.path.basename(self.path)

    @property
    def end(self) -> int:
        """Return the offset after the file's last byte."""
        return self.start + self.size


def is_segment_name(name: str) -> bool:
    """Return whether `name` is an offset of 20 digits that fits in 63 bits."""
    return len(name) == NAME_LENGTH and name.isascii() and name.isdigit() and int(name) < 1 << 63


def list_segments(path: str) -> tuple[list[Segment], list[str]]:
    """Return the files of a folder in order, and the paths of its other entries. OSError when the folder is missing."""
    segments, foreign = [], []
    for entry in list(os.scandir(path)):
        try:
            is_file, size = entry.is_file(), entry.stat().st_size
        except FileNotFoundError:
            # A running broker has removed it, or it is a dangling link.
            is_file, size = False, 0
            if not os.path.lexists(entry.path):
                continue
        if is_file and is_segment_name(entry.name):
            segments.append(Segment(int(entry.name), entry.path, size))
        else:
            foreign.append(entry.path)
    return sorted(segments), foreign


def read_at(path: str, position: int, size: int) -> bytes:
    """Return up to `size` bytes of a file from `position` on; b"" when the file no longer exists. OSError."""
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return b""
    try:
        return pread(fd, size, position)
    finally:
        os.close(fd)


def pread(fd: int, size: int, position: int) -> bytes:
    """Read like os.pread, but return less than `size` bytes only at the end of the file; b"" for a negative size."""
    data = os.pread(fd, max(size, 0), position)
    if len(data) == size or not data:
        return data
    parts, got = [data], len(data)
    while got < size and (data := os.pread(fd, size - got, position + got)):
        parts.append(data)
        got += len(data)
    return b"".join(parts)


_MOST_LINKS = 40  # the kernel's limit
_DESCRIPTOR = r"/proc/(\d+)/(?:task/\d+/)?fd/(\d+)\Z"


@contextmanager
def writing(path: str, replace: bool) -> Iterator[IO[bytes]]:
    """Open a stream into `path`. OSError; FileExistsError for an existing file, unless `replace`.

    Symbolic links are followed, and stay. The file appears when the block ends without an exception, with the mode of
    the file that it replaces. A pipe, a terminal or another character device is written to directly. So is the target
    of an open descriptor (/dev/stdout, /dev/fd/3), at its current position.
    """
    target = _followed(path)
    descriptor = re.match(_DESCRIPTOR, target)
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
        # It was renamed, though perhaps not durably.
        with suppress(FileNotFoundError):
            os.remove(part)
        raise


def _followed(path: str) -> str:
    """Return the absolute path that symbolic links lead to.

    The links of descriptors in /proc are not followed: only opening them leads to a pipe.
    """
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(path)
        path = os.path.join(os.path.realpath(folder or "."), name)
        if not os.path.islink(path) or re.match(_DESCRIPTOR, path):
            return path
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def _status(target: str) -> os.stat_result | None:
    try:
        return os.stat(target)
    except FileNotFoundError:
        return None


def _open_as_it_is(target: str, path: str, there: os.stat_result, replace: bool) -> int:
    """Open a pipe or a terminal for writing; or a file that another process has open, which is truncated."""
    flags = os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC
    if stat.S_ISREG(there.st_mode):
        if not replace:
            raise _exists(path)
        return os.open(target, flags | os.O_TRUNC)
    if not (stat.S_ISFIFO(there.st_mode) or stat.S_ISCHR(there.st_mode)):
        raise OSError(errno.EINVAL, "not a file, a pipe or a terminal", path)
    return os.open(target, flags)


def _new_beside(target: str) -> tuple[int, str]:
    """Create a file with an unused name in the same folder; return its descriptor and its path."""
    number = 0
    while True:
        part = f"{target}.{number}.part" if number else f"{target}.part"
        try:
            return os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), part
        except FileExistsError:
            number += 1


def _exists(path: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


CONFIG_HOME_ENV = "XDG_CONFIG_HOME"
_PACKAGE = Path(__file__).resolve().parents[1]


def rocketmq_home() -> Path:
    """Return the folder above `conf/`. It is never the folder of an installed package, which an upgrade would empty."""
    # Differs: ROCKETMQ_HOME is optional; Java's start scripts set it, and its servers refuse to start without it
    named = os.environ.get(ROCKETMQ_HOME_ENV)
    return Path(named) if named else default_rocketmq_home()


def default_rocketmq_home() -> Path:
    """Return the folder above `conf/` when the environment does not name one."""
    return checkout() or user_home()


def package_folder() -> Path:
    """Return the folder of the package rmqha."""
    return _PACKAGE


def checkout() -> Path | None:
    """Return the folder of the sources that the package runs from; None when it is installed."""
    folder = _PACKAGE.parent
    return folder if (folder / "setup.cfg").is_file() and (folder / "conf").is_dir() else None


def user_home() -> Path:
    """Return `rmqha` in the user's config folder, by the XDG base directory specification."""
    named = os.environ.get(CONFIG_HOME_ENV, "")
    # By the specification a relative path is ignored.
    return Path(named if os.path.isabs(named) else os.path.expanduser("~/.config")) / "rmqha"


def templates() -> Path:
    """Return the folder of rmqha's configuration files: `conf/` of the checkout, or the package's copy of it."""
    source = checkout()
    return source / "conf" if source is not None else _PACKAGE / "conf"


_REQUIREMENT = r"Requires-Dist: (?P<requirement>[^;\n]+); extra == ['\"](?P<extra>[\w-]+)['\"]"


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra of setup.cfg for this Python."""
    pip = f"{shlex.quote(sys.executable or 'python3')} -m pip install"
    return f"{pip} {' '.join(map(shlex.quote, _wanted(extra)))}"


def _wanted(extra: str) -> list[str]:
    """Return pip's arguments: rmqha with the extra, from its origin; the extra's libraries if the origin is gone."""
    source = checkout()
    if source is not None:
        return [f"{source}[{extra}]"]
    info = _dist_info()
    came_from = info / "direct_url.json" if info is not None else None
    # pip records the origin of all packages except those from an index.
    if info is None or came_from is None or not came_from.is_file():
        return [f"rmqha[{extra}]"]
    try:
        origin = parse_json(came_from.read_bytes(), str(came_from))
        url, vcs = str(origin["url"]), f"{origin['vcs_info']['vcs']}+" if "vcs_info" in origin else ""
    except (KeyError, TypeError, ValueError):  # not written by pip
        return [f"rmqha[{extra}]"]
    if urlsplit(url).scheme != "file":
        return [f"rmqha[{extra}] @ {vcs}{url}"]
    path = unquote(urlsplit(url).path)
    if Path(path).exists():
        return [f"{path}[{extra}]"]
    found = re.finditer(_REQUIREMENT, (info / "METADATA").read_text("utf-8"))
    return [match["requirement"].strip() for match in found if match["extra"] == extra] or [f"rmqha[{extra}]"]


@functools.cache
def _dist_info() -> Path | None:
    """Return the folder in which pip recorded the installed package and its origin."""
    return next(iter(package_folder().parent.glob("rmqha-*.dist-info")), None)
