"""docs/reference/differences.md lists every `Differs:` of the code; `python -m tests.test_differences` generates it."""
import ast
import io
import re
import sys
import tokenize
from functools import cache

from tests.support.sources import ROOT, lines, modules
from tests.support.tiers import of_sources

DIFFERENCES = ROOT / "docs" / "reference" / "differences.md"
MARK = "<!-- from here on: python -m tests.test_differences -->"
HEAD = """## All differences, by module

Each entry is a comment in the code that begins with `Differs:`. It says what rmqha does, what RocketMQ does
instead, or both. RocketMQ (in some entries "Java") is 4.9.8, and 5.1.4 for automatic failover. "Here" is rmqha.

`python -m tests.test_differences` generates this list."""
ORIGINAL = re.compile(r"\bthe original\b", re.I)
START = re.compile(r"\bDiffers(?: from \w+)?(?:: | in that |, )?")


def comments(path: str) -> list[tuple[int, str]]:
    """Return (line, text) of each block of adjacent comment lines."""
    source = "\n".join(lines(path)) + "\n"
    blocks: list[tuple[int, str]] = []
    last = -2
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            text = token.string.lstrip("#").strip()
            if token.start[0] == last + 1 and blocks:
                blocks[-1] = (blocks[-1][0], f"{blocks[-1][1]} {text}")
            else:
                blocks.append((token.start[0], text))
            last = token.start[0]
    return blocks


def docstrings(tree: ast.Module) -> list[tuple[int, str]]:
    """Return (line, text) of each paragraph of each docstring."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (text := ast.get_docstring(node)):
            line = node.body[0].lineno
            found += [(line, " ".join(paragraph.split())) for paragraph in text.split("\n\n")]
    return found


@cache
def deviations() -> dict[str, list[str]]:
    """Return module -> the texts after each of its `Differs`."""
    result: dict[str, list[str]] = {}
    for path, tree in modules().items():
        for _line, text in sorted(comments(path) + docstrings(tree)):
            match = START.search(text)
            if match and not text.startswith("Differs: as "):
                said = ORIGINAL.sub("RocketMQ", text[match.end():].strip())
                result.setdefault(path, []).append(said[:1].upper() + said[1:].rstrip("."))
    return result


def render() -> str:
    """Return the generated part of the page."""
    parts = [MARK, "", HEAD, ""]
    for path, entries in sorted(deviations().items()):
        parts.append(f"- `{path}`")
        parts += [f"  - {entry}" for entry in dict.fromkeys(entries)]
    return "\n".join(parts) + "\n"


@of_sources
def test_each_deviation_in_the_code_is_listed():
    text = DIFFERENCES.read_text("utf-8")
    assert text[text.index(MARK):] == render(), "run: python -m tests.test_differences"


def test_no_deviation_is_empty():
    empty = [path for path, entries in deviations().items() for entry in entries if len(entry) < 15]
    assert not empty


if __name__ == "__main__":
    head = DIFFERENCES.read_text("utf-8").split(MARK)[0]
    DIFFERENCES.write_text(head + render(), "utf-8")
    sys.stdout.write(f"wrote {DIFFERENCES.name}: {sum(map(len, deviations().values()))} places\n")
