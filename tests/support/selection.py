"""`-k` words: only files in which one of them may be met are loaded, so that the first test runs within a second."""
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_WORD = re.compile(r"[^\s()]+")
_OPERATORS = {"and", "or", "not"}


def words(expression: str) -> list[str]:
    """The words of a -k expression whose presence decides; [] when files can't be left out (it has a `not`)."""
    found = [word.lower() for word in _WORD.findall(expression)]
    return [] if "not" in found else [word for word in found if word not in _OPERATORS]


def is_met(word: str, path: str, text: str) -> bool:
    """Whether a test of a file may have the word in its name, its parameters or its path.

    Parameters may be put together of several texts: the parts of a word, of three letters at least, do for it all.
    """
    parts = [part for part in re.split(r"[^a-z0-9]+", word) if len(part) > 2]
    return word in path.lower() or word in text or bool(parts) and parts != [word] and all(
        part in text for part in parts)


def may_match(expression: str, path: str, text: str) -> bool:
    """Whether a file, by its path and what is in it, may hold a test that a -k expression selects."""
    wanted, text = words(expression), text.lower()
    return not wanted or any(is_met(word, path, text) for word in wanted)


@cache
def is_met_anywhere(expression: str, root: Path) -> bool:
    """Whether any test file may; if none does, all are loaded, for parameters are made by code."""
    return any(may_match(expression, file.relative_to(root).as_posix(), file.read_text("utf-8"))
               for file in test_files(root))


def test_files(root: Path) -> Iterable[Path]:
    """All test files."""
    return (root / "tests").rglob("test_*.py")


test_files.__test__ = False


def is_left_out(expression: str, file: Path, root: Path) -> bool:
    """Whether a file need not be loaded."""
    if not words(expression) or not file.name.startswith("test_") or not is_met_anywhere(expression, root):
        return False
    return not may_match(expression, file.relative_to(root).as_posix(), file.read_text("utf-8"))
