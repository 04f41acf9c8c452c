"""One broker per store: the file `lock`, locked on its first byte for the life of the store."""
import errno
import fcntl
import logging
import os

log = logging.getLogger("RocketmqStore")

_CONTENT = b"lock"
_TAKEN = (errno.EACCES, errno.EAGAIN)


class StoreLock:
    """Excludes other brokers, Java's too: its FileChannel.tryLock(0, 1) is a POSIX lock on byte 0.

    A POSIX lock does not exclude the same process, so a second one (flock) is taken, which does.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock. RuntimeError when another store has it."""
        if self._fd >= 0:
            return
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
            os.pwrite(fd, _CONTENT, 0)
            os.fsync(fd)
        except OSError as error:
            os.close(fd)
            if error.errno in _TAKEN:
                raise RuntimeError(f"Lock failed,MQ already started: {self.path} is held by another broker") from error
            raise
        self._fd = fd

    def release(self) -> None:
        """Let go of it; idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
