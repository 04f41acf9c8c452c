"""A server in a process of its own, for tests of how processes end: `python -m tests.remoting.ending_server`.

It prints its port, echoes code 100, and ends in an orderly way on SIGTERM. On request it ends in other ways.
"""
import os
import signal
import sys

from rmqha.common.program import StopSignal
from rmqha.remoting.channel import Channel
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.remoting.support import Processor, running_server

EXIT_AT_ONCE, CRASH = 201, 202


def _exit(_channel: Channel, _request: RemotingCommand) -> None:
    os._exit(3)


def _crash(_channel: Channel, _request: RemotingCommand) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def main() -> None:
    """Serve until SIGTERM."""
    stop = StopSignal.of_process()
    with running_server() as server:
        server.register_processor(EXIT_AT_ONCE, Processor(_exit))
        server.register_processor(CRASH, Processor(_crash))
        sys.stdout.write(f"{server.local_listen_port}\n")
        sys.stdout.flush()
        stop.wait()


if __name__ == "__main__":
    main()
