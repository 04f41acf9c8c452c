"""The handler of the HTTP port's requests: the standard library reads a request, and a page answers it."""
import http.server
import io
import logging
import socket
from collections.abc import Callable

from rmqha.common.metrics import Page

log = logging.getLogger("RocketmqRemoting")


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
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answer with the page's headers only."""
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        try:
            status, content_type, body = self._page(self.path)
        except Exception as error:
            log.exception("the page %r failed", self.path[:100])
            status, content_type, body = 500, "text/plain; charset=utf-8", [f"{error!r}; see the log\n".encode()]
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(sum(map(len, body))))
        self.end_headers()
        if with_body:
            self.wfile.writelines(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log requests at debug level only."""
        log.debug(format, *args)
