"""The command line of the servers: RocketMQ's options -c -p -m -n -h, its help texts and exit codes."""
import argparse
import resource
import sys
from typing import NoReturn

from rmqha import __version__
from rmqha.common import home
from rmqha.common.config_file import ConfigError

# The least that Python allows. Making a number takes the square of its digits, in which nothing else runs.
MAX_DIGITS = 640
EXIT_USAGE = 1
EXIT_BAD_CONFIG = 2
EXIT_SERVICE_FAILED = 70  # EX_SOFTWARE of sysexits.h


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_help(sys.stdout)
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n")


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
    return str(home.default_rocketmq_home())


def raise_descriptor_limit() -> None:
    """Let the process open as many descriptors as it may at all, as a JVM does: connections and segments need them."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
