"""A folder that a master's log is received into: a commit log folder's files, names and sizes, written at the end."""
import fcntl
import os
from types import TracebackType

from rmqha.common.filesystem import NAME_LENGTH, open_regular, pread
from rmqha.store import store_path_config_helper as paths
from rmqha.tools.ha.broker_admin import ReplicationToolError
from rmqha.tools.store import broker_lock
from rmqha.tools.store.log_reader import CommitLogReader
from rmqha.tools.store.segments import Folder, list_folder


class ReceivedLog:
    """The log in `folder`; a context manager, and only one at a time. Offsets are those of the commit log.

    `begin` and `end` are what the folder surely holds (both None while it is empty), `synced` what is on disk of it.
    After a restart it ends before its last record, which is there, but may have been cut.
    A file has its full size from its beginning; behind `end` are zeros.
    """

    def __init__(self, folder: str, file_size: int) -> None:
        self.folder = folder
        self.file_size = file_size
        self.begin: int | None = None
        self.end: int | None = None
        self.synced: int | None = None
        self._folder_fd = -1
        self._fd = -1  # of the file that holds `end`; -1: none yet
        self._fd_start = 0  # offset of its first byte
        self._dirty = False

    def __enter__(self) -> "ReceivedLog":
        os.makedirs(self.folder, exist_ok=True)
        self._folder_fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._lock()
            self._find_end()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            if not isinstance(error, OSError):  # after a failed write nothing is known of what an fsync would say
                self.sync()
        finally:
            self._close()

    def settled(self, settle_ms: float) -> int | None:
        """Where a record begins so that those before are at least `settle_ms` older than the newest.

        At the latest the last record's beginning; None while the folder is empty. Reads the last file, and earlier
        ones when all that is in it is young.
        """
        begin, end = self.begin, self.end
        if begin is None or end is None or end == begin:
            return begin
        newest: int | None = None
        found, at = begin, (end - 1) // self.file_size * self.file_size
        while at >= begin:
            begins = self._records_of(at, end)
            if begins:
                if newest is None:
                    newest, found = max(stored for _offset, stored in begins), begins[-1][0]
                young = next((offset for offset, stored in begins if stored > newest - settle_ms), None)
                if young is not None:
                    found = min(found, young)
                if young != begins[0][0]:
                    break
            at -= self.file_size
        return found

    def write(self, offset: int, data: memoryview | bytes) -> None:
        """Bytes of one file, right behind `end`; they are on disk after the next `sync`."""
        assert self.end in (None, offset), f"{offset} is not behind {self.end}"
        if self.begin is None:
            self.begin = self.end = offset
            self.synced = offset
        start = offset - offset % self.file_size
        if self._fd < 0 or self._fd_start != start:
            self._open_file(start)
        position = offset - start
        while data:
            written = os.pwrite(self._fd, data, position)
            data, position = data[written:], position + written
        self._dirty = True
        self.end = start + position
        if position == self.file_size:
            self.sync()

    def read(self, offset: int, size: int) -> bytes:
        """What the folder holds from `offset` on, within one file."""
        start = offset - offset % self.file_size
        fd = open_regular(self._path(start))
        try:
            return pread(fd, size, offset - start)
        finally:
            os.close(fd)

    def sync(self) -> None:
        """All that was written is on disk. OSError: it is not, and must not be acknowledged."""
        if self._dirty:
            os.fdatasync(self._fd)
            self._dirty = False
        self.synced = self.end

    def _lock(self) -> None:
        store_lock = paths.get_lock_file(os.path.dirname(os.path.abspath(self.folder)))
        if broker_lock.is_held(store_lock):
            raise ReplicationToolError(f"{self.folder} belongs to a running broker ({store_lock} is held); "
                                       "receive into another folder")
        try:
            fcntl.flock(self._folder_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ReplicationToolError(f"{self.folder}: another receiver writes here; give each its own folder"
                                       ) from None

    def _find_end(self) -> None:
        folder = list_folder([self.folder])
        self._check(folder)
        if not folder.segments:
            return
        first, last = folder.segments[0], folder.segments[-1]
        if last.size not in (0, self.file_size) or any(each.size != self.file_size for each in folder.segments[:-1]):
            wrong = next(each for each in folder.segments if each.size != self.file_size)
            raise ReplicationToolError(f"{wrong.path} has {wrong.size} bytes, the master's files have "
                                       f"{self.file_size} (mappedFileSizeCommitLog): receive into another folder")
        last_record, records_end = self._last_record(last.start)
        if records_end == first.start:  # nothing was received
            os.unlink(last.path)
            return
        self.begin, self.end = first.start, last_record
        self._open_file(last.start, exists=True)
        os.ftruncate(self._fd, records_end - last.start)  # what a crash left behind the last record
        os.ftruncate(self._fd, self.file_size)
        os.fsync(self._fd)
        self.synced = self.end

    def _check(self, folder: Folder) -> None:
        if folder.foreign:
            raise ReplicationToolError(f"{folder.foreign[0]} is no commit log file: a folder that receives a log holds "
                                       "nothing else; give an empty one, or one of an earlier receiver")
        for before, each in zip(folder.segments, folder.segments[1:]):
            if each.start != before.start + self.file_size:
                raise ReplicationToolError(f"{self.folder}: between {before.name} and {each.name} is a gap, or the "
                                           f"master's files are not of {self.file_size} bytes")
        if folder.segments and folder.segments[0].start % self.file_size:
            raise ReplicationToolError(f"{folder.segments[0].path} is no file of a log of {self.file_size} byte files")

    def _last_record(self, start: int) -> tuple[int, int]:
        """(where the last record of a file begins, where it ends); the blank of a full file counts as one.

        A record that has a wrong CRC, or names another place, does not count. The last one stays on disk, and is
        received again: when it was cut within its properties, nothing in it tells.
        """
        walk, last, end = self._log().walk(start, check_crc=True), start, start
        for records in walk:
            for each in records:
                if not each.crc_ok or each.physical_offset != each.offset:
                    return last, each.offset
                last, end = each.offset, each.offset + each.size
        full = start + self.file_size
        return (end, full) if walk.end.offset >= full else (last, end)

    def _records_of(self, start: int, log_end: int) -> list[tuple[int, int]]:
        """(offset, store time) of each record of one file that begins before `log_end`."""
        begins: list[tuple[int, int]] = []
        end = min(start + self.file_size, log_end)
        for records in self._log().walk(start):
            begins += [(record.offset, record.store_timestamp) for record in records if record.offset < end]
            if records[-1].offset >= end:
                break
        return begins

    def _log(self) -> CommitLogReader:
        return CommitLogReader(list_folder([self.folder]), self.file_size)

    def _path(self, start: int) -> str:
        return os.path.join(self.folder, f"{start:0{NAME_LENGTH}d}")

    def _open_file(self, start: int, exists: bool = False) -> None:
        if self._fd >= 0:
            self.sync()
            os.close(self._fd)
        flags = os.O_RDWR | os.O_CLOEXEC | (0 if exists else os.O_CREAT)
        self._fd, self._fd_start = open_regular(self._path(start), flags, 0o644), start
        if not exists:
            os.ftruncate(self._fd, self.file_size)
            os.fsync(self._fd)
            os.fsync(self._folder_fd)

    def _close(self) -> None:
        for fd in (self._fd, self._folder_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._folder_fd = -1
