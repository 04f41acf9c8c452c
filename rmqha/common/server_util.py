"""The command line of the servers: RocketMQ's options -c -p -m -n -h, its help texts and exit codes.

`run` runs a server in the foreground until a signal ends it; the name server and the controller share it.
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

# The lowest limit that Python allows. Parsing a number takes time quadratic in its digits and holds the GIL meanwhile.
MAX_DIGITS = 640
EXIT_USAGE = 1
EXIT_BAD_CONFIG = 2
EXIT_SERVICE_FAILED = 70  # EX_SOFTWARE of sysexits.h


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_help(sys.stdout)
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n")


def say(text: str, err: bool = False) -> None:
    """Print one line to standard output, or to standard error, and flush it."""
    stream = sys.stderr if err else sys.stdout
    if stream is not None and text.isascii() and text.isprintable():
        stream.write(text + "\n")
        stream.flush()
        return
    # Imported late: it takes half as long to load as a broker. It handles non-ASCII text on every kind of terminal.
    import click

    click.echo(text, err=err)


def limit_digits() -> None:
    """Refuse to parse integers of more than MAX_DIGITS digits, from any source, in the whole process."""
    sys.set_int_max_str_digits(MAX_DIGITS)


def build_commandline_options(app_name: str, description: str = "", examples: str = "") -> argparse.ArgumentParser:
    """Return a parser with the options that all servers share: -h, -n, and --version and --log-dir, which Java lacks.

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
    """Add the options of mqnamesrv: -c and -p."""
    parser.add_argument("-c", "--configFile", metavar="<arg>", help="Name server config properties file")
    parser.add_argument("-p", "--printConfigItem", action="store_true", help="Print all config items")
    return parser


def add_broker_options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the options of mqbroker: -c, -p and -m."""
    parser.add_argument("-c", "--configFile", metavar="<arg>", help="Broker config properties file")
    parser.add_argument("-p", "--printConfigItem", action="store_true", help="Print all config item")
    parser.add_argument("-m", "--printImportantConfig", action="store_true", help="Print important config item")
    return parser


def parse_arguments(parser: argparse.ArgumentParser, argv: list[str] | None) -> argparse.Namespace:
    """Parse a command line; `words` holds the arguments that are not options, such as `key=value` or a stray `&`.

    Exits with 1 for an unknown option.
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
    """Return the options that were given with a value: long name -> value."""
    return {name: value for name, value in vars(command_line).items() if isinstance(value, str)}


def refuse_option(name: str, _value: str, problem: str) -> NoReturn:
    """Raise a ConfigError about an option's value."""
    raise ConfigError(problem, key=f"--{name}")


def default_rocketmq_home() -> str:
    """Return the folder that holds `conf/` when ROCKETMQ_HOME is not set."""
    return str(filesystem.default_rocketmq_home())


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard limit, as a JVM does.

    Connections and segments each need a descriptor.
    """
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class ForegroundServer(Protocol):
    """A server that `run` runs. It may fail permanently, and reports that."""

    failure: str | None
    """The reason why the server cannot continue; None while it can."""
    on_failed: Callable[[], None] | None
    """Called when `failure` is set."""

    def lives(self, timeout_s: float) -> bool:
        """Return whether its services still work. Returns within `timeout_s`."""

    def shutdown(self) -> None:
        """Stop."""


S = TypeVar("S", bound=ForegroundServer)


def run(name: str, log: logging.Logger, stop: StopSignal, create: Callable[[], S | None],
        start: Callable[[S], None]) -> int:
    """Create the server, start it, wait for `stop` or for its failure, and return the exit code.

    `name` is the server's name in messages. Exit codes: 0, it was stopped, or there was nothing to run (`create`
    returned None); 2, its configuration is invalid; 70, the thread that serves its port has given up; -1, it cannot
    start.
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
        say(f"{name} cannot continue and is shutting down: {server.failure}", err=True)
    shutdown(server, log)
    return EXIT_SERVICE_FAILED if server.failure is not None else 0


def shutdown(server: ForegroundServer, log: logging.Logger) -> None:
    """Stop the server, and log that and how long it took.

    Java: org.apache.rocketmq.srvutil.ShutdownHookThread (4.9.8)
    """
    log.info("shutdown hook was invoked, 1 times.")
    process.stopping()
    begin = time.monotonic()
    server.shutdown()
    log.info("shutdown hook done, consuming time total(ms): %d", (time.monotonic() - begin) * 1000)
