"""A server in the foreground, until a signal ends it: what the programs of name server and controller share."""
import logging
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import click

from rmqha.common import sd_notify, server_util
from rmqha.common.config_file import ConfigError
from rmqha.common.stop_signal import StopSignal


class ForegroundServer(Protocol):
    """What is run: it may fail for good, and says so."""

    failure: str | None
    """Why it can't go on; None while it can."""
    on_failed: Callable[[], None] | None
    """Told of it."""

    def lives(self, timeout_s: float) -> bool:
        """Whether its services still work; takes no longer than that."""

    def shutdown(self) -> None:
        """Stop."""


S = TypeVar("S", bound=ForegroundServer)


def run(name: str, log: logging.Logger, stop: StopSignal, create: Callable[[], S | None],
        start: Callable[[S], None]) -> int:
    """Create the server, start it, and wait for `stop` or its failure; returns the exit code. `name`: for people.

    0: it was stopped, or there was nothing to run (`create` gave None), 2: a config that it cannot start with, 70: its
    port's thread has given up, -1: it cannot start.
    """
    try:
        server = create()
        if server is None:
            return 0
        server.on_failed = stop.set
        start(server)
    except ConfigError as failure:
        click.echo(str(failure), err=True)
        return server_util.EXIT_BAD_CONFIG
    except OSError as failure:
        log.exception("%s cannot start", name)
        click.echo(f"{name} cannot start: {failure}", err=True)
        return -1
    sd_notify.wait(stop, server.lives)
    if server.failure is not None:
        click.echo(f"{name} can't go on, and ends: {server.failure}", err=True)
    shutdown(server, log)
    return server_util.EXIT_SERVICE_FAILED if server.failure is not None else 0


def shutdown(server: ForegroundServer, log: logging.Logger) -> None:
    """Stop, and say so in the log.

    Java: org.apache.rocketmq.srvutil.ShutdownHookThread (4.9.8)
    """
    log.info("shutdown hook was invoked, 1 times.")
    sd_notify.stopping()
    begin = time.monotonic()
    server.shutdown()
    log.info("shutdown hook done, consuming time total(ms): %d", (time.monotonic() - begin) * 1000)
