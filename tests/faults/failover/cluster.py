"""Three replicas of one broker name under controllers, in their own network: start, cuts, switch of the master."""
import functools
import json
import os
import random
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from click.testing import CliRunner

from rmqha.tools.rmqha_command import rmqha
from tests.faults import pair_broker
from tests.faults.failover.traffic import QUEUES, TOPICS
from tests.faults.network import run
from tests.faults.pair_broker import Broker
from tests.faults.verdict import Violation
from tests.support import ports
from tests.support.nodes import ControllerNode, EtcdNode, NamesrvNode, broker_keys, start_etcd, sync_state
from tests.support.processes import ServerProcess
from tests.support.programs import not_installed
from tests.support.raw_remoting import GET_BROKER_RUNTIME_INFO, RawClient
from tests.support.wait import wait_until

# A separate network for the nodes of a cluster. Any node can be cut off from any other, in one or both directions.
#
#     node's namespace: eth0 10.77.N.2  --veth-- 10.77.N.1: this process' own network, which forwards packets
#
# A cut is a routing rule in the middle, so packets are dropped silently, as in a failing switch, and senders get no
# error. This process always reaches every node. Needs root.

_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")


@functools.cache
def why_not() -> str | None:
    """Return why namespaces with cuts are not available here, or None if they are."""
    missing = not_installed("ip", "nsenter", "unshare")
    if missing is not None:
        return missing
    if os.geteuid() != 0:
        return "needs root for network namespaces"
    try:
        run("unshare", "-n", "sh", "-ec", "ip link add s0 type veth peer name s1; "
            "ip rule add from 10.77.0.2 to 10.77.1.2 blackhole prio 100; echo 1 > /proc/sys/net/ipv4/ip_forward")
    except AssertionError as failure:
        return f"network namespaces with routes that drop do not work here: {failure}"
    return None


class Star:
    """The namespaces. The process that creates them must already be in its own network."""

    def __init__(self, name: str):
        self._name = name
        self._ips: dict[str, str] = {}  # node -> address
        self._cuts: set[tuple[str, str]] = set()  # from, to
        self.unplugged: set[str] = set()

    def open(self) -> "Star":
        """Enable forwarding between the future nodes."""
        _FORWARD.write_text("1", encoding="ascii")
        return self

    def add(self, node: str) -> tuple[str, tuple[str, ...]]:
        """Create a namespace for a node; return its address, and the prefix of its command."""
        number = len(self._ips)
        namespace, mine, its = self._namespace(node), f"10.77.{number}.1", f"10.77.{number}.2"
        run("ip", "netns", "add", namespace)
        self._ips[node] = its
        run("ip", "-n", namespace, "link", "set", "lo", "up")
        run("ip", "link", "add", f"star{number}", "type", "veth", "peer", "name", "eth0", "netns", namespace)
        run("ip", "addr", "add", f"{mine}/30", "dev", f"star{number}")
        run("ip", "link", "set", f"star{number}", "up")
        run("ip", "-n", namespace, "addr", "add", f"{its}/30", "dev", "eth0")
        run("ip", "-n", namespace, "link", "set", "eth0", "up")
        run("ip", "-n", namespace, "route", "add", "default", "via", mine)
        return its, ("nsenter", f"--net=/run/netns/{namespace}")

    def _namespace(self, node: str) -> str:
        return f"{self._name}-{node}"

    def cut(self, sources: Iterable[str], targets: Iterable[str], both_ways: bool = True) -> None:
        """Drop all packets from one group of nodes to another; with `both_ways` also in the other direction."""
        pairs = [(a, b) for a, b in product(tuple(sources), tuple(targets)) if a != b]
        if both_ways:
            pairs += [(b, a) for a, b in pairs]
        for pair in pairs:
            if pair not in self._cuts:
                self._cuts.add(pair)
                self._rule("add", *pair)

    def heal(self) -> None:
        """Remove all cuts."""
        for pair in self._cuts:
            self._rule("del", *pair)
        self._cuts.clear()

    def unplug(self, node: str) -> None:
        """Take the node's link down. Packets to it get lost, without an error for their sender."""
        namespace, number = self._namespace(node), list(self._ips).index(node)
        device = json.loads(run("ip", "-j", "-n", namespace, "link", "show", "eth0"))[0]
        # Otherwise the neighbour is unknown after a while, and senders get an error.
        run("ip", "neigh", "replace", self._ips[node], "lladdr", device["address"], "dev", f"star{number}",
            "nud", "permanent")
        run("ip", "-n", namespace, "link", "set", "eth0", "down")
        self.unplugged.add(node)

    def plug(self, node: str) -> None:
        """Undo `unplug`."""
        namespace, number = self._namespace(node), list(self._ips).index(node)
        run("ip", "-n", namespace, "link", "set", "eth0", "up")
        run("ip", "-n", namespace, "route", "replace", "default", "via", f"10.77.{number}.1")
        run("ip", "neigh", "del", self._ips[node], "dev", f"star{number}")
        self.unplugged.discard(node)

    def _rule(self, verb: str, source: str, target: str) -> None:
        run("ip", "rule", verb, "from", self._ips[source], "to", self._ips[target], "blackhole", "prio", "100")

    def close(self) -> None:
        """Remove all namespaces."""
        for number, node in enumerate(self._ips):
            run("ip", "link", "del", f"star{number}", check=False)
            run("ip", "netns", "del", self._namespace(node), check=False)
        self._ips.clear()


