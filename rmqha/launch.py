"""The installed programs: mqnamesrv, mqbroker, mqcontroller, mqshutdown, mqadmin and rmqha.

    python -m rmqha.launch mqbroker -c FILE

Importing a program takes about 0.1 s. So Ctrl-C is handled before the import: it never prints a traceback.
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
"""Map the name of each program to the module whose `main` runs it."""


def run(program: str) -> int:
    """Run a program with the arguments of the command line and return its exit code."""
    leave_when_interrupted()
    from importlib import import_module

    from rmqha.common.garbage_pause import no_garbage_collection
    from rmqha.common.program import run_while_read

    # The objects that an import creates stay, so collecting garbage during the import is wasted time.
    with no_garbage_collection:
        module = import_module(PROGRAMS[program])
    return run_while_read(module.main)


def mqnamesrv() -> int:
    """Run a name server."""
    return run("mqnamesrv")


def mqbroker() -> int:
    """Run a broker."""
    return run("mqbroker")


def mqcontroller() -> int:
    """Run a controller."""
    return run("mqcontroller")


def mqshutdown() -> int:
    """Stop name servers, brokers or controllers."""
    return run("mqshutdown")


def mqadmin() -> int:
    """Administer brokers and name servers."""
    return run("mqadmin")


def rmqha() -> int:
    """Run the tools of rmqha."""
    return run("rmqha")


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in PROGRAMS:
        sys.exit(f"usage: python -m rmqha.launch {'|'.join(PROGRAMS)} [OPTIONS]")
    sys.exit(run(sys.argv.pop(1)))
