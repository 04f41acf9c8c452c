"""The base of mqadmin's commands, the parts of their output, the renderers of these parts, and shared lookups.

`SubCommand.execute` yields parts, each given once: plain text, rows of a table, documents. `TextRenderer` prints them
as the original does. `JsonRenderer` prints each row and document as one JSON object per line, sends plain text to
standard error and omits headings.

- `fetch_*`: addresses or names of a cluster's brokers, as commands look them up with -c.
- `again_with_interval`: repeats a command with -i.
"""
import abc
import json
import re
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, ClassVar, TextIO

from rmqha.common import mix_all
from rmqha.common.java import hash_map_order
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.remoting.interfaces import RPCHook
from rmqha.remoting.protocol import fastjson
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import commons_cli
from rmqha.tools.command.commons_cli import CommandLine, Option, OptionGroup, Options


class SubCommandException(Exception):
    """A sub-command failed; its cause is the exception's `__cause__`.

    Java: org.apache.rocketmq.tools.command.SubCommandException (4.9.8)
    """


class JavaException(Exception):
    """An error in the given options; the text describes it. The original throws the base class of all exceptions.

    Java: java.lang.Exception
    """


_NUMBER = re.compile(r"%(-?\d*)(?:\.\d+)?[df]")


@dataclass(frozen=True)
class Heading:
    """The first line of a table."""

    text: str


@dataclass(frozen=True)
class Row:
    """A line of a table, with its fields by name."""

    text: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Document:
    """A value that is printed as one unit; `text` is the original's output for it."""

    text: str
    value: Any


Part = str | Heading | Row | Document


@dataclass(frozen=True)
class Table:
    """Rows of one format. `columns`: name in JSON -> heading. `row_format`: a printf format as in Java, with the line
    end.

        QUEUES = Table("%-32s  %-4d\\n", {"brokerName": "#Broker Name", "queueId": "#QID"})
        yield QUEUES.heading()
        yield QUEUES.row("broker-a", 0)

    Java's UtilAll.frontStringAtLeast(text, 32) in a cell is `%-32.32s` in the format: JSON gets the text whole.
    """

    row_format: str
    columns: Mapping[str, str]
    # None: row_format with numbers as text
    heading_format: str | None = None

    def heading(self) -> Heading:
        """Return the line with the columns' names."""
        form = self.heading_format or re.sub(r"%(-?\d*)\.\d+s", r"%\1s", _NUMBER.sub(r"%\1s", self.row_format))
        return Heading(form % tuple(self.columns.values()))

    def row(self, *cells: Any, **fields: Any) -> Row:
        """Return a line. In JSON, `fields` override the cells, for example with the number that a cell shows formatted.
        """
        return Row(self.row_format % cells, {**dict(zip(self.columns, cells)), **fields})


class TextRenderer:
    """Prints the parts as the original does."""

    # the original's main catches all exceptions and returns
    exit_code_of_failure = 0

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout

    def write(self, part: Part) -> None:
        """Print one part."""
        self._out.write(part if isinstance(part, str) else part.text)
        self._out.flush()


class JsonRenderer:
    """Prints one JSON object per line; text that is not data goes to standard error."""

    exit_code_of_failure = 1

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr

    def write(self, part: Part) -> None:
        """Print one part."""
        if isinstance(part, str):
            self._err.write(part if part.endswith("\n") else part + "\n")
        elif not isinstance(part, Heading):
            value = part.fields if isinstance(part, Row) else part.value
            self._out.write(json.dumps(value, ensure_ascii=False, default=_jsonable) + "\n")
            self._out.flush()


