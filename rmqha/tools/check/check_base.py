"""What checks share: one line and an exit code, as Nagios and similar systems want them."""
from enum import IntEnum
from typing import Any

import click

from rmqha.tools.store.output import put


class Status(IntEnum):
    """Exit codes of a check."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class CheckCommand(click.Command):
    """A check that can't be made is UNKNOWN, with exit code 3, whatever is the reason."""

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None,
                     **extra: Any) -> click.Context:
        """Parse the command line."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise self._unknown(info_name, error.format_message()) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the check."""
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:  # of a fault in the check itself nothing is known of the cluster either
            text = error.format_message() if isinstance(error, click.ClickException) else str(error)
            raise self._unknown(ctx.info_name, text) from error

    @staticmethod
    def _unknown(name: str | None, text: str) -> SystemExit:
        put(f"{(name or '').upper()} UNKNOWN - {text}")
        return SystemExit(int(Status.UNKNOWN))
