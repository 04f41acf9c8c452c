"""What ends a command of `rmqha` with exit code 2: it could not do what it was asked."""
import click


class CannotAnswerError(click.ClickException):
    """What is wrong, where, and what to do about it."""

    exit_code = 2
