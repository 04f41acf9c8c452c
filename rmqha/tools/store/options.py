"""Options that several store commands share."""
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rmqha.store.index.index_file import Shape
from rmqha.tools.store.dispatch import DEFAULT_DELAY_LEVELS
from rmqha.tools.store.errors import StoreToolError

F = TypeVar("F", bound=Callable[..., Any])

commitlog_option = click.option(
    "--commitlog", multiple=True, type=click.Path(exists=True, file_okay=False),
    help="Folder of the commit log when it is not ROOT/commitlog; once for each of several.")
delay_levels_option = click.option(
    "--delay-levels", default=DEFAULT_DELAY_LEVELS, help="The broker's messageDelayLevel, if it was changed.")


def index_shape_options(command: F) -> F:
    """--index-slots and --index-entries."""
    command = click.option("--index-entries", type=click.IntRange(1),
                           help="The broker's maxIndexNum; by default it is found out.")(command)
    return click.option("--index-slots", type=click.IntRange(1),
                        help="The broker's maxHashSlotNum; by default it is found out.")(command)


def index_shape(slots: int | None, entries: int | None) -> Shape | None:
    """The shape that was told, if any."""
    if (slots is None) != (entries is None):
        raise StoreToolError("--index-slots and --index-entries go together: give both or neither")
    return Shape(slots, entries) if slots is not None and entries is not None else None
