"""Commands and groups that are imported when they are used: a start is quick, and libraries may be missing."""
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from rmqha import __version__
from rmqha.common.filesystem import how_to_install

HELP_OPTIONS = ["-h", "--help"]
_VERSION = click.version_option(__version__, prog_name="rmqha")


class _MissingExtraError(click.ClickException):
    exit_code = 2


def with_root_options(command: click.Command) -> click.Command:
    """`--version` and `-h` for a command and all below it, as their root has them.

    click keeps the help option that a command made first: for one run without a root it would be `--help` alone.
    """
    command.context_settings.setdefault("help_option_names", HELP_OPTIONS)
    if not any("--version" in option.opts for option in command.params):
        _VERSION(command)
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            with_root_options(inner)
    return command


@contextmanager
def extra_needed(command: str, extra: str) -> Iterator[None]:
    """An import that fails within says which of the project's extras brings the library that `command` needs."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "rmqha":
            raise
        raise _MissingExtraError(f"`rmqha {command}` needs the extra `{extra}` ({error}): "
                                 f"{how_to_install(extra)}") from error


class _Lazy:
    """`target`: module:attribute; `extra`: which of the project's brings its libraries, if it needs any."""

    name: str | None

    def __init__(self, name: str, target: str, help_text: str, extra: str | None = None) -> None:
        super().__init__(name, help=help_text)  # type: ignore[call-arg]  # click.Command's, see the classes below
        self._target = target
        self.extra = extra

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None,
                     **extra: Any) -> click.Context:
        """The context of the real command."""
        return self.load().make_context(info_name, args, parent, **extra)

    def load(self) -> click.Command:
        """The real command."""
        module, _, attribute = self._target.partition(":")
        if self.extra is None:
            return with_root_options(getattr(importlib.import_module(module), attribute))
        with extra_needed(str(self.name), self.extra):
            return with_root_options(getattr(importlib.import_module(module), attribute))


class LazyCommand(_Lazy, click.Command):
    """A command; in the help it stands as any other."""


class LazyGroup(_Lazy, click.Group):
    """A group; in the help it stands as any other."""
