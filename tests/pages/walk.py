"""Read a page, run it block by block as its reader does, and compare the output with what the page shows."""
import functools
import re
import subprocess
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.pages.shell import Done, Machine
from tests.support.sources import ROOT
from tests.support.wait import wait_until

# A page of the documentation as its reader meets it: blocks of commands, Python, settings and output, in order.

# The languages of blocks that a shell runs.
COMMANDS = ("bash", "sh", "indented")
_FENCE = re.compile(r"^( *)```(\S*)$")
_ITEM = re.compile(r"^ *(?:[-*]|\d+\.) ")
_SETTING = re.compile(r"\w+=\S*")
_LEFT_OUT = re.compile(r"here-document .* delimited by end-of-file")


@dataclass(frozen=True)
class Block:
    """A block of a page: its language ("" where the page names none), and the prose since the previous block."""

    page: str
    line: int  # of its first line, from 1
    language: str
    text: str
    prose: str

    @property
    def place(self) -> str:
        """The page and line where the block starts."""
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """Return the complete commands of a shell block, each with all of its lines."""
        return complete_commands(self.text)


@dataclass(frozen=True)
class Page:
    """A page and its blocks."""

    name: str  # relative to the checkout
    blocks: tuple[Block, ...]
    # The prose after the last block.
    ending: str = ""


def read(name: str) -> Page:
    """Read a page of the checkout, such as `docs/install.md`."""
    return page_of(name, (ROOT / name).read_text("utf-8"))


def page_of(name: str, text: str) -> Page:
    """Parse a page's text."""
    blocks, ending = _parts_of(name, text)
    return Page(name, tuple(blocks), ending)


def blocks_of(name: str, text: str) -> list[Block]:
    """Return all blocks of a page's text: fenced ones, and those indented by four spaces."""
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
                assert end < len(lines), f"{name}:{number + 1}: unterminated block"
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
    """Return whether a shell would run it, rather than wait for another line."""
    if command.rstrip("\n").endswith("\\"):
        return False
    checked = subprocess.run(["bash", "-n"], input=command, text=True, capture_output=True, check=False, timeout=600)
    if _LEFT_OUT.search(checked.stderr):
        return False
    if checked.returncode and "unexpected end of file" not in checked.stderr and "unexpected EOF" not in checked.stderr:
        raise AssertionError(f"the shell rejects this command:\n{command}{checked.stderr}")
    return checked.returncode == 0


def complete_commands(text: str) -> list[str]:
    """Return the commands of a shell snippet, each with all of its lines; lines that are only comments are left out."""
    found: list[str] = []
    waiting: list[str] = []
    for line in text.splitlines():
        if not waiting and (not line.strip() or line.lstrip().startswith("#")):
            continue
        waiting.append(line)
        if _is_complete("\n".join(waiting) + "\n"):
            found.append("\n".join(waiting))
            waiting = []
    assert not waiting, "unterminated command: " + "\n".join(waiting)
    return found


def pages(*folders: str) -> list[str]:
    """Return the names of the pages in these folders of the checkout."""
    return sorted(str(Path(file).relative_to(ROOT)) for folder in folders for file in (ROOT / folder).glob("*.md"))


# Comparison of a page with actual output. Everything that may differ from run to run is listed here, and nothing else
# may.
#
# A line that is `...` alone stands for any lines. Everything else has to be there, in order, with the same words and
# numbers. Widths of columns follow their longest value, so runs of spaces count as one space, and rules of dashes as
# one.


@dataclass(frozen=True)
class Differs:
    """A pattern for text that differs from run to run, and the mark that replaces it."""

    pattern: str
    mark: str

    def replace(self, line: str) -> str:
        """Replace each match with the mark."""
        return re.sub(self.pattern, self.mark, line)


BY_NATURE: tuple[Differs, ...] = (
    Differs(r"\b[0-9A-F]{32}\b", "<message id>"),
    Differs(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{3})?\b", "<time>"),
    Differs(r"\b[\d,]+(?:\.\d+)? (?:ms|s|min)(?![\w/])", "<duration>"),
    Differs(r"\b[\d,]+(?:\.\d+)? (?:per second|[KMG]?i?B/s|msg/s)(?!\w)", "<rate>"),
    Differs(r"\bpid \d+\b", "pid <pid>"),
)
# A port chosen by a program, in the range where `rmqha up` and bin/quickstart look for free ones.
CHOSEN_PORT = Differs(r"\b127\.0\.0\.1:(?:2\d{4}|3[01]\d{3}|32000)\b", "127.0.0.1:<port>")
# The shell's message about a killed process, which looks different at a prompt.
_NOTICE = re.compile(r"^\S+: line \d+: +\d+ (?:Killed|Terminated)\b.*")
_RULE = re.compile(r"-{2,}")
_SPACES = re.compile(r"[ \t]+")
LEFT_OUT = "..."


