"""Shared parts of all commands of `rmqha`.

- exit codes, and the errors that end a command with them;
- options with the same meaning for each command, and types for sizes, durations and times;
- output: JSON, YAML, tables that align text in any script, times, progress;
- commands and groups that are imported when they are used: a start is fast, and optional libraries may be missing.
"""
import importlib
import math
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from rmqha.common import units

OK = 0
FAILED = 1
CANNOT_ANSWER = 2
# Words of other tools for the ends of a queue -> ours.
END_WORDS = {"start": "earliest", "beginning": "earliest", "end": "latest"}


class WorkFailedError(click.ClickException):
    """The work was done only in part, or not at all; exit code 1."""

    exit_code = FAILED


class CannotAnswerError(click.ClickException):
    """The request is invalid or no server answers, so the result is unknown; exit code 2."""

    exit_code = CANNOT_ANSWER


def only_one(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> str | None:
    """The callback of an option with `multiple`: return its one value; a usage error for several, which click drops."""
    if len(values) > 1:
        raise click.BadParameter(f"only one can be given, not {len(values)}: {', '.join(values)}")
    return values[0] if values else None


topic_option = click.option("-t", "--topic", required=True, multiple=True, callback=only_one, help="The topic.")
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
output_option = click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table",
                             show_default=True, help="The output format.")


_INDENT = "  "
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
# Words that YAML 1.1 reads as booleans or null.
_YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
# JSON output leaves these characters unescaped, but YAML does not allow them.
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def put(text: str, err: bool = False) -> None:
    """Print one line to standard output, or to standard error; invalid Unicode is printed as `?`."""
    click.echo(text.encode("utf-8", "replace").decode(), err=err)


def on_terminal() -> bool:
    """Return whether a person can answer a question."""
    return sys.stdin.isatty()


def agreed(question: str, yes: bool) -> None:
    """Ask on a terminal, unless `yes`. click.Abort for a no; CannotAnswerError without a terminal."""
    if yes:
        return
    if not on_terminal():
        raise CannotAnswerError(f"{question} No terminal to ask on: give --yes")
    click.confirm(question, abort=True, err=True)


def to_json(value: Any) -> str:
    """Return one line of JSON; invalid Unicode in a store's texts becomes `?`."""
    import json  # here, as below: `rmqha --help` works without it

    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()


def to_yaml(value: Any) -> str:
    """Return a value as a YAML document: blocks, with texts in JSON's quotes, which are valid YAML."""
    import json

    return "\n".join(_yaml_lines(json.loads(to_json(value))))


def emit(value: Any, output: str) -> None:
    """Print a value for programs: one line of JSON, or a YAML document with its `---`."""
    put(to_json(value) if output == "json" else f"---\n{to_yaml(value)}")


