"""What ends a store tool with exit code 2: the question can't be answered, which says nothing about the store."""
import click


class StoreToolError(click.ClickException):
    """What is wrong, where, and what to do about it."""

    exit_code = 2
