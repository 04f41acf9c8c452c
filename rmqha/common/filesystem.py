"""Access to files and folders by name: fsync, atomic writes, safe opening, and the locations of rmqha's own files.

- `fsync_path`, `replace_and_force`: force files and folders to disk.
- `open_regular`: opens files created by others; never waits for a pipe, never touches a device.
- `Segment`, `list_segments`, `read_at`: files named by the offset of their first byte (commit logs, consume queues and
  their extensions), read only.
- `writing`: writes a file that the user of a command named: complete under its name or absent; pipes and devices as
  they are.
- `rocketmq_home`: the folder of `conf/`: ROCKETMQ_HOME, else the checkout, else in the user's config folder.
- `how_to_install`: the pip command for an optional library, for the Python and the place that rmqha runs from.
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
    """What was to be forced to the disk could not be opened: the disk was not asked, and has lost nothing.

    Whoever gets it may try again later. Any other OSError of a function that forces may be the disk's own answer, which
    Linux gives once: who asks again gets a success, and what was lost stays lost.
    """


def open_to_force(path: str, flags: int = os.O_RDONLY) -> int:
    """The descriptor of what is to be forced to the disk. FileNotFoundError; NotAskedError for all else."""
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise NotAskedError(error.errno, error.strerror, path) from error


def fsync_path(path: str) -> None:
    """Force a file's bytes, or a folder's names, to the disk. OSError; NotAskedError when it can't be opened."""
    fd = open_to_force(path)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_and_force(source: str, target: str) -> None:
    """Rename `source` to `target`, and force the name to the disk. OSError; NotAskedError: nothing was renamed."""
    folder = os.path.dirname(os.path.abspath(target))
    try:
        fd = open_to_force(folder)  # first: behind the renaming nothing may fail for want of a descriptor
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
    """A path leads to a pipe, a device, a socket or a folder where a file should be."""

    def __init__(self, path: str, mode: int) -> None:
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        super().__init__(errno.EINVAL, f"{path} is {kind}, and should be a regular file: remove it")

    def __str__(self) -> str:
        return str(self.strerror)


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """The descriptor of a regular file, by os.open's flags. NotRegularFileError for all else, at once; OSError."""
    name = os.fspath(path)
    try:
        check_regular(name, os.stat(name))  # before it is opened: some devices act on that
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
    """NotRegularFileError unless what was found at `path` is a regular file."""
    if not stat.S_ISREG(found.st_mode):
        raise NotRegularFileError(path, found.st_mode)


NAME_LENGTH = 20  # digits


class Segment(NamedTuple):
    """One file; `size` is what it had when the folder was listed."""

    start: int
    path: str
    size: int

    @property
    def name(self) -> str:
        """The file's name."""
        return os.path.basename(self.path)

    @property
    def end(self) -> int:
        """Offset behind its last byte."""
        return self.start + self.size


def is_segment_name(name: str) -> bool:
    """Whether `name` is an offset of 20 digits that fits 63 bits."""
    return len(name) == NAME_LENGTH and name.isascii() and name.isdigit() and int(name) < 1 << 63


def list_segments(path: str) -> tuple[list[Segment], list[str]]:
    """The files of one folder in order, and the paths of what else is in it. OSError when there is no such folder."""
    segments, foreign = [], []
    for entry in list(os.scandir(path)):
        try:
            is_file, size = entry.is_file(), entry.stat().st_size
        except FileNotFoundError:  # a running broker removed it meanwhile, or a link that leads nowhere
            is_file, size = False, 0
            if not os.path.lexists(entry.path):
                continue
        if is_file and is_segment_name(entry.name):
            segments.append(Segment(int(entry.name), entry.path, size))
        else:
            foreign.append(entry.path)
    return sorted(segments), foreign


def read_at(path: str, position: int, size: int) -> bytes:
    """Up to `size` bytes of a file from `position` on; b"" when there is no such file any more. OSError."""
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return b""
    try:
        return pread(fd, size, position)
    finally:
        os.close(fd)


