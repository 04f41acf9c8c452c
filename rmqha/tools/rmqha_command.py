"""The command `rmqha`: one root, a command or a group for each kind of work, imported when it is used.

`rmqha completion`: what a shell evaluates so that Tab completes commands and options.
"""
import errno
import os
from typing import Any

import click

from rmqha import __version__
from rmqha.common.program import Interruptible, exit_code
from rmqha.tools import terminal
from rmqha.tools.terminal import HELP_OPTIONS, CannotAnswerError, LazyCommand, LazyGroup, put, with_root_options

PIPELINE = LazyGroup("pipeline", "rmqha.pipeline.pipeline_command:pipeline_group",
                     "Jobs on Spark: audit, rebuild, archive, verify, restore, report, replay.", "spark")
GROUPS: tuple[click.Command, ...] = (
    LazyCommand("quickstart", "rmqha.tools.quickstart:main",
                "Start 2 masters and 2 slaves on this host, send messages, kill a master, consume everything."),
    LazyCommand("up", "rmqha.tools.local_cluster.cluster_command:up_command",
                "Start a cluster on this host that stays, or what does not run of it."),
    LazyCommand("down", "rmqha.tools.local_cluster.cluster_command:down_command",
                "Stop a cluster: the slaves, the masters, the name server; a controller first. Its data stays."),
    LazyCommand("ps", "rmqha.tools.local_cluster.cluster_command:ps_command",
                "Show the servers of a cluster: role, address, pid, state, memory (RSS), store folder."),
    LazyCommand("logs", "rmqha.tools.local_cluster.logs_command:logs_command",
                "Show the end of the logs of a cluster's servers, or of one NODE, in the order of their times."),
    LazyCommand("top", "rmqha.tools.top.top_command:top_command",
                "Show a cluster live: brokers, rates, replication lag, groups behind."),
    LazyCommand("console", "rmqha.tools.console.console_command:console_command",
                "Serve a web page that shows a cluster: replication, topics, groups, messages, stores."),
    LazyCommand("produce", "rmqha.tools.messages.produce:produce_command",
                "Send messages to a topic: each line of standard input, or of FILES."),
    LazyCommand("consume", "rmqha.tools.messages.consume:consume_command",
                "Print the messages of a topic, and end. Without a group nothing changes at the broker."),
    LazyCommand("tail", "rmqha.tools.messages.consume:tail_command",
                "Print the messages of a topic as they come, until Ctrl-C (exit code 130) or SIGTERM (143)."),
    LazyCommand("export", "rmqha.tools.messages.export_file:export_command",
                "Write topics with all messages that they hold now to FILE."),
    LazyCommand("import", "rmqha.tools.messages.export_file:import_command",
                "Send the messages of FILE, which `rmqha export` wrote, to the topics that they came from."),
    LazyGroup("bench", "rmqha.tools.messages.bench:bench_group",
              "Measure a cluster as a client sees it: rates and latency percentiles."),
    LazyGroup("store", "rmqha.tools.store_files.store_command:store_group",
              "Look at a store on disk, its broker running or not. Nothing is changed but by `rebuild --apply`."),
    LazyGroup("ha", "rmqha.tools.replication.switch:ha_group",
              "See how replication stands, receive a master's log, bring a slave back, change roles."),
    LazyGroup("check", "rmqha.tools.check:check_group",
              "Checks for monitoring: one line, exit code 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."),
    LazyCommand("doctor", "rmqha.tools.doctor.doctor_command:doctor_command",
                "Look for what is wrong with config files, this host, and a running cluster, and say what to do."),
    LazyGroup("config", "rmqha.tools.config.config_command:config_group",
              "Explain config keys, check config files, copy those that rmqha comes with."),
    LazyGroup("drill", "rmqha.tools.drill:drill_group",
              "Rehearse what must work when something breaks, on a cluster that is started for it."),
    LazyCommand("completion", "rmqha.tools.rmqha_command:completion_command",
                "Print the completion script of a shell."),
    PIPELINE,
)


class RootGroup(click.Group):
    """Says in one line what went wrong, with an exit code of docs/commands.md."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. What the client logs is told by the commands themselves."""
        import logging  # `rmqha --help` says what there is without it

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
@click.version_option(__version__, prog_name="rmqha")
def rmqha() -> None:
    """Tools for RocketMQ: messages, stores, replication, clusters.

    Exit code 0: done; 1: the work failed, in part at least; 2: wrong usage, or nobody can answer; 130: interrupted;
    143 or 129: ended by SIGTERM or SIGHUP, in order.
    """


for _command in GROUPS:
    rmqha.add_command(_command if isinstance(_command, (LazyCommand, LazyGroup)) else with_root_options(_command))


def main() -> None:
    """Entry point."""
    rmqha(prog_name="rmqha")


if __name__ == "__main__":
    main()


_WHERE = {"bash": 'add  eval "$(rmqha completion bash)"  to ~/.bashrc',
          "zsh": 'add  eval "$(rmqha completion zsh)"  to ~/.zshrc',
          "fish": "save it as ~/.config/fish/completions/rmqha.fish"}


@click.command("completion", epilog="; ".join(f"{shell}: {text}" for shell, text in _WHERE.items()))
@click.argument("shell", type=click.Choice(list(_WHERE)))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise CannotAnswerError(f"this version of click has no completion for {shell}")
    put(kind(ctx.find_root().command, {}, "rmqha", "_RMQHA_COMPLETE").source())
