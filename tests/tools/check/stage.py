"""Real brokers of either kind in which one thing is broken at a time, and what the tools say of them."""
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
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
from tests.faults.proxies import Proxy
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.wait import wait_until

NAME, CLUSTER = "broker-a", "InteropCluster"
_STORED = (0, 10, 11, 12)  # SUCCESS, and not yet on a disk or a slave
_CODES = {0: "OK", 1: "WARNING", 2: "CRITICAL", 3: "UNKNOWN"}
_JUDGED = ("replication", "roles", "offsets", "ports", "nameserver", "config")  # not this host's disk and clock
_SETTLE_MS = 60_000
_IN_BODY = 120  # bytes from a record's begin


@dataclass(frozen=True)
class Row:
    """What the three commands say: states and exit code, word and exit code, severity and check names."""

    status: str
    check: str
    doctor: str

    def cell(self) -> str:
        """As the table shows it."""
        return f"{self.status}; {self.check}; {self.doctor}"


class Stage:
    """A name server, a master, and slaves that come and go. Close it."""

    def __init__(self, folder: Path, master_kind: str, slave_kind: str) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        self.master_kind, self.slave_kind = master_kind, slave_kind
        self.nodes: list = []
        self._client = RemotingClient(RemotingClientConfig())
        self._client.start()
        self.namesrv = self._started(NamesrvNode("rmqha", folder / "namesrv"))
        self.asked = self.namesrv.address  # what the tools are given
        self.master = self.broker(master_kind, "master", brokerRole="ASYNC_MASTER")
        self._sizes: list[int] = []  # of the bodies in the master's log

    @property
    def master_tells(self) -> bool:
        """Whether it knows of its connections."""
        return self.master_kind == "rmqha"

    def restart_master(self, **properties) -> None:
        """With other properties; None removes one."""
        self.master.stop()
        self.master.properties.update(properties)
        self.master.become(self.master.kind).start()

    def first_sizes(self) -> list[int]:
        """Sizes of the first bodies in the master's log."""
        return self._sizes

    def broker(self, kind: str, name: str, start: bool = True, namesrv: str | None = "", **properties) -> BrokerNode:
        """A broker of its own folder and port."""
        node = BrokerNode(kind, self._folder / f"{name}-{next(self._numbers)}",
                          self.namesrv.address if namesrv == "" else namesrv, name, **properties)
        self.nodes.append(node)
        return node.start() if start else node

    def slave(self, broker_id: int = 1, start: bool = True, follows: str = "", **properties) -> BrokerNode:
        """A slave of the master, with an empty store; `follows` replaces the master's HA address."""
        return self.broker(properties.pop("kind", self.slave_kind), f"slave-{broker_id}", start, brokerId=broker_id,
                           **{"brokerRole": "SLAVE", "haMasterAddress": follows or self.master.ha_address,
                              **properties})

    def send(self, count: int = 1, size: int = 100, to: BrokerNode | None = None, body: bytes = b"b") -> None:
        """Messages to the broker's own topic."""
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
        """A message each 50 ms meanwhile."""
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(0.05):
                with contextlib.suppress(RemotingException):  # a master that stands still
                    self.send()
        thread = threading.Thread(target=run, name="load", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(240)

    def end_of(self, node: BrokerNode) -> int:
        """The end of a broker's log; -1 when it gives no answer."""
        try:
            with ClusterAdmin(timeout_millis=10_000) as admin:
                return int(admin.runtime_info(node.address)["commitLogMaxOffset"])
        except CannotAnswerError:
            return -1

    def caught_up(self, *slaves: BrokerNode) -> None:
        """Wait until slaves hold what the master holds."""
        for slave in slaves:
            wait_until(lambda: self.end_of(slave) == self.end_of(self.master) > 0, 60_000, f"{slave.name} holds all")

    def listed(self, *ids: int) -> None:
        """Wait until the name server lists exactly these."""
        with ClusterAdmin(self.namesrv.address, 10_000) as admin:
            wait_until(lambda: sorted(each.broker_id for each in admin.brokers()) == sorted(ids), 60_000,
                       f"{ids} are listed")

    def forget(self, *nodes: BrokerNode) -> None:
        """End slaves, and let the name server forget them."""
        for node in nodes:
            node.kill()
            header = UnRegisterBrokerRequestHeader(brokerName=NAME, brokerAddr=node.address, clusterName=CLUSTER,
                                                   brokerId=int(node.properties["brokerId"]))
            self._client.invoke_sync(self.namesrv.address, RemotingCommand.create_request_command(
                request_code.UNREGISTER_BROKER, header), 10_000)

    def registered_as(self, node: BrokerNode, broker_id: int, namesrv: NamesrvNode | None = None) -> None:
        """Tell a name server of a broker, as that would of itself, under the name of this stage's."""
        header = RegisterBrokerRequestHeader(
            brokerName=NAME, brokerAddr=node.address, clusterName=CLUSTER, haServerAddr=node.ha_address,
            brokerId=broker_id, compressed=False, bodyCrc32=0)
        answer = self._client.invoke_sync((namesrv or self.namesrv).address, RemotingCommand.create_request_command(
            request_code.REGISTER_BROKER, header), 10_000)
        assert answer.code == 0, answer.remark

    @contextlib.contextmanager
    def second_name_server(self) -> Iterator[NamesrvNode]:
        """One of which no broker knows."""
        made = NamesrvNode("rmqha", self._folder / f"namesrv-{next(self._numbers)}").start()
        try:
            yield made
        finally:
            made.kill()

    @contextlib.contextmanager
    def frozen(self, node) -> Iterator[None]:
        """A process that stands still meanwhile."""
        os.kill(node.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(node.pid, signal.SIGCONT)

    def flip_bit(self, node: BrokerNode) -> None:
        """Change a bit of the second message's body on a broker's disk, past the broker; twice changes nothing."""
        file = os.open(node.commit_log / f"{0:020d}", os.O_RDWR)
        try:
            place = int.from_bytes(os.pread(file, 4, 0)) + _IN_BODY
            os.pwrite(file, bytes([os.pread(file, 1, place)[0] ^ 1]), place)
        finally:
            os.close(file)

    @contextlib.contextmanager
    def proxy(self) -> Iterator[Proxy]:
        """A proxy before the master's HA port."""
        made = Proxy(("127.0.0.1", self.master.ha_port))
        try:
            yield made
        finally:
            made.close()

    @contextlib.contextmanager
    def receiver(self) -> Iterator[None]:
        """`ha receive` of the master's log, once it is connected."""
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
        """What is said, once `until` is among it, or soon after if that never is, and then twice the same."""
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
        return Row(f"{_states(status.stdout)} {status.exit_code}", f"{word} {check.exit_code}", _findings(doctor))

    def close(self) -> None:
        """Kill all."""
        for node in reversed(self.nodes):
            node.kill()
        self._client.shutdown()

    def _started(self, node):
        self.nodes.append(node)
        return node.start()


def _states(told: str) -> str:
    """`TRANSFER`, several with a comma; the master's when it gives no answer."""
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
    """The worst severity and its checks, of those that are not about this host."""
    told = [(each["severity"], each["check"]) for each in json.loads(result.stdout)["findings"]
            if each["check"] in _JUDGED and "fast port" not in each["what"]]
    for severity in ("ERROR", "WARNING"):
        checks = sorted({check for found, check in told if found == severity})
        if checks:
            return f"{severity} {', '.join(checks)}"
    return "good"
