"""A folder with two contents: what the page cache has (the files themselves) and what was forced to the disk.

While a SyncedDisk is in use, each `os.fsync` and `os.fdatasync` of a file in its folder notes what the file holds, and
that of a folder which names it has. A loss of power goes back to that, plus whatever the kernel happened to have
written besides: any later sectors of each file, any later names of each folder.
"""
import os
import random
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

SECTOR = 512
PAGE = 4096


class PowerCut(BaseException):
    """The machine stops in the middle of a sync. No Exception: nobody may catch it on the way."""


class NothingByChance(random.Random):
    """Chance under which nothing reaches the disk that was not forced to it."""

    def choice(self, seq):
        """The first: no sector, the length and the names that were synced."""
        return seq[0]

    def random(self) -> float:
        """Never less than any chance."""
        return 1.0


class EverythingByChance(NothingByChance):
    """Chance under which all that was written reaches the disk."""

    def choice(self, seq):
        """The last."""
        return seq[-1]

    def random(self) -> float:
        """Less than any chance."""
        return -1.0


class _File(NamedTuple):
    fd: int  # held open, so that the number of its inode is not given to another file
    synced: bytes


class _Image(NamedTuple):
    files: dict[str, bytes]
    folders: list[str]


class SyncedDisk:
    """The disk below `root`, which is on it for good. Inode numbers are the identity of files and folders.

    `journaled`: as ext4 and XFS do, to sync a new file brings its name to the disk, too; POSIX promises no such thing.
    """

    def __init__(self, root: Path, journaled: bool = False) -> None:
        self.root = Path(root)
        self.journaled = journaled
        self.root.mkdir(parents=True, exist_ok=True)
        self._prefix = str(self.root)
        self._files: dict[int, _File] = {}
        self._folders: dict[int, tuple[int, dict[str, int]]] = {}  # descriptor, and the names that are on the disk
        self.is_cut = False  # a PowerCut was raised since the power was there
        self.syncs_left: int | None = None  # PowerCut at the sync behind so many; None: never
        self.note_all()

    # What reaches the disk.

    def note_all(self) -> None:
        """Everything is on the disk as it is now."""
        self.close()
        for folder, _folders, names in os.walk(self.root):
            self._note_folder(_open_folder(folder), own=True)
            for name in names:
                self._note_file(os.open(os.path.join(folder, name), os.O_RDONLY), own=True)

    def close(self) -> None:
        """Let go of all descriptors."""
        for file in self._files.values():
            os.close(file.fd)
        for fd, _names in self._folders.values():
            os.close(fd)
        self._files.clear()
        self._folders.clear()

    def holds(self, fd: int) -> bool:
        """Whether `fd` is of a file or folder of this disk."""
        path = os.readlink(f"/proc/self/fd/{fd}")
        return path.startswith(self._prefix) and path[len(self._prefix):len(self._prefix) + 1] in ("", os.sep)

    def sync(self, fd: int) -> None:
        """`fd` was forced to the disk."""
        if self.syncs_left is not None and not os.readlink(f"/proc/self/fd/{fd}").endswith(f"{os.sep}lock"):
            if self.syncs_left == 0:
                self.is_cut = True
                raise PowerCut
            self.syncs_left -= 1
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            self._note_folder(fd)
        else:
            self._note_file(fd)

    def _note_file(self, fd: int, own: bool = False) -> None:
        inode = os.fstat(fd).st_ino
        known = self._files.get(inode)
        # opened anew: a duplicate would keep its locks
        held = known.fd if known is not None else fd if own else os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
        self._files[inode] = _File(held, _content(held))
        if self.journaled and not own and known is None:
            self._note_names_of(Path(os.readlink(f"/proc/self/fd/{fd}")))

    def _note_names_of(self, path: Path) -> None:
        """The journal brings a new file's name, and those of new folders above it, to the disk with the file."""
        if path.exists() and path != self.root:
            number, folder = path.stat().st_ino, _open_folder(str(path.parent))
            inode = os.fstat(folder).st_ino
            if inode in self._folders:
                self._folders[inode][1][path.name] = number
                os.close(folder)
            else:
                self._folders[inode] = folder, {path.name: number}
            self._note_names_of(path.parent)

    def _note_folder(self, fd: int, own: bool = False) -> None:
        inode = os.fstat(fd).st_ino
        known = self._folders.get(inode)
        held = known[0] if known is not None else fd if own else _open_folder(f"/proc/self/fd/{fd}")
        self._folders[inode] = held, _names(fd)

    def write_back(self, rng: random.Random) -> None:
        """Some of what was not forced reaches the disk by chance, as when the kernel writes pages back."""
        for inode, file in list(self._files.items()):
            if rng.random() < 0.3:
                self._files[inode] = _File(file.fd, _mixed(file.synced, _content(file.fd), rng))
        for inode, (fd, names) in list(self._folders.items()):
            if rng.random() < 0.3:
                self._folders[inode] = fd, _mixed_names(names, _names(fd), rng)

    # What is left of it.

    def lose_power(self, rng: random.Random) -> None:
        """Only what is on the disk stays, and what was on its way there by chance. No file may be in use."""
        image = _Image({}, [])
        self._take_folder("", os.stat(self.root).st_ino, rng, image)
        self.syncs_left, self.is_cut = None, False
        for entry in os.scandir(self.root):
            shutil.rmtree(entry.path) if entry.is_dir() else os.unlink(entry.path)
        for folder in image.folders:
            (self.root / folder).mkdir()
        for name, content in image.files.items():
            (self.root / name).write_bytes(content)
        self.note_all()

    def _take_folder(self, path: str, inode: int, rng: random.Random, image: _Image) -> None:
        known = self._folders.get(inode)
        now = _names(known[0]) if known is not None else _names_in(self.root / path)
        for name, number in sorted(_mixed_names(known[1] if known is not None else {}, now, rng).items()):
            below = os.path.join(path, name)
            file = self._files.get(number)
            if file is not None:
                image.files[below] = _mixed(file.synced, _content(file.fd), rng)
            elif number in self._folders or (self.root / below).is_dir():
                image.folders.append(below)
                self._take_folder(below, number, rng, image)
            elif (self.root / below).exists():
                image.files[below] = _mixed(b"", (self.root / below).read_bytes(), rng)