# Three replicas of one broker name under controllers, with everything they need: their start, and their states.
#
#     name server (rmqha's)    controllers: one of 5.1.4, or rmqha's: one with a file, or two on three members of etcd
#     three brokers, of rmqha, of 5.1.4, or of both

BROKER_NAME = "broker-a"
REPLICAS = 3
BOOT_MS = 120_000
_SHIFT = struct.Struct("=q")
_LOOPBACK = "127.0.0.1"
# No deletions or flushes in the background; a consumer reads much at a time.
_KEYS = {"brokerName": BROKER_NAME, "fileReservedTime": 720, "cleanFileForciblyEnable": "false",
         "flushDiskType": "ASYNC_FLUSH", "maxTransferCountOnMessageInMemory": 1000,
         "maxTransferBytesOnMessageInMemory": 1 << 20, "mappedFileSizeConsumeQueue": 20 * 20_000,
         "defaultTopicQueueNums": QUEUES, "slaveReadEnable": "true"}
# The size of commit log files, and the largest body.
_FILE_SIZES = ((1 << 20, 512 << 10), (1 << 20, 512 << 10), (16 << 20, 4 << 20))

# for members of etcd that share a host; the last of a repeated option counts
_QUICK_ELECTIONS = ("--heartbeat-interval", "20", "--election-timeout", "200")


@dataclass(frozen=True)
class Plan:
    """The composition of a cluster."""

    controller: str = "rmqha"  # or java
    store: str = "local"  # or etcd, for rmqha's controllers
    brokers: str = "rmqha"  # or java, mixed
    # each node has its own network
    partitions: bool = False
    # True if the wall clocks of brokers and controllers can be set.
    clocks: bool = False
    min_in_sync: int = 2
    # Faults of planted.py in all brokers, which must be found.
    plants: tuple[str, ...] = ()

    def __str__(self) -> str:
        of = self.controller if self.controller == "java" else f"{self.controller}/{self.store}"
        return f"controller {of} brokers {self.brokers}" + (
            f" minInSyncReplicas {self.min_in_sync}" if self.min_in_sync != 2 else "")

    def kinds(self, rng: random.Random) -> list[str]:
        """Return the kind of each broker, as in nodes.py."""
        java5 = {"java": "java5"}
        if self.brokers != "mixed":
            return [java5.get(self.brokers, self.brokers)] * REPLICAS
        kinds = ["rmqha", "java5", rng.choice(["rmqha", "java5"])]
        rng.shuffle(kinds)
        return kinds


class Replica(Broker):
    """A broker whose role a controller decides, with its index."""

    def __init__(self, kind: str, folder: Path, index: int, ip: str, controllers: list[str], **keys: object):
        self.index = index
        super().__init__(kind, folder, f"b{index}", brokerIP1=ip, brokerIP2=ip,
                         **{**broker_keys(folder / "store", controllers, **_KEYS), **keys})
        self.address = f"{ip}:{self.port}"
        self.ha_address = f"{ip}:{self.ha_port}"

    def told_end(self) -> int:
        """Return the end of its log, as it reports it."""
        def asked() -> dict | None:
            try:
                with RawClient(self.address, 10) as client:
                    answer = client.request(GET_BROKER_RUNTIME_INFO)
            except (OSError, EOFError):
                # A killed or stopped broker is in sync until it is noticed.
                return None
            # the original fails in its first second
            return json.loads(answer.body) if answer.code == 0 else None
        return int(wait_until(asked, BOOT_MS, f"runtime information of {self.name}")["table"]["commitLogMaxOffset"])

    def log_end(self) -> int:
        """Return the end of the log, as Broker.log_end."""
        return self.told_end()

    def epochs(self) -> list[tuple[int, int]]:
        """Return its epochs: number and start offset."""
        return read_epochs(Path(self.properties["storePathEpochFile"]))

    def knows_topics(self) -> None:
        """Give it the topics before its first start."""
        table = {topic: {"order": False, "perm": 6, "readQueueNums": QUEUES, "writeQueueNums": QUEUES,
                         "topicName": topic, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0} for topic in TOPICS}
        config = self.store / "config"
        config.mkdir(parents=True, exist_ok=True)
        (config / "topics.json").write_text(json.dumps({
            "dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": table}), "ascii")


