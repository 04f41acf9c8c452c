"""A file system on a loop device whose backing file can be copied while it is mounted: what a loss of power leaves.

The backing file has only what was forced to the "disk"; all else is in the page cache of the mounted file system, and
is gone in a mounted copy. The broker stands still while the copy is taken (SIGSTOP), so the copy is of one moment.
Before it some pages may be written back by chance (sync_file_range) or with a commit of the journal, as a kernel does
when it likes: any subset of the unforced pages may survive.
"""
import ctypes
import functools
import os
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.faults.network import run
from tests.support.programs import not_installed

_SIZE = 1 << 30  # sparse
_PAGE = 4096
_WRITE_AND_WAIT = 1 | 2 | 4  # SYNC_FILE_RANGE_WAIT_BEFORE | _WRITE | _WAIT_AFTER
# The journal is committed by what asks for it only, never by the clock.
_OPTIONS = "loop,commit=6000,noatime"


@functools.cache
def why_not() -> str | None:
    """The reason why loop devices can't be had here; None when they can."""
    missing = not_installed("mkfs.ext4", "mount", "umount")
    if missing is not None:
        return missing
    if os.geteuid() != 0:
        return "needs root to mount loop devices"
    folder = Path(tempfile.mkdtemp(prefix="faults-loop-"))
    disk = Disk(folder / "image", folder / "mounted")
    try:
        disk.open()
    except (AssertionError, OSError, subprocess.SubprocessError) as failure:
        return f"loop devices do not work here: {failure}"
    finally:
        disk.close()
        shutil.rmtree(folder)
    return None


class Disk:
    """One file system in `image`, mounted at `mount_point`."""

    def __init__(self, image: Path, mount_point: Path):
        self._image = image
        self._copy = image.with_suffix(".copy")
        self._mount_point = mount_point

    def open(self) -> None:
        """Make an empty file system and mount it."""
        self._image.parent.mkdir(parents=True, exist_ok=True)
        self._mount_point.mkdir(parents=True, exist_ok=True)
        self._image.unlink(missing_ok=True)
        with open(self._image, "wb") as file:
            file.truncate(_SIZE)
        run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", str(self._image))
        self._mount()

    def _mount(self) -> None:
        run("mount", "-o", _OPTIONS, str(self._image), str(self._mount_point))

    def close(self) -> None:
        """Unmount; does nothing when it isn't mounted."""
        if os.path.ismount(self._mount_point):
            run("umount", str(self._mount_point))

    def write_back_some(self, rng: random.Random) -> str:
        """Let some unforced pages reach the disk by chance; what was done."""
        kind = rng.choice(["nothing", "pages", "pages", "journal"])
        if kind in ("pages", "journal"):
            files = [file for file in self._mount_point.rglob("*") if file.is_file() and file.stat().st_size]
            for file in rng.sample(files, min(len(files), 12)):
                self._write_back(file, rng)
        if kind == "journal":
            marker = self._mount_point / "journal-commit"
            with open(marker, "ab") as file:
                file.write(b"x")
                os.fsync(file.fileno())
        return kind

    @staticmethod
    def _write_back(file: Path, rng: random.Random) -> None:
        try:
            fd = os.open(file, os.O_RDWR)
        except FileNotFoundError:
            return  # replaced meanwhile
        try:
            pages = -(-os.fstat(fd).st_size // _PAGE)
            for page in rng.sample(range(pages), max(1, pages // 3)):
                ctypes.CDLL(None).sync_file_range(fd, ctypes.c_int64(page * _PAGE), ctypes.c_int64(_PAGE),
                                                  _WRITE_AND_WAIT)
        finally:
            os.close(fd)

    def take(self) -> None:
        """Remember what is on the disk now."""
        run("cp", "--sparse=always", "--reflink=never", str(self._image), str(self._copy))

    def lose_power(self) -> None:
        """Mount what `take` remembered in place of what there is; nobody may use the file system."""
        self.close()
        self._copy.replace(self._image)
        self._mount()
