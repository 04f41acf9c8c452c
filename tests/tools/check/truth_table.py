"""The truth table: for each broken pair what `ha status`, `check ha` and `doctor` say, made of running brokers.

    python -m tests.tools.check.truth_table [--pairs rmqha-rmqha,java-rmqha,...] [--cases WORD,...] [--write]

A pair is the master's kind and the slave's. It prints the rows; --write puts the rows that were made into
docs/reference/ha-truth-table.md, a table per pair. All of it takes about half an hour. The cells of a row: states and
exit code of `ha status`; word and exit code of `check ha`; the worst findings of `doctor`.
"""
import argparse
import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from rmqha.common.protocol import request_code
from rmqha.common.protocol.client_headers import SendMessageRequestHeaderV2
from rmqha.common.protocol.namesrv_headers import RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from rmqha.tools.rmqha_command import rmqha
from rmqha.tools.terminal import CannotAnswerError
from tests.faults.link_faults import Proxy
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.ports import free_ha_port, free_port
from tests.support.sources import ROOT
from tests.support.wait import at_least, wait_until

# Running brokers of either kind in which one thing is broken at a time, and the tools' reports about them.

NAME, CLUSTER = "broker-a", "InteropCluster"
_STORED = (0, 10, 11, 12)  # SUCCESS, and not yet on a disk or a slave
_CODES = {0: "OK", 1: "WARNING", 2: "CRITICAL", 3: "UNKNOWN"}
# Not the disk and the clock of this host.
_JUDGED = ("replication", "roles", "offsets", "ports", "nameserver", "config")
_SETTLE_MS = 60_000
_IN_BODY = 120  # bytes from a record's start


@dataclass(frozen=True)
class Row:
    """The reports of the three commands: states and exit code, word and exit code, severity and check names."""

    status: str
    check: str
    doctor: str

    def cell(self) -> str:
        """Return the row as the table shows it."""
        return f"{self.status}; {self.check}; {self.doctor}"


