"""Read a page and do what it says, block by block, as its reader does; compare what it shows with what comes.

A scenario adds what only prose says, and gives a name and a reason to each command that is not run. What it adds must
match the page: an entry that no command or text needs any more fails, so that nothing stays exempt by accident.
"""
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tests.pages.output import Differs, normal, wrong_with
from tests.pages.page import COMMANDS, Block, Page, read
from tests.pages.shell import Done, Machine
from tests.support.wait import wait_until

_BACKGROUND = re.compile(r"&[ \t]*(?:\w+=\$!)?[ \t]*(?:#.*)?$")
_COMMENT = re.compile(r"\s+#\s.*$")
_LEAVES = re.compile(r"Ctrl-D|`exit\(\)`")
_MQADMIN = re.compile(r"(?:bin/)?mqadmin (?!.*json)")  # with JSON all that is no row stands on standard error
_NO_COMMAND = re.compile(r"^The sub command \S+ not exist", re.MULTILINE)
_PRINTS = re.compile(r"\bIt prints `([^`]+)`")
_BOOTED = "boot success"
_REGISTERS = re.compile(r"\bmqbroker .*-n ")
_REGISTERED = re.compile(r"register broker\[\d+\]to name server \S+ OK")
STOP_MS = BOOT_MS = 120_000


def named(command: str) -> str:
    """A command as scenarios name it: without a comment at its end."""
    return _COMMENT.sub("", command)


@dataclass
class Scenario:
    """What the reader of a page knows beside its blocks. Commands are named by their text, without a comment."""

    exempt: Mapping[str, str] = field(default_factory=dict)  # command, or first line of a block -> why not run
    fails: Mapping[str, int] = field(default_factory=dict)  # command -> the exit status with which it ends
    replace: Mapping[str, str | Callable[["Walk"], str]] = field(default_factory=dict)  # FOLDER -> what stands for it
    before: Mapping[str, Callable[["Walk"], None]] = field(default_factory=dict)  # command -> called before it
    after: Mapping[str, Callable[["Walk", Done], None]] = field(default_factory=dict)  # command -> called behind it
    blocks: Mapping[str, Callable[["Walk", Block], object]] = field(default_factory=dict)  # first line -> what to do
    differs: Sequence[Differs] = ()  # beside what differs by nature
    online: Collection[str] = ()  # commands that need a package index: they run in the network of the host
    on: Callable[["Walk", str], Machine] | None = None  # command -> whose machine; without it all run on one


class Walk:
    """A walk through a page at a machine. `printed` is what the commands of the latest block have printed."""

    def __init__(self, page: Page | str, machine: Machine, scenario: Scenario | None = None) -> None:
        self.page = read(page) if isinstance(page, str) else page
        self.machine = machine
        self.scenario = scenario or Scenario()
        self.printed = ""
        self.ran: list[tuple[str, Done]] = []  # all commands, as the page has them
        self.pasted: list[str] = []  # what each Python block has printed
        self._used: set[tuple[str, str]] = set()
        self._started: list[tuple[str, Done]] = []  # by the latest block, with &

    def run(self) -> "Walk":
        """Do all; nothing may be left to do or running at the end, and no entry of the scenario unused."""
        for block in self.page.blocks:
            self.do(block)
        self._check_what_prose_shows(self.page.ending)
        self.machine.leave_the_prompt()
        self.check_scenario()
        return self

    def do(self, block: Block) -> None:
        """Do what one block says; before that, wait for the servers of the block above where the page says for what."""
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
            raise AssertionError(f"{block.place}: nothing runs this block, and nothing says why: {first}")

    @staticmethod
    def wait_for_boot(name: str, done: Done) -> None:
        """Wait until a server that a command has started with & says that it is ready."""
        wait_until(lambda: _BOOTED in done.output_now(), BOOT_MS, f"{_BOOTED} of {name}")

    def _wait_for_registration(self) -> None:
        """Wait until the broker is registered: after its "boot success" when it started before its name server, and
        before a reader has read on."""
        log = self.machine.home / "logs" / "rocketmqlogs" / "broker.log"
        wait_until(lambda: log.is_file() and _REGISTERED.search(log.read_text("utf-8")), BOOT_MS, "the registration")

    def _check_what_prose_shows(self, prose: str) -> None:
        """Fail where prose right below a block says "It prints `this`", and it did not."""
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
        if _MQADMIN.match(filled):  # which ends with 0 when it fails, as the original does: what it says tells
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
        """Whether a line with this text was printed by the latest block."""
        return any(text in line for line in normal(self.printed))

    def check_scenario(self) -> None:
        """Fail on entries that match nothing of the page."""
        scenario = self.scenario
        known = {(kind, key) for kind in ("exempt", "fails", "replace", "before", "after", "blocks")
                 for key in getattr(scenario, kind)}
        known |= {("differs", each.pattern) for each in scenario.differs}
        known |= {("online", name) for name in scenario.online}
        unused = known - self._used
        assert not unused, f"{self.page.name}: the page has nothing like this any more: {sorted(unused)}"

    def check_that_nothing_runs(self) -> None:
        """Wait until what the page has stopped has ended; fail when something still runs after two minutes."""
        try:
            wait_until(lambda: not self.machine.processes(), STOP_MS)
        except AssertionError:
            raise AssertionError(f"{self.page.name} leaves running: {self.machine.processes()}") from None
