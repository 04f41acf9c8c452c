"""The cluster: three replicas of one or two broker names under a controller, and one name server."""
import json
import os
import re
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.failover import cluster
from tests.faults.failover.cluster import BOOT_MS, REPLICAS, Cluster, Plan, Replica
from tests.faults.felt.programs import QUEUES
from tests.faults.felt.ways import Lan, Way
from tests.support import real_rocketmq
from tests.support.nodes import MIB, NamesrvNode, sync_state
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until

NAMES = ("broker-a", "broker-b")
GET_ROUTE = 105
_CLUSTER_NAME = "InteropCluster"
# Keys of the other campaign that are not the brokers' defaults, without an effect on what is measured here.
_DEFAULTS = dict.fromkeys(("maxTransferCountOnMessageInMemory", "maxTransferBytesOnMessageInMemory", "slaveReadEnable"))
_FILE_SIZE = 16 * MIB


@dataclass(frozen=True)
class Setup:
    """The composition of the cluster, and further properties of its servers."""

    is_java: bool = False
    store: str = "local"  # or etcd, for rmqha's controllers
    names: int = 1
    # True if each server has its own network.
    networks: bool = False
    # One address for the clients, of ways.WAYS: each server has its own host then.
    way: str | None = None
    min_in_sync: int = 2
    broker_keys: dict[str, str] = field(default_factory=dict)
    controller_keys: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        of = f"RocketMQ {real_rocketmq.VERSION_5}" if self.is_java else f"rmqha, controller's store {self.store}"
        return f"{of}, {self.names} broker name(s)" + (
            f", one address: {self.way}" if self.way else ", a network for each server" if self.networks else "")

    def plan(self) -> Plan:
        """Return the plan of the cluster that is its base."""
        kind = "java" if self.is_java else "rmqha"
        return Plan(controller=kind, store=self.store, brokers=kind, partitions=self.networks,
                    min_in_sync=self.min_in_sync)


class Server(Replica):
    """A replica of one of the broker names. `node`: its name in the star."""

    def __init__(self, kind: str, folder: Path, index: int, ip: str, controllers: list[str], broker_name: str,
                 **keys: object):
        self.broker_name, self.node = broker_name, f"b{index}"
        super().__init__(kind, folder, index, ip, controllers, brokerName=broker_name, **keys)

    def knows(self, topics: Iterable[str]) -> None:
        """Give it topics before its first start."""
        table = {topic: {"order": False, "perm": 6, "readQueueNums": QUEUES, "writeQueueNums": QUEUES,
                         "topicName": topic, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0} for topic in topics}
        config = self.store / "config"
        config.mkdir(parents=True, exist_ok=True)
        (config / "topics.json").write_text(json.dumps({
            "dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": table}), "ascii")


class _Namesrv5(NamesrvNode):
    """A name server of 5.1.4."""

    def __init__(self, folder: Path):
        super().__init__("java", folder)
        self.command, env = real_rocketmq.namesrv5_command(self.config_file, folder)
        self._env.update(env)


