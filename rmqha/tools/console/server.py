"""Serves the console until it is interrupted."""
import signal

import click
import uvicorn

from rmqha.common.program import ending_signals
from rmqha.tools.console.access import Access
from rmqha.tools.console.app import create_app
from rmqha.tools.console.patient_protocol import PatientProtocol
from rmqha.tools.console.source import Source, Wanted

MOST_CONNECTIONS = 256  # beyond it the answer is 503


class CannotListenError(click.ClickException):
    """The address can't be had."""

    exit_code = 2


def serve(wanted: Wanted, access: Access, host: str, port: int) -> None:
    """Print where it is, and serve. SIGINT, SIGTERM and SIGHUP end it."""
    source = Source(wanted)
    config = uvicorn.Config(create_app(source, access), host=host, port=port, log_config=None, access_log=False,
                            server_header=False, date_header=True, ws="none", lifespan="off",
                            http=PatientProtocol, limit_concurrency=MOST_CONNECTIONS, timeout_graceful_shutdown=2)
    try:
        bound = config.bind_socket()
    except SystemExit:  # uvicorn's way to say it
        raise CannotListenError(f"can't listen on {host}:{port}: is the port in use, and the address this host's? "
                                "--port 0 takes a free one") from None
    server = uvicorn.Server(config)
    for number in ending_signals():  # uvicorn's own way, from the first moment on
        signal.signal(number, server.handle_exit)
    with source, bound:
        click.echo("\n".join(_told(access, host, bound.getsockname()[1])))
        server.run(sockets=[bound])


def _told(access: Access, host: str, port: int) -> list[str]:
    shown = f"[{host}]" if ":" in host else host
    fragment = f"#token={access.token}" if access.token_for_reading or access.writes else ""
    lines = [f"console at http://{shown}:{port}/{fragment}"]
    if fragment:
        what = "reading and changes" if access.token_for_reading and access.writes else (
            "reading" if access.token_for_reading else "changes")
        lines.append(f"token for {what}: {access.token}")
    if not access.writes:
        lines.append("it only shows; --allow-writes lets it change topics, offsets and write permissions")
    return [*lines, "Ctrl-C ends it"]
