"""A command, or a group of them, that is imported when it is used: it takes time, or libraries that may be missing."""
import importlib
from typing import Any

import click

from rmqha.common.extras import how_to_install


class _MissingExtraError(click.ClickException):
    exit_code = 2


class LazyGroup(click.Group):
    """Stands in the help as any other. `target`: module:attribute; `extra`: which of the project's it needs."""

    def __init__(self, name: str, target: str, extra: str | None, help_text: str) -> None:
        super().__init__(name, help=help_text)
        self._target = target
        self._extra = extra

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None,
                     **extra: Any) -> click.Context:
        """The context of the real command."""
        return self._load().make_context(info_name, args, parent, **extra)

    def _load(self) -> click.Command:
        module, _, attribute = self._target.partition(":")
        try:
            command: click.Command = getattr(importlib.import_module(module), attribute)
        except ImportError as error:
            if self._extra is None or (error.name or "").partition(".")[0] == "rmqha":
                raise
            raise _MissingExtraError(f"`rmqha {self.name}` needs the extra `{self._extra}` ({error}): "
                                     f"{how_to_install(self._extra)}") from error
        return command
