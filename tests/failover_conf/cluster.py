"""Three replicas with the files of conf/failover, each at its own host of one network, and a producer at another one.

    10.0.0.1  name server, controller        10.0.0.2 to 10.0.0.4  replicas of broker-a
    10.0.0.9  the producer                   10.0.0.100            masterAddress: a proxy, or a floating address

The hosts are those of `tests.pages.guided`: each has its own network stack behind a cable that can be unplugged, so a
host that is gone answers nothing, not even with a reset.
"""
from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import psutil

from tests.pages.guided import Host, Hosts
from tests.support import store_compare
from tests.support.guide import set_lines
from tests.support.nodes import MIB, sync_state, write_properties
from tests.support.raw_remoting import GET_BROKER_RUNTIME_INFO, RawClient
from tests.support.sources import ROOT
from tests.support.start_as import killed_with_parent
from tests.support.wait import wait_until

T = TypeVar("T")

CONF = ROOT / "conf" / "failover"
NAMESRV, CLIENT, SHARED = "10.0.0.1", "10.0.0.9", "10.0.0.100"
REPLICAS = ("10.0.0.2", "10.0.0.3", "10.0.0.4")
PORT, METRICS_PORT = 10911, 5557
CONTROLLER = f"{NAMESRV}:9878"
FILES = "/etc/rocketmq"  # of a host
TOPIC = "Failover"
BOOT_MS, SETTLE_MS = 120_000, 120_000
_CLONE_NEWNET = 0x40000000


class Attempt(NamedTuple):
    """One attempt to send a message: see producer.py."""

    message: int
    attempt: int
    sent: float
    answered: float
    said: str

    @property
    def is_acknowledged(self) -> bool:
        """True if it was acknowledged with SEND_OK."""
        return self.said == "SEND_OK"

    @property
    def body(self) -> str:
        """The message's body."""
        return f"{self.message}.{self.attempt}"


class Server:
    """A command at a host, whose output is in a file."""

    def __init__(self, host: Host, out: Path, *command: object) -> None:
        self.host, self._out = host, out
        with open(out, "ab") as file:
            self._process = subprocess.Popen(
                killed_with_parent([*host.inside(cwd="/data"), f"PYTHONPATH={ROOT}", "PYTHONUNBUFFERED=1",
                                    *map(str, command)]),
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)

    def wait_for(self, text: str) -> Server:
        """Wait until it prints a text."""
        def has_printed() -> bool:
            assert self.is_alive, f"it has ended: {self.said()[-5000:]}"
            return text in self.said()
        wait_until(has_printed, BOOT_MS, f"{text} in {self._out}")
        return self

    def said(self) -> str:
        """Return its output."""
        return self._out.read_text("utf-8", "replace")

    @property
    def is_alive(self) -> bool:
        """True while it runs."""
        return self._process.poll() is None

    def end(self, number: int = signal.SIGTERM) -> None:
        """Send it, and the processes that it has started, a signal; wait for the end."""
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
        self._process.wait(240)


