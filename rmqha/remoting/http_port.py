"""A small HTTP port beside a server's own ports. It answers with a few pages, which are generated on request.

    HttpPort: selector: listening socket --accept--> connections: read requests as they arrive
        --a request--> HttpPortThread_<n> (pool): generate the page, write, close
        --for a health page, or one about roles--> HttpPortHealthThread_1, the same: not delayed by slow readers
    HttpPort, every second: end connections that take too long

`MetricsPort` is the optional port for a server's metrics and health checks.
"""
import logging
import re
import selectors
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from rmqha.common import metrics
from rmqha.common.metrics import Page
from rmqha.common.service_thread import ServiceThread
from rmqha.common.threads import NamedThreadPool, RejectedExecutionError, Waker
from rmqha.remoting.addresses import listen_at, plain_address

if TYPE_CHECKING:
    from rmqha.common.metrics import Pages, Subject


log = logging.getLogger("RocketmqRemoting")

# From accept to close, whichever side is slow.
MAX_CONNECTION_S = 30.0
# The number of connections that are served at a time, and of those that wait for a thread.
_THREADS, _WAITING = 4, 16
# The number of connections that wait for a health page.
_HEALTH_WAITING = 64
# The number of connections whose request is incomplete. Beyond it, the oldest is closed.
_ASKING = 64
# After this many bytes a request is no longer waited for. The standard library accepts no line this long.
_MAX_HEAD = (64 << 10) + 1
_BACKLOG = 64
_LOOK_S = 1.0
_ACCEPT_PAUSE_MS = 100
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_WORDS = 3  # words of a request line