class System(Cluster):
    """The servers, in `folder`. Topics exist from the start, on all replicas."""

    def __init__(self, folder: Path, setup: Setup, topics: Iterable[str]):
        super().__init__(folder, setup.plan(), seed=0)
        self.setup = setup
        self.topics = list(topics)
        self.controller_keys = dict(setup.controller_keys)
        self.replicas: list[Server] = []
        self._way = Way(setup.way, self.folder) if setup.way else None
        if self._way is not None:
            self.star = Lan(f"felt{os.getpid()}")

    def open(self) -> "System":
        """Start all servers. The first broker of each name becomes its master."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.star is not None:
            self.star.open()
        folder = self.folder / "namesrv"
        self.namesrv = (_Namesrv5(folder) if self.setup.is_java else NamesrvNode("rmqha", folder)).start(BOOT_MS)
        self._make_controllers()
        for name in NAMES[:self.setup.names]:
            self._open_name(name)
        return self

    def _open_name(self, name: str) -> None:
        controllers = [controller.address for controller in self.controllers]
        servers, hosts = [], {}
        of_the_way = self._way.keys(self.star) if self._way is not None else {}
        for index in range(len(self.replicas), len(self.replicas) + REPLICAS):
            ip, prefix = self._place(f"b{index}")
            keys = {**_DEFAULTS, "namesrvAddr": self.namesrv_address, "minInSyncReplicas": self.setup.min_in_sync,
                    "mappedFileSizeCommitLog": _FILE_SIZE, **of_the_way, **self.setup.broker_keys}
            hosts[ip] = prefix
            server = Server("java5" if self.setup.is_java else "rmqha", self.folder / f"b{index}", index, ip,
                            controllers, name, prefix=prefix, **keys)
            server.knows(self.topics)
            servers.append(server)
        self.replicas += servers
        self.names.update({server.name: server.node for server in servers})
        if self._way is not None:
            self._way.open(hosts)
        servers[0].start(BOOT_MS)
        wait_until(lambda: self.master_of_name(name) is servers[0], BOOT_MS, f"the first broker of {name} is master")
        for server in servers[1:]:
            server.start(BOOT_MS)
        self.wait_name(name)

    @property
    def namesrv_address(self) -> str:
        """The address of the name server, for servers and clients."""
        return self._namesrv_address()

    # States.

    def of(self, name: str) -> list[Server]:
        """Return the replicas of a broker name."""
        return [replica for replica in self.replicas if replica.broker_name == name]

    def state_of(self, name: str) -> dict | None:
        """Return the leading controller's ReplicasInfo of a broker name; None without an answer."""
        return sync_state([controller.address for controller in self.controllers], name, 2)

    def master_of_name(self, name: str) -> Server | None:
        """Return the master that the controller names."""
        return self.master_of(self.state_of(name))

    def wait_name(self, name: str) -> Server:
        """Wait until all replicas of a broker name are in sync; return the master."""
        state = None

        def is_whole() -> Server | None:
            nonlocal state
            state = self.state_of(name)
            return self.master_of(state) if len(self.in_sync(state)) >= REPLICAS else None
        try:
            return wait_until(is_whole, BOOT_MS)
        except AssertionError:
            raise AssertionError(f"not all replicas of {name} in sync within {BOOT_MS} ms: {state}") from None

    def check_alive(self) -> None:
        """Raise if a started process has ended on its own."""
        super().check_alive()
        if self._way is not None:
            self._way.check_alive()

    def close(self) -> None:
        """Kill all processes, and tear down the networks."""
        if self._way is not None:
            self._way.close()
        super().close()

    # Events.

    def switch_to(self, target: Server) -> None:
        """Make `target` the master, with the operator's command."""
        if not self.setup.is_java:
            cluster.switch(self, target)
            return
        controller = self.leading_controller() or self.controllers[0]
        state = self.state_of(target.broker_name) or {}
        number = next(each["brokerId"] for each in state["inSyncReplicas"] if each["brokerAddress"] == target.address)
        command, env = real_rocketmq.mqadmin5_command(
            self.folder, "electMaster", "-a", controller.address, "-b", str(number), "-bn", target.broker_name,
            "-c", _CLUSTER_NAME)
        done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=120,
                              check=False)
        assert done.returncode == 0 and target.address in done.stdout, f"electMaster: {done.stdout}{done.stderr}"

    def take_away(self, server: Server) -> None:
        """Cut a host off from everything, and let it end."""
        assert self.star is not None, "needs a network for each server"
        self.star.unplug(server.node)
        server.kill()

    def recover(self, server: Server) -> None:
        """Start a server again that is down, with its link."""
        if server.is_alive:
            return
        if self.star is not None and server.node in self.star.unplugged:
            self.star.plug(server.node)
        server.start(BOOT_MS)


@dataclass(frozen=True)
class Route:
    """The master of a broker name, as the name server at `address` returns it to clients of `topic`."""

    address: str
    topic: str
    name: str

    def read(self) -> str | None:
        """Return the present address, or None if there is no master."""
        with RawClient(self.address, 5) as client:
            answer = client.request(GET_ROUTE, topic=self.topic)
        if answer.code != 0:
            return None
        # The ids in a map of brokers are numbers, which JSON does not have as keys.
        route = json.loads(re.sub(r"([{,])(\d+):", r'\1"\2":', answer.body.decode()))
        addresses = next((each["brokerAddrs"] for each in route["brokerDatas"] if each["brokerName"] == self.name), {})
        return addresses.get("0")

    def changed_after(self, old: str, begin: float, timeout_s: float) -> float | None:
        """Wait for another master; return the seconds since `begin`, None if there was none in time."""
        while time.monotonic() - begin < timeout_s:
            try:
                address = self.read()
            except (OSError, EOFError):
                address = None
            if address not in (None, old):
                return time.monotonic() - begin
            time.sleep(0.02)
        return None
