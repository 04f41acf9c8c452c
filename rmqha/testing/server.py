"""A RocketMQ in a separate process, for tests: `python -m rmqha.testing.server`.

It prints `NAMESRV_ADDR=host:port` when it is ready. It exits and deletes its data when its standard input ends (for
example, because the process that started it has exited), or on SIGTERM, SIGHUP or Ctrl-C. With --forever, as in a
container, it exits only on the signals.
"""
import os
import select
import signal
import sys
import time
from types import FrameType
from typing import NoReturn

import click

from rmqha.common.configuration import ConfigError
from rmqha.common.program import ending_signals
from rmqha.testing.embedded import EmbeddedRocketMQ
from rmqha.testing.node import EmbeddedError

READY = "NAMESRV_ADDR="
_EXIT_BAD = 2
# A signal that arrives just before a wait takes effect only after the wait, so waits must be short. signal.pause()
# would wait forever.
_LOOK_S = 1.0


@click.command()
@click.option("--topology", default="1m", show_default=True, help="1m, 1m-1s, 2m-2s ...")
@click.option("--sync", is_flag=True, help="Masters answer a send only when a slave has the message.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the servers for clients.")
@click.option("--port", default=0, show_default=True, help="Port of the name server; 0: any free port.")
@click.option("--store-dir", help="Parent of the temporary folder; default: in memory, if there is enough space.")
@click.option("--config", multiple=True, metavar="KEY=VALUE", help="A setting of broker.conf; may be repeated.")
@click.option("--forever", is_flag=True, help="Keep running after the standard input has ended.")
def main(topology: str, sync: bool, host: str, port: int, store_dir: str | None, config: tuple[str, ...],
         forever: bool) -> None:
    """Run a name server and brokers for tests, until the standard input ends or SIGTERM arrives."""
    for number in ending_signals():
        signal.signal(number, _end)
    try:
        cluster = EmbeddedRocketMQ(topology, sync=sync, host=host, port=port, store_dir=store_dir,
                                   config=config_of(config))
        with cluster as mq:
            click.echo(f"{READY}{mq.namesrv_addr}")
            while forever or not _has_ended(sys.stdin.fileno()):
                if forever:
                    time.sleep(_LOOK_S)
    except (EmbeddedError, ConfigError) as error:
        click.echo(str(error), err=True)
        sys.exit(_EXIT_BAD)


def _has_ended(fd: int) -> bool:
    """Return True if a file has ended; read and discard the available data."""
    ready, _, _ = select.select([fd], [], [], _LOOK_S)
    return bool(ready) and not os.read(fd, 4096)


def config_of(texts: tuple[str, ...] | list[str]) -> dict[str, str]:
    """Return the keys and values of KEY=VALUE texts; EmbeddedError for another form."""
    pairs = [text.partition("=") for text in texts]
    for key, equals, _value in pairs:
        if not equals or not key.strip():
            raise EmbeddedError(f"config {key!r} is not KEY=VALUE")
    return {key.strip(): value.strip() for key, _equals, value in pairs}


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)


if __name__ == "__main__":
    main()