class Stage:
    """A name server, a master, and slaves that join and leave; to be closed."""

    def __init__(self, folder: Path, master_kind: str, slave_kind: str) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        self.master_kind, self.slave_kind = master_kind, slave_kind
        self.nodes: list = []
        self._client = RemotingClient(RemotingClientConfig())
        self._client.start()
        self.namesrv = self._started(NamesrvNode("rmqha", folder / "namesrv"))
        self.asked = self.namesrv.address  # the address given to the tools
        self.master = self.broker(master_kind, "master", brokerRole="ASYNC_MASTER")
        self._sizes: list[int] = []  # of the bodies in the master's log

    @property
    def master_tells(self) -> bool:
        """Return whether the master reports its connections."""
        return self.master_kind == "rmqha"

    def restart_master(self, **properties) -> None:
        """Restart the master with changed properties; None removes one."""
        self.master.stop()
        self.master.properties.update(properties)
        self.master.become(self.master.kind).start()

    def first_sizes(self) -> list[int]:
        """Return the sizes of the first bodies in the master's log."""
        return self._sizes

    def broker(self, kind: str, name: str, start: bool = True, namesrv: str | None = "", **properties) -> BrokerNode:
        """Return a broker with its own folder and port."""
        node = BrokerNode(kind, self._folder / f"{name}-{next(self._numbers)}",
                          self.namesrv.address if namesrv == "" else namesrv, name, **properties)
        self.nodes.append(node)
        return node.start() if start else node

    def slave(self, broker_id: int = 1, start: bool = True, follows: str = "", **properties) -> BrokerNode:
        """Return a slave of the master, with an empty store; `follows` replaces the master's HA address."""
        return self.broker(properties.pop("kind", self.slave_kind), f"slave-{broker_id}", start, brokerId=broker_id,
                           **{"brokerRole": "SLAVE", "haMasterAddress": follows or self.master.ha_address,
                              **properties})

    def send(self, count: int = 1, size: int = 100, to: BrokerNode | None = None, body: bytes = b"b") -> None:
        """Send messages to the broker's own topic."""
        for _ in range(count):
            header = SendMessageRequestHeaderV2(a="P", b=NAME, c="TBW102", d=1, e=0, f=0, g=int(time.time() * 1000),
                                                h=0, i="", j=0)
            request = RemotingCommand.create_request_command(request_code.SEND_MESSAGE_V2, header)
            request.body = body * size
            answer = self._client.invoke_sync((to or self.master).address, request, 30_000)
            assert answer.code in _STORED, answer.remark
            if to is None:
                self._sizes.append(size)

    @contextlib.contextmanager
    def load(self) -> Iterator[None]:
        """Send a message every 50 ms meanwhile."""
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(0.05):
                with contextlib.suppress(RemotingException):  # a frozen master
                    self.send()
        thread = threading.Thread(target=run, name="load", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(240)

    def end_of(self, node: BrokerNode) -> int:
        """Return the end of a broker's log; -1 when it does not answer."""
        try:
            with ClusterAdmin(timeout_millis=10_000) as admin:
                return int(admin.runtime_info(node.address)["commitLogMaxOffset"])
        except CannotAnswerError:
            return -1

    def caught_up(self, *slaves: BrokerNode) -> None:
        """Wait until slaves hold all messages of the master."""
        for slave in slaves:
            wait_until(lambda: self.end_of(slave) == self.end_of(self.master) > 0, 60_000, f"{slave.name} holds all")

    def listed(self, *ids: int) -> None:
        """Wait until the name server lists exactly these brokers."""
        with ClusterAdmin(self.namesrv.address, 10_000) as admin:
            wait_until(lambda: sorted(each.broker_id for each in admin.brokers()) == sorted(ids), 60_000,
                       f"{ids} are listed")

    def forget(self, *nodes: BrokerNode) -> None:
        """Stop slaves, and let the name server forget them."""
        for node in nodes:
            node.kill()
            header = UnRegisterBrokerRequestHeader(brokerName=NAME, brokerAddr=node.address, clusterName=CLUSTER,
                                                   brokerId=int(node.properties["brokerId"]))
            self._client.invoke_sync(self.namesrv.address, RemotingCommand.create_request_command(
                request_code.UNREGISTER_BROKER, header), 10_000)

    def registered_as(self, node: BrokerNode, broker_id: int, namesrv: NamesrvNode | None = None) -> None:
        """Register a broker at a name server, as it would register itself, under the name of this stage's brokers."""
        header = RegisterBrokerRequestHeader(
            brokerName=NAME, brokerAddr=node.address, clusterName=CLUSTER, haServerAddr=node.ha_address,
            brokerId=broker_id, compressed=False, bodyCrc32=0)
        answer = self._client.invoke_sync((namesrv or self.namesrv).address, RemotingCommand.create_request_command(
            request_code.REGISTER_BROKER, header), 10_000)
        assert answer.code == 0, answer.remark

    @contextlib.contextmanager
    def second_name_server(self) -> Iterator[NamesrvNode]:
        """Run a second name server, which no broker knows."""
        made = NamesrvNode("rmqha", self._folder / f"namesrv-{next(self._numbers)}").start()
        try:
            yield made
        finally:
            made.kill()

    @contextlib.contextmanager
    def frozen(self, node) -> Iterator[None]:
        """Freeze a process meanwhile."""
        os.kill(node.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(node.pid, signal.SIGCONT)

    def flip_bit(self, node: BrokerNode) -> None:
        """Flip a bit of the second message's body on a broker's disk, behind the broker's back; flipping it twice
        restores it."""
        file = os.open(node.commit_log / f"{0:020d}", os.O_RDWR)
        try:
            place = int.from_bytes(os.pread(file, 4, 0)) + _IN_BODY
            os.pwrite(file, bytes([os.pread(file, 1, place)[0] ^ 1]), place)
        finally:
            os.close(file)

    @contextlib.contextmanager
    def proxy(self) -> Iterator[Proxy]:
        """Run a proxy in front of the master's HA port."""
        made = Proxy(("127.0.0.1", self.master.ha_port))
        try:
            yield made
        finally:
            made.close()

    @contextlib.contextmanager
    def receiver(self) -> Iterator[None]:
        """Run `ha receive` on the master's log, once it is connected."""
        before = self.master.slaves_connected()
        command = [sys.executable, "-m", "rmqha.tools.rmqha_command", "ha", "receive", "--master",
                   self.master.ha_address, "--folder", str(self._folder / f"received-{next(self._numbers)}")]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: self.master.slaves_connected() > before, 60_000, "the receiver is connected")
            yield
        finally:
            process.kill()
            process.wait(240)

    def row(self, until: str = "", options: tuple[str, ...] = ()) -> Row:
        """Return the row once it contains `until`, or after a short while if it never does, and only when it was the
        same twice."""
        seen: list[Row] = []

        def settled() -> Row | None:
            seen.append(self._look(options))
            wanted = until in seen[-1].status or until in seen[-1].check
            return seen[-1] if wanted and seen[-2:-1] == seen[-1:] else None
        try:
            return wait_until(settled, _SETTLE_MS)
        except AssertionError:
            return seen[-1]

    def _look(self, options: tuple[str, ...]) -> Row:
        runner = CliRunner()

        def run(*arguments: str):
            return runner.invoke(rmqha, [*arguments, "-n", self.asked, "-o", "json", "--timeout", "3"],
                                 env={"NAMESRV_ADDR": ""})
        status, check = run("ha", "status"), run("check", "ha", *options)
        doctor = run("doctor")
        word = json.loads(check.stdout)["status"] if check.stdout.startswith("{") else _CODES[check.exit_code]
        return Row(f"{_states(status.stdout)} ({status.exit_code})", f"{word} ({check.exit_code})", _findings(doctor))

    def close(self) -> None:
        """Kill all servers."""
        for node in reversed(self.nodes):
            node.kill()
        self._client.shutdown()

    def _started(self, node):
        self.nodes.append(node)
        return node.start()


def _states(told: str) -> str:
    """Return the states, such as `TRANSFER`, separated by commas; the master's when it does not answer."""
    if not told.startswith("["):
        return "no answer"
    parts = []
    for view in json.loads(told):
        if view["error"]:
            parts.append("no master" if not view["address"] else "master UNREACHABLE")
        parts += sorted(slave["state"] + ("" if slave["registered"] else " (not registered)")
                        for slave in view["slaves"])
        parts += ["REFUSED"] * bool(view["refused"])
    return ", ".join(parts) or "no slave"


def _findings(result) -> str:
    """Return the worst severity and its checks, leaving out those about this host."""
    told = [(each["severity"], each["check"]) for each in json.loads(result.stdout)["findings"]
            if each["check"] in _JUDGED and "fast port" not in each["what"]]
    for severity in ("ERROR", "WARNING"):
        checks = sorted({check for found, check in told if found == severity})
        if checks:
            return f"{severity} {', '.join(checks)}"
    return "good"


PAIRS = ("rmqha-rmqha", "rmqha-java", "java-rmqha", "java-java")
DOCUMENT = ROOT / "docs" / "reference" / "ha-truth-table.md"
_BEGIN, _END = "<!-- truth table: begin -->\n", "<!-- truth table: end -->\n"
_HEAD = "| situation | `ha status` | `check ha` | `doctor` |\n|---|---|---|---|\n"
_SECTION = "## "
Case = Callable[[Stage], Iterator[Row]]
CASES: dict[str, Case] = {}


def case(title: str, only: tuple[str, ...] = PAIRS) -> Callable[[Case], Case]:
    """Register a case under a title. It yields the row, and cleans up afterwards. `only`: the pairs for which it is
    possible."""
    def add(run: Case) -> Case:
        run.only = only
        CASES[title] = run
        return run
    return add


RMQHA_MASTER = ("rmqha-rmqha", "rmqha-java")


@contextmanager
def healthy(stage: Stage, **properties) -> Iterator:
    """Run a slave that holds all messages of its master."""
    slave = stage.slave(**properties)
    stage.send()
    stage.caught_up(slave)
    stage.listed(0, 1)
    try:
        yield slave
    finally:
        stage.forget(slave)


@case("no slave, ASYNC_MASTER")
def _no_slave(stage: Stage) -> Iterator[Row]:
    stage.listed(0)
    yield stage.row()


@case("healthy, both logs empty")
def _empty(stage: Stage) -> Iterator[Row]:
    slave = stage.slave()
    stage.master.wait_for_slave()
    stage.listed(0, 1)
    at_least(2)  # for the first heartbeats
    yield stage.row()
    stage.forget(slave)


@case("never connected, both logs empty")
def _wrong_address_empty(stage: Stage) -> Iterator[Row]:
    slave = stage.slave(follows=f"127.0.0.1:{free_ha_port()}")
    stage.listed(0, 1)
    assert stage.end_of(stage.master) == 0
    yield stage.row()
    stage.forget(slave)


@case("never connected, both logs empty, `--probe`")
def _wrong_address_empty_probed(stage: Stage) -> Iterator[Row]:
    slave = stage.slave(follows=f"127.0.0.1:{free_ha_port()}")
    stage.listed(0, 1)
    yield stage.row("CRITICAL", ("--probe",))
    stage.forget(slave)


@case("healthy, under load")
def _flow(stage: Stage) -> Iterator[Row]:
    with healthy(stage), stage.load():
        yield stage.row("OK")


@case("healthy, idle")
def _rest(stage: Stage) -> Iterator[Row]:
    with healthy(stage):
        yield stage.row()


@case("healthy, idle, `--probe`")
def _probed(stage: Stage) -> Iterator[Row]:
    with healthy(stage):
        yield stage.row("OK", ("--probe",))


@case("never connected: nothing listens at its haMasterAddress")
def _wrong_address(stage: Stage) -> Iterator[Row]:
    stage.send()
    slave = stage.slave(follows=f"127.0.0.1:{free_ha_port()}")
    stage.listed(0, 1)
    yield stage.row("CRITICAL")
    stage.forget(slave)


@case("never connected: its haMasterAddress does not answer")
def _silent_address(stage: Stage) -> Iterator[Row]:
    with stage.proxy() as proxy:
        proxy.mode = "mute"
        stage.send()
        slave = stage.slave(follows=f"127.0.0.1:{proxy.port}")
        stage.listed(0, 1)
        yield stage.row("CRITICAL")
        stage.forget(slave)


@case("slave killed: the name server removes it")
def _killed(stage: Stage) -> Iterator[Row]:
    with healthy(stage) as slave:
        slave.kill()
        stage.listed(0)
        yield stage.row("CRITICAL")


@case("slave killed with its host: still listed")
def _still_listed(stage: Stage) -> Iterator[Row]:
    with healthy(stage) as slave:
        stage.registered_as(slave, 1)
        slave.kill()
        yield stage.row("UNREACHABLE")


@case("slave stopped by SIGTERM: it has unregistered")
def _stopped(stage: Stage) -> Iterator[Row]:
    with healthy(stage) as slave:
        slave.stop()
        stage.listed(0)
        yield stage.row("CRITICAL")


@case("slave frozen (SIGSTOP)")
def _frozen(stage: Stage) -> Iterator[Row]:
    with healthy(stage) as slave, stage.frozen(slave):
        yield stage.row("CRITICAL")


@case("refused: its log ends beyond the master's")
def _refused(stage: Stage) -> Iterator[Row]:
    slave = stage.broker(stage.slave_kind, "other", namesrv=None, brokerRole="ASYNC_MASTER")
    stage.send()
    stage.send(40, 20_000, slave)
    slave.stop()
    _becomes_slave(stage, slave)
    yield stage.row("CRITICAL")
    stage.forget(slave)
    # The master remembers the peers that it has refused for a minute.
    stage.restart_master()


def _becomes_slave(stage: Stage, node) -> None:
    node.properties.update(brokerRole="SLAVE", brokerId=1, haMasterAddress=stage.master.ha_address,
                           namesrvAddr=stage.namesrv.address)
    node.become(node.kind).start()
    stage.listed(0, 1)


@case("refused: not in haAllowedPeers", RMQHA_MASTER)
def _not_allowed(stage: Stage) -> Iterator[Row]:
    stage.send()
    stage.restart_master(haAllowedPeers="10.9.9.9")
    slave = stage.slave()
    stage.listed(0, 1)
    yield stage.row("CRITICAL")
    stage.forget(slave)
    stage.restart_master(haAllowedPeers=None)


@case("diverged: its first records differ")
def _diverged(stage: Stage) -> Iterator[Row]:
    slave = stage.broker(stage.slave_kind, "other", namesrv=None, brokerRole="ASYNC_MASTER")
    first = stage.first_sizes()
    for size in first[:2]:
        stage.send(1, size, slave, b"x")
    slave.stop()
    _becomes_slave(stage, slave)
    yield stage.row("CRITICAL")
    stage.forget(slave)
    stage.restart_master()


@case("a bit flips in the slave's log on disk; `haScrubPromise=1000`", ("rmqha-rmqha",))
def _bad_bit(stage: Stage) -> Iterator[Row]:
    stage.send()
    with healthy(stage, haScrubPromise=1000) as slave:
        stage.flip_bit(slave)
        yield stage.row("CRITICAL")


@case("a bit flips in the master's log on disk, before it is sent", ("rmqha-rmqha", "java-rmqha"))
def _bad_bit_of_master(stage: Stage) -> Iterator[Row]:
    stage.send(2)
    stage.flip_bit(stage.master)
    slave = stage.slave()
    stage.listed(0, 1)
    yield stage.row("DIVERGED")
    stage.forget(slave)
    stage.flip_bit(stage.master)
    stage.restart_master()


@case("behind, catching up through a slow proxy; `--warn 64KiB`")
def _behind(stage: Stage) -> Iterator[Row]:
    stage.send(60, 50_000)
    with stage.proxy() as proxy:
        proxy.mode = "slow"
        slave = stage.slave(follows=f"127.0.0.1:{proxy.port}")
        stage.listed(0, 1)
        yield stage.row("WARNING", ("--warn", "64KiB", "--crit", "1GiB"))
        proxy.mode = "pass"
        stage.forget(slave)


@case("master killed: the name server removes it")
def _master_killed(stage: Stage) -> Iterator[Row]:
    with healthy(stage):
        stage.master.kill()
        stage.listed(1)
        yield stage.row("CRITICAL")
        stage.master.start()
        stage.listed(0, 1)


@case("master stopped by SIGTERM: it has unregistered")
def _master_stopped(stage: Stage) -> Iterator[Row]:
    with healthy(stage):
        stage.master.stop()
        stage.listed(1)
        yield stage.row("CRITICAL")
        stage.master.start()
        stage.listed(0, 1)


@case("master frozen (SIGSTOP)")
def _master_frozen(stage: Stage) -> Iterator[Row]:
    with healthy(stage), stage.frozen(stage.master):
        yield stage.row("CRITICAL")


@case("one of two slaves killed")
def _half(stage: Stage) -> Iterator[Row]:
    with healthy(stage):
        other = stage.slave(2)
        stage.caught_up(other)
        stage.listed(0, 1, 2)
        other.kill()
        stage.listed(0, 1)
        with stage.load():
            yield stage.row("CRITICAL")
        stage.forget(other)


@case("one of two slaves stopped by SIGTERM, `--min-slaves 2`")
def _half_forgotten(stage: Stage) -> Iterator[Row]:
    with healthy(stage), stage.load():
        yield stage.row("CRITICAL", ("--min-slaves", "2"))


@case("name server down")
def _no_name_server(stage: Stage) -> Iterator[Row]:
    stage.asked = f"127.0.0.1:{free_port()}"
    yield stage.row("UNKNOWN")
    stage.asked = stage.namesrv.address


@case("name server frozen (SIGSTOP)")
def _frozen_name_server(stage: Stage) -> Iterator[Row]:
    with stage.frozen(stage.namesrv):
        yield stage.row("UNKNOWN")


@case("one of two name servers down")
def _one_name_server(stage: Stage) -> Iterator[Row]:
    with healthy(stage), stage.load():
        stage.asked = f"{stage.namesrv.address};127.0.0.1:{free_port()}"
        yield stage.row("WARNING")
        stage.asked = stage.namesrv.address


@case("one of two name servers is stale: it lists no slave")
def _stale_name_server(stage: Stage) -> Iterator[Row]:
    with healthy(stage), stage.load(), stage.second_name_server() as second:
        stage.registered_as(stage.master, 0, second)
        stage.asked = f"{stage.namesrv.address};{second.address}"
        yield stage.row("WARNING")
        stage.asked = stage.namesrv.address


@case("connected, but not registered with the name server")
def _not_registered(stage: Stage) -> Iterator[Row]:
    stage.send()
    slave = stage.slave(namesrvAddr=None)
    stage.caught_up(slave)
    yield stage.row("CRITICAL")
    slave.kill()


@case("one-way link, from slave to master only, under load")
def _one_way_to_master(stage: Stage) -> Iterator[Row]:
    yield from _one_way(stage, "stall")


@case("one-way link, from master to slave only, under load")
def _one_way_to_slave(stage: Stage) -> Iterator[Row]:
    yield from _one_way(stage, "deaf")


@case("one-way link, from master to slave only, idle")
def _one_way_at_rest(stage: Stage) -> Iterator[Row]:
    yield from _one_way(stage, "deaf", False)


def _one_way(stage: Stage, mode: str, load: bool = True) -> Iterator[Row]:
    with stage.proxy() as proxy, healthy(stage, follows=f"127.0.0.1:{proxy.port}"):
        proxy.mode = mode
        if load:
            with stage.load():
                yield stage.row("CRITICAL")
        else:
            yield stage.row("CRITICAL")
        proxy.mode = "pass"


@case("a receiver beside a healthy slave, under load")
def _receiver(stage: Stage) -> Iterator[Row]:
    with healthy(stage), stage.receiver(), stage.load():
        yield stage.row("WARNING" if stage.master_tells else "OK")


@case("a receiver and no slave")
def _receiver_alone(stage: Stage) -> Iterator[Row]:
    stage.send()
    stage.listed(0)
    with stage.receiver():
        yield stage.row("CRITICAL")


@case("a receiver, and the slave follows no master")
def _receiver_instead(stage: Stage) -> Iterator[Row]:
    stage.send()
    slave = stage.slave(follows=f"127.0.0.1:{free_ha_port()}")
    stage.listed(0, 1)
    with stage.receiver():
        yield stage.row("CRITICAL")
    stage.forget(slave)


@case("SYNC_MASTER without slaves")
def _sync_master(stage: Stage) -> Iterator[Row]:
    stage.restart_master(brokerRole="SYNC_MASTER")
    yield stage.row("CRITICAL")
    stage.restart_master(brokerRole="ASYNC_MASTER")


@case("registered, but replicates from another master")
def _other_master(stage: Stage) -> Iterator[Row]:
    stage.send()
    other = stage.broker(stage.master_kind, "other", brokerName="broker-b", namesrv=None, brokerRole="ASYNC_MASTER")
    stage.send(2, to=other)
    slave = stage.slave(follows=other.ha_address)
    stage.listed(0, 1)
    yield stage.row("OTHER_MASTER")
    stage.forget(slave)
    other.kill()


@case("two slaves with one brokerId, under load")
def _one_id(stage: Stage) -> Iterator[Row]:
    with healthy(stage):
        other = stage.slave(1)
        stage.caught_up(other)
        with stage.load():
            yield stage.row("CRITICAL")
        stage.forget(other)


@case("listed as a slave, but is a master")
def _no_slave_role(stage: Stage) -> Iterator[Row]:
    stage.send()
    other = stage.broker(stage.slave_kind, "other", brokerRole="ASYNC_MASTER", brokerName="broker-b")
    stage.registered_as(other, 1)
    yield stage.row("CRITICAL")
    other.properties["brokerId"] = 1
    stage.forget(other)


def make(pair: str, folder: Path, wanted: tuple[str, ...] = (), show: Callable[[str, Row], None] | None = None
         ) -> dict[str, Row]:
    """Make the rows of one pair: all cases, or those whose title contains one of `wanted`."""
    rows: dict[str, Row] = {}
    stage = Stage(folder, *pair.split("-"))
    try:
        for title, run in CASES.items():
            if pair in run.only and (not wanted or any(word in title for word in wanted)):
                steps = run(stage)
                rows[title] = next(steps)
                if show is not None:
                    show(title, rows[title])
                with suppress(StopIteration):
                    next(steps)
    finally:
        stage.close()
    return rows


def read_table(text: str) -> dict[str, list[str]]:
    """Return title -> the cells of the pairs, from the tables in the document; "-" where a pair has no such row."""
    made = text.partition(_BEGIN)[2].partition(_END)[0]
    cells: dict[str, list[str]] = {}
    for place, section in enumerate(made.split(_SECTION)[1:]):
        rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
        for title, *row in (re.split(r"(?<!\\) \| ", line.removeprefix("| ").removesuffix(" |")) for line in rows):
            cells.setdefault(title, ["-"] * len(PAIRS))[place] = "; ".join(row)
    return cells


def render(cells: dict[str, list[str]]) -> str:
    """Return a table for each pair, as in the document."""
    parts = []
    for place, pair in enumerate(PAIRS):
        rows = "".join(f"| {title} | {' | '.join(row[place].split('; '))} |\n" for title, row in cells.items()
                       if row[place] != "-")
        parts.append(f"{_SECTION}{pair.replace('-', ' master, ').replace('java', 'Java')} slave\n\n{_HEAD}{rows}")
    return "\n".join(parts)


def write(made: dict[str, dict[str, Row]]) -> None:
    """Write the rows of `made` (by pair) into the document, and keep the others."""
    text = DOCUMENT.read_text("utf-8")
    old = read_table(text)
    cells = {title: list(old.get(title, ["-"] * len(PAIRS))) for title in CASES}
    for pair, rows in made.items():
        for title, row in rows.items():
            cells[title][PAIRS.index(pair)] = row.cell()
    before, _begin, rest = text.partition(_BEGIN)
    DOCUMENT.write_text(before + _BEGIN + render(cells) + _END + rest.partition(_END)[2], "utf-8")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", default=",".join(PAIRS))
    parser.add_argument("--cases", default="")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    os.environ.pop("NAMESRV_ADDR", None)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    words = tuple(word for word in chosen.cases.split(",") if word)
    made = {}
    for pair in chosen.pairs.split(","):
        with tempfile.TemporaryDirectory() as folder:
            made[pair] = make(pair, Path(folder), words, lambda title, row, pair=pair: print(
                f"{pair} | {title} | {row.cell()}", flush=True))
    if chosen.write:
        write(made)


if __name__ == "__main__":
    main()