def normal(text: str, differs: Sequence[Differs] = ()) -> list[str]:
    """Return the lines of a text, with marks for what differs; no empty lines at either end."""
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
    """Return the first line that a page shows and a program did not print, or the reverse; None when they agree."""
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
    """Split the lines at those that stand for any lines."""
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


# Run a page block by block, as its reader does, and compare its output with what the page shows.
#
# A scenario adds what only prose says, and gives a name and a reason to each command that is not run. What it adds
# must match the page: an entry that no command or text needs any more fails, so that nothing stays exempt by accident.

_BACKGROUND = re.compile(r"&[ \t]*(?:\w+=\$!)?[ \t]*(?:#.*)?$")
_COMMENT = re.compile(r"\s+#\s.*$")
_LEAVES = re.compile(r"Ctrl-D|`exit\(\)`")
# With JSON, everything that is not a row goes to standard error.
_MQADMIN = re.compile(r"(?:bin/)?mqadmin (?!.*json)")
_NO_COMMAND = re.compile(r"^The sub command \S+ not exist", re.MULTILINE)
_PRINTS = re.compile(r"\bIt prints `([^`]+)`")
_BOOTED = "boot success"
_REGISTERS = re.compile(r"\bmqbroker .*-n ")
_REGISTERED = re.compile(r"register broker\[\d+\]to name server \S+ OK")
STOP_MS = BOOT_MS = 120_000


def named(command: str) -> str:
    """Return a command as scenarios name it: without a trailing comment."""
    return _COMMENT.sub("", command)


@dataclass
class Scenario:
    """Knowledge of a page's reader that its blocks do not contain. Commands are named by their text, without a
    comment."""

    # Command, or first line of a block -> why it is not run.
    exempt: Mapping[str, str] = field(default_factory=dict)
    # Command -> its exit status.
    fails: Mapping[str, int] = field(default_factory=dict)
    # FOLDER -> its replacement.
    replace: Mapping[str, str | Callable[["Walk"], str]] = field(default_factory=dict)
    # Command -> called before it.
    before: Mapping[str, Callable[["Walk"], None]] = field(default_factory=dict)
    # Command -> called after it.
    after: Mapping[str, Callable[["Walk", Done], None]] = field(default_factory=dict)
    # First line of a block -> what to do instead.
    blocks: Mapping[str, Callable[["Walk", Block], object]] = field(default_factory=dict)
    # In addition to what differs in general.
    differs: Sequence[Differs] = ()
    # Commands that need a package index: they run in the network of the host.
    online: Collection[str] = ()
    # Command -> the machine that runs it; without it all commands run on one.
    on: Callable[["Walk", str], Machine] | None = None


