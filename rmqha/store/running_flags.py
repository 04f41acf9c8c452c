"""The operations that the store may perform now, as bits."""
import os
import threading

NOT_READABLE_BIT = 1
NOT_WRITEABLE_BIT = 1 << 1
WRITE_LOGICS_QUEUE_ERROR_BIT = 1 << 2
WRITE_INDEX_FILE_ERROR_BIT = 1 << 3
DISK_FULL_BIT = 1 << 4
# Differs: a failed fsync leaves the state of the file unknown, because the kernel may have dropped the dirty pages and
# report success next time. So it stops all puts until a restart recovers the store; the original logs the exception and
# continues to acknowledge.
FLUSH_ERROR_BIT = 1 << 5
# from 5.1.4, where it is 1 << 5
FENCED_BIT = 1 << 6

_LOG_BITS = NOT_WRITEABLE_BIT | WRITE_LOGICS_QUEUE_ERROR_BIT | WRITE_INDEX_FILE_ERROR_BIT | FLUSH_ERROR_BIT | FENCED_BIT
_QUEUE_BITS = NOT_WRITEABLE_BIT | WRITE_LOGICS_QUEUE_ERROR_BIT | WRITE_INDEX_FILE_ERROR_BIT


class RunningFlags:
    """Flags that say whether the store is readable and writeable, and why not.

    Each `get_and_make_*` returns the previous state.

    Differs: the disk-full state is kept per file system (`get_and_make_disk_full(path)`), so that a nearly full disk of
    the consume queues is not declared healthy by the check of the commit log's disk.

    Java: org.apache.rocketmq.store.RunningFlags (4.9.8)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._full_disks: set[str] = set()  # guarded by _lock
        # Written under _lock, read freely:
        self.flag_bits = 0
        self.is_writeable = True  # puts are accepted
        # a flush has failed: nothing is acknowledged any more
        self.is_flush_error = False
        self.flush_error_reason = ""  # of the first one

    @property
    def is_readable(self) -> bool:
        """True when gets are served."""
        return not self.flag_bits & NOT_READABLE_BIT

    @property
    def is_cq_writeable(self) -> bool:
        """True when consume queues may grow; a full disk does not forbid it."""
        return not self.flag_bits & _QUEUE_BITS

    def get_and_make_not_writeable(self) -> bool:
        """Forbid writes."""
        return self._set_bit(NOT_WRITEABLE_BIT, _LOG_BITS | DISK_FULL_BIT)

    def make_logics_queue_error(self) -> None:
        """Record that a consume queue can't be written."""
        self._set_bit(WRITE_LOGICS_QUEUE_ERROR_BIT, 0)

    @property
    def is_logics_queue_error(self) -> bool:
        """True after `make_logics_queue_error`."""
        return bool(self.flag_bits & WRITE_LOGICS_QUEUE_ERROR_BIT)

    def make_index_file_error(self) -> None:
        """Record that an index file can't be written."""
        self._set_bit(WRITE_INDEX_FILE_ERROR_BIT, 0)

    @property
    def is_index_file_error(self) -> bool:
        """True after `make_index_file_error`."""
        return bool(self.flag_bits & WRITE_INDEX_FILE_ERROR_BIT)

    def make_flush_error(self, reason: str = "") -> None:
        """Record that a flush has failed, for `reason`."""
        with self._lock:
            self.flush_error_reason = self.flush_error_reason or reason
            self._become(self.flag_bits | FLUSH_ERROR_BIT)

    def make_fenced(self, fenced: bool) -> None:
        """Refuse puts until the controller has decided this replica's role, or (False) accept them again.

        Java: org.apache.rocketmq.store.RunningFlags#makeFenced (5.1.4)
        """
        if fenced:
            self._set_bit(FENCED_BIT, 0)
        else:
            self._clear_bit(FENCED_BIT, 0)

    @property
    def is_fenced(self) -> bool:
        """True while the role of this replica is undecided."""
        return bool(self.flag_bits & FENCED_BIT)

    def get_and_make_disk_full(self, disk: str = "") -> bool:
        """Record that `disk` is full; return True if no disk was full before."""
        with self._lock:
            before = not self.flag_bits & DISK_FULL_BIT
            self._full_disks.add(disk)
            self._become(self.flag_bits | DISK_FULL_BIT)
            return before

    def get_and_make_disk_ok(self, disk: str = "") -> bool:
        """Record that `disk` has space again; return True if no disk was full before."""
        with self._lock:
            before = not self.flag_bits & DISK_FULL_BIT
            self._full_disks.discard(disk)
            if not self._full_disks:
                self._become(self.flag_bits & ~DISK_FULL_BIT)
            return before

    def _set_bit(self, bit: int, mask: int) -> bool:
        with self._lock:
            before = not self.flag_bits & mask
            self._become(self.flag_bits | bit)
            return before

    def _clear_bit(self, bit: int, mask: int) -> bool:
        with self._lock:
            before = not self.flag_bits & mask
            self._become(self.flag_bits & ~bit)
            return before

    def _become(self, bits: int) -> None:
        self.flag_bits = bits
        self.is_writeable = not bits & (_LOG_BITS | DISK_FULL_BIT)
        self.is_flush_error = bool(bits & FLUSH_ERROR_BIT)


def disk_of(path: str) -> str:
    """Return a name for the file system of `path`, or of its nearest existing parent folder."""
    while not os.path.exists(path):
        parent = os.path.dirname(path)
        if parent == path:
            break
        path = parent
    try:
        return str(os.stat(path).st_dev)
    except OSError:
        return path
