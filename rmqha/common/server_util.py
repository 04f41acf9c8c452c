"""The command line of the servers: RocketMQ's options -c -p -m -n -h, its help texts and exit codes.

A server in the foreground, until a signal ends it: what the programs of name server and controller share.
"""
import argparse
import logging
import resource
import sys
import time
from collections.abc import Callable
from typing import NoReturn, Protocol, TypeVar

from rmqha import __version__
from rmqha.common import filesystem, process
from rmqha.common.configuration import ConfigError
from rmqha.common.program import StopSignal

# The least that Python allows. Making a number takes the square of its digits, in which nothing else runs.
MAX_DIGITS = 640
EXIT_USAGE = 1
EXIT_BAD_CONFIG = 2
EXIT_SERVICE_FAILED = 70  # EX_SOFTWARE of sysexits.h


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_help(sys.stdout)
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n")


def say(text: str, err: bool = False) -> None:
    """One line to standard output, or to standard error, at once."""
    stream = sys.stderr if err else sys.stdout
    if stream is not None and text.isascii() and text.isprintable():
        stream.write(text + "\n")
        stream.flush()
        return
    import click  # it takes as long as half of a broker, and knows how each terminal wants other letters

    click.echo(text, err=err)


def limit_digits() -> None:
    """Refuse integers of more than MAX_DIGITS digits, from whomever; for the whole process."""
    sys.set_int_max_str_digits(MAX_DIGITS)


def build_commandline_options(app_name: str, description: str = "", examples: str = "") -> argparse.ArgumentParser:
    """A parser with the options that all servers share: -h, -n and, which the original lacks, --version and --log-dir.

    Usage errors print the help and exit with 1.

    Java: org.apache.rocketmq.srvutil.ServerUtil (4.9.8)
    """
    parser = _Parser(prog=app_name, add_help=False, description=description, epilog=examples,
                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-h", "--help", action="help", help="Print help")
    parser.add_argument("--version", action="version", version=f"{app_name} {__version__}", help="Print the version")
    parser.add_argument("-n", "--namesrvAddr", metavar="<arg>",
                        help="Name server address list, eg: '192.168.0.1:9876;192.168.0.2:9876'")
    parser.add_argument("--log-dir", dest="logDir", metavar="<folder>",
                        help="Where the log files are kept (default: $ROCKETMQ_LOG_DIR, else ~/logs/rocketmqlogs)")
    return parser


def add_namesrv_options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add what mqnamesrv takes: -c and -p."""
    parser.add_argument("-c", "--configFile", metavar="<arg>", help="Name server config properties file")
    parser.add_argument("-p", "--printConfigItem", action="store_true", help="Print all config items")
    return parser


def add_broker_options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add what mqbroker takes: -c, -p and -m."""
    parser.add_argument("-c", "--configFile", metavar="<arg>", help="Broker config properties file")
    parser.add_argument("-p", "--printConfigItem", action="store_true", help="Print all config item")
    parser.add_argument("-m", "--printImportantConfig", action="store_true", help="Print important config item")
    return parser


def parse_arguments(parser: argparse.ArgumentParser, argv: list[str] | None) -> argparse.Namespace:
    """The options of a command line, and in `words` what is not one: `key=value`, a stray `&`. Exits with 1 for an
    unknown option.
    """
    command_line, words = parser.parse_known_args(argv)
    if "--" in words:
        words.remove("--")
    unknown = [word for word in words if word.startswith("-") and word != "-"]
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    command_line.words = words
    return command_line


def command_line2properties(command_line: argparse.Namespace) -> dict[str, str]:
    """Long name -> value of the options that were given with a value."""
    return {name: value for name, value in vars(command_line).items() if isinstance(value, str)}


def refuse_option(name: str, _value: str, problem: str) -> NoReturn:
    """Raise the ConfigError of an option's value."""
    raise ConfigError(problem, key=f"--{name}")


def default_rocketmq_home() -> str:
    """Where `conf/` lies when ROCKETMQ_HOME is not set."""
    return str(filesystem.default_rocketmq_home())


def raise_descriptor_limit() -> None:
    """Let the process open as many descriptors as it may at all, as a JVM does: connections and segments need them."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class ForegroundServer(Protocol):
    """What is run: it may fail for good, and says so."""

    failure: str | None
    """Why it can't go on; None while it can."""
    on_failed: Callable[[], None] | None
    """Told of it."""

    def lives(self, timeout_s: float) -> bool:
        """Whether its services still work; takes no longer than that."""

    def shutdown(self) -> None:
        """Stop."""


S = TypeVar("S", bound=ForegroundServer)


def run(name: str, log: logging.Logger, stop: StopSignal, create: Callable[[], S | None],
        start: Callable[[S], None]) -> int:
    """Create the server, start it, and wait for `stop` or its failure; returns the exit code. `name`: for people.

    0: it was stopped, or there was nothing to run (`create` gave None), 2: a config that it cannot start with, 70: its
    port's thread has given up, -1: it cannot start.
    """
    try:
        server = create()
        if server is None:
            return 0
        server.on_failed = stop.set
        start(server)
    except ConfigError as failure:
        say(str(failure), err=True)
        return EXIT_BAD_CONFIG
    except OSError as failure:
        log.exception("%s cannot start", name)
        say(f"{name} cannot start: {failure}", err=True)
        return -1
    process.wait(stop, server.lives)
    if server.failure is not None:
        say(f"{name} can't go on, and ends: {server.failure}", err=True)
    shutdown(server, log)
    return EXIT_SERVICE_FAILED if server.failure is not None else 0


def shutdown(server: ForegroundServer, log: logging.Logger) -> None:
    """Stop, and say so in the log.

    Java: org.apache.rocketmq.srvutil.ShutdownHookThread (4.9.8)
    """
    log.info("shutdown hook was invoked, 1 times.")
    process.stopping()
    begin = time.monotonic()
    server.shutdown()
    log.info("shutdown hook done, consuming time total(ms): %d", (time.monotonic() - begin) * 1000)
