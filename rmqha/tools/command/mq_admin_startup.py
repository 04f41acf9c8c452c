"""mqadmin: finds the sub-command, parses its options and runs it."""
import os
import sys
from typing import TYPE_CHECKING

from rmqha import __version__
from rmqha.common import logs
from rmqha.common.program import NAMESRV_ADDR_ENV, Interruptible, exit_code, run_while_read
from rmqha.tools.command import commons_cli
from rmqha.tools.command.commons_cli import CommandLine, ParseException
from rmqha.tools.command.sub_commands import SUB_COMMANDS

if TYPE_CHECKING:
    from rmqha.tools.command.sub_command import Renderer, SubCommand

TEXT, JSON = "text", "json"
_HELP = ("help", "-h", "--help")


def main(argv: list[str] | None = None) -> int:
    """Run a sub-command and return the exit code: 0, even if the command failed; 1 for an invalid command line.

    With `--output json`, a failed command returns 1.

    Java: org.apache.rocketmq.tools.command.MQAdminStartup (4.9.8)
    """
    try:
        with Interruptible():
            logs.setup_tools_logging()
            return main0(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt as interrupt:
        # the usual way to end clusterRT, clusterList -i and startMonitoring
        return exit_code(interrupt)


def main0(args: list[str]) -> int:
    """Run a sub-command with these arguments; see `main`."""
    # Differs: `mqadmin -h` and `--help` print the list of commands; 4.9 takes them for the names of commands, which do
    # not exist
    if not args or (len(args) == 1 and args[0] in _HELP):
        sys.stdout.write(list_text())
        return 0
    if args == ["--version"]:
        sys.stdout.write(f"mqadmin {__version__}\n")
        return 0
    asks_help = len(args) == 2 and args[0] in _HELP
    name = args[1] if asks_help else args[0]
    command = find_sub_command(name)
    if command is None:
        sys.stdout.write(f"The sub command {name} not exist.\n")
        return 0
    if asks_help:
        sys.stdout.write(command.help() + _output_help(command))
        return 0
    try:
        command_line = commons_cli.parse(command.options_to_parse(), args[1:])
        renderer = _renderer(command_line)
    except ParseException as error:
        sys.stdout.write(command.help() + _output_help(command))
        # Differs: mqadmin reports what is wrong with a command line, on standard error, where Java prints only the help
        sys.stderr.write(f"{error}\n")
        return 1
    if command_line.has_option("h"):
        sys.stdout.write(command.help() + _output_help(command))
        return 0
    return _run(command(), command_line, renderer)


def _run(command: "SubCommand", command_line: CommandLine, renderer: "Renderer") -> int:
    # imports the client, which the help does not need
    from rmqha.tools.admin.default_mq_admin_ext import tools_account
    from rmqha.tools.admin.message_track import stack_trace
    from rmqha.tools.command.sub_command import SubCommandException

    try:
        command.run(command_line, renderer, tools_account())
    except SubCommandException as error:
        sys.stdout.flush()
        sys.stderr.write(stack_trace(error))
        if command.asks_name_server and command_line.text("n") is None and not os.environ.get(NAMESRV_ADDR_ENV):
            sys.stderr.write("No name server: give it with -n host:port, or in NAMESRV_ADDR.\n")
        return renderer.exit_code_of_failure
    return 0


def _renderer(command_line: CommandLine) -> "Renderer":
    form = JSON if command_line.has_option("json") else command_line.text("output", TEXT)
    if form not in (TEXT, JSON):
        raise ParseException(f"--output {form}: must be text or json")
    from rmqha.tools.command.sub_command import JsonRenderer, TextRenderer  # as above

    return JsonRenderer() if form == JSON else TextRenderer()


def find_sub_command(name: str) -> "type[SubCommand] | None":
    """Return the command with a name or an alias, ignoring case."""
    for command in SUB_COMMANDS:
        if name.lower() in (command.command_name.lower(), (command.command_alias or command.command_name).lower()):
            return command.load()
    return None


def list_text() -> str:
    """Return the list of all commands as the original prints it."""
    lines = [f"   {command.command_name:<20} {command.command_desc}\n" for command in SUB_COMMANDS]
    return ("The most commonly used mqadmin commands are:\n" + "".join(lines)
            + "\nSee 'mqadmin help <command>' for more information on a specific command.\n")


def _output_help(command: "type[SubCommand]") -> str:
    short = "-o json, " if command.build_commandline_options().find("o") is None else ""
    return f"{short}--output json or --json prints rows and documents as JSON, one object per line.\n"


if __name__ == "__main__":
    sys.exit(run_while_read(main))
