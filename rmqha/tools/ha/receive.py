"""`ha receive`: stream a master's log to a folder, as pg_receivewal does for another database."""
import signal
import sys
import time
from collections.abc import Callable

import click

from rmqha.common.program import StopSignal, ending_signals
from rmqha.remoting.frame_decoder import StreamError
from rmqha.tools.dialect.unit_types import duration_type
from rmqha.tools.ha.broker_admin import (
    DEFAULT_TIMEOUT_MS,
    BrokerAdmin,
    NoAnswerError,
    ReplicationToolError,
    number,
    parsed_address,
)
from rmqha.tools.ha.received_log import ReceivedLog
from rmqha.tools.ha.receiver import Master, Receiver
from rmqha.tools.store.output import size_text

_RETRY_S = 5.0
_PROGRESS_S = 0.5


def ask_master(admin: BrokerAdmin, broker: str, ha_address: tuple[str, int], acknowledge: bool) -> Master:
    """What the broker tells of its log. ReplicationToolError when its HA port is another one, or when a peer that never
    acknowledges would hold up its sends."""
    config, table = admin.config(broker), admin.runtime_info(broker)
    if not acknowledge:
        _check_harmless(config, broker)
    ha_port = number(config, "haListenPort", broker)
    if ha_port and ha_port != ha_address[1]:
        raise ReplicationToolError(f"the broker {broker} listens to its slaves on port {ha_port}, not {ha_address[1]}: "
                                   "correct --master, or name the right broker with --broker")
    return Master(name=f"{config.get('brokerName', '')} ({ha_address[0]}:{ha_address[1]})", address=ha_address,
                  file_size=number(config, "mappedFileSizeCommitLog", broker, 1 << 30),
                  min_offset=max(0, number(table, "commitLogMinOffset", broker)),
                  max_offset=max(0, number(table, "commitLogMaxOffset", broker)),
                  slave_timeout_ms=number(config, "slaveTimeout", broker, 5000),
                  housekeeping_ms=number(config, "haHousekeepingInterval", broker, 20_000))


def _check_harmless(config: dict[str, str], broker: str) -> None:
    """A master that waits for all, or for so many, of its peers would count one that never acknowledges."""
    waits = [key for key in ("allAckInSyncStateSet", "enableAutoInSyncReplicas") if config.get(key) == "true"]
    if number(config, "inSyncReplicas", broker, 1) > 2:
        waits.append("inSyncReplicas above 2")
    if waits:
        raise ReplicationToolError(f"the broker {broker} has {' and '.join(waits)}: it would wait for this receiver, "
                                   "which never acknowledges, and its sends would time out. Receive with "
                                   "--acknowledge, or from one of its slaves")


class _Progress:
    """Where the log has come to, on a terminal's standard error."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._at, self._from = 0.0, 0

    def __call__(self, end: int) -> None:
        now = time.monotonic()
        if self._shown and now - self._at > _PROGRESS_S:
            rate = (end - self._from) / (now - self._at) if self._at else 0
            click.echo(f"\rreceived up to {end:,}, {size_text(round(rate))}/s      ", nl=False, err=True)
            self._at, self._from = now, end

    def close(self) -> None:
        """What comes next begins a line of its own."""
        if self._at:
            click.echo(err=True)


def _receive(receiver: Receiver, ask: Callable[[], Master], stop: StopSignal, once: bool) -> None:
    """Connection after connection, until it is to stop."""
    progress, said = _Progress(), ""
    while not stop.is_set():
        try:
            receiver.follow(ask, progress)
            break
        except (StreamError, NoAnswerError) as error:
            text = str(error)
            if once:
                raise ReplicationToolError(text) from error
            if text != said:
                click.echo(f"{text}; tried again each {_RETRY_S:g} s", err=True)
                said = text
            stop.wait(_RETRY_S)
    progress.close()


@click.command("receive")
@click.option("--master", required=True, metavar="HOST:HAPORT", help="The master's HA port: its listenPort + 1.")
@click.option("-b", "--broker", metavar="HOST:PORT", help="The master's listenPort; by default its HA port - 1.")
@click.option("--folder", required=True, type=click.Path(file_okay=False), help="Where the files go.")
@click.option("--from", "begin", type=click.Choice(["first", "last"]), default="first", show_default=True,
              help="Which of the master's files an empty folder begins with.")
@click.option("--acknowledge", is_flag=True,
              help="Acknowledge what is on disk, so that a SYNC_MASTER counts this folder as a slave.")
@click.option("--once", is_flag=True, help="End when all that the master holds now is received.")
@click.option("--sync-interval", "sync_interval_s", default=1.0, show_default=True, type=duration_type(0),
              help="Seconds after which what came is brought to disk; at once with --acknowledge.")
@click.option("--timeout", "timeout_s", default=DEFAULT_TIMEOUT_MS / 1000, show_default=True,
              type=duration_type(0.1, 600), help="Seconds to wait for an answer of the broker.")
def receive_command(master: str, broker: str | None, folder: str, begin: str, acknowledge: bool, once: bool,
                    sync_interval_s: float, timeout_s: float) -> None:
    """Stream a master's commit log into a folder: the same files, names and sizes; goes on where the folder ends.

    A store can be built on the folder with `rmqha store rebuild`. Ends with SIGTERM, SIGHUP or Ctrl-C; exit code 1 when
    the master's log is not the one that was received so far.
    """
    ha_address = parsed_address(master, "--master")
    broker = broker or f"{ha_address[0]}:{ha_address[1] - 1}"
    parsed_address(broker, "--broker")
    stop = StopSignal()
    before = {number: signal.signal(number, stop.handler) for number in ending_signals()}
    try:
        with BrokerAdmin(timeout_ms=timeout_s * 1000) as admin:
            def ask() -> Master:
                return ask_master(admin, broker, ha_address, acknowledge)
            file_size = _first_answer(ask, stop, once)
            if file_size is None:
                return
            with ReceivedLog(folder, file_size) as log:
                receiver = Receiver(log, acknowledge, begin == "first", once, stop.is_set, sync_interval_s)
                click.echo(f"{folder}: {_held(log)}", err=True)
                _receive(receiver, ask, stop, once)
            click.echo(f"{folder}: {_held(log)}, {receiver.received:,} bytes of it now", err=True)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _first_answer(ask: Callable[[], Master], stop: StopSignal, once: bool) -> int | None:
    """The size of the master's files, from its first answer; None when told to stop before."""
    said = False
    while not stop.is_set():
        try:
            return ask().file_size
        except NoAnswerError as error:
            if once:
                raise
            if not said:
                click.echo(f"{error.message}; tried again each {_RETRY_S:g} s", err=True)
                said = True
            stop.wait(_RETRY_S)
    return None


def _held(log: ReceivedLog) -> str:
    if log.end is None:
        return "holds nothing"
    return f"holds {log.begin:,} to {log.end:,}, on disk to {log.synced or 0:,}"
