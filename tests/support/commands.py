"""The tree of `rmqha`'s commands, loaded."""
from collections.abc import Iterator

import click

from rmqha.tools.rmqha_command import rmqha


def loaded(command: click.Command) -> click.Command:
    """A lazy command itself."""
    return command.load() if hasattr(command, "load") else command


def own_commands(command: click.Command = rmqha, path: str = "rmqha") -> Iterator[tuple[str, click.Command]]:
    """(path, command) of each in the tree, groups too, in order; of those that need an extra only what stands for
    them.
    """
    if getattr(command, "extra", None) is None:
        command = loaded(command)
    yield path, command
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from own_commands(command.commands[name], f"{path} {name}")


def needs_extra(command: click.Command) -> bool:
    """Whether a command has libraries of its own."""
    return getattr(command, "extra", None) is not None


def is_leaf(command: click.Command) -> bool:
    """Whether it does something."""
    return not isinstance(command, click.Group) and not needs_extra(command)
