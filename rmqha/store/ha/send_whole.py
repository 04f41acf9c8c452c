"""Sending small pieces whole: reports, and what is said at a handshake."""
import socket
from collections.abc import Callable

_ATTEMPTS = 3


def send_whole(sock: socket.socket, data: bytes, may_wait: Callable[[], bool] | None = None) -> None:
    """Send all of `data`; OSError when the connection is gone, BlockingIOError when the peer takes no more of it.

    `may_wait` is called when there is no room: it waits, or gives up with False. Without it nothing is waited for.
    """
    attempts = 0
    while data:
        try:
            data = data[sock.send(data):]
        except BlockingIOError:
            attempts += 1
            if not (attempts < _ATTEMPTS if may_wait is None else may_wait()):
                raise
