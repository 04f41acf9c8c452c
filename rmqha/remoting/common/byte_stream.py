"""A plain TCP connection for one thread: waits with limits, and its errors say which peer."""
import errno
import os
import select
import socket
import time


class StreamError(Exception):
    """The connection can't be made, or has ended; the text names the peer and the reason."""


class ByteStream:
    """One connection, used by one thread. `address` is (host, port); times are seconds."""

    def __init__(self, address: tuple[str, int], connect_timeout_s: float) -> None:
        self.name = f"{address[0]}:{address[1]}"
        try:
            self._socket = socket.create_connection(address, connect_timeout_s)
        except OSError as error:
            raise StreamError(f"{self.name} can't be reached: {error.strerror or error}") from error
        if self._socket.getsockname() == self._socket.getpeername():
            self._socket.close()
            raise StreamError(f"{self.name} can't be reached: nobody listens there")
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive_into(self, view: memoryview, timeout_s: float) -> int:
        """Read once into `view`; how many bytes, 0 when none came in time. StreamError when the peer has closed."""
        try:
            if not self._is_ready(select.POLLIN, timeout_s):
                return 0
            count = self._socket.recv_into(view)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise StreamError(f"{self.name}: {error.strerror or error}") from error
        if count == 0:
            raise StreamError(f"{self.name} has closed the connection")
        return count

    def send_all(self, data: bytes, timeout_s: float) -> None:
        """Send all of `data`. StreamError when it does not go out in time."""
        deadline = time.monotonic() + timeout_s
        while data:
            try:
                data = data[self._socket.send(data):]
            except BlockingIOError:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise StreamError(f"{self.name} takes nothing: {os.strerror(errno.ETIMEDOUT)}") from None
                self._is_ready(select.POLLOUT, left_s)
            except OSError as error:
                raise StreamError(f"{self.name}: {error.strerror or error}") from error

    def _is_ready(self, event: int, timeout_s: float) -> bool:
        # poll, not select: that one takes no descriptors above 1023
        poll = select.poll()
        poll.register(self._socket, event)
        return bool(poll.poll(timeout_s * 1000))

    def close(self) -> None:
        """End the connection."""
        self._socket.close()