@contextmanager
def in_use(*disks: SyncedDisk) -> Iterator[None]:
    """`os.fsync` and `os.fdatasync` of this process go to `disks`; those of other files are left out."""
    real = os.fsync, os.fdatasync

    def sync(fd: int) -> None:
        for disk in disks:
            if disk.holds(fd):
                disk.sync(fd)

    os.fsync = os.fdatasync = sync
    try:
        yield
    finally:
        os.fsync, os.fdatasync = real
        for disk in disks:
            disk.close()


def _open_folder(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def _content(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


def _names(fd: int) -> dict[str, int]:
    with os.scandir(fd) as entries:
        return {entry.name: entry.inode() for entry in entries}


def _names_in(folder: Path) -> dict[str, int]:
    with os.scandir(folder) as entries:
        return {entry.name: entry.inode() for entry in entries}


def _mixed(synced: bytes, now: bytes, rng: random.Random) -> bytes:
    """`synced`, with any of the sectors in which `now` is other."""
    if synced == now:
        return now
    chance, unit = rng.choice((0.0, 0.2, 0.5, 0.8, 1.0)), rng.choice((SECTOR, SECTOR, PAGE))
    length = rng.choice((len(synced), len(now)))
    mixed = bytearray(synced[:length].ljust(length, b"\0"))
    for at in range(0, length, unit):
        if rng.random() < chance:
            mixed[at:at + unit] = now[at:min(at + unit, length)].ljust(len(mixed[at:at + unit]), b"\0")
    return bytes(mixed)


def _mixed_names(synced: dict[str, int], now: dict[str, int], rng: random.Random) -> dict[str, int]:
    """The names of `synced`, with any of the changes that lead to `now`."""
    if synced == now:
        return now
    mixed, chance = dict(synced), rng.choice((0.0, 0.5, 1.0))
    for name in sorted(synced.keys() | now.keys()):
        if synced.get(name) != now.get(name) and rng.random() < chance:
            if name in now:
                mixed[name] = now[name]
            else:
                del mixed[name]
    return mixed
