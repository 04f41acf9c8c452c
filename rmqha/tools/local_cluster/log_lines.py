"""The log files of a cluster's servers: parse entries with level and time, read the last ones, follow new ones."""
from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from rmqha.tools.local_cluster.layout import ClusterError, Node

LEVELS = ("DEBUG", "INFO", "WARN", "ERROR")
# The name, among the log files, of the file that holds the server's standard output.
OUTPUT = "out"
# Files that only log statistics every minute; they are read only when named.
QUIET_FILES = {"stats", "watermark", "commercial", "protection"}
_ENTRY = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\S*) (?:(DEBUG|INFO|WARN|ERROR) )?")
_JSON_LEVEL = re.compile(r'"level":\s*"(\w+)"')
_JSON_TIME = re.compile(r'"(?:time|timestamp|ts)":\s*"([^"]+)"')
# Bytes at the end of each file that are searched for its last lines.
_READ_BACK = 4 << 20
# Lines of a log that an error shows.
_SHORT_END = 15


@dataclass
class Entry:
    """A log line with its continuation lines (a traceback), its server, and its time as written in the log."""

    node: str
    time: str
    level: str | None
    lines: list[str] = field(default_factory=list)

    def is_at_least(self, level: str | None) -> bool:
        """Return whether the entry is at least as severe as `level`; an entry without a level is not."""
        return level is None or self.level is not None and LEVELS.index(self.level) >= LEVELS.index(level)


class EntryReader:
    """Groups lines into entries, in order; an entry is complete only when the next one begins."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._open: Entry | None = None

    def feed(self, lines: Iterable[str]) -> Iterator[Entry]:
        """Yield the entries that `lines` complete."""
        for line in lines:
            begun = self._begin(line)
            if begun is None:
                if self._open is None:
                    self._open = Entry(self._node, "", None)
                self._open.lines.append(line)
                continue
            yield from self.flush()
            self._open = begun

    def flush(self) -> Iterator[Entry]:
        """Yield the last entry, complete or not."""
        if self._open is not None:
            yield self._open
        self._open = None

    def _begin(self, line: str) -> Entry | None:
        if line.startswith("{"):
            level, time = _JSON_LEVEL.search(line), _JSON_TIME.search(line)
            if level and level[1] in LEVELS:
                return Entry(self._node, time[1] if time else "", level[1], [line])
        found = _ENTRY.match(line)
        return Entry(self._node, found[1], found[2], [line]) if found else None


def log_files(node: Node, names: tuple[str, ...]) -> list[Path]:
    """Return a server's log files: the named ones (without .log), or else all but the quiet ones."""
    if names:
        return [node.output_file if name == OUTPUT else node.log_folder / f"{name}.log" for name in names]
    return sorted(file for file in node.log_folder.rglob("*.log")
                  if file.stem not in QUIET_FILES and "otherdays" not in file.parts)


def check_names(nodes: Iterable[Node], names: tuple[str, ...]) -> None:
    """Check the names of log files; ClusterError for one that no server has."""
    known = {OUTPUT, *(file.stem for node in nodes for file in node.log_folder.rglob("*.log"))}
    for name in names:
        if name not in known:
            raise ClusterError(f"--file {name}: no such log; available logs are {', '.join(sorted(known))}")


def last_entries(node: Node, names: tuple[str, ...], level: str | None, count: int) -> list[Entry]:
    """Return the last `count` entries of a server's files, ordered by time."""
    entries: list[Entry] = []
    for file in log_files(node, names):
        reader = EntryReader(node.name)
        wanted = [entry for part in (reader.feed(_last_lines(file)), reader.flush()) for entry in part
                  if entry.is_at_least(level)]
        entries += wanted[-count:]
    return sorted(entries, key=lambda entry: entry.time)[-count:]


def _last_lines(file: Path) -> list[str]:
    try:
        with open(file, "rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            begin = opened.seek(max(0, size - _READ_BACK))
            lines = opened.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    return lines[1:] if begin else lines


def end_of_logs(node: Node) -> str:
    """Return, for an error, the last lines of a server's output and log, with their paths."""
    printed = node.tail().splitlines()[-_SHORT_END:]
    parts = [f"--- {node.output_file}", *printed]
    logged = [line for entry in last_entries(node, (), None, _SHORT_END) for line in entry.lines][-_SHORT_END:]
    if logged:
        parts += [f"--- {node.log_folder}", *logged]
    return "\n".join(parts)


class Follower:
    """Reads what is appended to a file from now on, also after it is rolled or created later. `close` it at the end."""

    def __init__(self, node: Node, file: Path) -> None:
        self._file = file
        self._reader = EntryReader(node.name)
        self._opened = self._open()
        self._partial = b""
        if self._opened is not None:
            self._opened.seek(0, os.SEEK_END)

    def _open(self) -> BinaryIO | None:
        try:
            return open(self._file, "rb")
        except FileNotFoundError:
            return None

    def poll(self) -> list[Entry]:
        """Return the entries since the last call. A continuation line that arrives later is an entry of its own."""
        data = self._opened.read() if self._opened is not None else b""
        if self._is_another_file():
            self.close()
            self._opened = self._open()
            data += self._opened.read() if self._opened is not None else b""
        *lines, self._partial = (self._partial + data).split(b"\n")
        entries = self._reader.feed(line.decode("utf-8", "replace") for line in lines)
        return [*entries, *self._reader.flush()]

    def _is_another_file(self) -> bool:
        try:
            status = self._file.stat()
        except FileNotFoundError:
            return False
        return self._opened is None or os.fstat(self._opened.fileno()).st_ino != status.st_ino

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            self._opened.close()
