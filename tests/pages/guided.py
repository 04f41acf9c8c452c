"""Run a how-to guide block by block as its operator does, at hosts with the state that the guide assumes."""
import contextlib
import functools
import os
import pty
import re
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import psutil

from tests.pages import walk as output
from tests.pages import walk as page
from tests.pages.shell import environment
from tests.pages.walk import Differs
from tests.support import real_rocketmq, start_as
from tests.support.guide import set_lines
from tests.support.nodes import MIB, write_properties
from tests.support.programs import not_installed
from tests.support.start_as import killed_with_parent
from tests.support.wait import wait_until

# Hosts of the pages, 10.0.0.1 and so on: each has its own network, processes, /etc/rocketmq, /data and home.
#
# A host has its own namespaces for network, mounts, processes and host name. Its root is a tmpfs with the folders of
# this machine, except those that belong to the host; these are in a folder of the test, which can read and change
# them. A bridge joins the hosts. Without root the same is built in a user namespace, where the kernel allows it.

_TOOLS = ("ip", "unshare", "nsenter", "chroot", "mount")
_OWN = ("etc/rocketmq", "data", "operator")  # folders of a host
HOME = "/operator"
_BRIDGE = """set -e
ip link set lo up
ip link add name lan type bridge
ip link set lan up
echo ready
exec sleep infinity
"""
# $1: the parent of the host's own folders, $2: the folder shared by all hosts, $3: the host's name; then pairs: a
# folder, and the path to mount in its place.
_ROOT = """set -e
hostname "$3"
mount -t tmpfs -o mode=755 host /mnt
for entry in /*; do
    case ${entry#/} in backup|data|etc|mnt|operator|proc) continue ;; esac
    if [ -L "$entry" ]; then cp -P "$entry" "/mnt$entry"
    elif [ -d "$entry" ]; then mkdir "/mnt$entry"; mount --rbind "$entry" "/mnt$entry"; fi
done
mkdir -p /mnt/.etc /mnt/etc /mnt/proc
mount --rbind /etc /mnt/.etc
for entry in /etc/*; do
    case $entry in /etc/rocketmq) ;; *) ln -s "/.${entry#/}" "/mnt$entry" ;; esac
done
for own in etc/rocketmq data operator; do
    mkdir -p "/mnt/$own"
    mount --bind "$1/$own" "/mnt/$own"
done
shared=$2
shift 3
while [ $# -gt 0 ]; do
    mount --bind "$2" "/mnt$1"
    shift 2
done
mkdir /mnt/backup
mount --bind "$shared" /mnt/backup
mount -t proc proc /mnt/proc
exec chroot /mnt /bin/bash -c 'echo ready; while :; do sleep 1000 & wait; done'
"""


def _ended(process: subprocess.Popen) -> None:
    process.kill()
    process.wait(240)
    for stream in (process.stdout, process.stdin):
        if stream is not None:
            stream.close()


