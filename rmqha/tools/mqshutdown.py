"""mqshutdown: stops the name servers, brokers or controllers on this host, which shut down cleanly on SIGTERM."""
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

import click
import psutil

from rmqha import __version__
from rmqha.common.program import discard_output, run_while_read
from rmqha.tools.local_cluster.processes import ends

USAGE = "Useage: mqshutdown broker | namesrv | controller"
HELP = """
  --wait, --wait=SECONDS   wait until they have exited; exit code 1 if one still runs after that time (default 120 s)
exit codes: 0 stopped, 1 invalid command line or not stopped, 255 none is running"""
EXIT_USAGE = 1
EXIT_NOT_STOPPED = 1
EXIT_NOT_RUNNING = 255  # Java's script: exit -1
# like systemd's limit: a broker flushes its store and saves its state
WAIT_S = 120

_WAIT = re.compile(r"--wait(?:=(\d{1,9}(?:\.\d{1,3})?))?")

# kind -> program, and the module that a checkout's scripts and tests run
_KINDS = {
    "broker": ("mqbroker", "rmqha.broker.broker_startup"),
    "namesrv": ("mqnamesrv", "rmqha.namesrv.namesrv_startup"),
    "controller": ("mqcontroller", "rmqha.controller.controller_startup"),
}


def main(argv: list[str] | None = None) -> int:
    """Send SIGTERM to all servers of a kind that this user may stop, wait for them with --wait, return the exit code.

    1: invalid command line, a server that belongs to another user, or one that did not exit in time; 255: none is
    running. Like distribution/bin/mqshutdown of 4.9.8.
    """
    arguments = sys.argv[1:] if argv is None else argv
    if arguments == ["--version"]:
        click.echo(f"mqshutdown {__version__}")
        return 0
    asks_help = any(argument in ("-h", "--help") for argument in arguments)
    # Differs: mqshutdown has --wait, which the original's script lacks
    waits = [match for argument in arguments if (match := _WAIT.fullmatch(argument))]
    words = [argument for argument in arguments if not _WAIT.fullmatch(argument)]
    if asks_help or not words or words[0] not in _KINDS or any(word.startswith("-") for word in words):
        # Differs: mqshutdown exits with 1 when it is not given what to stop; the original's script exits with 0
        click.echo(USAGE + (HELP if asks_help else ""))
        return 0 if asks_help else EXIT_USAGE
    program, module = _KINDS[words[0]]
    return stop(program, list(running(program, module)), float(waits[-1][1] or WAIT_S) if waits else None)


def running(program: str, module: str) -> Iterator[psutil.Process]:
    """Yield the processes, of all users, that run a program."""
    for process in psutil.process_iter(["cmdline"]):
        if is_server(process.info["cmdline"] or (), program, module):
            yield process


def is_server(command: Sequence[str], program: str, module: str) -> bool:
    """Return whether a command line is that of a server, however it was started."""
    if len(command) < 3 or command[1] != "-m":
        return len(command) > 1 and "python" in command[0] and command[1].rpartition("/")[2] == program
    return command[2] == module or list(command[2:4]) == ["rmqha.launch", program]


def stop(program: str, processes: Iterable[psutil.Process], wait_s: float | None = None) -> int:
    """Send SIGTERM to the processes and report it; with `wait_s` wait that long for their exit. Return the exit code.
    """
    found, code = False, 0
    asked = []
    for process in processes:
        found = True
        _say(f"The {program}({process.pid}) is running...")
        try:
            process.terminate()
        except psutil.NoSuchProcess:
            click.echo(f"{program}({process.pid}) has already exited", err=True)
        except psutil.AccessDenied:
            click.echo(f"{program}({process.pid}) belongs to another user and was not stopped", err=True)
            code = EXIT_NOT_STOPPED
        else:
            _say(f"Send shutdown request to {program}({process.pid}) OK")
            asked.append(process)
    if not found:
        click.echo(f"No {program} running.")
        return EXIT_NOT_RUNNING
    return code if wait_s is None or _have_ended(program, asked, wait_s) else EXIT_NOT_STOPPED


def _say(text: str) -> None:
    """Print a line. A closed output is no reason to leave servers running."""
    try:
        click.echo(text)
    except BrokenPipeError:
        discard_output()


def _have_ended(program: str, processes: Iterable[psutil.Process], wait_s: float) -> bool:
    deadline, all_ended = time.monotonic() + wait_s, True
    for process in processes:
        if ends(process, deadline):
            _say(f"{program}({process.pid}) has exited")
        else:
            click.echo(f"{program}({process.pid}) is still running after {wait_s:g} s: wait longer with "
                       "--wait=SECONDS, or see its log", err=True)
            all_ended = False
    return all_ended


if __name__ == "__main__":
    sys.exit(run_while_read(main))
