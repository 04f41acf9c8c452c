"""The state that a how-to assumes: a broker pair at the hosts, its files and messages, of rmqha or of RocketMQ 4.9."""
import contextlib
import signal
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.pages.guided import LIMIT_MS, Guided, Running
from tests.pages.hosts import HOME, Host
from tests.support import real_rocketmq
from tests.support.nodes import MIB, write_properties
from tests.support.wait import wait_until

NAMESRV, MASTER, SLAVE, THIRD = "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"
NAMESRV_ADDR = f"{NAMESRV}:9876"
MASTER_FILE, SLAVE_FILE = "/etc/rocketmq/broker-a.properties", "/etc/rocketmq/broker-a-s.properties"
STORE = "/data/rocketmq"
HA_PORT = 10912
TOPIC, GROUP = "orders", "billing"
_SLAVE = {"brokerId": 1, "brokerRole": "SLAVE"}


def settings(**changed: object) -> dict[str, object]:
    """Return the settings of a broker's file, as its operator has written them."""
    return {"brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": 0,
            "brokerRole": "ASYNC_MASTER", "flushDiskType": "ASYNC_FLUSH", "namesrvAddr": NAMESRV_ADDR,
            "storePathRootDir": STORE, "storePathCommitLog": f"{STORE}/commitlog",
            "mappedFileSizeCommitLog": MIB, **changed}


class State:
    """The servers of a page: started, looked at and stopped in words rather than by the page's commands."""

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
        """Have a master lose its power: what its slave has not got yet, it never gets."""
        self.walk.tool(at, "echo 1 >/proc/sys/net/ipv4/tcp_orphan_retries")  # nobody sends on for who has ended
        self.stop(at, number=signal.SIGKILL)
        self.walk.until(at, f"grep -c ':{HA_PORT:04X} ' /proc/net/tcp", r"(?m)^0$")

    def consume(self, count: int, at: str = MASTER) -> None:
        """Consume messages in the group of the pages."""
        self.walk.tool(at, f"bin/rmqha consume -t {TOPIC} -g {GROUP} --count {count}")

    def wait_until_in_sync(self, at: str = SLAVE, replicas: int = 1) -> None:
        """Wait until the master's slaves have all messages, as `ha status` shows, and the one at SLAVE the topic, which
        a slave asks for 3 s after its start, and each 10 s."""
        self.walk.until(at, f"NAMESRV_ADDR={NAMESRV_ADDR} bin/rmqha ha status",
                        r"TRANSFER +[\d,]+ +0 B .*yes(?s:.*TRANSFER +[\d,]+ +0 B .*yes){%d}" % (replicas - 1))
        topics = self.walk.hosts[SLAVE].path(f"{STORE}/config/topics.json")
        wait_until(lambda: topics.exists() and f'"{TOPIC}"' in topics.read_text("utf-8"), LIMIT_MS,
                   f"the topic {TOPIC} in {topics}")

    def stop(self, at: str, what: str = "", number: int = signal.SIGTERM) -> None:
        """Stop the servers of a host whose command line has a word, and wait until they have ended."""
        found = servers(self.walk.hosts[at], what)
        assert found, f"{at}: nothing runs that has {what!r} in its command line"
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        wait_until(lambda: not servers(self.walk.hosts[at], what), LIMIT_MS, f"{what} at {at} has ended")


def servers(host: Host, what: str = "") -> list[psutil.Process]:
    """Return the servers that run at a host, of rmqha and of RocketMQ."""
    found = []
    for process in host.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            words = " ".join(process.cmdline())
            if what in words and ("-m rmqha.launch mq" in words or "org.apache.rocketmq." in words):
                found.append(process)
    return found