class Host:
    """One host; its files (/etc/rocketmq, /data) are below `folder`."""

    def __init__(self, address: str, folder: Path, shared: Path, bridge: list[str],
                 places: Mapping[Path, Path]) -> None:
        self.address = address
        self.folder = folder
        self._bridge = bridge
        self._cable = f"host{address.rpartition('.')[2]}"
        for own in _OWN:
            (folder / own).mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            killed_with_parent([
                *bridge, "unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "sh", "-c", _ROOT,
                "sh", folder, shared, self._cable, *(path for place in places.items() for path in place)]),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = self._process.stdout.readline()
        if said != "ready\n":
            raise OSError(f"no host {address}: {said}{self._process.stdout.read()}")
        (first,) = psutil.Process(self._process.pid).children()
        while [child for child in first.children() if first.name() in ("unshare", "nsenter")]:
            (first,) = first.children()
        self._first = first.pid  # its process 1

    def path(self, path: str) -> Path:
        """Return where the test finds a file of the host."""
        own = next((own for own in _OWN if path.strip("/").startswith(own)), None)
        assert own is not None, f"{path} is not in one of the host's own folders: {_OWN}"
        return self.folder / path.strip("/")

    def inside(self, cwd: str = "/") -> list[str]:
        """Return the beginning of a command line that runs a command at this host."""
        return ["nsenter", "-t", str(self._first), *_USER, "-m", "-n", "-p", "-u", "-r", "env", "-i", "-C", cwd,
                *(f"{name}={value}" for name, value in environment(Path(HOME)).items())]

    def join(self) -> None:
        """Connect the host to the bridge."""
        _run(*self._bridge, "ip", "link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns",
             str(self._first))
        _run(*self._bridge, "ip", "link", "set", self._cable, "master", "lan", "up")
        for words in (f"addr add {self.address}/24 dev eth0", "link set lo up", "link set eth0 up"):
            _run(*self.inside(), "ip", *words.split())

    @contextlib.contextmanager
    def unplugged(self) -> Iterator[None]:
        """Unplug the host's network cable for a while."""
        self.unplug()
        yield
        self.plug_in()

    def unplug(self) -> None:
        """Unplug the host's network cable."""
        _run(*self._bridge, "ip", "link", "set", self._cable, "down")

    def plug_in(self) -> None:
        """Plug the host's network cable in again."""
        _run(*self._bridge, "ip", "link", "set", self._cable, "up")

    def processes(self) -> list[psutil.Process]:
        """Return all processes that run at the host, whoever started them."""
        here = _namespace(self._first)
        return [each for each in psutil.process_iter() if here and _namespace(each.pid) == here]

    def close(self) -> None:
        """End the host and everything that runs there."""
        _ended(self._process)


