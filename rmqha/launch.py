"""The programs that are installed: mqnamesrv, mqbroker, mqcontroller, mqshutdown, mqadmin and rmqha.

    python -m rmqha.launch mqbroker -c FILE

A program is imported once Ctrl-C can no longer end in a traceback: that takes a tenth of a second.
"""
import sys

from rmqha.common.program import leave_when_interrupted

PROGRAMS = {
    "mqnamesrv": "rmqha.namesrv.namesrv_startup",
    "mqbroker": "rmqha.broker.broker_startup",
    "mqcontroller": "rmqha.controller.controller_startup",
    "mqshutdown": "rmqha.tools.mqshutdown",
    "mqadmin": "rmqha.tools.command.mq_admin_startup",
    "rmqha": "rmqha.tools.rmqha_command",
}
"""Name -> the module whose `main` it runs."""


def run(program: str) -> int:
    """Run a program on the command line's arguments; its exit code."""
    leave_when_interrupted()
    from importlib import import_module

    from rmqha.common.garbage_pause import no_garbage_collection
    from rmqha.common.program import run_while_read

    with no_garbage_collection:  # what an import makes stays
        module = import_module(PROGRAMS[program])
    return run_while_read(module.main)


def mqnamesrv() -> int:
    """A name server."""
    return run("mqnamesrv")


def mqbroker() -> int:
    """A broker."""
    return run("mqbroker")


def mqcontroller() -> int:
    """A controller."""
    return run("mqcontroller")


def mqshutdown() -> int:
    """Stops name servers, brokers or controllers."""
    return run("mqshutdown")


def mqadmin() -> int:
    """Asks and changes brokers and name servers."""
    return run("mqadmin")


def rmqha() -> int:
    """The tools."""
    return run("rmqha")


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in PROGRAMS:
        sys.exit(f"usage: python -m rmqha.launch {'|'.join(PROGRAMS)} [OPTIONS]")
    sys.exit(run(sys.argv.pop(1)))
