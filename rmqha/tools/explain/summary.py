"""A summary of a log: which known lines it has, how often, the first and the last time; in bounded memory.

    stream --64 KiB--> LineReader: lines of at most MAX_LINE bytes --> Summary: times, levels, matches, unknown shapes
"""
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from rmqha.common.texts import JsonTextError, parse_json
from rmqha.tools.explain.catalog import MAX_LINE, Catalog
from rmqha.tools.explain.entry import Entry, Kind

_BLOCK = 64 * 1024
# Kinds of unknown lines that are kept; all further ones are only counted.
MAX_UNKNOWN = 200
_SHAPE = 160
_HEAD = 160
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?(?:Z|[+-]\d\d:\d\d)?")
_LEVEL = re.compile(r"\b(DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL)\b")
_QUIET = ("DEBUG", "INFO")
_SEVERE = ("ERROR", "FATAL", "CRITICAL")
_FRAME = re.compile(r"\s{0,64}(?:at |File \"|\.\.\. \d{1,6} more|Traceback \(|During handling |The above exception )")
_DIGITS = re.compile(r"\d+")
# Notes that say what a request was; not what went wrong.
_NO_TROUBLE = (Kind.REQUEST, Kind.CHECK, Kind.KEY)


class LineReader:
    """Yields the lines of a stream as texts. The part of a line beyond MAX_LINE bytes is dropped, never kept."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        # Lines that lost their end.
        self.cut = 0

    def __iter__(self) -> Iterator[str]:
        kept, lost = b"", False
        while block := self._stream.read(_BLOCK):
            first, *others = block.split(b"\n")
            kept, lost = self._joined(kept, first, lost)
            for part in others:
                yield self._line(kept, lost)
                kept, lost = self._joined(b"", part, False)
        if kept or lost:
            yield self._line(kept, lost)

    @staticmethod
    def _joined(kept: bytes, part: bytes, lost: bool) -> tuple[bytes, bool]:
        room = MAX_LINE - len(kept)
        return kept + part[:room], lost or len(part) > room

    def _line(self, kept: bytes, lost: bool) -> str:
        self.cut += lost
        return kept.decode("utf-8", "replace").rstrip("\r")


@dataclass
class Seen:
    """A kind of line in a log: how often, the first and the last time as written there ("" unknown), and one line."""

    count: int
    first: str
    last: str
    example: str


class Summary:
    """Counts the lines of a log. Lines of INFO and below are counted and not looked up: they are normal."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.lines = self.troubles = self.unknown_count = 0
        self.known: dict[str, Seen] = {}
        self.unknown: dict[str, Seen] = {}
        self._time = ""
        self._is_quiet = False

    def feed(self, line: str) -> None:
        """Count one line."""
        self.lines += 1
        if not line or line.isspace():
            return
        time, level, text = _read(line)
        if time:
            self._time, self._is_quiet = time, level in _QUIET
        if level in _QUIET or self._is_quiet and not level:
            return
        self.troubles += bool(level)
        matches = [match for match in self._catalog.line(text) if _is_trouble(match.entry)]
        for match in matches:
            self._count(self.known, match.entry.id, text)
        if not matches and level:
            self.unknown_count += 1
            shape = _DIGITS.sub("#", text[:_HEAD * 2])[:_SHAPE]
            if shape in self.unknown or len(self.unknown) < MAX_UNKNOWN:
                self._count(self.unknown, shape, text)

    def _count(self, table: dict[str, Seen], key: str, text: str) -> None:
        seen = table.get(key)
        if seen is None:
            table[key] = Seen(1, self._time, self._time, text[:_HEAD])
        else:
            seen.count, seen.last = seen.count + 1, self._time or seen.last

    def ranked(self) -> list[tuple[Entry, Seen]]:
        """Return the known kinds of lines, the most frequent first."""
        found = [(self._catalog.entries[entry_id], seen) for entry_id, seen in self.known.items()]
        return sorted(found, key=lambda each: (-each[1].count, each[0].id))

    def ranked_unknown(self) -> list[Seen]:
        """Return the unknown kinds of lines at WARN and above, the most frequent first."""
        return sorted(self.unknown.values(), key=lambda each: (-each.count, each.example))


def _is_trouble(entry: Entry) -> bool:
    return entry.kind not in _NO_TROUBLE and entry.id != "code.SUCCESS"


def _read(line: str) -> tuple[str, str, str]:
    """Return time, level ("" without one) and message of a line of text or JSON; a frame of a stack has no level."""
    if line.startswith("{"):
        found = _json(line)
        if found is not None:
            return found
    if _FRAME.match(line):
        return "", "", ""
    head = line[:_HEAD]
    time, level = _TIME.search(head), _LEVEL.search(head)
    text = line[level.end():] if level is not None and time is not None else line
    return time[0] if time else "", level[1] if level and time else "", text.strip()


def _json(line: str) -> tuple[str, str, str] | None:
    try:
        value = parse_json(line, "the line")
    except JsonTextError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("message"), str):
        return None
    exception = value.get("exception")
    text = value["message"] + (f" {exception}" if isinstance(exception, str) else "")
    return str(value.get("time", ""))[:40], str(value.get("level", ""))[:10], text
