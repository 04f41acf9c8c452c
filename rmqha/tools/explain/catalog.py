"""The search in the tables: which entries explain a line, a code or a name, best first; and which ones come nearest.

A line is split into words. Each pattern is listed under the rarest of its words, so a line is compared with a few
patterns only. A line of any length is cut to MAX_LINE characters first.
"""
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from rmqha.common.protocol import request_code
from rmqha.tools.explain.entry import Entry, Kind
from rmqha.tools.explain.known import (
    acl,
    broker,
    client,
    codes,
    controllers,
    java,
    names,
    queues,
    replication,
    servers,
    store,
    system,
)
from rmqha.tools.explain.template import WORD, Template, normal

# Characters. The text of a line is at its beginning; what follows are values.
MAX_LINE = 16 * 1024
MAX_LINES = 1000
_EXACT, _NAMED, _CODE, _CHECK = 1000, 20, 15, 10
# Of the best match's score: less is a more general pattern.
_SECOND = 0.6
_NEAR = 3
# Of the weight of a line's words: less is not worth showing.
_LEAST_NEAR = 0.25
_WHAT_CODE = ("exit code|exit status|exited with code|exited with|exited, status|request code|request type|"
              "response ?code|code")
_CODE_IN_LINE = re.compile(rf"\b({_WHAT_CODE})[ :=]{{1,4}}(-?\d{{1,9}})\b", re.IGNORECASE)
_EXITS = ("exit", "exited")
_COMMAND = re.compile(r"RemotingCommand \[code=(\d{1,9}), .{0,200}?flag\(B\)=([01]{1,9})")
_STATE_IN_LINE = re.compile(r" is ([A-Z_]{4,30})\b")
_CHECK_IN_LINE = re.compile(r"(?:ERROR|WARNING|NOTE|OK) {1,8}([a-z]{4,12}) ")
_NUMBER = re.compile(r"-?\d{1,9}\Z")


@dataclass(frozen=True)
class Match:
    """An entry that explains a text. `values` are the parts of the text that differ from case to case."""

    entry: Entry
    score: int
    values: dict[str, str] = field(default_factory=dict)


def _requests() -> Iterator[Entry]:
    for name, code in vars(request_code).items():
        if name.isupper() and isinstance(code, int):
            means = f"The number of the request {name}: it says what a client or server asked for, and is not an error."
            do = "Nothing. The page shows where rmqha's answers differ from RocketMQ's."
            yield Entry(f"request.{name}", Kind.REQUEST, means, do, (), (name,), code, "reference/request-codes.md")


@cache
def all_entries() -> tuple[Entry, ...]:
    """Return all entries, in the order of the tables."""
    modules = (store, queues, replication, controllers, broker, servers, client, acl, java, system, codes)
    found = [entry for module in modules for entry in module.T.entries]
    return (*found, *(entry for table in names.TABLES for entry in table.entries), *_requests())


