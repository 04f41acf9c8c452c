"""A connection under TLS that looks like its plain, non-blocking socket.

    socket --recv--> [incoming BIO] --SSLObject--> plain bytes         (IO thread)
    plain bytes --SSLObject--> [outgoing BIO] --> [unsent] --> socket  (any thread)

All that has arrived is decrypted at once, so nothing readable waits where a selector can't see it; and bytes count as
sent when the socket has taken the last of their records, so a queue in front of it works as in front of a socket.
"""
import contextlib
import errno
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence

from rmqha.remoting.protocol.remoting_command import Buffer

MAX_RECORD = 5 + (1 << 14) + 2048  # bytes: header, content, what encryption adds at most (RFC 5246, 6.2.3)
ENCRYPT_AT_ONCE = 256 << 10  # plain bytes

_HANDSHAKE_READ = 16 << 10


class TlsSocket:
    """A connected socket and its TLS state. `on_full()` is called when a handshake's bytes wait for room in the socket.

    Java: io.netty.handler.ssl.SslHandler
    """

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, server_side: bool,
                 on_full: Callable[[], None] | None = None) -> None:
        self._socket = connected
        self._on_full = on_full
        # Guarded by _lock, with the two BIOs and the SSLObject:
        self._lock = threading.Lock()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side)
        self._unsent: Buffer = b""  # encrypted, not taken by the socket yet
        self._encrypted = 0  # plain bytes of a send that _unsent ends with; not reported as sent yet
        self._established = False
        self._ended = False  # the peer has said that it sends no more

    @property
    def is_established(self) -> bool:
        """True once the handshake is done."""
        return self._established

    def handshake(self, timeout_s: float) -> None:
        """Shake hands, blocking, on the thread that connects; the socket is left with a time-out.

        Raises OSError: ssl.SSLError, TimeoutError, or what the socket says.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            with self._lock:
                try:
                    self._shake_hands()
                finally:  # what comes next, or the alert
                    self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                    self._socket.sendall(self._outgoing.read())
                if self._established:  # no plain bytes are left in the BIO: a server does not speak first
                    return
            data = self._socket.recv(_HANDSHAKE_READ)
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "closed during the TLS handshake")
            self._incoming.write(data)

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def getsockname(self) -> tuple[str, int]:
        """The socket's own address."""
        address: tuple[str, int] = self._socket.getsockname()
        return address

    def recv_into(self, buffer: memoryview) -> int:
        """Plain bytes read; 0 at the end. BlockingIOError when there are none yet. `buffer` > MAX_RECORD."""
        size = self._socket.recv_into(buffer[:-MAX_RECORD])  # with a record begun before: never more than `buffer`
        return self.decrypt_in(buffer, size) if size else 0

    def decrypt_in(self, buffer: memoryview, size: int) -> int:
        """As `recv_into`, for `size` bytes which are at the start of `buffer` already."""
        with self._lock:
            self._incoming.write(buffer[:size])
            try:
                self._shake_hands()
                size = self._decrypt(buffer) if self._established else 0
            except ssl.SSLError:
                with contextlib.suppress(OSError):  # the alert that tells the peer
                    self._push()
                raise
            is_full = not self._push()
        if is_full and self._on_full is not None:
            self._on_full()
        if size or self._ended:
            return size
        raise BlockingIOError(errno.EAGAIN, "no whole record yet")

    def push(self) -> bool:
        """Send what is encrypted; False when the socket is full."""
        with self._lock:
            return self._push()

    def send(self, data: Buffer) -> int:
        """How many bytes of `data` the socket has taken, encrypted; BlockingIOError while it is full."""
        return self.sendmsg((data,))

    def sendmsg(self, buffers: Sequence[Buffer]) -> int:
        """As `send`. After a BlockingIOError the next call has to begin with the same bytes."""
        with self._lock:
            if not self._established:  # nobody knows of a connection before its first request
                raise ConnectionError(errno.ENOTCONN, "the TLS handshake is not done")
            if not self._encrypted:
                chunk = _gather(buffers)
                self._encrypted, rest = len(chunk), memoryview(chunk)
                while rest:
                    rest = rest[self._ssl.write(rest):]
            if not self._push():
                raise BlockingIOError(errno.EAGAIN, "the socket is full")
            sent, self._encrypted = self._encrypted, 0
            return sent

    def shutdown(self, how: int) -> None:
        """Say goodbye to the peer if that is possible at once, and shut the socket down."""
        with self._lock, contextlib.suppress(OSError):  # `unwrap` always misses the peer's goodbye
            if self._established and not self._unsent:
                with contextlib.suppress(ssl.SSLError):
                    self._ssl.unwrap()
                self._push()
        self._socket.shutdown(how)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _shake_hands(self) -> None:
        """Go on with the handshake as far as the bytes reach. Under _lock."""
        if not self._established:
            with contextlib.suppress(ssl.SSLWantReadError):
                self._ssl.do_handshake()
                self._established = True

    def _decrypt(self, buffer: memoryview) -> int:
        """All plain bytes there are, into `buffer`. Under _lock."""
        taken = 0
        while taken < len(buffer) and not self._ended:
            try:
                size: int = self._ssl.read(len(buffer) - taken, buffer[taken:])  # type: ignore[assignment]  # a count
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                size = 0
            taken += size
            self._ended = not size
            if not (self._incoming.pending or self._ssl.pending()):  # cheaper than asking in vain
                break
        return taken

    def _push(self) -> bool:
        """Send until nothing is left (True) or the socket is full. Under _lock."""
        if self._outgoing.pending:
            encrypted = self._outgoing.read()
            self._unsent = b"".join((self._unsent, encrypted)) if self._unsent else encrypted
        while self._unsent:
            try:
                sent = self._socket.send(self._unsent)
            except (BlockingIOError, InterruptedError):
                return False
            self._unsent = memoryview(self._unsent)[sent:] if sent < len(self._unsent) else b""
        return True


def _gather(buffers: Sequence[Buffer]) -> Buffer:
    """The first bytes of `buffers`, ENCRYPT_AT_ONCE at most: small ones share a record, large ones are not copied."""
    first = buffers[0]
    if len(buffers) == 1 or len(first) >= ENCRYPT_AT_ONCE:
        return memoryview(first)[:ENCRYPT_AT_ONCE]
    parts, room = [], ENCRYPT_AT_ONCE
    for buffer in buffers:
        if room <= 0:
            break
        parts.append(memoryview(buffer)[:room])
        room -= len(buffer)
    return b"".join(parts)
