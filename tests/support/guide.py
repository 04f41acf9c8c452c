"""A guide of docs/, read as a person reads it, and the tree of `rmqha`'s commands."""
import re
from collections.abc import Iterator
from pathlib import Path

import click

from rmqha.tools.rmqha_command import rmqha
from tests.support.sources import ROOT

# The tree of `rmqha`'s commands, loaded.


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


# A guide of docs/, read as a person reads it: the commands to run, the lines to set in files, the keys to remove.

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
        """The command lines, in their order."""
        return [line for kind, block in _BLOCK.findall(self.text) if kind == "bash" for line in block.splitlines()]

    def settings(self) -> str:
        """The one block of a properties file."""
        block, = (block for kind, block in _BLOCK.findall(self.text) if kind == "properties")
        return block

    def step(self, number: int) -> str:
        """A numbered step, without its number."""
        found = re.search(rf"^{number}\. (.*?)(?=^\d+\. |^$)", self.text, re.MULTILINE | re.DOTALL)
        assert found is not None, f"no step {number}"
        return found[1]


def keys_to_remove(step: str) -> list[str]:
    """The keys that a step says to remove: those that are named without a value."""
    return [key for key in _KEY.findall(step) if key != "config"]


def keys_to_set(step: str) -> str:
    """The lines that a step says to set: those that are named with a value."""
    return "".join(f"{setting}\n" for setting in _SETTING.findall(step))


def set_lines(file: Path, lines: str) -> None:
    """Write each `key=value` over the key's line in a file, or at its end."""
    text = file.read_text("utf-8").splitlines()
    for line in lines.split():
        key = line.partition("=")[0]
        places = [number for number, old in enumerate(text) if old.partition("=")[0].strip() == key]
        for number in places:
            text[number] = line
        if not places:
            text.append(line)
    file.write_text("".join(f"{line}\n" for line in text), "utf-8")


def remove_keys(file: Path, keys: list[str]) -> None:
    """Take the lines of keys out of a file."""
    text = file.read_text("utf-8").splitlines()
    file.write_text("".join(f"{line}\n" for line in text if line.partition("=")[0].strip() not in keys), "utf-8")
