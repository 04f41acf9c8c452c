"""A guide of docs/, read as a user reads it, and the tree of `rmqha`'s commands."""
import re
from collections.abc import Iterator
from pathlib import Path

import click

from rmqha.tools.rmqha_command import rmqha
from tests.support.sources import ROOT

# The tree of `rmqha`'s commands, loaded.


def loaded(command: click.Command) -> click.Command:
    """Return the command behind a lazy command."""
    return command.load() if hasattr(command, "load") else command


def own_commands(command: click.Command = rmqha, path: str = "rmqha") -> Iterator[tuple[str, click.Command]]:
    """Yield (path, command) of each command in the tree, including groups, in order; for those that need an extra
    only their placeholder."""
    if getattr(command, "extra", None) is None:
        command = loaded(command)
    yield path, command
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from own_commands(command.commands[name], f"{path} {name}")


def needs_extra(command: click.Command) -> bool:
    """Return whether a command needs additional libraries."""
    return getattr(command, "extra", None) is not None


def is_leaf(command: click.Command) -> bool:
    """Return whether a command is not a group."""
    return not isinstance(command, click.Group) and not needs_extra(command)


# A guide of docs/, read as a user reads it: the commands to run, the lines to set in files, the keys to remove.

_HEADING = re.compile(r"^## ", re.MULTILINE)
_BLOCK = re.compile(r"^```(bash|properties)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_KEY = re.compile(r"`(\w+)`")
_SETTING = re.compile(r"`(\w+=[^`\s]+)`")


class Section:
    """The part of a page below one heading."""

    def __init__(self, page: str, title: str) -> None:
        parts = _HEADING.split((ROOT / "docs" / page).read_text("utf-8"))
        self.text, = (part for part in parts if part.startswith(f"{title}\n"))

    def commands(self) -> list[str]:
        """Return the command lines, in their order."""
        return [line for kind, block in _BLOCK.findall(self.text) if kind == "bash" for line in block.splitlines()]

    def settings(self) -> str:
        """Return the contents of the only block of a properties file."""
        block, = (block for kind, block in _BLOCK.findall(self.text) if kind == "properties")
        return block

    def step(self, number: int) -> str:
        """Return the text of a numbered step, without its number."""
        found = re.search(rf"^{number}\. (.*?)(?=^\d+\. |^$)", self.text, re.MULTILINE | re.DOTALL)
        assert found is not None, f"there is no step {number}"
        return found[1]


def keys_to_remove(step: str) -> list[str]:
    """Return the keys that a step tells the reader to remove: those that are named without a value."""
    return [key for key in _KEY.findall(step) if key != "config"]


def keys_to_set(step: str) -> str:
    """Return the lines that a step tells the reader to set: those that are named with a value."""
    return "".join(f"{setting}\n" for setting in _SETTING.findall(step))


def set_lines(file: Path, lines: str) -> None:
    """Replace the line of each key in `lines` in a file, or append it."""
    text = file.read_text("utf-8").splitlines()
    for line in filter(None, lines.splitlines()):
        key = line.partition("=")[0]
        places = [number for number, old in enumerate(text) if old.partition("=")[0].strip() == key]
        for number in places:
            text[number] = line
        if not places:
            text.append(line)
    file.write_text("".join(f"{line}\n" for line in text), "utf-8")


def remove_keys(file: Path, keys: list[str]) -> None:
    """Remove the lines of keys from a file."""
    text = file.read_text("utf-8").splitlines()
    file.write_text("".join(f"{line}\n" for line in text if line.partition("=")[0].strip() not in keys), "utf-8")
