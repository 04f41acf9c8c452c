"""An entry of the tables: the meaning of a text or a code, its causes, and what to do."""
from dataclasses import dataclass
from enum import Enum

from rmqha.tools.explain.template import Template


class Kind(Enum):
    """The kind of thing that an entry explains."""

    LINE = "log line or error"
    RESPONSE = "response code"
    REQUEST = "request code"
    CLIENT = "client error code"
    EXIT = "exit code"
    STATE = "state or status"
    ALERT = "alert"
    CHECK = "check of rmqha doctor"
    KEY = "config key"


@dataclass(frozen=True)
class Entry:
    """One explanation.

    `id` is its name within `rmqha explain`. `names` are found as whole words; `code` is a number of its kind. `page`
    is a page of docs/, with an anchor.
    """

    id: str
    kind: Kind
    means: str
    do: str
    patterns: tuple[Template, ...] = ()
    names: tuple[str, ...] = ()
    code: int | None = None
    page: str = ""


class Table:
    """A list of entries under construction, with the page that most of them are on."""

    def __init__(self, prefix: str, page: str = "") -> None:
        self.entries: list[Entry] = []
        self._prefix = prefix
        self._page = page

    def line(self, name: str, *patterns: str, means: str, do: str, names: tuple[str, ...] = (),
             page: str | None = None) -> None:
        """Add an entry about log lines and errors."""
        self.entries.append(Entry(f"{self._prefix}.{name}", Kind.LINE, means, do, tuple(map(Template, patterns)),
                                  names, None, self._page if page is None else page))

    def code(self, kind: Kind, code: int, name: str, means: str, do: str, page: str | None = None) -> None:
        """Add an entry about a code."""
        self.entries.append(Entry(f"{self._prefix}.{name or code}", kind, means, do, (), (name,) if name else (), code,
                                  self._page if page is None else page))

    def name(self, kind: Kind, name: str, means: str, do: str, page: str | None = None) -> None:
        """Add an entry about a name."""
        self.entries.append(Entry(f"{self._prefix}.{name}", kind, means, do, (), (name,), None,
                                  self._page if page is None else page))
