"""A RocketMQ in separate processes, for tests: `python -m rmqha.testing.server`.

It prints `NAMESRV_ADDR=host:port` when it is ready. It exits and deletes its data when its standard input ends (for
example, because the process that started it has exited), or on SIGTERM, SIGHUP or Ctrl-C. With --forever, as in a
container, it exits only on the signals. RocketMQProcess controls it through its standard input (see `control`).
"""
import os
import select
import signal
import sys
import time
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, NoReturn

import click

from rmqha.common.configuration import ConfigError
from rmqha.common.program import ending_signals
from rmqha.testing.cluster_parts import EmbeddedError, config_of
from rmqha.testing.control import CallServer

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
@click.option("--rocketmq-home", metavar="FOLDER",
              help="Run the Apache RocketMQ release in this folder with Java, instead of rmqha.")
@click.option("--forever", is_flag=True, help="Keep running after the standard input has ended.")
def main(topology: str, sync: bool, host: str, port: int, store_dir: str | None, config: tuple[str, ...],
         rocketmq_home: str | None, forever: bool) -> None:
    """Run a name server and brokers for tests, until the standard input ends or SIGTERM arrives."""
    for number in ending_signals():
        signal.signal(number, _end)
    try:
        with _cluster(rocketmq_home, topology, sync=sync, host=host, port=port, store_dir=store_dir,
                      config=config_of(config)) as mq:
            click.echo(f"{READY}{mq.namesrv_addr}")
            if forever:
                while True:
                    time.sleep(_LOOK_S)
            _serve_calls(CallServer(mq), sys.stdin.fileno())
    except (EmbeddedError, ConfigError) as error:
        click.echo(str(error), err=True)
        sys.exit(_EXIT_BAD)


def _cluster(home: str | None, topology: str, **options: Any) -> AbstractContextManager[Any]:
    if home is None:
        from rmqha.testing.embedded import EmbeddedRocketMQ

        return EmbeddedRocketMQ(topology, **options)
    from rmqha.testing.java_cluster import JavaCluster

    return JavaCluster(home, topology, **options)


def _serve_calls(calls: CallServer, fd: int) -> None:
    """Carry out the calls from a file until it ends."""
    while True:
        ready, _, _ = select.select([fd], [], [], _LOOK_S)
        if not ready:
            continue
        data = os.read(fd, 1 << 16)
        if not data:
            return
        for answer in calls.take(data):
            click.echo(answer)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)


if __name__ == "__main__":
    main()
