"""What every sub-command has."""
import abc
from collections.abc import Iterator
from typing import ClassVar

from rmqha.remoting.interfaces import RPCHook
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import commons_cli
from rmqha.tools.command.commons_cli import CommandLine, Option, OptionGroup, Options
from rmqha.tools.command.output import Part, Renderer
from rmqha.tools.command.sub_command_exception import SubCommandException

_SHARED = (
    commons_cli.flag("h", "help", "Print help"),
    commons_cli.option(
        "n", "namesrvAddr", "Name server address list, eg: '192.168.0.1:9876;192.168.0.2:9876'"),
)
_OUTPUT = "how to print: `json` prints rows and documents, an object a line"


class SubCommand(abc.ABC):
    """A command of mqadmin: names, options, and what it does.

    `execute` yields what is to be printed; the connection to the cluster is opened at the first question and closed
    behind it, and whatever goes wrong becomes a SubCommandException.

    Java: org.apache.rocketmq.tools.command.SubCommand (4.9.8)
    """

    command_name: ClassVar[str]
    command_alias: ClassVar[str | None] = None
    command_desc: ClassVar[str]
    options: ClassVar[tuple[Option | OptionGroup, ...]] = ()
    asks_name_server: ClassVar[bool] = True
    failure: ClassVar[str] = " command failed"  # behind the class's name in the text of an error

    @abc.abstractmethod
    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Do it; what to print, part by part. Any exception is told to the user."""

    @classmethod
    def build_commandline_options(cls) -> Options:
        """All options, -h and -n among them."""
        return Options((*_SHARED, *cls.options))

    @classmethod
    def options_to_parse(cls) -> Options:
        """All options and rmqha's own -o, --output; those that have an -o of their own keep it."""
        own = cls.build_commandline_options()
        return Options((*_SHARED, *cls.options,
                        Option(None if own.find("o") else "o", "output", True, _OUTPUT),
                        Option(None, "json", False, "as --output json")))

    @classmethod
    def help(cls) -> str:
        """Usage and options as the original prints them."""
        return commons_cli.help_text(f"mqadmin {cls.command_name}", cls.build_commandline_options())

    def run(self, command_line: CommandLine, renderer: Renderer, rpc_hook: RPCHook | None) -> None:
        """Execute, print, and close the connection. SubCommandException with its cause when something goes wrong."""
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
