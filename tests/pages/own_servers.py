"""Servers that a page takes for granted, started at its machine before it begins."""
from collections.abc import Sequence

from tests.pages.walk import Walk

SERVERS = ("bin/mqnamesrv &", "bin/mqbroker -n 127.0.0.1:9876 -c conf/broker.conf &")


def start(walk: Walk, commands: Sequence[str] = SERVERS) -> None:
    """Start servers that the page takes for granted; they stop with `stop`."""
    for number, command in enumerate(commands):
        done = walk.machine.run(f"{command} own{number}=$!")
        walk.wait_for_boot(command, done)


def stop(walk: Walk, commands: Sequence[str] = SERVERS) -> None:
    """Stop the servers of `start`."""
    walk.machine.run(f"kill {' '.join(f'$own{number}' for number in range(len(commands)))}")
