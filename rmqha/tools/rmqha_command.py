"""The command `rmqha`: one root with a command or group for each kind of work, imported when it is used.

`rmqha completion` prints the script that a shell evaluates to complete commands and options.
"""
import errno
import os
from typing import Any

import click

from rmqha.common.program import Interruptible, examples, exit_code
from rmqha.tools import terminal
from rmqha.tools.connection import chosen_namesrv, complete_context, name_context
from rmqha.tools.terminal import HELP_OPTIONS, CannotAnswerError, LazyCommand, LazyGroup, put, with_root_options

PIPELINE = LazyGroup("pipeline", "rmqha.pipeline.pipeline_command:pipeline_group",
                     "Audit, archive, restore, report on and replay logs with Spark.", "spark")
SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "Run a cluster on this host": (
        LazyCommand("quickstart", "rmqha.tools.quickstart:main",
                    "Start 2 masters and 2 slaves, kill a master, lose no message."),
        LazyCommand("up", "rmqha.tools.local_cluster.cluster_command:up_command",
                    "Start a persistent cluster, or restart its stopped servers."),
        LazyCommand("down", "rmqha.tools.local_cluster.cluster_command:down_command",
                    "Stop a cluster; keep its data."),
        LazyCommand("ps", "rmqha.tools.local_cluster.cluster_command:ps_command",
                    "Show a cluster's servers: role, address, state, memory."),
        LazyCommand("logs", "rmqha.tools.local_cluster.logs_command:logs_command",
                    "Show or follow the logs of a cluster's servers."),
    ),
    "Messages": (
        LazyCommand("produce", "rmqha.tools.messages.produce:produce_command",
                    "Send lines, JSON objects or whole files as messages."),
        LazyCommand("consume", "rmqha.tools.messages.consume:consume_command",
                    "Print the messages of a topic, then exit."),
        LazyCommand("tail", "rmqha.tools.messages.consume:tail_command",
                    "Print the messages of a topic as they arrive."),
        LazyGroup("message", "rmqha.tools.messages.message_command:message_group",
                  "Show a message by its id, find messages by key."),
        LazyCommand("export", "rmqha.tools.messages.export_file:export_command",
                    "Write the messages of topics to a file."),
        LazyCommand("import", "rmqha.tools.messages.export_file:import_command",
                    "Send the messages of a file that `export` wrote."),
        LazyGroup("bench", "rmqha.tools.messages.bench:bench_group",
                  "Measure rates and latency percentiles as a client sees them."),
    ),
    "Topics, groups, accounts": (
        LazyGroup("topic", "rmqha.tools.manage.topic_command:topic_group",
                  "Create, list, describe, change and delete topics."),
        LazyGroup("dlq", "rmqha.tools.manage.dead_letter_command:dlq_group",
                  "List, show and resend dead letters."),
        LazyGroup("group", "rmqha.tools.manage.group_command:group_group",
                  "List and change consumer groups, and move their offsets."),
        LazyGroup("acl", "rmqha.tools.manage.acl_command:acl_group",
                  "List, create, change and delete accounts, and check what an account may do."),
        LazyGroup("cluster", "rmqha.tools.manage.cluster_command:cluster_group",
                  "Show a cluster at a glance, and read, change and compare its settings."),
    ),
    "Replication": (
        LazyGroup("ha", "rmqha.tools.replication.switch:ha_group",
                  "Show replication, receive a log, rejoin a slave, change roles."),
        LazyGroup("drill", "rmqha.tools.drill:drill_group",
                  "Rehearse failures on a temporary cluster."),
    ),
    "Stores": (
        LazyGroup("store", "rmqha.tools.store_files.store_command:store_group",
                  "Inspect, compare, rebuild or repair a store on disk."),
    ),
    "Clusters": (
        LazyCommand("top", "rmqha.tools.top.top_command:top_command",
                    "Show a cluster live: brokers, rates, lag of slaves and groups."),
        LazyCommand("console", "rmqha.tools.console.console_command:console_command",
                    "Serve a web page that shows a cluster."),
        LazyGroup("check", "rmqha.tools.check:check_group",
                  "Run checks for monitoring: one line and an exit code each."),
        LazyCommand("doctor", "rmqha.tools.doctor.doctor_command:doctor_command",
                    "Find faults in config files, this host and a running cluster."),
        LazyGroup("context", "rmqha.tools.context_command:context_group",
                  "Name clusters with their addresses and accounts, and choose one."),
        LazyGroup("config", "rmqha.tools.config.config_command:config_group",
                  "Explain config keys, check config files, copy the shipped ones."),
        LazyCommand("explain", "rmqha.tools.explain.explain_command:explain_command",
                    "Explain a log line, an error, a code or a state."),
        LazyGroup("support", "rmqha.tools.support.support_command:support_group",
                  "Collect what a maintainer needs to understand a problem."),
    ),
    "Spark": (PIPELINE,),
    "Shell": (
        LazyCommand("completion", "rmqha.tools.rmqha_command:completion_command",
                    "Print the completion script of a shell."),
        LazyCommand("man", "rmqha.tools.man_pages:man_command",
                    "Write the manual pages of all commands to a folder."),
    ),
}
GROUPS: tuple[click.Command, ...] = tuple(command for section in SECTIONS.values() for command in section)