def java_text(value: object) -> str:
    """Return a value as Java's %s prints it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _jsonable(value: object) -> Any:
    """Return a bean as the value of its JSON text."""
    return json.loads(fastjson.dumps(value, quote_field_names=True))


Renderer = TextRenderer | JsonRenderer


ERROR_MESSAGE = "Make sure the specified clusterName exists or the name server connected to is correct."
# without a line end, like the original's
ERROR_TEXT = f"[error] {ERROR_MESSAGE}"


def _brokers(admin: DefaultMQAdminExt, cluster_name: str) -> Generator[Part, None, list[dict[int, str]]]:
    info = admin.examine_broker_cluster_info()
    names = info.clusterAddrTable.get(cluster_name)
    if names is None:
        yield ERROR_TEXT
    tables = [info.brokerAddrTable.get(name) for name in sorted(names or ())]
    return [broker.brokerAddrs for broker in tables if broker is not None]


def fetch_master_and_slave_distinguish(
    admin: DefaultMQAdminExt, cluster_name: str
) -> Generator[Part, None, list[tuple[str | None, list[str]]]]:
    """Return the address of each broker's master, None when it has no master now, and its slaves' addresses.

    If the cluster does not exist, the list is empty, and the error is one more part of the output:

        brokers = yield from fetch_master_and_slave_distinguish(admin, "DefaultCluster")

    Java: org.apache.rocketmq.tools.command.CommandUtil#fetchMasterAndSlaveDistinguish (4.9.8)
    """
    brokers = yield from _brokers(admin, cluster_name)
    return [(addrs.get(mix_all.MASTER_ID), [addr for broker_id, addr in sorted(addrs.items())
                                            if broker_id != mix_all.MASTER_ID])
            for addrs in brokers]


def fetch_master_addr_by_cluster_name(
    admin: DefaultMQAdminExt, cluster_name: str
) -> Generator[Part, None, list[str]]:
    """Return the addresses of the masters, in the order of broker names; used as above.

    Java: org.apache.rocketmq.tools.command.CommandUtil#fetchMasterAddrByClusterName (4.9.8)
    """
    brokers = yield from _brokers(admin, cluster_name)
    return [addrs[mix_all.MASTER_ID] for addrs in brokers if mix_all.MASTER_ID in addrs]


def fetch_master_and_slave_addr_by_cluster_name(
    admin: DefaultMQAdminExt, cluster_name: str
) -> Generator[Part, None, list[str]]:
    """Return the addresses of all brokers; used as above.

    Java: org.apache.rocketmq.tools.command.CommandUtil#fetchMasterAndSlaveAddrByClusterName (4.9.8)
    """
    brokers = yield from _brokers(admin, cluster_name)
    return [addr for addrs in brokers for _, addr in sorted(addrs.items())]


def fetch_master_and_slave_addr_by_broker_name(admin: DefaultMQAdminExt, broker_name: str) -> list[str]:
    """Return the addresses of all brokers of a name; empty when the name server does not know it.

    Java: org.apache.rocketmq.tools.command.CommandUtil#fetchMasterAndSlaveAddrByBrokerName (5.1.4)
    """
    broker = admin.examine_broker_cluster_info().brokerAddrTable.get(broker_name)
    return [] if broker is None else [addr for _, addr in sorted(broker.brokerAddrs.items())]


def fetch_broker_name_by_cluster_name(admin: DefaultMQAdminExt, cluster_name: str) -> list[str]:
    """Return the names of a cluster's brokers in the order of Java's hash table.

    Clients number the queues of an ordered topic in this order. Raise JavaException when the cluster has no brokers.

    Java: org.apache.rocketmq.tools.command.CommandUtil#fetchBrokerNameByClusterName (4.9.8)
    """
    names = admin.examine_broker_cluster_info().clusterAddrTable.get(cluster_name)
    if not names:
        raise JavaException(ERROR_MESSAGE)
    return hash_map_order(names)


def fetch_broker_name_by_addr(admin: DefaultMQAdminExt, addr: str) -> str:
    """Return the name of the broker with an address; raise JavaException when no broker has it.

    Java: org.apache.rocketmq.tools.command.CommandUtil#fetchBrokerNameByAddr (4.9.8)
    """
    for name, broker in admin.examine_broker_cluster_info().brokerAddrTable.items():
        if addr in broker.brokerAddrs.values():
            return name
    raise JavaException(ERROR_MESSAGE)


def again_with_interval(command_line: CommandLine, ask: Callable[[], Iterator[Part]],
                        default_s: int = 0) -> Iterator[Part]:
    """Yield the parts of `ask`; with -i repeat this at an interval in seconds, without end."""
    interval_s = command_line.integer("i", default_s)
    yield from ask()
    while command_line.has_option("i"):
        time.sleep(interval_s)
        yield from ask()


_SHARED = (
    commons_cli.flag("h", "help", "Print help"),
    commons_cli.option(
        "n", "namesrvAddr", "Name server address list, eg: '192.168.0.1:9876;192.168.0.2:9876'"),
)
_OUTPUT = "output format: `json` prints rows and documents, one object per line"


class SubCommand(abc.ABC):
    """A command of mqadmin: its names, its options and its work.

    `execute` yields the output. The connection to the cluster is opened by the first request and closed at the end;
    any error becomes a SubCommandException.

    Java: org.apache.rocketmq.tools.command.SubCommand (4.9.8)
    """

    command_name: ClassVar[str]
    command_alias: ClassVar[str | None] = None
    command_desc: ClassVar[str]
    options: ClassVar[tuple[Option | OptionGroup, ...]] = ()
    asks_name_server: ClassVar[bool] = True
    # follows the class's name in the text of an error
    failure: ClassVar[str] = " command failed"

    @abc.abstractmethod
    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Run the command and yield its output part by part. Any exception is reported to the user."""

    @classmethod
    def build_commandline_options(cls) -> Options:
        """Return all options, including -h and -n."""
        return Options((*_SHARED, *cls.options))

    @classmethod
    def options_to_parse(cls) -> Options:
        """Return all options and rmqha's own -o, --output; a command that has its own -o keeps it."""
        own = cls.build_commandline_options()
        return Options((*_SHARED, *cls.options,
                        Option(None if own.find("o") else "o", "output", True, _OUTPUT),
                        Option(None, "json", False, "same as --output json")))

    @classmethod
    def help(cls) -> str:
        """Return usage and options as the original prints them."""
        return commons_cli.help_text(f"mqadmin {cls.command_name}", cls.build_commandline_options())

    def run(self, command_line: CommandLine, renderer: Renderer, rpc_hook: RPCHook | None) -> None:
        """Execute, print, and close the connection. Raise SubCommandException, with its cause, on any error."""
        admin = DefaultMQAdminExt(command_line.text("n"), rpc_hook)
        try:
            for part in self.execute(command_line, admin):
                renderer.write(part)
        except BrokenPipeError:
            raise
        except Exception as error:
            raise SubCommandException(type(self).__name__ + self.failure) from error
        finally:
            admin.shutdown()
