"""Waking a thread that waits in a selector."""
import os
import threading


class Waker:
    """A descriptor to register for reading: `wakeup` from any thread makes the selector return.

    Many wake-ups before `drain` cost one write. The selecting thread calls `drain` before it looks at its work, so
    that what arrives later wakes it again. `close` belongs to the selecting thread.

    Java: java.nio.channels.Selector#wakeup
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._pending = False  # a hint only: a lost race costs one more write, never a wake-up
        self._open = threading.Lock()  # guards _fd: a closed number may already be somebody else's file

    def fileno(self) -> int:
        """The descriptor, -1 once closed."""
        return self._fd

    def wakeup(self) -> None:
        """Make the selector return, now or at its next select. Does nothing once closed."""
        if self._pending:
            return
        self._pending = True
        with self._open:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def drain(self) -> None:
        """Forget the wake-ups so far. Only by the selecting thread."""
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return  # nobody has woken us
        finally:
            self._pending = False

    def close(self) -> None:
        """Release the descriptor. Idempotent."""
        self._pending = True
        with self._open:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)