# Hidden: the help of the root shows it, for a place before the command.
_context_anywhere = click.option("--context", metavar="NAME", expose_value=False, hidden=True, is_eager=True,
                                 callback=name_context, shell_complete=complete_context,
                                 help="The context to work with, instead of the current one.")


def _with_context(command: click.Command) -> None:
    """Add --context to a command, or to all commands of a group, that work on the cluster of a context."""
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _with_context(inner)
    elif any(param.callback is chosen_namesrv for param in command.params) and all(
            "--context" not in param.opts for param in command.params):
        _context_anywhere(command)


class RootGroup(click.Group):
    """The root group: reports an error in one line, with an exit code of docs/commands.md."""

    def resolve_command(self, ctx: click.Context, args: list[str]
                        ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the arguments, imported, and with --context where that means something."""
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, (LazyCommand, LazyGroup)):
            command = command.load()
        if command is not None:
            _with_context(command)
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands in their sections."""
        width = max(len(str(command.name)) for command in GROUPS)
        for heading, commands in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(str(command.name).ljust(width), command.get_short_help_str(formatter.width))
                                    for command in commands])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Log records of the client are discarded: the commands report errors themselves."""
        import logging  # here: `rmqha --help` works without it

        if not logging.getLogger().handlers:
            logging.getLogger().addHandler(logging.NullHandler())
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        try:
            with Interruptible():
                return super().invoke(ctx)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            where = f"{error.filename}: " if error.filename else ""
            raise terminal.CannotAnswerError(f"{where}{error.strerror or error}") from error
        except KeyboardInterrupt as interrupt:
            try:
                click.echo(str(interrupt) or "interrupted", err=True)
            except OSError as error:
                logging.getLogger("RocketmqTools").debug("the terminal is gone: %s", error)
            ctx.exit(exit_code(interrupt))
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            from rmqha.tools.errors import told
            answer = told(error)
            if answer is None:
                raise
            raise answer from error


@click.group("rmqha", cls=RootGroup, context_settings={"help_option_names": HELP_OPTIONS})
@terminal.version_option
@click.option("--context", metavar="NAME", expose_value=False, callback=name_context, is_eager=True,
              shell_complete=complete_context, help="The context to work with, instead of the current one.")
def rmqha() -> None:
    """Tools for RocketMQ: messages, stores, replication, clusters.

    Exit code 0: done; 1: the work failed, at least in part; 2: wrong usage, or no server answers; 130: interrupted;
    143 or 129: cleanly ended by SIGTERM or SIGHUP.
    """


for _command in GROUPS:
    rmqha.add_command(_command if isinstance(_command, (LazyCommand, LazyGroup)) else with_root_options(_command))


def main() -> None:
    """Entry point."""
    rmqha(prog_name="rmqha")


if __name__ == "__main__":
    main()


@click.command("completion", epilog=examples(
    'eval "$(rmqha completion bash)"    # in ~/.bashrc', 'eval "$(rmqha completion zsh)"     # in ~/.zshrc',
    "rmqha completion fish > ~/.config/fish/completions/rmqha.fish"))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise CannotAnswerError(f"this version of click has no completion for {shell}")
    put(kind(ctx.find_root().command, {}, "rmqha", "_RMQHA_COMPLETE").source())