class Cluster:
    """The servers. `keys` change the lines of broker.properties."""

    def __init__(self, folder: Path, proxy: bool = False, **keys: object) -> None:
        self._folder, self._keys = folder, keys
        self._stack = ExitStack()
        self.hosts = self._stack.enter_context(
            Hosts(folder / "hosts", [NAMESRV, *REPLICAS, CLIENT, *([SHARED] if proxy else [])]))
        self.brokers: dict[str, Server] = {}
        self.journal = self.hosts[CLIENT].path("/data/attempts")
        self._producer: Server | None = None

    def __enter__(self) -> Cluster:
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    def _open(self) -> None:
        self._file(NAMESRV, "controller.properties", {
            "controllerDLegerGroup": "rmqha", "controllerDLegerPeers": f"n0-{CONTROLLER}",
            "controllerDLegerSelfId": "n0", "controllerStorePath": "/data/controller"})
        self.python(NAMESRV, "rmqha.namesrv.namesrv_startup").wait_for("boot success")
        self.python(NAMESRV, "rmqha.controller.controller_startup", "-c",
                    f"{FILES}/controller.properties").wait_for("boot success")
        for address in REPLICAS:
            self.copy(address, "broker.properties", "vip.sh", "check-master.sh", "keepalived.conf")
            # As the page says: a host that still has the address does not name it in its questions for others.
            self.run(address, "sh", "-c", "echo 2 >/proc/sys/net/ipv4/conf/eth0/arp_announce")
            set_lines(self.hosts[address].path(f"{FILES}/broker.properties"), "".join(
                f"{key}={value}\n" for key, value in {
                    "brokerIP1": address, "brokerIP2": address, "mappedFileSizeCommitLog": 64 * MIB,
                    "preallocateMappedFile": "false", "autoCreateTopicEnable": "true"}.items()))
            with open(self.hosts[address].path(f"{FILES}/broker.properties"), "a", encoding="ascii") as file:
                file.writelines(f"{key}={value}\n" for key, value in self._keys.items())
            self.start_broker(address)
            wait_until(lambda: self.master() is not None, BOOT_MS, "there is a master")
        self.wait_in_sync(*REPLICAS)

    # ---- files and processes

    def copy(self, address: str, *names: str) -> None:
        """Copy files of conf/failover to a host."""
        for name in names:
            shutil.copy(CONF / name, self.hosts[address].path(f"{FILES}/{name}"))

    def _file(self, address: str, name: str, lines: dict[str, object]) -> None:
        write_properties(self.hosts[address].path(f"{FILES}/{name}"), lines)

    def start(self, address: str, name: str, *command: object) -> Server:
        """Start a program at a host; it ends with the cluster."""
        server = Server(self.hosts[address], self._folder / f"{address}-{name}.out", *command)
        self._stack.callback(server.end, signal.SIGKILL)
        return server

    def python(self, address: str, module: str, *words: object) -> Server:
        """Start a program of ours."""
        return self.start(address, module.rpartition(".")[2], sys.executable, "-m", module, *words)

    def run(self, address: str, *command: object) -> str:
        """Run a command at a host, and return its output."""
        done = subprocess.run([*self.hosts[address].inside(cwd="/data"), f"PYTHONPATH={ROOT}", *map(str, command)],
                              capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, f"{address}: {command}: {done.returncode} {done.stdout}{done.stderr}"
        return done.stdout

    def start_broker(self, address: str) -> Server:
        """Start the broker of a host."""
        broker = self.python(address, "rmqha.broker.broker_startup", "-c", f"{FILES}/broker.properties")
        self.brokers[address] = broker.wait_for("boot success")
        return broker

    def at(self, address: str, action: Callable[[], T]) -> T:
        """Call `action` in a thread in the network of a host, where it makes its sockets, and return its result."""
        pid = self.hosts[address]._first

        def act_there() -> T:
            with open(f"/proc/{pid}/ns/net", "rb") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"no entry to the network of {address}")
            return action()
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(act_there).result()

    # ---- states

    def state(self) -> dict:
        """Return the controller's ReplicasInfo of broker-a; empty without an answer."""
        return self.at(NAMESRV, lambda: sync_state([CONTROLLER], "broker-a", 5)) or {}

    def master(self) -> str | None:
        """Return the address of the host whose broker the controller names as the master."""
        return (self.state().get("masterAddress") or "").partition(":")[0] or None

    def wait_in_sync(self, *addresses: str) -> None:
        """Wait until exactly these replicas are in sync."""
        def are_in_sync() -> bool:
            members = self.state().get("inSyncReplicas") or []
            return {each["brokerAddress"].partition(":")[0] for each in members} == set(addresses)
        wait_until(are_in_sync, SETTLE_MS, f"in sync: {addresses}")

    def holders(self) -> set[str]:
        """Return the replicas whose hosts have the floating address."""
        return {address for address in REPLICAS if f"inet {SHARED}/" in self.run(address, "ip", "-o", "address")}

    def log_end(self, address: str) -> int:
        """Return the end of a replica's log, as it reports it."""
        def ask() -> int:
            with RawClient(f"{address}:{PORT}", 10) as client:
                return int(json.loads(client.request(GET_BROKER_RUNTIME_INFO).body)["table"]["commitLogMaxOffset"])
        return self.at(address, ask)

    # ---- messages

    def produce(self, period_ms: int = 20) -> None:
        """Start the producer, and wait until the name server knows the topic and messages are acknowledged."""
        self._producer = self.python(CLIENT, "tests.failover_conf.producer", f"{NAMESRV}:9876", TOPIC, period_ms,
                                     "/data/attempts")
        self.wait_for_more(50)

    def end_producer(self) -> None:
        """End the producer."""
        assert self._producer is not None and self._producer.is_alive, "the producer has ended by itself"
        self._producer.end()

    def attempts(self) -> list[Attempt]:
        """Return all attempts so far."""
        if not self.journal.exists():
            return []
        lines = self.journal.read_text("ascii").splitlines(keepends=True)
        return [Attempt(*json.loads(line)) for line in lines if line.endswith("\n")]

    def acknowledged(self) -> list[Attempt]:
        """Return the acknowledged attempts."""
        return [each for each in self.attempts() if each.is_acknowledged]

    def wait_for_more(self, count: int) -> None:
        """Wait until `count` more messages are acknowledged."""
        wanted = len(self.acknowledged()) + count
        wait_until(lambda: len(self.acknowledged()) >= wanted, SETTLE_MS, f"{count} more acknowledged messages")

    def goes_on_after(self, what: str, event: Callable[[], object],
                      has_happened: Callable[[], object] = lambda: True) -> None:
        """Let `event` happen. Wait until it has had its effect, and messages that were sent after it are acknowledged;
        print the longest time without an acknowledgement."""
        self.wait_for_more(25)
        begin = time.monotonic()
        event()
        wait_until(has_happened, SETTLE_MS, what)
        since = time.monotonic()
        wait_until(lambda: sum(each.sent > since for each in self.acknowledged()) > 50, SETTLE_MS,
                   f"messages after: {what}")
        times = [each.answered for each in self.acknowledged() if each.answered > begin - 1]
        gap_s = max(later - earlier for earlier, later in zip(times, times[1:]))
        print(f"\n{what}: {gap_s:.2f} s without an acknowledgement; {self.refusals(begin)}")

    def refusals(self, since: float) -> dict[str, int]:
        """Return how often each kind of error occurred since then."""
        found: dict[str, int] = {}
        for each in self.attempts():
            if not each.is_acknowledged and each.answered > since:
                kind = re.sub(r"\d+", "#", each.said)[:110]
                found[kind] = found.get(kind, 0) + 1
        return found

    def judge(self, *addresses: str) -> None:
        """Check the logs of these replicas: each has all acknowledged messages, none twice, and they are the same."""
        self.end_producer()
        self.wait_in_sync(*addresses)
        ends = {address: self.log_end(address) for address in addresses}
        wait_until(lambda: len({self.log_end(address) for address in addresses}) == 1, SETTLE_MS, "logs end alike")
        end = max(ends.values())
        logs = {}
        for address in addresses:
            log = self.hosts[address].path("/data/rocketmq/commitlog")
            logs[address] = [record.body.decode() for record in store_compare.walk(log, end)
                             if record.topic == TOPIC]
            assert len(logs[address]) == len(set(logs[address])), "an attempt is in the log twice"
        first, *others = logs.values()
        assert all(other == first for other in others)
        lost = {each.body for each in self.acknowledged()} - set(first)
        assert not lost, f"{len(lost)} acknowledged messages are lost: {sorted(lost)[:5]}"
        tried = {each.body for each in self.attempts()}
        # The last attempt may have no line any more.
        assert len(set(first) - tried) <= 1
        times = Counter(body.partition(".")[0] for body in first)
        resent = {str(each.message) for each in self.attempts() if each.attempt}
        assert {message for message, count in times.items() if count > 1} <= resent, "a message is there twice"


def why_not(*programs: str) -> str | None:
    """Return why these tests can't run here, or None if they can."""
    from tests.pages import guided
    from tests.support.programs import not_installed

    return not_installed(*programs) or ("needs root for network namespaces" if os.geteuid() else guided.why_not())
