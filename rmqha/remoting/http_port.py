"""A small HTTP port beside the servers' own: GET of a few pages that are made when they are asked for.

    selector: listening socket --accept--> <service name>_<n> (pool): read the request, make the page, write, close
    HttpPort, each second: connections that take too long are ended
"""
import http.server
import logging
import selectors
import socket
import time
from collections.abc import Callable
from functools import partial

from rmqha.common.metrics.pages import Page
from rmqha.common.service_thread import ServiceThread
from rmqha.common.thread_pool import NamedThreadPool, RejectedExecutionError
from rmqha.common.waker import Waker
from rmqha.remoting.common.dual_stack import plain_address
from rmqha.remoting.common.listening import listen_at

log = logging.getLogger("RocketmqRemoting")

MAX_CONNECTION_S = 30.0  # from accept to close, whoever is slow
_THREADS, _WAITING = 4, 16  # connections that are served, and that wait, at a time
_BACKLOG = 64
_LOOK_S = 1.0
_ACCEPT_PAUSE_MS = 100


class HttpPort(ServiceThread):
    """Serves `page` at host:port; port 0 takes a free one, see `local_port`. One request a connection.

    It asks nobody who they are: the address that it listens at decides who may read.
    """

    max_failures = 10

    def __init__(self, host: str, port: int, config_key: str, page: Callable[[str], Page]) -> None:
        super().__init__()
        self.daemon = True
        self._host, self._port, self._config_key, self._page = host, port, config_key, page
        self.local_port = 0  # the bound port, once started
        self._listener: socket.socket | None = None  # closed by the service's thread
        self._waker: Waker | None = None  # from start on; closed by the service's thread
        self._pool = NamedThreadPool("HttpPortThread_", _THREADS, _WAITING)
        self._open: dict[socket.socket, float] = {}  # since when; single dict operations only

    def start(self) -> None:
        """Listen and serve. PortError when that can't be."""
        self._listener = listen_at(self._host, self._port, self._config_key, _BACKLOG)
        self.local_port = self._listener.getsockname()[1]
        self._waker = Waker()
        super().start()

    def shutdown(self, interrupt: bool = False) -> None:
        """Close the port and all connections. Idempotent."""
        super().shutdown(interrupt)
        self._end_connections(older_than_s=-1)
        self._pool.shutdown()

    def wakeup(self) -> None:
        super().wakeup()
        if self._waker is not None:
            self._waker.wakeup()

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        listener, waker = self._listener, self._waker
        assert listener is not None and waker is not None  # start has made them
        try:
            self.keep_going(partial(self._accept_until_stopped, listener, waker))
        finally:
            listener.close()
            waker.close()
        log.info("%s service end", self.get_service_name())

    def _accept_until_stopped(self, listener: socket.socket, waker: Waker) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(waker, selectors.EVENT_READ)
            while not self.stopped:
                selector.select(_LOOK_S)
                waker.drain()
                if not self._accept_all(listener):
                    self.wait_for_running(_ACCEPT_PAUSE_MS)
                self._end_connections(MAX_CONNECTION_S)

    def _accept_all(self, listener: socket.socket) -> bool:
        """Take all that wait; False when this process can't take more now."""
        while not self.stopped:
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return True
            except ConnectionError as error:
                log.info("a connection was gone before it was accepted: %s", error)
                continue
            except OSError as error:
                log.error("%s service has exception. %s", self.get_service_name(), error)
                return False
            self._open[sock] = time.monotonic()
            try:
                self._pool.submit(self._serve, sock, address)
            except RejectedExecutionError:
                log.warning("%s: too many connections at a time, that of %s is closed", self.get_service_name(),
                            plain_address(address))
                self._close(sock)
        return True

    def _serve(self, sock: socket.socket, address: tuple[str, int]) -> None:
        try:
            sock.setblocking(True)
            _Handler(sock, address, self._page)
        except OSError as error:  # gone, or ended for being slow
            log.info("%s: connection of %s: %s", self.get_service_name(), plain_address(address), error)
        finally:
            self._close(sock)

    def _close(self, sock: socket.socket) -> None:
        self._open.pop(sock, None)
        sock.close()

    def _end_connections(self, older_than_s: float) -> None:
        """The thread that serves one sees its end, and closes it."""
        now = time.monotonic()
        for sock, since in list(self._open.items()):
            if now - since > older_than_s:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError as error:
                    log.debug("a connection was over before it was ended: %s", error)


class _Handler(http.server.BaseHTTPRequestHandler):
    """One request."""

    server_version, sys_version = "rmqha", ""
    timeout = 5  # seconds, for each read and write

    def __init__(self, sock: socket.socket, address: tuple[str, int], page: Callable[[str], Page]) -> None:
        self._page = page
        super().__init__(sock, address, None)  # type: ignore[arg-type]  # the handler has no use for a server

    def do_GET(self) -> None:
        """Answer with the page."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answer with its length."""
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        try:
            status, content_type, body = self._page(self.path)
        except Exception as error:
            log.exception("the page %r can't be made", self.path[:100])
            status, content_type, body = 500, "text/plain; charset=utf-8", [f"{error!r}; the log has more\n".encode()]
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(sum(map(len, body))))
        self.end_headers()
        if with_body:
            self.wfile.writelines(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not worth a line."""
        log.debug(format, *args)