def pread(fd: int, size: int, position: int) -> bytes:
    """Like os.pread, but only shorter than `size` where the file ends; nothing for a negative size."""
    data = os.pread(fd, max(size, 0), position)
    if len(data) == size or not data:
        return data
    parts, got = [data], len(data)
    while got < size and (data := os.pread(fd, size - got, position + got)):
        parts.append(data)
        got += len(data)
    return b"".join(parts)


_MOST_LINKS = 40  # as the kernel follows
_DESCRIPTOR = r"/proc/(\d+)/(?:task/\d+/)?fd/(\d+)\Z"


@contextmanager
def writing(path: str, replace: bool) -> Iterator[IO[bytes]]:
    """A stream into `path`. OSError; FileExistsError for a file that is there, unless `replace`.

    Symbolic links are followed, and stay. A file appears when the block has ended well, in the mode of the one that it
    replaces. A pipe, a terminal or another character device is written to; so is what an open descriptor leads to
    (/dev/stdout, /dev/fd/3), where it stands.
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
        with suppress(FileNotFoundError):  # it has its name, and that is perhaps not on the disk
            os.remove(part)
        raise


def _followed(path: str) -> str:
    """Where symbolic links end: an absolute path. What /proc calls a link of a descriptor is not followed: only who
    opens it comes to a pipe."""
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


CONFIG_HOME_ENV = "XDG_CONFIG_HOME"
_PACKAGE = Path(__file__).resolve().parents[1]


def rocketmq_home() -> Path:
    """The folder above `conf/`. Never the one that a package was installed into: the next install would empty it."""
    # Differs: Java's start scripts set the variable, and its servers refuse to start without it
    named = os.environ.get(ROCKETMQ_HOME_ENV)
    return Path(named) if named else default_rocketmq_home()


def default_rocketmq_home() -> Path:
    """The same where the environment names none."""
    return checkout() or user_home()


def package_folder() -> Path:
    """The folder of the package rmqha."""
    return _PACKAGE


def checkout() -> Path | None:
    """The folder of the sources that the package is run from; None when it was installed."""
    folder = _PACKAGE.parent
    return folder if (folder / "setup.cfg").is_file() and (folder / "conf").is_dir() else None


def user_home() -> Path:
    """`rmqha` in the user's config folder, as the XDG base directory specification has it."""
    named = os.environ.get(CONFIG_HOME_ENV, "")
    # a relative path is to be passed over
    return Path(named if os.path.isabs(named) else os.path.expanduser("~/.config")) / "rmqha"


def templates() -> Path:
    """The configuration files that rmqha comes with: `conf/` of the checkout, or the package's copy of it."""
    source = checkout()
    return source / "conf" if source is not None else _PACKAGE / "conf"


_REQUIREMENT = r"Requires-Dist: (?P<requirement>[^;\n]+); extra == ['\"](?P<extra>[\w-]+)['\"]"


def how_to_install(extra: str) -> str:
    """The command that adds an extra of setup.cfg to this Python."""
    pip = f"{shlex.quote(sys.executable or 'python3')} -m pip install"
    return f"{pip} {' '.join(map(shlex.quote, _wanted(extra)))}"


def _wanted(extra: str) -> list[str]:
    """What pip is given: rmqha with the extra from where it came, or the extra's libraries where that is gone."""
    source = checkout()
    if source is not None:
        return [f"{source}[{extra}]"]
    info = _dist_info()
    came_from = info / "direct_url.json" if info is not None else None
    if info is None or came_from is None or not came_from.is_file():  # pip notes the place of all but an index
        return [f"rmqha[{extra}]"]
    try:
        origin = parse_json(came_from.read_bytes(), str(came_from))
        url, vcs = str(origin["url"]), f"{origin['vcs_info']['vcs']}+" if "vcs_info" in origin else ""
    except (KeyError, TypeError, ValueError):  # not as pip writes it
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
    """The folder in which pip noted what it installed, and from where."""
    return next(iter(package_folder().parent.glob("rmqha-*.dist-info")), None)
