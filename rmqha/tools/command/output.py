"""What sub-commands print: a command says its data once, and a renderer makes text or JSON of it.

A sub-command yields parts: text as it stands, rows of a table, documents. As text they look as the original's; as JSON
each row and document is one object a line, and all other text goes to standard error.
"""
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from rmqha.remoting.protocol import fastjson

_NUMBER = re.compile(r"%(-?\d*)(?:\.\d+)?[df]")


@dataclass(frozen=True)
class Heading:
    """The first line of a table."""

    text: str


@dataclass(frozen=True)
class Row:
    """A line of a table, and its fields by name."""

    text: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Document:
    """A value that is printed as a JSON text anyway; `text` is how the original prints it."""

    text: str
    value: Any


Part = str | Heading | Row | Document


@dataclass(frozen=True)
class Table:
    """Rows of one form. `columns`: name in JSON -> heading. `row_format`: printf's as in Java, with the line's end.

        QUEUES = Table("%-32s  %-4d\\n", {"brokerName": "#Broker Name", "queueId": "#QID"})
        yield QUEUES.heading()
        yield QUEUES.row("broker-a", 0)

    Java's UtilAll.frontStringAtLeast(text, 32) in a cell is `%-32.32s` in the format: JSON gets the text whole.
    """

    row_format: str
    columns: Mapping[str, str]
    heading_format: str | None = None  # else row_format with numbers as text

    def heading(self) -> Heading:
        """The line with the columns' names."""
        form = self.heading_format or re.sub(r"%(-?\d*)\.\d+s", r"%\1s", _NUMBER.sub(r"%\1s", self.row_format))
        return Heading(form % tuple(self.columns.values()))

    def row(self, *cells: Any, **fields: Any) -> Row:
        """A line. `fields` go over the cells in JSON: numbers that a cell shows in some form."""
        return Row(self.row_format % cells, {**dict(zip(self.columns, cells)), **fields})


class TextRenderer:
    """Prints as the original does."""

    exit_code_of_failure = 0  # the original's main catches all and returns

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout

    def write(self, part: Part) -> None:
        """Print one part."""
        self._out.write(part if isinstance(part, str) else part.text)
        self._out.flush()


class JsonRenderer:
    """Prints an object a line; text that is not data goes to standard error."""

    exit_code_of_failure = 1

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr

    def write(self, part: Part) -> None:
        """Print one part."""
        if isinstance(part, str):
            self._err.write(part if part.endswith("\n") else part + "\n")
        elif not isinstance(part, Heading):
            value = part.fields if isinstance(part, Row) else part.value
            self._out.write(json.dumps(value, ensure_ascii=False, default=_jsonable) + "\n")
            self._out.flush()


def java_text(value: object) -> str:
    """A value as Java's %s prints it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _jsonable(value: object) -> Any:
    """A bean as what its JSON says."""
    return json.loads(fastjson.dumps(value, quote_field_names=True))


Renderer = TextRenderer | JsonRenderer