class Catalog:
    """The index of entries."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._patterns: dict[str, list[tuple[Template, Entry]]] = defaultdict(list)
        self._by_name: dict[str, list[Entry]] = defaultdict(list)
        self._codes: dict[tuple[Kind, int], Entry] = {}
        self._weights: Counter[str] = Counter()
        self._words: dict[str, set[str]] = {}
        self.entries = {each.id: each for each in entries}
        for entry in self.entries.values():
            for name in entry.names:
                self._by_name[name].append(entry)
            if entry.code is not None:
                self._codes.setdefault((entry.kind, entry.code), entry)
            self._words[entry.id] = {word.lower() for each in entry.patterns for word in each.words()}
            self._weights.update(self._words[entry.id])
        uses = Counter(word for entry in self.entries.values() for each in entry.patterns for word in set(each.words()))
        for entry in self.entries.values():
            for pattern in entry.patterns:
                rarest = min(pattern.words(), key=lambda word: (uses[word], -len(word)))
                self._patterns[rarest].append((pattern, entry))

    def explain(self, text: str) -> list[Match]:
        """Return what is known about a text of one or more lines, best first; each entry once."""
        found: dict[str, Match] = {}
        lines = text[:MAX_LINE * 4].split("\n")[:MAX_LINES]
        for line in lines:
            for match in self.line(line):
                if match.entry.id not in found or found[match.entry.id].score < match.score:
                    found[match.entry.id] = match
        whole = text.strip()
        for match in self._exactly(whole) if len(whole) <= 200 else ():
            found[match.entry.id] = match
        return sorted(found.values(), key=lambda match: -match.score)

    def line(self, line: str) -> list[Match]:
        """Return the entries that explain a line of a log, best first."""
        line = normal(line[:MAX_LINE])
        found: dict[str, Match] = {}
        words = set(WORD.findall(line))
        for word in words:
            for pattern, entry in self._patterns.get(word, ()):
                values = pattern.match(line)
                if values is not None and (entry.id not in found or found[entry.id].score < pattern.score):
                    found[entry.id] = Match(entry, pattern.score, values)
            for entry in self._by_name.get(word, ()):
                if _is_unmistakable(word, entry):
                    found.setdefault(entry.id, Match(entry, _NAMED))
        for kind, code in _codes_in(line):
            coded = self._of_code(kind, code)
            if coded is not None:
                found.setdefault(coded.id, Match(coded, _CODE))
        for named, kind, score in ((_STATE_IN_LINE, Kind.STATE, _NAMED), (_CHECK_IN_LINE, Kind.CHECK, _CHECK)):
            for name in named.findall(line):
                for entry in self._by_name.get(name, ()):
                    if entry.kind is kind:
                        found.setdefault(entry.id, Match(entry, score))
        return _relevant(sorted(found.values(), key=lambda match: -match.score))

    def _exactly(self, text: str) -> Iterator[Match]:
        """Yield what a text that is a name or a number means."""
        order = list(Kind)
        named = self._by_name.get(text, [])
        for entry in sorted(named, key=lambda each: order.index(each.kind)):
            yield Match(entry, _EXACT - order.index(entry.kind))
        if text in self.entries:
            yield Match(self.entries[text], _EXACT)
        if _NUMBER.match(text):
            for place, kind in enumerate((Kind.RESPONSE, Kind.CLIENT, Kind.EXIT, Kind.REQUEST)):
                if (kind, int(text)) in self._codes:
                    yield Match(self._codes[kind, int(text)], _EXACT - place)

    def _of_code(self, kind: Kind, code: int) -> Entry | None:
        if kind is Kind.RESPONSE and (kind, code) not in self._codes:
            kind = Kind.CLIENT
        return self._codes.get((kind, code))

    def nearest(self, text: str) -> list[Entry]:
        """Return the entries whose words are most like those of an unknown line, the nearest first."""
        line = {word.lower() for word in WORD.findall(normal(text[:MAX_LINE]))}
        weights = {word: 1 / self._weights[word] for word in line if word in self._weights}
        scores = [(sum(weights.get(word, 0.0) for word in words), entry_id) for entry_id, words in self._words.items()
                  if words & weights.keys()]
        scores.sort(key=lambda each: (-each[0], each[1]))
        return [self.entries[entry_id] for score, entry_id in scores[:_NEAR] if score >= _LEAST_NEAR]


def _relevant(matches: list[Match]) -> list[Match]:
    """Leave out what only repeats a better match: a general pattern, or one that only Java's programs log.

    Codes and errors of the system are kept: they add the cause to what failed.
    """
    best: Match | None = None
    kept = []
    for match in matches:
        if match.entry.kind is not Kind.LINE or match.entry.id.startswith("system."):
            kept.append(match)
        elif best is None:
            best = match
            kept.append(match)
        elif match.score > best.score * _SECOND and not match.entry.id.startswith("java."):
            kept.append(match)
    return kept


def _is_unmistakable(word: str, entry: Entry) -> bool:
    """Return whether a name in the middle of a line means its entry: `IDLE` may mean anything there."""
    return "_" in word or entry.kind in (Kind.LINE, Kind.ALERT)


def _codes_in(line: str) -> Iterator[tuple[Kind, int]]:
    """Yield the codes that a line names, each with its kind."""
    command = _COMMAND.search(line)
    if command is not None:
        yield (Kind.RESPONSE if command[2][-1] == "1" else Kind.REQUEST), int(command[1])
        return
    for match in _CODE_IN_LINE.finditer(line):
        said = match[1].lower()
        kind = Kind.EXIT if said.startswith(_EXITS) else Kind.REQUEST if said.startswith("request") else Kind.RESPONSE
        yield kind, int(match[2])


@cache
def catalog() -> Catalog:
    """Return the index of all entries."""
    return Catalog(all_entries())
