"""mqadmin, Java's and rmqha's, on clusters of both kinds, and the kinds that a test mixes."""
import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest

from rmqha.tools.command import mq_admin_startup
from tests.support import real_rocketmq
from tests.support.java_driver import JavaDriver
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.processes import ServerProcess
from tests.support.wait import wait_until

# The kinds of servers that an interop test mixes. RMQHA_PROVE_HARNESS=1 adds the real one on both sides: if the
# harness and the tests are right, those tests pass too.

PROVE_HARNESS = os.environ.get("RMQHA_PROVE_HARNESS") == "1"


def pairs(*mixes: tuple[str, str]) -> list:
    """Return test parameters (left kind, right kind); each is marked `java`, because the clients are Java's."""
    wanted = [*mixes, *([("java", "java")] if PROVE_HARNESS else [])]
    return [pytest.param(*mix, id="-".join(mix), marks=pytest.mark.java) for mix in wanted]


def single(kind: str) -> list:
    """Return test parameters of one kind, together with the real one if the harness is to be proven."""
    wanted = [kind, *(["java"] if PROVE_HARNESS and kind != "java" else [])]
    return [pytest.param(one, id=one, marks=[pytest.mark.java] if one == "java" else []) for one in wanted]


# Java's mqadmin, one JVM per command. A JVM that starts on a busy machine may not see within its own timeout an answer
# that arrived in time, or a connection. Such a run says nothing about the servers, so it is repeated; a server that
# never answers makes all runs fail.

_MQADMIN = "org.apache.rocketmq.tools.command.MQAdminStartup"
_TIMED_OUT = ("RemotingTimeoutException", "RemotingConnectException")
_JVM_ATTEMPTS = 6


class JavaMqadmin:
    """The tool of a version of RocketMQ, whose files are in `folder`: output(*args) -> its output."""

    def __init__(self, folder: Path, version: str = real_rocketmq.VERSION) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "conf").mkdir(exist_ok=True)
        logback = folder / "conf" / "logback_tools.xml"
        logback.write_text('<configuration><root level="OFF"/></configuration>\n', "ascii")
        jars = real_rocketmq.jars() if version == real_rocketmq.VERSION else real_rocketmq.jars_of(version)
        self.command = [*real_rocketmq.java_command(), f"-Drmq.logback.configurationFile={logback}",
                        f"-Duser.home={folder}", "-cp", f"{jars}/*", _MQADMIN]
        self.env = {"ROCKETMQ_HOME": str(folder), "PATH": os.environ["PATH"]}

    def run(self, *args: str) -> subprocess.CompletedProcess:
        """Run it and return its result: code, stdout, stderr."""
        for _ in range(_JVM_ATTEMPTS):
            done = subprocess.run([*self.command, *args], capture_output=True, text=True, timeout=600, check=False,
                                  env=self.env)
            if not _has_timed_out(done.stdout + done.stderr):
                break
        if not done.stdout:
            # pytest shows it if the test fails
            print(f"mqadmin {' '.join(args)}: {done.stderr}")
        return done

    def output(self, *args: str) -> str:
        """Run it and return its standard output."""
        return self.run(*args).stdout


def _has_timed_out(printed: str) -> bool:
    return any(error in printed for error in _TIMED_OUT)


def start_endless(tool: ServerProcess, wait_up: Callable[[], object],
                  wait_gone: Callable[[], object] = lambda: None) -> None:
    """Start a command of Java's tool that runs until it is killed, and wait until it is up."""
    for attempt in range(1, _JVM_ATTEMPTS + 1):
        tool.launch()
        wait_up()
        if attempt == _JVM_ATTEMPTS or not _has_timed_out(tool.output()):
            break
        tool.kill()
        wait_gone()
        tool.output_file.unlink()


# The same mqadmin commands with Java's tool and with rmqha's, on a Java cluster and on an rmqha cluster.
#
# A case is a list of command lines. Their output must be the same all four times, except for the differences that
# `Command` allows. In a line these stand for values that differ from run to run: {n} name server, {b} broker's address,
# {own} letters of the tool (names of topics and groups that a case creates), {dir} a folder for files, {b2} and {b3}
# further brokers; {c} is the cluster's name, {name} the broker's. In the output the values are replaced by these again,
# so that columns stay where they are.

