"""Compare what a page shows with what was printed: what differs from run to run by nature is named here, no more.

A line that is `...` alone stands for any lines. Everything else has to be there, in order, with the same words and
numbers. Widths of columns follow their longest value, so runs of spaces count as one space, and rules of dashes as one.
"""
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Differs:
    """What differs from run to run, as a pattern, and what stands for it."""

    pattern: str
    mark: str

    def replace(self, line: str) -> str:
        """Put the mark in place of each match."""
        return re.sub(self.pattern, self.mark, line)


BY_NATURE: tuple[Differs, ...] = (
    Differs(r"\b[0-9A-F]{32}\b", "<message id>"),
    Differs(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{3})?\b", "<time>"),
    Differs(r"\b[\d,]+(?:\.\d+)? (?:ms|s|min)(?![\w/])", "<duration>"),
    Differs(r"\b[\d,]+(?:\.\d+)? (?:per second|[KMG]?i?B/s|msg/s)(?!\w)", "<rate>"),
    Differs(r"\bpid \d+\b", "pid <pid>"),
)
# The port that a program has chosen, of those where `rmqha up` and bin/quickstart look for free ones.
CHOSEN_PORT = Differs(r"\b127\.0\.0\.1:(?:2\d{4}|3[01]\d{3}|32000)\b", "127.0.0.1:<port>")
# What a shell says of a process that was killed: at a prompt it looks otherwise.
_NOTICE = re.compile(r"^\S+: line \d+: +\d+ (?:Killed|Terminated)\b.*")
_RULE = re.compile(r"-{2,}")
_SPACES = re.compile(r"[ \t]+")
LEFT_OUT = "..."


def normal(text: str, differs: Sequence[Differs] = ()) -> list[str]:
    """The lines of a text, with marks for what differs; no empty lines at either end."""
    lines = []
    for line in text.splitlines():
        if _NOTICE.match(line):
            continue
        for each in (*BY_NATURE, *differs):
            line = each.replace(line)
        lines.append(_SPACES.sub(" ", _RULE.sub("--", line)).strip())
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return lines


def wrong_with(shown: str, printed: str, differs: Sequence[Differs] = ()) -> str | None:
    """The first line that a page shows and a program did not print, or the other way round; None when they agree."""
    wanted, found = normal(shown, differs), normal(printed, differs)
    place, parts = 0, _parts(wanted)
    for number, part in enumerate(parts):
        if number == 0:
            starts: Iterable[int] = (0,)
        elif number == len(parts) - 1:
            starts = (max(place, len(found) - len(part)),)
        else:
            starts = range(place, len(found) + 1)
        wrong = None
        for start in starts:
            again = _first_difference(part, found[start:start + len(part)])
            wrong = again if wrong is None else wrong
            if again is None:
                place, wrong = start + len(part), None
                break
        if wrong is not None:
            return f"{wrong}\nprinted was:\n{printed}"
    if len(parts) == 1 and place < len(found):
        return f"the page does not show: {found[place]}\nprinted was:\n{printed}"
    return None


def _parts(lines: list[str]) -> list[list[str]]:
    """The lines between those that stand for any lines."""
    parts: list[list[str]] = [[]]
    for line in lines:
        if line == LEFT_OUT:
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def _first_difference(wanted: list[str], found: list[str]) -> str | None:
    for number, line in enumerate(wanted):
        if number >= len(found):
            return f"the page shows: {line}\nbut no more was printed"
        if found[number] != line:
            return f"the page shows: {line}\nprinted was:    {found[number]}"
    return None