class Hosts:
    """The hosts of a page, and the bridge between them."""

    def __init__(self, folder: Path, addresses: Iterable[str], places: Mapping[Path, Path] | None = None) -> None:
        self._made: list[Host] = []
        unshare = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user", "--mount"]), "--net"]
        self._bridge = subprocess.Popen(killed_with_parent([*unshare, "sh", "-c", _BRIDGE]), stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        try:
            said = self._bridge.stdout.readline()
            if said != "ready\n":
                raise OSError(f"no bridge: {said}{self._bridge.stdout.read()}")
            shared = folder / "backup"
            shared.mkdir(parents=True, exist_ok=True)
            bridge = ["nsenter", "-t", str(self._bridge.pid), *_USER, "-n"]
            for address in addresses:
                host = Host(address, folder / address, shared, bridge, places or {})
                self._made.append(host)
                host.join()
        except BaseException:
            self.close()
            raise

    def __getitem__(self, address: str) -> Host:
        (host,) = (host for host in self._made if host.address == address)
        return host

    def __iter__(self):
        return iter(self._made)

    def __enter__(self) -> "Hosts":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all hosts."""
        for host in reversed(self._made):
            host.close()
        _ended(self._bridge)


_USER = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]


def _namespace(process: int) -> str | None:
    """Return the namespace that a process is in; None when it has ended."""
    try:
        return os.readlink(f"/proc/{process}/ns/pid")
    # The process has ended or belongs to another user.
    except OSError:
        return None


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise OSError(f"{shlex.join(command)}: {done.returncode} {done.stdout}{done.stderr}")
    return done.stdout


@functools.cache
def why_not() -> str | None:
    """Return the reason why hosts can't be set up here; None when they can."""
    missing = not_installed(*_TOOLS)
    if missing is not None:
        return missing
    try:
        with tempfile.TemporaryDirectory() as folder, Hosts(Path(folder), ["10.0.0.1", "10.0.0.2"]) as hosts:
            wait_until(lambda: _reaches(hosts["10.0.0.1"], "10.0.0.2"), 60_000, "one host reaches the other")
    except (AssertionError, OSError, subprocess.SubprocessError) as failure:
        return f"hosts can't be made of namespaces here: {failure}"
    return None


def _reaches(host: Host, address: str) -> bool:
    """Return whether a connection is refused rather than lost."""
    done = subprocess.run([*host.inside(), "bash", "-c", f"exec 3<>/dev/tcp/{address}/1"], capture_output=True,
                          text=True, timeout=600, check=False)
    return "refused" in done.stderr


# A how-to guide, run block by block as its operator does, at hosts of `tests.pages.guided`.
#
# A scenario takes the blocks of a page in their order and says at which host each is typed, or which file is edited. A
# block that is not taken fails it, and so does a block under another heading than the scenario's. Commands are typed
# exactly as the page has them: each server in its own terminal, `--watch` until it shows what the page shows.

LIMIT_MS = 120_000
READY = "boot success"
_SERVERS = ("bin/mqbroker", "bin/mqnamesrv", "bin/mqcontroller")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
# A terminal's next screen begins here.
_CLEARED = "\x1b[H"
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# Offsets and sizes depend on the number and length of the messages sent; small numbers, such as counts of replicas, do
# not.
OFFSET = Differs(r"(?<![\w.:])\d[\d,]{2,}(?![\w.]|:\S)", "<offset>")
SIZE = Differs(r"(?<![\w.])[\d,.]+ (?:B|KiB|MiB)(?![\w/])", "<size>")
# The progress of a slave that compares its log differs at every poll.
SCRUBBING = Differs(r"scrubbing [A-Z]+; round .*", "scrubbing <where>")
# To a reader, "1 min 3 s" is a duration just as "1.9 s" is.
LONGER = Differs(r"<duration> <duration>", "<duration>")


class Terminal:
    """A shell that stays open at a host."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.host = host
        self._process = subprocess.Popen(
            [*host.inside(cwd=str(folder)), "bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self._number = 0

    def type(self, text: str) -> tuple[int, str]:
        """Run lines; return the exit code of the last, and their output."""
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
        """Return the exported variables of the shell."""
        return dict(line.split("=", 1) for line in self.type("env -0")[1].split("\0") if "=" in line)

    def close(self) -> None:
        """End the shell."""
        self._process.kill()
        self._process.wait(240)
        for stream in (self._process.stdin, self._process.stdout):
            stream.close()


class Running:
    """A command that stays in the foreground of its own terminal: a server, or something watched."""

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
                # EIO: the other end is closed.
                except OSError:
                    return

    def said(self) -> str:
        """Return the output so far."""
        return bytes(self._said).decode("utf-8", "replace").replace("\r\n", "\n")

    def wait_for(self, is_shown: Callable[[str], object], what: str) -> str:
        """Wait until the output satisfies `is_shown`; fail when the command ends first."""
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
        """Send a signal, unless the command has ended, and wait for its end."""
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
    """An operator's walk through a page."""

    def __init__(self, name: str | page.Page, hosts: Hosts, clone: Path) -> None:
        self.hosts, self.clone = hosts, clone
        # Maps a text of the page to the text that the reader has in its place.
        self.reads: dict[str, str] = {}
        self._page = page.read(name) if isinstance(name, str) else name
        self._headings = headings_of(self._page)
        self._next = 0
        self._terminals: dict[str, Terminal] = {}
        self._used: set[str] = set()

    # the page

    def types(self, heading: str, at: str, codes: Mapping[str, int] | None = None,
              again: Mapping[str, str] | None = None, differs: Sequence[Differs] = (), until: str = "") -> str:
        """Type the next block at a host, and compare its output with the text that the page shows below it.

        `codes`: beginnings of lines -> their exit codes, where these are not 0. `again`: beginnings of lines that are
        typed again until the exit code matches and a pattern is printed, as an operator does who waits; "" for the
        page's text. `until`: a text that `--watch` has to show where the page shows none. Returns the output.
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

    def types_at(self, at: str, block: page.Block, again: Mapping[str, str] | None = None) -> None:
        """Type a block at a host that was already taken at another one; `again` as for `types`."""
        for line in block.commands():
            self._line(line, at, _Typing(None, (), {}, dict(again or {}), ""))

    def types_each(self, heading: str, hosts: Sequence[str]) -> None:
        """Type the next block, each of its lines at a different host."""
        for line, at in zip(self._take(heading, "bash").commands(), hosts, strict=True):
            self._line(line, at, _Typing(None, (), {}, {}, ""))

    def edits(self, heading: str, at: str, file: str) -> str:
        """Write the lines of the next block into a file named by the prose above it; return the lines."""
        block = self._take(heading, "properties")
        assert file in block.prose, f"{block.place}: the prose does not name {file}"
        set_lines(self.hosts[at].path(file), block.text)
        return block.text

    def sets(self, at: str, file: str, lines: str) -> None:
        """Write lines into another file, as the prose says."""
        set_lines(self.hosts[at].path(file), lines)

    def block(self, heading: str, kind: str) -> page.Block:
        """Take the next block, for a scenario that handles it in its own way."""
        return self._take(heading, kind)

    def page_has(self, pattern: str) -> str:
        """Return the match of a pattern in the page's blocks, which has to be one text, though it may occur several
        times."""
        (text,) = {found for block in self._page.blocks for found in re.findall(pattern, block.text)}
        return text

    def done(self) -> None:
        """Fail when a block was not taken."""
        left = [block.place for block in self._page.blocks[self._next:]]
        assert not left, f"the scenario has left out: {left}"

    # Things that the page assumes, or says in prose.

    def starts(self, at: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Running:
        """Start a server in its own terminal; return when it is ready."""
        made = Running(self.hosts[at], list(command), self.clone, environment or {})
        made.wait_for(lambda said: READY in said, repr(READY))
        return made

    def tool(self, at: str, line: str, stdin: str = "") -> str:
        """Run a line in its own shell; it has to succeed."""
        done = subprocess.run([*self.hosts[at].inside(cwd=str(self.clone)), "NAMESRV_ADDR=10.0.0.1:9876", "bash", "-c",
                               line], text=True, capture_output=True, timeout=LIMIT_MS / 1000, check=False, input=stdin)
        assert done.returncode == 0, f"{at}: {line}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def until(self, at: str, line: str, wanted: str) -> str:
        """Run a line again and again until its output matches a pattern, whatever its exit code."""
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
        """Close the terminals; everything running at the hosts ends with them."""
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
        """Type a line. mqadmin exits with 0 even when it fails, as the original does: it has failed when it prints
        an error."""
        if not line.startswith("bin/mqadmin "):
            return self._terminal(at).type(line)
        code, said = self._terminal(at).type(f"{{ {line}\n}} 2>~/errors")
        errors = self.hosts[at].path(f"{HOME}/errors").read_text("utf-8")
        return code or int(bool(errors)), said + errors

    def _watch(self, line: str, at: str, typing: "_Typing") -> str:
        """Watch until the page's text appears; then press Ctrl-C."""
        watched = Running(self.hosts[at], ["bash", "-c", line], self.clone, self._terminal(at).environment())

        def picture(said: str) -> str:
            return _COLOURS.sub("", said.rpartition(_CLEARED)[2])

        def is_shown(said: str) -> bool:
            if typing.shown is None:
                return re.search(typing.until, picture(said)) is not None
            return not output.wrong_with(f"...\n{typing.shown}", picture(said), typing.differs)
        assert typing.shown or typing.until, f"{line}: neither the page nor the scenario says what it shows"
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
    """The expectations for one block: what the page shows, and what a scenario adds for single lines."""

    def __init__(self, shown: str | None, differs: tuple[Differs, ...], codes: dict[str, int], again: dict[str, str],
                 until: str) -> None:
        self.shown, self.differs, self.until = shown, differs, until
        self._codes, self._again = codes, again
        self._used: set[str] = set()

    def code(self, line: str) -> int:
        """Return the exit code that a line has to have."""
        return self._codes[begin] if (begin := self._begin(line, self._codes)) else 0

    def awaited(self, line: str) -> str | None:
        """Return the pattern that a repeated line finally has to print; None for a line that is typed once."""
        begin = self._begin(line, self._again)
        return None if begin is None else self._again[begin]

    def _begin(self, line: str, begins: Iterable[str]) -> str | None:
        found = next((begin for begin in begins if line.startswith(begin)), None)
        self._used |= {found} if found else set()
        return found

    def unused(self) -> list[str]:
        """Return the beginnings that matched no line."""
        return [begin for begin in (*self._codes, *self._again) if begin not in self._used]

    def wrong_with(self, printed: str) -> str | None:
        """Return the difference from the page's text; None where the page shows none."""
        return self.shown and output.wrong_with(self.shown, printed, self.differs)


def headings_of(read: page.Page) -> list[str]:
    """Return the heading above each block of a page."""
    headings, heading = [], ""
    for block in read.blocks:
        heading = ([heading] + _HEADING.findall(block.prose))[-1]
        headings.append(heading)
    return headings


# The state that a how-to guide assumes: a broker pair at the hosts, its files and messages, of rmqha or of RocketMQ
# 4.9.

NAMESRV, MASTER, SLAVE, THIRD = "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"
LAPTOP = "10.0.0.9"
NAMESRV_ADDR = f"{NAMESRV}:9876"
MASTER_FILE, SLAVE_FILE = "/etc/rocketmq/broker-a.properties", "/etc/rocketmq/broker-a-s.properties"
STORE = "/data/rocketmq"
HA_PORT = 10912
TOPIC, GROUP = "orders", "billing"
_SLAVE = {"brokerId": 1, "brokerRole": "SLAVE"}


def settings(**changed: object) -> dict[str, object]:
    """Return the settings of a broker's file as its operator has written them."""
    return {"brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": 0,
            "brokerRole": "ASYNC_MASTER", "flushDiskType": "ASYNC_FLUSH", "namesrvAddr": NAMESRV_ADDR,
            "storePathRootDir": STORE, "storePathCommitLog": f"{STORE}/commitlog",
            "mappedFileSizeCommitLog": MIB, **changed}


class State:
    """The servers of a page, started, checked and stopped by the test rather than by the page's commands."""

    def __init__(self, walk: Guided) -> None:
        self.walk = walk

    def has_file(self, at: str, file: str, lines: Mapping[str, object]) -> None:
        """Write a properties file at a host."""
        write_properties(self.walk.hosts[at].path(file), dict(lines))

    def name_server(self, at: str = NAMESRV, kind: str = "rmqha", file: str | None = None) -> Running:
        """Start a name server."""
        return self._start(kind, "mqnamesrv", at, file)

    def controller(self) -> Running:
        """Start a controller beside the name server."""
        file = "/etc/rocketmq/controller.conf"
        self.has_file(NAMESRV, file, {
            "controllerDLegerGroup": "rmqha", "controllerDLegerPeers": f"n0-{NAMESRV}:9878",
            "controllerDLegerSelfId": "n0", "controllerStore": "local", "controllerStorePath": "/data/controller"})
        return self.walk.starts(NAMESRV, ["bin/mqcontroller", "-c", file])

    def broker(self, at: str, file: str, kind: str = "rmqha") -> Running:
        """Start a broker."""
        return self._start(kind, "mqbroker", at, file)

    def _start(self, kind: str, program: str, at: str, file: str | None) -> Running:
        if kind == "rmqha":
            return self.walk.starts(at, [f"bin/{program}", *(["-c", file] if file else [])])
        make = real_rocketmq.broker_command if program == "mqbroker" else real_rocketmq.namesrv_command
        command, environment = make(Path(file or "/dev/null"), Path(HOME))
        return self.walk.starts(at, command, environment)

    def pair(self, master: str = "rmqha", slave: str = "rmqha", namesrv: str = "rmqha", **changed: object) -> None:
        """Start name server, master and slave, and create the topic and the group of the pages."""
        self.has_file(MASTER, MASTER_FILE, settings(**changed))
        self.has_file(SLAVE, SLAVE_FILE, settings(**{**changed, **_SLAVE}))
        self.name_server(kind=namesrv)
        self.broker(MASTER, MASTER_FILE, master)
        self.walk.tool(MASTER, f"bin/mqadmin updateTopic -c DefaultCluster -t {TOPIC} -r 2 -w 2")
        self.walk.tool(MASTER, f"bin/mqadmin updateSubGroup -c DefaultCluster -g {GROUP}")
        self.broker(SLAVE, SLAVE_FILE, slave)

    def send(self, count: int, at: str = MASTER, size: int = 20) -> None:
        """Send messages from a host; each has to be acknowledged."""
        lines = "".join(f"{number:0{size}}\n" for number in range(count))
        self.walk.tool(at, f"bin/rmqha produce -t {TOPIC} -k some", lines)

    def crash(self, at: str) -> None:
        """Simulate a power failure of a master: its slave never gets the messages that it has not received yet."""
        # The kernel must not keep sending the data of a process that has ended.
        self.walk.tool(at, "echo 1 >/proc/sys/net/ipv4/tcp_orphan_retries")
        self.stop(at, number=signal.SIGKILL)
        self.walk.until(at, f"grep -c ':{HA_PORT:04X} ' /proc/net/tcp", r"(?m)^0$")

    def consume(self, count: int, at: str = MASTER) -> None:
        """Consume messages in the group of the pages."""
        self.walk.tool(at, f"bin/rmqha consume -t {TOPIC} -g {GROUP} --count {count}")

    def wait_until_in_sync(self, at: str = SLAVE, replicas: int = 1) -> None:
        """Wait until the master's slaves have all messages, as `ha status` shows, and the slave at SLAVE has the
        topic, which a slave requests 3 s after its start and then every 10 s."""
        self.walk.until(at, f"NAMESRV_ADDR={NAMESRV_ADDR} bin/rmqha ha status",
                        r"TRANSFER +[\d,]+ +0 B .*yes(?s:.*TRANSFER +[\d,]+ +0 B .*yes){%d}" % (replicas - 1))
        topics = self.walk.hosts[SLAVE].path(f"{STORE}/config/topics.json")
        wait_until(lambda: topics.exists() and f'"{TOPIC}"' in topics.read_text("utf-8"), LIMIT_MS,
                   f"the topic {TOPIC} in {topics}")

    def stop(self, at: str, what: str = "", number: int = signal.SIGTERM) -> None:
        """Stop the servers of a host whose command line contains a word, and wait until they have ended."""
        found = servers(self.walk.hosts[at], what)
        assert found, f"{at}: no process has {what!r} in its command line"
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        wait_until(lambda: not servers(self.walk.hosts[at], what), LIMIT_MS, f"{what} at {at} has ended")


def servers(host: Host, what: str = "") -> list[psutil.Process]:
    """Return the servers, rmqha's and RocketMQ's, that run at a host."""
    found = []
    for process in host.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            words = " ".join(process.cmdline())
            if what in words and ("-m rmqha.launch mq" in words or "org.apache.rocketmq." in words):
                found.append(process)
    return found


# The checklist of a migration, starting with servers of either kind.


def migrate(walk: Guided, kind: str) -> None:
    """Go through the checklist; with `kind` "java" each server is replaced where the page says so."""
    export = walk.block("What you need", "bash")
    for address in (MASTER, SLAVE):
        walk.types_at(address, export)
    walk.types("1. Try rmqha on a laptop", LAPTOP, again={"bin/rmqha check ha": "OK"})
    state = State(walk)
    state.pair(kind, kind, kind)
    state.send(5)
    state.consume(3)
    walk.types("2. Check the cluster with rmqha's tools", MASTER, again={"bin/rmqha check ha": "OK"})
    walk.types("3. Check each broker's configuration", MASTER)
    heading = "4. Check a copy of a store"
    state.stop(SLAVE)
    walk.types(heading, SLAVE)
    state.broker(SLAVE, SLAVE_FILE, kind)
    assert walk.types(heading, SLAVE).rstrip().endswith("clean")
    if kind == "java":
        _replace_all(walk, state)
    state.send(2)
    state.wait_until_in_sync()
    walk.types("6. Check the result", MASTER, again={
        "bin/mqadmin clusterList": f"{MASTER}:10911(?s:.*){SLAVE}:10911", "bin/rmqha check ha": "OK"})
    walk.done()


def _replace_all(walk: Guided, state: State) -> None:
    """Replace a slave, the name server and the master, in the page's order."""
    state.stop(SLAVE)
    state.broker(SLAVE, SLAVE_FILE)
    walk.until(SLAVE, "bin/rmqha ha status", "TRANSFER")
    state.stop(NAMESRV)
    state.name_server()
    walk.until(MASTER, "bin/mqadmin clusterList", f"{MASTER}:10911(?s:.*){SLAVE}:10911")
    state.stop(MASTER)
    state.broker(MASTER, MASTER_FILE)
