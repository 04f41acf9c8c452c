"""Serves the console over HTTP until it is interrupted, with a time limit for each request.

Without the limit, a client that sends half a request would hold a connection forever.
"""
import asyncio
import logging
import signal

import click
import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rmqha.common.program import ending_signals
from rmqha.tools.console.access import Access, Role
from rmqha.tools.console.app import create_app
from rmqha.tools.console.journal import set_up
from rmqha.tools.console.source import Source, Wanted
from rmqha.tools.terminal import CannotAnswerError

log = logging.getLogger("RocketmqTools")

# from the start of a connection, or a request's first byte, to the request's last byte
REQUEST_S = 20.0
_UNFINISHED = (h11.IDLE, h11.SEND_BODY)
_TIMEOUT = (b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain\r\ncontent-length: 32\r\n"
            b"connection: close\r\n\r\nthe request has not come in time")


class PatientProtocol(H11Protocol):  # type: ignore[misc, unused-ignore]  # the extra may be missing
    """A connection that is closed unless each request arrives completely within `request_s`, however it trickles in.

    uvicorn's own time-out covers only the time between two requests, and ends with any byte that arrives.
    """

    request_s = REQUEST_S
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override, unused-ignore]  # uvicorn
        """Start the time limit of the first request."""
        super().connection_made(transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request, or all of it."""
        self._begin()
        super().data_received(data)
        if self.conn.their_state not in _UNFINISHED:
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limit."""
        self._end()
        super().connection_lost(exc)

    def _begin(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.request_s, self._too_late)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        self._timer = None
        if self.transport.is_closing() or self.conn.their_state not in _UNFINISHED:
            return
        log.info("console: a request did not arrive completely within %g s", self.request_s)
        # no part of an answer was sent
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_TIMEOUT)
        self.transport.close()


# further ones are answered with 503
MOST_CONNECTIONS = 256


def serve(wanted: Wanted, access: Access, host: str, port: int) -> None:
    """Print the console's address, and serve it until SIGINT, SIGTERM or SIGHUP."""
    source = Source(wanted)
    config = uvicorn.Config(create_app(source, access), host=host, port=port, log_config=None, access_log=False,
                            server_header=False, date_header=True, ws="none", lifespan="off",
                            http=PatientProtocol, limit_concurrency=MOST_CONNECTIONS, timeout_graceful_shutdown=2)
    try:
        bound = config.bind_socket()
    except SystemExit:
        # uvicorn's way to report the error
        raise CannotAnswerError(f"can't listen on {host}:{port}: is the port in use, or the address not one of this "
                                "host? Use --port 0 for any free port") from None
    file = set_up()
    server = uvicorn.Server(config)
    # as uvicorn does, but from the first moment on
    for number in ending_signals():
        signal.signal(number, server.handle_exit)
    with source, bound:
        # A client that reads the address may connect at once.
        bound.listen()
        click.echo("\n".join(_told(access, host, bound.getsockname()[1], file)))
        server.run(sockets=[bound])


def _told(access: Access, host: str, port: int, log_file: str | None) -> list[str]:
    shown = f"[{host}]" if ":" in host else host
    needs_token = access.needs_sign_in or access.role > Role.SEE
    fragment = f"#token={access.token}" if needs_token else ""
    lines = [f"console at http://{shown}:{port}/{fragment}"]
    if needs_token:
        lines.append(f"token with the role {access.role.word}: {access.token}")
        lines.append("changes and sign-ins are logged here" + (f" and in {log_file}" if log_file is not None else ""))
    if access.role is Role.SEE and access.sign_in is None:
        lines.append("read-only; start it with --role publish or --role administer to change something")
    return [*lines, "press Ctrl-C to stop it"]