class Cluster:
    """All nodes of a plan, in `folder`. With `star` each node has its own network."""

    def __init__(self, folder: Path, plan: Plan, seed: int):
        self.folder = folder
        self.plan = plan
        self.star = Star(f"fo{os.getpid()}") if plan.partitions else None
        self.etcd: list[EtcdNode] = []
        self.controllers: list[ControllerNode] = []
        self.replicas: list[Replica] = []
        # name of a process -> its node in the star
        self.names: dict[str, str] = {}
        self._rng = random.Random(f"cluster {seed}")
        self.least_body = 0 if plan.brokers == "rmqha" else 1  # 5.x accepts no empty body
        self.file_size, self.largest_body = random.Random(f"files {seed}").choice(_FILE_SIZES)
        self._library: Path | None = None
        self.namesrv: NamesrvNode | None = None
        # Further properties of the controllers.
        self.controller_keys: dict[str, object] = {}
        # A monotonic time, at or before the start of the present controller's leadership.
        self.leads_since = 0.0

    def open(self) -> "Cluster":
        """Start all nodes. The first broker becomes the master."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.plan.clocks:
            self._library = pair_broker.compiled("shifted_clock", self.folder)
        if self.star is not None:
            self.star.open()
        self.namesrv = NamesrvNode("rmqha", self.folder / "namesrv").start(BOOT_MS)
        self._make_controllers()
        addresses = [controller.address for controller in self.controllers]
        for index, kind in enumerate(self.plan.kinds(self._rng)):
            ip, prefix = self._place(f"b{index}")
            replica = Replica(kind, self.folder / f"b{index}", index, ip, addresses, prefix=prefix,
                              env=self._clock_env(f"b{index}"), namesrvAddr=self._namesrv_address(),
                              minInSyncReplicas=self.plan.min_in_sync, plants=self.plan.plants,
                              mappedFileSizeCommitLog=self.file_size, maxMessageSize=self.largest_body)
            self.names[replica.name] = f"b{index}"
            replica.knows_topics()
            self.replicas.append(replica)
        first, *others = self.replicas
        first.start(BOOT_MS)
        wait_until(lambda: self.master() is first, BOOT_MS, "the first broker is the master")
        for replica in others:
            replica.start(BOOT_MS)
        self.wait_whole(BOOT_MS)
        return self

    def _namesrv_address(self) -> str:
        # in a namespace, this process' end of the link
        return self.namesrv.address if self.star is None else f"10.77.0.1:{self.namesrv.port}"

    def _make_controllers(self) -> None:
        keys: dict[str, object] = {}
        has_etcd = self.plan.controller == "rmqha" and self.plan.store == "etcd"
        if has_etcd:
            places = {f"e{number}": self._place(f"e{number}") for number in range(3)}
            members = {name: (f"{ip}:{ports.free_port()}", f"{ip}:{ports.free_port()}")
                       for name, (ip, _) in places.items()}
            self.etcd = [EtcdNode(self.folder, name, members, prefix=places[name][1], sync=False,
                                  extra=_QUICK_ELECTIONS) for name in members]
            self.names.update({node.name: node.name for node in self.etcd})
            start_etcd(self.etcd)
            keys = {"controllerStore": "etcd", "etcdEndpoints": ";".join(client for client, _ in members.values())}
        places = {f"c{number}": self._place(f"c{number}") for number in range(2 if has_etcd else 1)}
        peers = {name: f"{ip}:{ports.free_block(above=1)}" for name, (ip, _) in places.items()}
        for name, (_, prefix) in places.items():
            node = ControllerNode(self.plan.controller, self.folder / name, name, peers, prefix, self._clock_env(name),
                                  **keys, **self.controller_keys)
            self.names[node.name] = name
            self.controllers.append(node)
        for node in self.controllers:
            node.start(BOOT_MS)
        wait_until(self.leading_controller, BOOT_MS, "a controller leads")
        self.leads_since = time.monotonic()

    def _place(self, name: str) -> tuple[str, tuple[str, ...]]:
        return self.star.add(name) if self.star is not None else (_LOOPBACK, ())

    # Clocks.

    def _clock_env(self, name: str) -> dict[str, str]:
        if self._library is None:
            return {}
        file = self.folder / f"{name}.clock"
        file.write_bytes(_SHIFT.pack(0))
        return {"LD_PRELOAD": str(self._library), "FAULTS_CLOCK": str(file)}

    def set_clock(self, name: str, seconds: int) -> None:
        """Set the error of a node's wall clock to this number of seconds."""
        # In place: the process has mapped the file.
        with open(self.folder / f"{name}.clock", "r+b") as file:
            file.write(_SHIFT.pack(seconds))

    # States.

    def state(self) -> dict | None:
        """Return the leading controller's ReplicasInfo; None without an answer."""
        return sync_state([controller.address for controller in self.controllers], BROKER_NAME, 2)  # one may be stopped

    def leading_controller(self) -> ControllerNode | None:
        """Return the leading controller, named by the first that answers."""
        for controller in self.controllers:
            try:
                address = controller.leader()
            except (OSError, EOFError):
                continue
            for each in self.controllers:
                if each.address == address:
                    return each
        return None

    def master(self) -> Replica | None:
        """Return the master that the controller names."""
        return self.master_of(self.state())

    def master_of(self, state: dict | None) -> Replica | None:
        """Return the master in a controller's state."""
        address = (state or {}).get("masterAddress")
        return next((replica for replica in self.replicas if replica.address == address), None)

    def in_sync(self, state: dict | None) -> list[Replica]:
        """Return the members of the sync-state set."""
        addresses = {each["brokerAddress"] for each in (state or {}).get("inSyncReplicas") or []}
        return [replica for replica in self.replicas if replica.address in addresses]

    def wait_whole(self, timeout_ms: int = BOOT_MS, members: int = REPLICAS) -> Replica:
        """Wait until that many replicas are in sync; return the master."""
        said: list[dict | None] = [None]

        def is_whole() -> Replica | None:
            self.check_alive()
            state = said[0] = self.state()
            return self.master_of(state) if len(self.in_sync(state)) >= members else None
        begin = time.monotonic()
        while (master := is_whole()) is None:
            if time.monotonic() - begin > timeout_ms / 1000:
                raise Violation(f"L: not {members} in sync within {timeout_ms} ms: {said[0]}")
            time.sleep(0.05)
        return master

    def ends_in_sync(self) -> list[int]:
        """Return the ends of the logs, read while all were in sync with one master, so that common ranges are the same.

        A master that was cut off, killed and restarted may count as in sync until the controller notices, although its
        log diverges from those of the next master's epoch. So nothing may have changed in between.
        """
        while True:
            self.wait_whole()
            before = self.state()
            ends = [replica.told_end() for replica in self.replicas]
            after = self.state()
            if len(self.in_sync(before)) == REPLICAS and _decisions(before) == _decisions(after):
                return ends

    def epochs(self) -> list[tuple[int, int]]:
        """Return the epochs of the master."""
        def read() -> list[tuple[int, int]] | None:
            master = self.master()
            return None if master is None else master.epochs()
        return wait_until(read, BOOT_MS, "epochs of the master")

    # Processes.

    def processes(self) -> list[ServerProcess]:
        """Return all processes except the name server, in the order of their starts."""
        return [*self.etcd, *self.controllers, *self.replicas]

    def check_alive(self) -> None:
        """Raise Violation if a started process has ended on its own."""
        for process in self.processes():
            if process.process is not None and process.process.poll() not in (None, -9):
                raise Violation(f"L: {process.name} has ended with code {process.process.poll()}: {process.tail()}")

    def close(self) -> None:
        """Kill all processes, and tear down the networks."""
        for process in reversed(self.processes()):
            process.kill()
        if self.namesrv is not None:
            self.namesrv.kill()
        if self.star is not None:
            self.star.close()


def _decisions(state: dict | None) -> tuple[int | None, int | None]:
    """Return how often the master and the sync-state set have changed."""
    return (state or {}).get("masterEpoch"), (state or {}).get("syncStateSetEpoch")


def read_epochs(file: Path) -> list[tuple[int, int]]:
    """Return the epochs and their start offsets in order; an empty list while the file is being written."""
    try:
        lines = file.read_text("ascii").splitlines()[2:]
        return [(int(epoch), int(start)) for epoch, _, start in (line.partition("-") for line in lines)]
    except (OSError, ValueError):
        return []


# A planned switch of the master by an operator: `rmqha ha switch`.


def warm_up() -> None:
    """Import the command's modules in advance, so that they do not count in its time."""
    CliRunner().invoke(rmqha, ["ha", "switch", "--help"])


def switch(cluster: Cluster, target: Replica) -> None:
    """Make `target` the master. Raise Violation if the command fails."""
    controllers = ";".join(controller.address for controller in cluster.controllers)
    result = CliRunner().invoke(rmqha, ["ha", "switch", target.address, "--controller", controllers])
    if result.exit_code != 0:
        raise Violation(f"L: ha switch {target.name}: code {result.exit_code}: {result.output} {result.exception!r}")
