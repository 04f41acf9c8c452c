"""A how-to guide, walked through block by block as its operator does, at hosts of `tests.pages.hosts`.

A scenario takes the blocks of a page in their order and says of each at which host it is typed, or which file is
edited; a block that nobody took fails it, and so does a block under another heading than the scenario's. Commands are
typed as they stand: servers each in a terminal of their own, `--watch` until it shows what the page shows.
"""
import contextlib
import os
import pty
import re
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from tests.pages import output, page
from tests.pages.hosts import HOME, Host, Hosts
from tests.pages.output import Differs
from tests.support import start_as
from tests.support.guide import set_lines
from tests.support.wait import wait_until

LIMIT_MS = 120_000
READY = "boot success"
_SERVERS = ("bin/mqbroker", "bin/mqnamesrv", "bin/mqcontroller")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_CLEARED = "\x1b[H"  # where a terminal's next picture begins
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# Offsets and sizes follow from how many messages were sent and how long they are; counts of replicas, say, stay.
OFFSET = Differs(r"(?<![\w.:])\d[\d,]{2,}(?![\w.]|:\S)", "<offset>")
SIZE = Differs(r"(?<![\w.])[\d,.]+ (?:B|KiB|MiB)(?![\w/])", "<size>")
# How far a slave has got with comparing its log is another thing at each look.
SCRUBBING = Differs(r"scrubbing [A-Z]+; round .*", "scrubbing <where>")
# "1 min 3 s" is as long a time as "1.9 s", for a reader.
LONGER = Differs(r"<duration> <duration>", "<duration>")


class Terminal:
    """A shell at a host, which stays."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.host = host
        self._process = subprocess.Popen(
            [*host.inside(cwd=str(folder)), "bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self._number = 0

    def type(self, text: str) -> tuple[int, str]:
        """Run lines; return the exit code of the last, and what they print."""
        self._number += 1
        end = f"end of command {self._number}:"
        self._process.stdin.write(f"{{ {text}\n}} </dev/null\nprintf '\\n{end} %d\\n' $?\n")
        self._process.stdin.flush()
        said: list[str] = []
        timer = threading.Timer(LIMIT_MS / 1000, self._process.kill)
        timer.start()
        try:
            for line in self._process.stdout:
                if line.startswith(end):
                    return int(line.removeprefix(end)), "".join(said).removesuffix("\n")
                said.append(line)
        finally:
            timer.cancel()
        raise AssertionError(f"{self.host.address}: the shell ended, or was too slow, at {text!r}:\n{''.join(said)}")

    def environment(self) -> dict[str, str]:
        """Return its exported variables."""
        return dict(line.split("=", 1) for line in self.type("env -0")[1].split("\0") if "=" in line)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(240)
        for stream in (self._process.stdin, self._process.stdout):
            stream.close()


class Running:
    """A command in a terminal of its own, that stays in the foreground: a server, or what is watched."""

    def __init__(self, host: Host, command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.host, self.command = host, command
        self._said = bytearray()
        ours, its = pty.openpty()
        words = [*host.inside(cwd=str(folder)), *(f"{k}={v}" for k, v in environment.items()), *command]
        self._process = subprocess.Popen(start_as.command(words, ctrl_c=True),  # as a terminal's shell would
                                         stdin=its, stdout=its, stderr=its, start_new_session=True)
        os.close(its)
        self._reader = threading.Thread(target=self._read, args=(ours,), name="terminal", daemon=True)
        self._reader.start()

    def _read(self, terminal: int) -> None:
        with open(terminal, "rb", buffering=0) as source:
            while True:
                try:
                    self._said += source.read(1 << 16) or b""
                except OSError:  # EIO: nobody has the other end any more
                    return

    def said(self) -> str:
        """Return what it has printed."""
        return bytes(self._said).decode("utf-8", "replace").replace("\r\n", "\n")

    def wait_for(self, is_shown: Callable[[str], object], what: str) -> str:
        """Wait until what it has printed is so; fail when it ends before."""
        def seen() -> bool:
            if is_shown(self.said()):
                return True
            code = self._process.poll()
            assert code is None, f"it ended with {code}"
            return False
        try:
            wait_until(seen, LIMIT_MS, what)
        except AssertionError as late:
            raise AssertionError(f"{self.host.address}: {shlex.join(self.command)}: {late}, not {what}; it printed\n"
                                 f"{self.said()[-6000:]}") from None
        return self.said()

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal, unless it has ended, and wait for the end."""
        if self._process.poll() is None:
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
        try:
            wait_until(lambda: self._process.poll() is not None, what=f"the end after {signal.Signals(number).name}")
        except AssertionError as late:
            raise AssertionError(f"{self.host.address}: {shlex.join(self.command)}: {late}; it printed\n"
                                 f"{self.said()[-6000:]}") from None


