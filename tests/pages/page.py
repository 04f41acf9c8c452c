"""A page of the documentation as its reader meets it: blocks of commands, Python, settings and output, in order."""
import functools
import re
import subprocess
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tests.support.sources import ROOT

COMMANDS = ("bash", "sh", "indented")  # the languages of blocks that a shell runs
_FENCE = re.compile(r"^( *)```(\S*)$")
_ITEM = re.compile(r"^ *(?:[-*]|\d+\.) ")
_SETTING = re.compile(r"\w+=\S*")
_LEFT_OUT = re.compile(r"here-document .* delimited by end-of-file")


@dataclass(frozen=True)
class Block:
    """A block of a page: its language ("" where the page names none), and the prose since the block before it."""

    page: str
    line: int  # of its first line, from 1
    language: str
    text: str
    prose: str

    @property
    def place(self) -> str:
        """Where it is found."""
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """The complete commands of a shell block, each with all of its lines."""
        return complete_commands(self.text)


@dataclass(frozen=True)
class Page:
    """A page and its blocks."""

    name: str  # relative to the checkout
    blocks: tuple[Block, ...]
    ending: str = ""  # the prose behind the last block


def read(name: str) -> Page:
    """Read a page of the checkout, such as `docs/install.md`."""
    return page_of(name, (ROOT / name).read_text("utf-8"))


def page_of(name: str, text: str) -> Page:
    """Read a page's text."""
    blocks, ending = _parts_of(name, text)
    return Page(name, tuple(blocks), ending)


def blocks_of(name: str, text: str) -> list[Block]:
    """All blocks of a page's text: fenced ones, and those that four spaces make."""
    return _parts_of(name, text)[0]


def _parts_of(name: str, text: str) -> tuple[list[Block], str]:
    lines = [*text.split("\n"), ""]
    blocks: list[Block] = []
    prose: list[str] = []
    number, in_list = 0, False

    def add(begin: int, end: int, language: str) -> None:
        block = textwrap.dedent("\n".join(lines[begin:end])).rstrip("\n") + "\n"
        blocks.append(Block(name, begin + 1, language, block, "\n".join(prose)))
        prose.clear()

    while number < len(lines):
        line = lines[number]
        fence = _FENCE.match(line)
        if fence is not None:
            end = number + 1
            while lines[end].rstrip() != f"{fence[1]}```":
                end += 1
                assert end < len(lines), f"{name}:{number + 1}: a block without an end"
            add(number + 1, end, fence[2])
            in_list = in_list and bool(fence[1])
            number = end + 1
            continue
        begins = number == 0 or not lines[number - 1].strip() or lines[number - 1].startswith("#")
        if line.startswith("    ") and line.strip() and begins and not in_list:
            end = number
            while lines[end].startswith("    ") or (not lines[end].strip() and lines[end + 1:end + 2] and
                                                    lines[end + 1].startswith("    ")):
                end += 1
            is_settings = all(_SETTING.fullmatch(each.strip()) for each in lines[number:end] if each.strip())
            add(number, end, "properties" if is_settings else "indented")
            number = end
            continue
        if line.strip() and not line.startswith(" "):
            in_list = _ITEM.match(line) is not None
        prose.append(line)
        number += 1
    return blocks, "\n".join(prose)


@functools.cache
def _is_complete(command: str) -> bool:
    """Whether a shell would run it, rather than wait for another line."""
    if command.rstrip("\n").endswith("\\"):
        return False
    checked = subprocess.run(["bash", "-n"], input=command, text=True, capture_output=True, check=False, timeout=600)
    if _LEFT_OUT.search(checked.stderr):
        return False
    if checked.returncode and "unexpected end of file" not in checked.stderr and "unexpected EOF" not in checked.stderr:
        raise AssertionError(f"the shell does not take this command:\n{command}{checked.stderr}")
    return checked.returncode == 0


def complete_commands(text: str) -> list[str]:
    """The commands of a shell snippet, each with all of its lines; lines that only comment are left out."""
    found: list[str] = []
    waiting: list[str] = []
    for line in text.splitlines():
        if not waiting and (not line.strip() or line.lstrip().startswith("#")):
            continue
        waiting.append(line)
        if _is_complete("\n".join(waiting) + "\n"):
            found.append("\n".join(waiting))
            waiting = []
    assert not waiting, "this command has no end: " + "\n".join(waiting)
    return found


def pages(*folders: str) -> list[str]:
    """The pages of these folders of the checkout, by name."""
    return sorted(str(Path(file).relative_to(ROOT)) for folder in folders for file in (ROOT / folder).glob("*.md"))
