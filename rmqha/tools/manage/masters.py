"""Operations on all masters of a cluster at once, and the options that their commands share.

    admin.brokers() --masters--> [Broker] --on_each, in parallel--> Outcomes: values and errors by broker

A command prints the values in one table. It ends with exit code 1 when some brokers failed, and 2 when all did.
`ManageGroup` says so in the help of each command.
"""
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import click

from rmqha.tools.admin.cluster_admin import DEFAULT_TIMEOUT_MS, Broker, ClusterAdmin, NoAnswerError, chosen
from rmqha.tools.connection import namesrv_option
from rmqha.tools.manage.completion import complete_broker, complete_cluster
from rmqha.tools.replication.ask import in_parallel
from rmqha.tools.terminal import (
    AliasGroup,
    CannotAnswerError,
    WorkFailedError,
    counted,
    duration_type,
    output_option,
    put,
)

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

EXIT_CODES = ("Exit code 0: done; 1: some brokers failed; 2: wrong usage, a name that does not exist or exists "
              "already, or all brokers failed.")


class ManageGroup(AliasGroup):
    """A group whose commands, also those of groups in it, print EXIT_CODES below their options.

    A command whose help begins a list of exit codes ("Exit code 0") has its own.
    """

    group_class = type

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command, and the exit codes to its help."""
        if not isinstance(cmd, click.Group) and "Exit code 0" not in (cmd.help or ""):
            cmd.epilog = f"{EXIT_CODES}\n\n{cmd.epilog or ''}"
        super().add_command(cmd, name)


def brokers_of(admin: ClusterAdmin, cluster: str | None = None, broker: str | None = None) -> list[Broker]:
    """Return the brokers of one cluster, or of the broker name or address `broker`, masters first.

    CannotAnswerError without any, and for several clusters if neither is given.
    """
    found = chosen(admin.brokers(), cluster, broker)
    clusters = sorted({each.cluster for each in found})
    if not found:
        raise CannotAnswerError(f"the name server {admin.namesrv_addr} knows no broker")
    if len(clusters) > 1:
        raise CannotAnswerError(f"the name server {admin.namesrv_addr} knows several clusters: choose one with "
                                f"--cluster: {', '.join(clusters[:20])}")
    return sorted(found, key=lambda each: (not each.is_master, each))


def masters(admin: ClusterAdmin, cluster: str | None = None, broker: str | None = None) -> list[Broker]:
    """Return the masters of `brokers_of`, by name. CannotAnswerError without any."""
    found = [each for each in brokers_of(admin, cluster, broker) if each.is_master]
    if not found:
        raise CannotAnswerError("no master is registered at the name server " + str(admin.namesrv_addr))
    return found


@dataclass
class Outcomes(Generic[T]):
    """The answers of several brokers to one question, and the errors of those that have none."""

    values: dict[Broker, T] = field(default_factory=dict)
    errors: dict[Broker, CannotAnswerError] = field(default_factory=dict)

    def needed(self) -> dict[Broker, T]:
        """Return the answers; raise the error of the first broker if no broker has answered."""
        if not self.values and self.errors:
            raise next(iter(self.errors.values()))
        return self.values

    def finish(self, advice: str = "") -> None:
        """Print the errors to standard error, and end the command with exit code 1 or 2 if there are any.

        `advice`: what to do, at the end of the last line.
        """
        if not self.errors:
            return
        for broker, error in self.errors.items():
            put(f"{broker.name} ({broker.address}): {error.message}", err=True)
        text = f"{counted(len(self.errors), 'broker')} of {len(self.errors) + len(self.values)} failed"
        text += f": {advice}" if advice else ""
        raise WorkFailedError(text) if self.values else CannotAnswerError(text)


def on_each(admin: ClusterAdmin, brokers: Iterable[Broker], ask: Callable[[Broker], T],
            timeout_ms: float | None = None) -> Outcomes[T]:
    """Call `ask` for all brokers in parallel. Its CannotAnswerError, or no answer in time, counts as a broker's error.

    `timeout_ms`: of all requests that `ask` makes together; by default the time-out of one.
    """
    limit_ms = admin.timeout_millis if timeout_ms is None else timeout_ms

    def answer(broker: Broker) -> T | Exception:
        try:
            return ask(broker)
        except Exception as error:
            return error
    answers = in_parallel(answer, list(brokers), limit_ms, lambda broker: NoAnswerError(
        f"broker {broker.address} did not answer within {limit_ms / 1000:g} s"))
    outcomes: Outcomes[T] = Outcomes()
    for broker, given in answers.items():
        if isinstance(given, Exception) and not isinstance(given, CannotAnswerError):
            raise given
        if isinstance(given, CannotAnswerError):
            outcomes.errors[broker] = given
        else:
            outcomes.values[broker] = given
    return outcomes


cluster_option = click.option("-c", "--cluster", shell_complete=complete_cluster,
                              help="The cluster; needed only if the name server knows several.")
broker_option = click.option("-b", "--broker", shell_complete=complete_broker,
                             help="Only the brokers of this name; the host:port of one of them does the same.")
timeout_option = click.option("--timeout", "timeout_s", default=f"{DEFAULT_TIMEOUT_MS // 1000}s", show_default=True,
                              type=duration_type(0.1, 600), help="How long to wait for each answer.")


def cluster_options(command: F) -> F:
    """Add --namesrv, --cluster, --timeout and --output."""
    for option in (output_option, timeout_option, cluster_option, namesrv_option):
        command = option(command)
    return command