class Guided:
    """The way of an operator through a page."""

    def __init__(self, name: str | page.Page, hosts: Hosts, clone: Path) -> None:
        self.hosts, self.clone = hosts, clone
        self.reads: dict[str, str] = {}  # what the page has -> what the reader has in its place
        self._page = page.read(name) if isinstance(name, str) else name
        self._headings = headings_of(self._page)
        self._next = 0
        self._terminals: dict[str, Terminal] = {}
        self._used: set[str] = set()

    # the page

    def types(self, heading: str, at: str, codes: Mapping[str, int] | None = None,
              again: Mapping[str, str] | None = None, differs: Sequence[Differs] = (), until: str = "") -> str:
        """Type the next block at a host, and compare what it prints with the text that the page shows below it.

        `codes`: begins of lines -> their exit codes, where these are not 0. `again`: begins of lines that are typed
        until the exit code is that and a pattern is printed, as an operator does who waits; "" for the page's text.
        `until`: what a `--watch` has to show where the page shows no text. Returns what was printed.
        """
        block = self._take(heading, "bash")
        shown = self._read(self._take(heading, "text").text) if self._is_next("text") else None
        typing = _Typing(shown, (LONGER, *differs), dict(codes or {}), dict(again or {}), until)
        printed = [self._line(line, at, typing) for line in block.commands()]
        assert not typing.unused(), f"{block.place}: no command begins with {typing.unused()}"
        if shown is not None:
            wrong = typing.wrong_with("".join(printed))
            assert not wrong or not typing.wrong_with(printed[-1]), f"{block.place}: {wrong}"
        return "".join(printed)

    def runs_script(self, heading: str, at: str) -> str:
        """Run the next block as one script, as cron does; it has to succeed."""
        return self.tool(at, self._take(heading, "bash").text)

    def types_at(self, at: str, block: page.Block) -> None:
        """Type a block that was taken at a host, as it is typed at others."""
        for line in block.commands():
            self._line(line, at, _Typing(None, (), {}, {}, ""))

    def types_each(self, heading: str, hosts: Sequence[str]) -> None:
        """Type the next block, each of its lines at another host."""
        for line, at in zip(self._take(heading, "bash").commands(), hosts, strict=True):
            self._line(line, at, _Typing(None, (), {}, {}, ""))

    def edits(self, heading: str, at: str, file: str) -> str:
        """Write the lines of the next block into a file, which the prose above it names; return the lines."""
        block = self._take(heading, "properties")
        assert file in block.prose, f"{block.place}: the prose does not name {file}"
        set_lines(self.hosts[at].path(file), block.text)
        return block.text

    def sets(self, at: str, file: str, lines: str) -> None:
        """Write lines into another file, as the prose says."""
        set_lines(self.hosts[at].path(file), lines)

    def block(self, heading: str, kind: str) -> page.Block:
        """Take the next block, for what a scenario does in its own way."""
        return self._take(heading, kind)

    def page_has(self, pattern: str) -> str:
        """Return what matches a pattern in the page's blocks: one text, maybe more than once."""
        (text,) = {found for block in self._page.blocks for found in re.findall(pattern, block.text)}
        return text

    def done(self) -> None:
        """Fail when a block was not taken."""
        left = [block.place for block in self._page.blocks[self._next:]]
        assert not left, f"the scenario leaves out: {left}"

    # what the page assumes, or says in words

    def starts(self, at: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Running:
        """Start a server in a terminal of its own; return when it is ready."""
        made = Running(self.hosts[at], list(command), self.clone, environment or {})
        made.wait_for(lambda said: READY in said, repr(READY))
        return made

    def tool(self, at: str, line: str, stdin: str = "") -> str:
        """Run a line in a shell of its own; it has to succeed."""
        done = subprocess.run([*self.hosts[at].inside(cwd=str(self.clone)), "NAMESRV_ADDR=10.0.0.1:9876", "bash", "-c",
                               line], text=True, capture_output=True, timeout=LIMIT_MS / 1000, check=False, input=stdin)
        assert done.returncode == 0, f"{at}: {line}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def until(self, at: str, line: str, wanted: str) -> str:
        """Run a line until a pattern is in what it prints, whatever its exit code."""
        printed: list[str] = []

        def seen() -> bool:
            code, said = self._terminal(at).type(line)
            printed[:] = [f"exit code {code}\n{said}"]
            return re.search(wanted, said) is not None
        try:
            wait_until(seen, LIMIT_MS, f"{wanted} of {line}")
        except AssertionError as late:
            raise AssertionError(f"{at}: {late}; {printed[0]}") from None
        return printed[0]

    def __enter__(self) -> "Guided":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the terminals; what runs at the hosts ends with these."""
        for terminal in self._terminals.values():
            terminal.close()

    # a command

    def _line(self, line: str, at: str, typing: "_Typing") -> str:
        line = self._read(line)
        terminal = self._terminal(at)
        if line.startswith(_SERVERS) and not line.endswith("&"):
            self.starts(at, ["bash", "-c", line], terminal.environment())
            return ""
        if line.endswith(" --watch"):
            return self._watch(line, at, typing)
        expected, awaited = typing.code(line), typing.awaited(line)
        code, said = self._typed(line, at)
        if awaited is not None:
            def fits() -> bool:
                nonlocal code, said
                if code == expected and re.search(awaited, said) and (awaited or not typing.wrong_with(said)):
                    return True
                code, said = self._typed(line, at)
                return False
            try:
                wait_until(fits, LIMIT_MS, line)
            except AssertionError as late:
                raise AssertionError(f"{at}: {late}: exit code {code}, not {expected}, or not {awaited!r}; "
                                     f"{typing.wrong_with(said)}\n"
                                     f"{said}") from None
        assert code == expected, f"{at}: {line}: exit code {code}, not {expected}\n{said}"
        return said

    def _typed(self, line: str, at: str) -> tuple[int, str]:
        """Type a line; mqadmin, which ends with 0 when it fails, as the original does, has failed when it complains."""
        if not line.startswith("bin/mqadmin "):
            return self._terminal(at).type(line)
        code, said = self._terminal(at).type(f"{{ {line}\n}} 2>~/errors")
        errors = self.hosts[at].path(f"{HOME}/errors").read_text("utf-8")
        return code or int(bool(errors)), said + errors

    def _watch(self, line: str, at: str, typing: "_Typing") -> str:
        """Watch until the page's text is there; then press Ctrl-C."""
        watched = Running(self.hosts[at], ["bash", "-c", line], self.clone, self._terminal(at).environment())

        def picture(said: str) -> str:
            return _COLOURS.sub("", said.rpartition(_CLEARED)[2])

        def is_shown(said: str) -> bool:
            if typing.shown is None:
                return re.search(typing.until, picture(said)) is not None
            return not output.wrong_with(f"...\n{typing.shown}", picture(said), typing.differs)
        assert typing.shown or typing.until, f"{line}: what is it to show?"
        watched.wait_for(is_shown, typing.shown or typing.until)
        watched.stop(signal.SIGINT)
        return typing.shown or ""

    # the rest

    def _terminal(self, at: str) -> Terminal:
        if at not in self._terminals:
            self._terminals[at] = Terminal(self.hosts[at], self.clone)
        return self._terminals[at]

    def _read(self, text: str) -> str:
        for on_the_page, here in self.reads.items():
            text = text.replace(on_the_page, here)
        return text

    def _is_next(self, language: str) -> bool:
        return self._next < len(self._page.blocks) and self._page.blocks[self._next].language == language

    def _take(self, heading: str, language: str) -> page.Block:
        assert self._next < len(self._page.blocks), f"{self._page.name} has no further block"
        block, its = self._page.blocks[self._next], self._headings[self._next]
        self._next += 1
        assert (its, block.language) == (heading, language), (
            f"{block.place}: {block.language!r} under {its!r}, but the scenario has {language!r} under {heading!r}")
        return block


class _Typing:
    """How one block is typed: what the page shows, and what a scenario says of single lines."""

    def __init__(self, shown: str | None, differs: tuple[Differs, ...], codes: dict[str, int], again: dict[str, str],
                 until: str) -> None:
        self.shown, self.differs, self.until = shown, differs, until
        self._codes, self._again = codes, again
        self._used: set[str] = set()

    def code(self, line: str) -> int:
        """Return the exit code that a line has to have."""
        return self._codes[begin] if (begin := self._begin(line, self._codes)) else 0

    def awaited(self, line: str) -> str | None:
        """Return the pattern that a line has to print, until when it is typed again; None when it is typed once."""
        begin = self._begin(line, self._again)
        return None if begin is None else self._again[begin]

    def _begin(self, line: str, begins: Iterable[str]) -> str | None:
        found = next((begin for begin in begins if line.startswith(begin)), None)
        self._used |= {found} if found else set()
        return found

    def unused(self) -> list[str]:
        """Return the begins with which no line began."""
        return [begin for begin in (*self._codes, *self._again) if begin not in self._used]

    def wrong_with(self, printed: str) -> str | None:
        """Return what differs from the page's text; None where it shows none."""
        return self.shown and output.wrong_with(self.shown, printed, self.differs)


def headings_of(read: page.Page) -> list[str]:
    """Return the heading above each block of a page."""
    headings, heading = [], ""
    for block in read.blocks:
        heading = ([heading] + _HEADING.findall(block.prose))[-1]
        headings.append(heading)
    return headings