class HttpPort(ServiceThread):
    """The HTTP port: a thread that accepts connections and answers one request per connection with `page(path)`.

    Port 0 takes a free one, see `local_port`. Requests are not authenticated: the address that it listens on decides
    who can read. `health_paths` are pages that are quick to generate, and needed even when all threads are busy.
    """

    max_failures = 10

    def __init__(self, host: str, port: int, config_key: str, page: Callable[[str], Page],
                 health_paths: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self._health_paths = health_paths
        self.daemon = True
        self._host, self._port, self._config_key, self._page = host, port, config_key, page
        # The bound port, once started.
        self.local_port = 0
        # Closed by the service's thread, like the waker.
        self._listener: socket.socket | None = None
        # From start on.
        self._waker: Waker | None = None
        self._pool = NamedThreadPool("HttpPortThread_", _THREADS, _WAITING)
        self._health_pool = NamedThreadPool("HttpPortHealthThread_", 1, _HEALTH_WAITING)
        # The received part of incomplete requests, oldest first. Used only by the service's thread.
        self._asking: dict[socket.socket, bytes] = {}
        # The time when each open connection was accepted. Any thread; single dict operations only.
        self._open: dict[socket.socket, float] = {}

    def start(self) -> None:
        """Open the port and serve. Raises PortError if it can't be opened."""
        # Imported late: `http` imports the mail, HTML and TLS modules, and few servers have this port.
        from rmqha.remoting.http_handler import Handler

        self._handler: type[Handler] = Handler
        self._listener = listen_at(self._host, self._port, self._config_key, _BACKLOG)
        self.local_port = self._listener.getsockname()[1]
        self._waker = Waker()
        super().start()

    def shutdown(self, interrupt: bool = False) -> None:
        """Close the port and all connections. Idempotent."""
        super().shutdown(interrupt)
        self._end_connections(older_than_s=-1)
        self._pool.shutdown()
        self._health_pool.shutdown()

    def wakeup(self) -> None:
        super().wakeup()
        if self._waker is not None:
            self._waker.wakeup()

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        listener, waker = self._listener, self._waker
        assert listener is not None and waker is not None  # set by start
        try:
            self.keep_going(partial(self._accept_until_stopped, listener, waker))
        finally:
            while self._asking:
                self._close(self._asking.popitem()[0])
            listener.close()
            waker.close()
        log.info("%s service end", self.get_service_name())

    def _accept_until_stopped(self, listener: socket.socket, waker: Waker) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(waker, selectors.EVENT_READ)
            for sock in self._asking:  # left by an attempt that failed
                selector.register(sock, selectors.EVENT_READ)
            while not self.stopped:
                for key, _events in selector.select(_LOOK_S):
                    if isinstance(key.fileobj, socket.socket) and key.fileobj is not listener:
                        self._read(selector, key.fileobj)
                waker.drain()
                if not self._accept_all(selector, listener):
                    self.wait_for_running(_ACCEPT_PAUSE_MS)
                self._end_connections(MAX_CONNECTION_S)

    def _accept_all(self, selector: selectors.BaseSelector, listener: socket.socket) -> bool:
        """Accept all waiting connections. Return False if this process can't accept more now."""
        while not self.stopped:
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return True
            except ConnectionError as error:
                log.info("a connection was closed before it was accepted: %s", error)
                continue
            except OSError as error:
                log.error("%s service has exception. %s", self.get_service_name(), error)
                return False
            sock.setblocking(False)
            self._open[sock], self._asking[sock] = time.monotonic(), b""
            selector.register(sock, selectors.EVENT_READ)
            if len(self._asking) > _ASKING:
                oldest = next(iter(self._asking))
                self._refuse(selector, oldest)
        return True

    def _read(self, selector: selectors.BaseSelector, sock: socket.socket) -> None:
        """Read the next bytes of a request. Hand it to a pool when it is complete or can no longer become so."""
        if sock not in self._asking:  # closed earlier in this round
            return
        try:
            data = sock.recv(2 * _MAX_HEAD)
        except BlockingIOError:
            return
        except OSError as error:
            # Not logged at INFO: health checks may only connect, and a slow disk would delay this thread.
            log.debug("%s: a connection ended before its request was complete: %s", self.get_service_name(), error)
            data = b""
        head = self._asking[sock] = self._asking[sock] + data
        if not head:
            self._forget(selector, sock)
            self._close(sock)
            return
        line, line_ends, rest = head.partition(b"\n")
        words = line.split()
        if data and len(head) < _MAX_HEAD and not (
                line_ends and (len(words) != _WORDS or rest.startswith((b"\n", b"\r\n")) or _END_OF_HEAD.search(rest))):
            return
        path = words[1].partition(b"?")[0].decode("latin-1") if len(words) == _WORDS else ""
        pool = self._health_pool if path in self._health_paths else self._pool
        try:
            pool.submit(self._serve, sock, head)
        except RejectedExecutionError:
            self._refuse(selector, sock)
        else:
            self._forget(selector, sock)

    def _refuse(self, selector: selectors.BaseSelector, sock: socket.socket) -> None:
        log.warning("%s: too many connections at a time; closing the one from %s", self.get_service_name(), _peer(sock))
        self._forget(selector, sock)
        self._close(sock)

    def _forget(self, selector: selectors.BaseSelector, sock: socket.socket) -> None:
        del self._asking[sock]
        selector.unregister(sock)

    def _serve(self, sock: socket.socket, head: bytes) -> None:
        address = _peer(sock)
        try:
            sock.setblocking(True)
            self._handler(sock, address, self._page, head)
        except OSError as error:  # disconnected, or ended because it was too slow
            log.debug("%s: connection from %s: %s", self.get_service_name(), address, error)
        finally:
            self._close(sock)

    def _close(self, sock: socket.socket) -> None:
        self._open.pop(sock, None)
        sock.close()

    def _end_connections(self, older_than_s: float) -> None:
        """Shut down older connections. The thread that serves one notices it, and closes the socket."""
        now = time.monotonic()
        for sock, since in list(self._open.items()):
            if now - since > older_than_s:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError as error:
                    log.debug("a connection had already ended: %s", error)


def _peer(sock: socket.socket) -> tuple[str, int]:
    """Return the peer's address; ("", 0) if it has disconnected."""
    try:
        return plain_address(sock.getpeername())
    except OSError as error:
        log.debug("a connection has ended: %s", error)
        return "", 0


class MetricsPort:
    """The optional port for /metrics, /healthz, /readyz and the pages about the server's role.

    Port None disables it; 0 takes a free one (`local_port`).

    `new_subject` creates the subject whose state the pages show. Only `start` calls it, because most servers do not
    have this port.
    """

    def __init__(self, host: str, port: int | None, new_subject: "Callable[[], Subject]") -> None:
        self._host, self._port, self._new_subject = host, port, new_subject
        # From the first start on.
        self._pages: Pages | None = None
        # From start to shutdown.
        self._http_port: HttpPort | None = None

    @property
    def local_port(self) -> int:
        """The bound port, once started; 0 if it is disabled."""
        return self._http_port.local_port if self._http_port is not None else 0

    @property
    def is_alive(self) -> bool:
        """True while the port is served."""
        return self._http_port is not None and self._http_port.is_alive()

    def start(self) -> None:
        """Open the port. Raises PortError if it can't be opened. Without prometheus-client, /metrics answers 501."""
        if self._port is None or self._http_port is not None:
            return
        from rmqha.common.metrics import Pages

        pages = self._pages = self._pages or Pages(self._new_subject())
        http_port = HttpPort(self._host, self._port, metrics.CONFIG_KEY, pages.page, pages.health_paths)
        http_port.start()
        self._http_port, pages.is_stopped = http_port, False
        if not metrics.is_available():
            log.warning("%s=%d: /metrics answers 501, the other pages work: %s", metrics.CONFIG_KEY,
                        http_port.local_port, metrics.HOW_TO_INSTALL)

    def shutdown(self) -> None:
        """Close the port; pages that are being generated end early. Idempotent."""
        if self._pages is not None:
            self._pages.is_stopped = True
        http_port, self._http_port = self._http_port, None
        if http_port is not None:
            http_port.shutdown()
