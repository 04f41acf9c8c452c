"""mqshutdown: stops the name servers, the brokers or the controllers of this host. They end cleanly on SIGTERM."""
import sys
from collections.abc import Iterable, Iterator, Sequence

import click
import psutil

from rmqha import __version__

USAGE = "Useage: mqshutdown broker | namesrv | controller"
EXIT_USAGE = 1
EXIT_NOT_STOPPED = 1
EXIT_NOT_RUNNING = 255  # Java's script: exit -1

# what to stop -> program, and the module that a checkout's scripts and tests run
_KINDS = {
    "broker": ("mqbroker", "rmqha.broker.broker_startup"),
    "namesrv": ("mqnamesrv", "rmqha.namesrv.namesrv_startup"),
    "controller": ("mqcontroller", "rmqha.controller.controller_startup"),
}


def main(argv: list[str] | None = None) -> int:
    """Send SIGTERM to all servers of a kind that this user may stop; the exit code.

    1: a wrong command line, or a server that belongs to somebody else; 255: none runs.

    As distribution/bin/mqshutdown of 4.9.8 does.
    """
    arguments = sys.argv[1:] if argv is None else argv
    if arguments == ["--version"]:
        click.echo(f"mqshutdown {__version__}")
        return 0
    asks_help = any(argument in ("-h", "--help") for argument in arguments)
    if asks_help or not arguments or arguments[0] not in _KINDS:
        # Differs: ends with 1 when it is told nothing to stop; the original's script ends with 0
        click.echo(USAGE)
        return 0 if asks_help else EXIT_USAGE
    program, module = _KINDS[arguments[0]]
    return stop(program, list(running(program, module)))


def running(program: str, module: str) -> Iterator[psutil.Process]:
    """The processes of all users that run a program."""
    for process in psutil.process_iter(["cmdline"]):
        if is_server(process.info["cmdline"] or (), program, module):
            yield process


def is_server(command: Sequence[str], program: str, module: str) -> bool:
    """Whether a command line is that of a server, however it was started."""
    if len(command) < 3 or command[1] != "-m":
        return len(command) > 1 and "python" in command[0] and command[1].rpartition("/")[2] == program
    return command[2] == module or list(command[2:4]) == ["rmqha.launch", program]


def stop(program: str, processes: Iterable[psutil.Process]) -> int:
    """Send them SIGTERM, and say so; the exit code."""
    found, code = False, 0
    for process in processes:
        found = True
        click.echo(f"The {program}({process.pid}) is running...")
        try:
            process.terminate()
        except psutil.NoSuchProcess:
            click.echo(f"{program}({process.pid}) has ended by itself", err=True)
        except psutil.AccessDenied:
            click.echo(f"{program}({process.pid}) belongs to somebody else, and runs on", err=True)
            code = EXIT_NOT_STOPPED
        else:
            click.echo(f"Send shutdown request to {program}({process.pid}) OK")
    if not found:
        click.echo(f"No {program} running.")
        return EXIT_NOT_RUNNING
    return code


if __name__ == "__main__":
    sys.exit(main())