def _yaml_lines(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            if isinstance(inner, (dict, list)) and inner:
                yield f"{_yaml_key(key)}:"
                yield from (_INDENT + line for line in _yaml_lines(inner))
            else:
                yield f"{_yaml_key(key)}: {_yaml_scalar(inner)}"
    elif isinstance(value, list) and value:
        for inner in value:
            lines = list(_yaml_lines(inner))
            yield f"- {lines[0]}"
            yield from (_INDENT + line for line in lines[1:])
    else:
        yield _yaml_scalar(value)


def _yaml_key(key: str) -> str:
    is_plain = _PLAIN_KEY.fullmatch(key) and key.lower() not in _YAML_WORDS
    return key if is_plain else _yaml_scalar(key)


def _yaml_scalar(value: Any) -> str:
    import json

    if isinstance(value, float):
        return _yaml_float(value)
    return _NOT_IN_YAML.sub(lambda char: f"\\u{ord(char[0]):04x}", json.dumps(value, ensure_ascii=False))


def _yaml_float(value: float) -> str:
    """Return a number that YAML 1.1 also reads as a number: it takes `1e-05` and `1e+16` for texts, since it requires a
    dot before the exponent, and a sign in the exponent."""
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    if not e:
        return mantissa
    return f"{mantissa}e{exponent if exponent[0] in '+-' else '+' + exponent}"


# ---- tables


def display_width(text: str) -> int:
    """Return the columns of a text on a terminal: 2 for wide East Asian characters, 0 for combining ones."""
    if text.isascii():
        return len(text)
    return sum(_width(char) for char in text)


def _width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def padded(text: str, width: int, right: bool = False) -> str:
    """Pad a text with blanks to a width on the terminal."""
    if text.isascii():
        return text.rjust(width) if right else text.ljust(width)
    blanks = " " * (width - display_width(text))
    return blanks + text if right else text + blanks


def render_table(headings: Sequence[str], rows: Sequence[Sequence[str]], right_aligned: Set[str]) -> str:
    """Return a table as text: headings, a line, rows; each column is as wide as its widest cell."""
    columns = []
    for heading, *cells in zip(headings, *rows):
        width = max(map(display_width, (heading, *cells)))
        is_right = heading in right_aligned
        columns.append([padded(cell, width, is_right) for cell in (heading, "-" * width, *cells)])
    return "\n".join(["  ".join(line).rstrip() for line in zip(*columns)])


def put_facts(facts: Mapping[str, str]) -> None:
    """Print names with their values, one per line."""
    width = max(map(display_width, facts), default=0)
    for name, said in facts.items():
        put(f"{click.style(padded(name, width), bold=True)}  {said}")


# ---- texts


def cell(text: str) -> str:
    """Escape the control characters of a text, so that it is safe to print on a terminal."""
    return text if text.isprintable() else "".join(
        char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def iso_time(timestamp: int) -> str | None:
    """Format ms since 1970 as ISO 8601 with the local offset; None when the calendar has no such time."""
    try:
        return datetime.fromtimestamp(timestamp / 1000, UTC).astimezone().isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return None


def percentiles(values: Sequence[float], points: Sequence[float] = (50, 90, 99, 99.9)) -> dict[str, float]:
    """Return `p50` ... and `max` of values in any order, by nearest rank; empty without values."""
    ranked = sorted(values)
    if not ranked:
        return {}
    found = {f"p{point:g}": ranked[min(int(len(ranked) * point / 100), len(ranked) - 1)] for point in points}
    return {**found, "max": ranked[-1]}


T = TypeVar("T", int, float)

if TYPE_CHECKING:
    _Param = click.ParamType[T]
else:
    class _Param(click.ParamType, Generic[T]):
        """A generic stand-in: click.ParamType is generic only from click 8.4 on, and 8.1 is supported."""


class UnitType(_Param[T]):
    """A text with a unit, or a plain number; its range is `low` to `high`, both included."""

    def __init__(self, name: str, parse: Callable[[str], T], low: T, high: T | None, shown: Callable[[T], str]) -> None:
        self.name = name
        self._parse: Callable[[str], T] = parse
        self._low: T = low
        self._high: T | None = high
        self._shown: Callable[[T], str] = shown

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """Return the amount of a text; a usage error when it is invalid."""
        if isinstance(value, (int, float)):
            # A default value.
            return value  # type: ignore[return-value]
        try:
            amount: T = self._parse(str(value))
        except units.UnitError as error:
            self.fail(str(error), param, ctx)
        if amount < self._low or self._high is not None and amount > self._high:
            most = "" if self._high is None else f" and at most {self._shown(self._high)}"
            self.fail(f"{value!r} is out of range: it must be at least {self._shown(self._low)}{most}", param, ctx)
        return amount


def size_type(low: int = 0, high: int | None = None) -> UnitType[int]:
    """Return the option type for sizes in bytes."""
    return UnitType("SIZE", units.parse_size, low, high, lambda amount: f"{amount} bytes")


def duration_type(low: float = 0.0, high: float | None = None) -> UnitType[float]:
    """Return the option type for durations in seconds."""
    return UnitType("DURATION", units.parse_duration, low, high, lambda amount: f"{amount:g} s")


def time_type() -> UnitType[int]:
    """Return the option type for times in ms since 1970."""
    return UnitType("TIME", units.parse_time, 0, None, str)


def time_text(timestamp: int) -> str:
    """Format ms since 1970 as local time, or as the number itself when the calendar has no such time."""
    try:
        moment = datetime.fromtimestamp(timestamp // 1000)
    except (OverflowError, ValueError, OSError):
        return str(timestamp)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp % 1000:03d}"


def counted(count: int, what: str) -> str:
    """Return a count with its noun: `1 slave`, `2 slaves`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error if that is a terminal; the yielded function sets the progress."""
    if not sys.stderr.isatty() or total <= 0:
        yield lambda position: None
        return
    with click.progressbar(length=total, label=label, file=sys.stderr) as bar:
        def come_to(position: int) -> None:
            bar.update(max(min(position, total) - bar.pos, 0))
        yield come_to


HELP_OPTIONS = ["-h", "--help"]


def _show_version(ctx: click.Context, _param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from rmqha.tools.version import report  # here: most starts need neither git nor the compiled parts

        click.echo(report())
        ctx.exit()


version_option = click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
                              help="Show the version and exit.")


def with_root_options(command: click.Command) -> click.Command:
    """Add `--version` and `-h` to a command and all its subcommands, as their root has them.

    click keeps the help option that a command created first: without a root it would be `--help` only.
    """
    command.context_settings.setdefault("help_option_names", HELP_OPTIONS)
    if not any("--version" in option.opts for option in command.params):
        version_option(command)
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            with_root_options(inner)
    return command


@contextmanager
def extra_needed(command: str, extra: str) -> Iterator[None]:
    """Turn an import error within this context into one that names the project's extra that `command` needs."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "rmqha":
            raise
        from rmqha.common.filesystem import how_to_install  # here: most commands need no pathlib

        raise CannotAnswerError(f"`rmqha {command}` needs the extra `{extra}` ({error}): "
                                f"{how_to_install(extra)}") from error


class _Lazy:
    """A command that is imported when used. `target`: module:attribute; `extra`: the project's extra that it needs."""

    name: str | None

    def __init__(self, name: str, target: str, help_text: str, extra: str | None = None) -> None:
        # The base class is object here; it is click.Command in the classes below.
        super().__init__(name, help=help_text)  # type: ignore[call-arg]
        self._target = target
        self.extra = extra

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None,
                     **extra: Any) -> click.Context:
        """Return the context of the real command."""
        return self.load().make_context(info_name, args, parent, **extra)

    def load(self) -> click.Command:
        """Import and return the real command."""
        module, _, attribute = self._target.partition(":")
        if self.extra is None:
            return with_root_options(getattr(importlib.import_module(module), attribute))
        with extra_needed(str(self.name), self.extra):
            return with_root_options(getattr(importlib.import_module(module), attribute))


class AliasGroup(click.Group):
    """A group whose commands also have the names of other programs' commands; the help lists only the real ones."""

    _REAL = {"ls": ("list",), "rm": ("delete", "remove"), "delete": ("remove",), "remove": ("delete",)}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name, or of the first real name that exists."""
        names = (cmd_name, *self._REAL.get(cmd_name, ()))
        return next((found for name in names if (found := super(AliasGroup, self).get_command(ctx, name))), None)


class LazyCommand(_Lazy, click.Command):
    """A command; the help lists it like any other."""


class LazyGroup(_Lazy, click.Group):
    """A group; the help lists it like any other."""