CLUSTER, BROKER_NAME = "InteropCluster", "broker-a"
TIME = (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?", "<time>")
MILLIS = (r"\b1[6-9]\d{11}\b", "<millis>")
LETTERS = ("Qj", "Qr")  # Java's tool, rmqha's
_OWN = re.compile(r"Q[jr]\b")
_FRAMES = re.compile(r"^\t(at |\.\.\. \d+ more).*\n", re.MULTILINE)
_UNTIL_MS = 60_000
_ATTEMPTS = 3

Tool = Callable[[list[str]], str]


@dataclass(frozen=True)
class Command:
    """A command line, and the parts of its output that are compared.

    `masks`: (pattern, replacement) for the output; `sort`: Java prints the lines in the order of a hash table;
    `until`: the command is repeated until this pattern is in its output, for `until_ms` at most; `file`: a JSON file in
    {dir} that belongs to the output; `look`: a function applied to the output before the comparison; `shown=False`:
    nothing is compared; `keep`: (name, pattern), whose group replaces {name} in later lines.
    """

    line: str
    masks: tuple[tuple[str, str], ...] = ()
    sort: bool = False
    until: str | None = None
    until_ms: int = _UNTIL_MS
    file: str | None = None
    look: Callable[[str], str] | None = None
    shown: bool = True
    keep: tuple[str, str] | None = None


@dataclass(frozen=True)
class Case:
    """Commands that each tool runs in order on each cluster."""

    name: str
    commands: tuple[Command, ...]


def case(name: str, *commands: str | Command) -> Case:
    """Return a case of command lines."""
    return Case(name, tuple(Command(each) if isinstance(each, str) else each for each in commands))


@dataclass(frozen=True)
class Cluster:
    """A name server, a master, perhaps more brokers, all of one kind."""

    kind: str
    namesrv: NamesrvNode
    broker: BrokerNode
    folder: Path
    others: tuple[BrokerNode, ...] = ()


def java_tool(driver: JavaDriver, home: Path | None = None) -> Tool:
    """Return Java's mqadmin in the driver's JVM; `home`/conf/tools.yml is its account."""
    return lambda args: driver.admin(*args, home=home)


def rmqha_tool(args: list[str], home: Path | None = None) -> str:
    """Run rmqha's mqadmin in this process; return standard output and error, interleaved."""
    printed = io.StringIO()
    env = {} if home is None else {"ROCKETMQ_HOME": str(home)}
    with (mock.patch.dict("os.environ", env), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed),
          tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder)):  # some commands write files there
        mq_admin_startup.main0(args)
    return printed.getvalue()


def run(each: Case, tool: Tool, letter: str, cluster: Cluster) -> list[str]:
    """Return the output of a case's commands, made comparable."""
    folder = cluster.folder / letter
    names = {"n": cluster.namesrv.address, "b": cluster.broker.address, "own": letter, "dir": str(folder),
             "c": CLUSTER, "name": BROKER_NAME,
             **{f"b{number}": broker.address for number, broker in enumerate(cluster.others, 2)}}
    outputs: list[str] = []
    sender = None
    for command in each.commands:
        for attempt in range(_ATTEMPTS):
            with contextlib.suppress(_NotYet if attempt + 1 < _ATTEMPTS and sender else ()):
                text = _text_of(command, tool, folder, names)
                break
            # The expected message: Java's tool loses a trace that it can't send within half a second.
            _text_of(sender, tool, folder, names)
        if command.keep is not None:
            sender = command
        if command.shown:
            outputs.append(f"$ mqadmin {command.line}\n{_comparable(command, text, names)}")
    return outputs


class _NotYet(AssertionError):
    """Raised when a command did not print the expected text."""


def _text_of(command: Command, tool: Tool, folder: Path, names: dict[str, str]) -> str:
    """Return the output of a command; `names` gets the values that it keeps."""
    args = shlex.split(command.line.format(**names))
    text = _asked(command, lambda: tool(args))
    if command.file is not None:
        text += f"\n{_pretty(folder / command.file)}"
    if command.keep is not None:
        name, pattern = command.keep
        found = re.search(pattern, text, re.MULTILINE)
        assert found is not None, f"no {pattern!r} in what {command.line} printed:\n{text}"
        names[name] = found.group(1)
    return text


def _pretty(file: Path) -> str:
    if not file.exists():
        return f"no file {file.name}"
    return json.dumps(json.loads(file.read_text("utf-8")), indent=1, sort_keys=True)


def _asked(command: Command, ask: Callable[[], str]) -> str:
    if command.until is None:
        return ask()
    seen = [""]

    def asked() -> bool:
        seen[0] = ask()
        return re.search(command.until, seen[0]) is not None
    try:
        wait_until(asked, command.until_ms, f"{command.until!r} in the output of {command.line}")
    except AssertionError as late:
        raise _NotYet(f"{late}:\n{seen[0]}") from None
    return seen[0]


def _comparable(command: Command, text: str, names: dict[str, str]) -> str:
    text = _FRAMES.sub("", text.replace("\r\n", "\n"))
    text = text.replace(names["dir"], "{dir}")
    for name in names.keys() & {"n", "b", "b2", "b3"}:
        padding = " " * (len(names[name]) - len(name) - 2)
        text = text.replace(names[name], f"{{{name}}}{padding}")
    for pattern, replacement in (*command.masks, TIME, MILLIS):
        text = re.sub(pattern, replacement, text)
    text = _OWN.sub("Q_", text)
    if command.look is not None:
        text = command.look(text)
    return "\n".join(sorted(text.splitlines())) if command.sort else text
