"""A RocketMQ in a process of its own, for tests: `python -m rmqha.testing.server`.

It prints `NAMESRV_ADDR=host:port` when it is ready, and ends, with all that it has, when its standard input ends (with
the process that started it), or on SIGTERM, SIGHUP or Ctrl-C; with --forever, as in a container, on these alone.
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
# A signal that comes just before a wait begins has its effect at the end of the wait: signal.pause() has none.
_LOOK_S = 1.0


@click.command()
@click.option("--topology", default="1m", show_default=True, help="1m, 1m-1s, 2m-2s ...")
@click.option("--sync", is_flag=True, help="Masters answer when a slave has the message.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where clients find it.")
@click.option("--port", default=0, show_default=True, help="Of the name server; 0: any.")
@click.option("--store-dir", help="Where the temporary folder is made; in memory, if there is room.")
@click.option("--config", multiple=True, metavar="KEY=VALUE", help="A key of a broker.conf; may be given again.")
@click.option("--forever", is_flag=True, help="Do not end with the standard input.")
def main(topology: str, sync: bool, host: str, port: int, store_dir: str | None, config: tuple[str, ...],
         forever: bool) -> None:
    """A name server and brokers for tests, until the standard input ends, or SIGTERM."""
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
    """Whether a file has ended; reads what is there, and discards it."""
    ready, _, _ = select.select([fd], [], [], _LOOK_S)
    return bool(ready) and not os.read(fd, 4096)


def config_of(texts: tuple[str, ...] | list[str]) -> dict[str, str]:
    """The keys and values of KEY=VALUE texts; EmbeddedError for another form."""
    pairs = [text.partition("=") for text in texts]
    for key, equals, _value in pairs:
        if not equals or not key.strip():
            raise EmbeddedError(f"config {key!r} is not KEY=VALUE")
    return {key.strip(): value.strip() for key, _equals, value in pairs}


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)


if __name__ == "__main__":
    main()
