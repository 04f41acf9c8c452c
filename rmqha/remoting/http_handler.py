"""The handler of the HTTP port's requests: the standard library reads a request, and a page answers it."""
import http.server
import io
import logging
import socket
from collections.abc import Callable
from http import HTTPStatus

from rmqha.common.metrics import Page

log = logging.getLogger("RocketmqRemoting")

_METHODS = "GET, HEAD, OPTIONS"


class Handler(http.server.BaseHTTPRequestHandler):
    """The handler of one request. Its head has been received already."""

    server_version, sys_version = "rmqha", ""
    timeout = 5  # s, for each read and write

    def __init__(self, sock: socket.socket, address: tuple[str, int], page: Callable[[str], Page],
                 head: bytes) -> None:
        self._page, self._head = page, head
        super().__init__(sock, address, None)  # type: ignore[arg-type]  # the handler has no use for a server

    def setup(self) -> None:
        """Read from the bytes that were received already."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BytesIO(self._head)

    def do_GET(self) -> None:
        """Answer with the page."""
        self._write(*self._made(), with_body=True)

    def do_HEAD(self) -> None:
        """Answer with the page's headers only."""
        self._write(*self._made(), with_body=False)

    def do_OPTIONS(self) -> None:
        """Answer with the page's status only, as Patroni does: HAProxy's `option httpchk` sends OPTIONS by default."""
        self.send_response_only(self._made().status)
        self.end_headers()

    def _made(self) -> Page:
        try:
            return self._page(self.path)
        except Exception as error:
            log.exception("the page %r failed", self.path[:100])
            return Page(500, "text/plain; charset=utf-8", [f"{error!r}; see the log\n".encode()])

    def _write(self, status: int, content_type: str, body: list[bytes], with_body: bool) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(sum(map(len, body))))
        # A role may change at any moment.
        self.send_header("Cache-Control", "no-store")
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", _METHODS)
        self.end_headers()
        if with_body:
            self.wfile.writelines(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer an invalid request. The library uses 501 for a method that this class does not have."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self._write(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain; charset=utf-8",
                         [f"methods: {_METHODS}\n".encode()], with_body=True)
        else:
            super().send_error(code, message, explain)

    def log_message(self, format: str, *args: object) -> None:
        """Log requests at debug level only."""
        log.debug(format, *args)
