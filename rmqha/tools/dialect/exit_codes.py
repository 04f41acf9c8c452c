"""Exit codes of `rmqha`, and the errors that end a command with them."""
import click

OK = 0
FAILED = 1
CANNOT_ANSWER = 2


class WorkFailedError(click.ClickException):
    """The work was done in part or not at all; exit code 1."""

    exit_code = FAILED


class CannotAnswerError(click.ClickException):
    """The question makes no sense or nobody answers, which says nothing about the work; exit code 2."""

    exit_code = CANNOT_ANSWER