class Walk:
    """A walk through a page at a machine. `printed` is the output of the latest block's commands."""

    def __init__(self, page: Page | str, machine: Machine, scenario: Scenario | None = None) -> None:
        self.page = read(page) if isinstance(page, str) else page
        self.machine = machine
        self.scenario = scenario or Scenario()
        self.printed = ""
        self.ran: list[tuple[str, Done]] = []  # all commands, as the page has them
        self.pasted: list[str] = []  # the output of each Python block
        self._used: set[tuple[str, str]] = set()
        self._started: list[tuple[str, Done]] = []  # by the latest block, with &

    def run(self) -> "Walk":
        """Run all blocks. At the end nothing may be left to do or still running, and no entry of the scenario
        unused."""
        for block in self.page.blocks:
            self.do(block)
        self._check_what_prose_shows(self.page.ending)
        self.machine.leave_the_prompt()
        self.check_scenario()
        return self

    def do(self, block: Block) -> None:
        """Run one block. First wait for the servers of the block above, where the page says what to wait for."""
        if _BOOTED in block.prose:
            for name, done in self._started:
                self.wait_for_boot(name, done)
            if any(_REGISTERS.search(name) for name, _done in self._started):
                self._wait_for_registration()
        first = block.text.split("\n", 1)[0]
        if block.language not in COMMANDS and self._take("exempt", first):
            return
        if act := self._take("blocks", first):
            act(self, block)
            return
        self._check_what_prose_shows(block.prose)
        if block.language in COMMANDS:
            self._run_commands(block)
        elif block.language == "python":
            self._paste(block)
        elif block.language == "text":
            self._compare(block)
        else:
            raise AssertionError(f"{block.place}: this block is not run, and no reason is given: {first}")

    @staticmethod
    def wait_for_boot(name: str, done: Done) -> None:
        """Wait until a server that a command has started with & reports that it is ready."""
        wait_until(lambda: _BOOTED in done.output_now(), BOOT_MS, f"{_BOOTED} of {name}")

    def _wait_for_registration(self) -> None:
        """Wait until the broker is registered: with a broker started before its name server that is after its "boot
        success", and a human reader would take longer to read on."""
        log = self.machine.home / "logs" / "rocketmqlogs" / "broker.log"
        wait_until(lambda: log.is_file() and _REGISTERED.search(log.read_text("utf-8")), BOOT_MS, "the registration")

    def _check_what_prose_shows(self, prose: str) -> None:
        """Fail where the prose right below a block says "It prints `this`", and the block did not print it."""
        for text in _PRINTS.findall(prose):
            assert self.shows(text), f"{self.page.name}: it does not print {text}, but:\n{self.printed}"

    def _run_commands(self, block: Block) -> None:
        if self.machine.is_at_the_prompt:
            assert _LEAVES.search(block.prose), f"{block.place}: the page does not say how to leave Python"
            self.machine.leave_the_prompt()
        outputs = []
        self._started = []
        for command in block.commands():
            name = named(command)
            if self._take("exempt", name):
                continue
            outputs.append(self._run_command(block, command, name))
        self.printed = "".join(outputs)

    def _run_command(self, block: Block, command: str, name: str) -> str:
        if before := self._take("before", name):
            before(self)
        machine = self.scenario.on(self, command) if self.scenario.on is not None else self.machine
        filled, errors = self._filled(command), None
        # mqadmin exits with 0 when it fails, as the original does: its output shows the failure.
        if _MQADMIN.match(filled):
            errors = machine.home / "errors"
            filled = f"{{ {filled}\n}} 2>~/errors"
        done = machine.run(filled, online=self._take_online(name))
        self.ran.append((name, done))
        wanted = self._take("fails", name) or 0
        assert done.status == wanted, f"{block.place}: {command}\nends with {done.status}, not {wanted}:\n" \
                                      f"{done.output}\nbefore that:\n{machine.outputs()}"
        said = done.output + (errors.read_text("utf-8") if errors is not None else "")
        assert "Traceback" not in said, f"{block.place}: {command}\n{said}"
        failed = errors is not None and (said != done.output or _NO_COMMAND.search(said))
        assert not failed, f"{block.place}: {command}\nfails:\n{said}"
        if after := self._take("after", name):
            after(self, done)
        if _BACKGROUND.search(command):
            self._started.append((name, done))
            return ""
        return done.output

    def _paste(self, block: Block) -> None:
        self.printed = self.machine.prompt.paste(block.text)
        self.pasted.append(self.printed)

    def _compare(self, block: Block) -> None:
        for each in self.scenario.differs:
            if re.search(each.pattern, block.text):
                self._used.add(("differs", each.pattern))
        wrong = wrong_with(block.text, self.printed, self.scenario.differs)
        assert wrong is None, f"{block.place}: {wrong}"

    def _filled(self, command: str) -> str:
        for name, value in self.scenario.replace.items():
            if name in command:
                self._used.add(("replace", name))
                command = command.replace(name, value(self) if callable(value) else value)
        return command

    def _take_online(self, name: str) -> bool:
        if name not in self.scenario.online:
            return False
        self._used.add(("online", name))
        return True

    def _take(self, kind: str, key: str) -> object:
        entries = getattr(self.scenario, kind)
        if key not in entries:
            return None
        self._used.add((kind, key))
        return entries[key]

    def shows(self, text: str) -> bool:
        """Return whether the latest block printed a line with this text."""
        return any(text in line for line in normal(self.printed))

    def check_scenario(self) -> None:
        """Fail on scenario entries that match nothing in the page."""
        scenario = self.scenario
        known = {(kind, key) for kind in ("exempt", "fails", "replace", "before", "after", "blocks")
                 for key in getattr(scenario, kind)}
        known |= {("differs", each.pattern) for each in scenario.differs}
        known |= {("online", name) for name in scenario.online}
        unused = known - self._used
        assert not unused, f"{self.page.name}: the page no longer has anything like this: {sorted(unused)}"

    def check_that_nothing_runs(self) -> None:
        """Wait until the processes that the page has stopped are gone; fail when something still runs after two
        minutes."""
        try:
            wait_until(lambda: not self.machine.processes(), STOP_MS)
        except AssertionError:
            raise AssertionError(f"{self.page.name} left processes running: {self.machine.processes()}") from None


# Servers that a page takes for granted, started at its machine before it begins.

SERVERS = ("bin/mqnamesrv &", "bin/mqbroker -n 127.0.0.1:9876 -c conf/broker.conf &")


def start(walk: Walk, commands: Sequence[str] = SERVERS) -> None:
    """Start servers that the page takes for granted; `stop` stops them."""
    for number, command in enumerate(commands):
        done = walk.machine.run(f"{command} own{number}=$!")
        walk.wait_for_boot(command, done)


def stop(walk: Walk, commands: Sequence[str] = SERVERS) -> None:
    """Stop the servers started by `start`."""
    walk.machine.run(f"kill {' '.join(f'$own{number}' for number in range(len(commands)))}")
