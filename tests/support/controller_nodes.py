"""Controllers of any kind ('java': 5.1.4's, 'rmqha'), etcd, and the keys of brokers that live under a controller."""
import atexit
import json
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.support import ports, real_rocketmq_5, rmqha_servers
from tests.support.nodes import MIB, write_properties
from tests.support.processes import ServerProcess
from tests.support.raw_remoting import Answer, RawClient
from tests.support.wait import wait_until

GROUP = "group1"
GET_METADATA_INFO, GET_SYNC_STATE_DATA = 1005, 1006
_KINDS = {"java": real_rocketmq_5, "rmqha": rmqha_servers.OURS}
_MEMORY = Path("/dev/shm")
_LOOPBACK = "127.0.0.1"


def broker_keys(store: Path, controllers: Iterable[str], **keys: object) -> dict[str, object]:
    """Properties of a replica whose role the controllers decide; `keys` go over them."""
    return {"enableControllerMode": "true", "controllerAddr": ";".join(controllers), "brokerId": -1,
            "brokerRole": "SLAVE", "allAckInSyncStateSet": "true", "minInSyncReplicas": 2,
            "storePathEpochFile": store / "epochFileCheckpoint", "storePathBrokerIdentity": store / "brokerIdentity",
            "slaveTimeout": 3000, **keys}


class ControllerNode(ServerProcess):
    """One controller of a group whose members are `peers`, the ports of which are free: {id: address}.

    Without `peers` it is alone, on a free port. `properties` go over the defaults; `prefix` goes before its command.
    """

    def __init__(self, kind: str, folder: Path, self_id: str = "n0", peers: dict[str, str] | None = None,
                 prefix: Sequence[str] = (), env: dict[str, str] | None = None, **properties: object):
        self.kind = kind
        self.self_id = self_id
        self.peers = peers or {self_id: f"{_LOOPBACK}:{ports.free_block(above=1)}"}
        self.address = self.peers[self_id]
        self.port = int(self.address.rsplit(":", 1)[1])
        self.config_file = write_properties(folder / f"controller-{self_id}.properties", {
            "controllerDLegerGroup": GROUP, "controllerDLegerSelfId": self_id,
            "controllerDLegerPeers": ";".join(f"{id_}-{address}" for id_, address in self.peers.items()),
            "controllerStorePath": folder / f"store-{self_id}", "configStorePath": folder / "controller.properties",
            "mappedFileSize": 16 * MIB if kind == "java" else None, **properties})
        command, its_env = _KINDS[kind].controller_command(self.config_file, folder)
        super().__init__(f"{kind}-controller-{self_id}", [*prefix, *command], folder, "boot success",
                         {**its_env, **(env or {})})

    def leader(self) -> str | None:
        """The address of the controller that leads, as this one says; None when it knows of none."""
        with RawClient(self.address, 5) as client:
            answer = client.request(GET_METADATA_INFO)
        return answer.fields.get("controllerLeaderAddress") or None


def sync_state(controllers: Iterable[str], broker_name: str, timeout_s: float = 60) -> dict | None:
    """What the leader among `controllers` says of a broker name (ReplicasInfo as it is on the wire), None: nobody."""
    for address in controllers:
        answer = _asked(address, timeout_s, GET_SYNC_STATE_DATA, json.dumps([broker_name]).encode())
        if answer is not None and answer.code == 0 and answer.body:
            table = json.loads(answer.body).get("replicasInfoTable") or {}
            if broker_name in table:
                return table[broker_name]
    return None


def _asked(address: str, timeout_s: float, code: int, body: bytes) -> Answer | None:
    try:
        with RawClient(address, timeout_s) as client:
            return client.request(code, body)
    except (OSError, EOFError, ValueError):
        return None


def why_no_etcd() -> str | None:
    """The reason why etcd can't run here; None when it can."""
    return None if shutil.which("etcd") else "not installed: etcd (Debian: etcd-server)"


class EtcdNode(ServerProcess):
    """A member of an etcd cluster, by itself where `members` is not given: {name: (client address, peer address)}.

    It has short elections. `sync=False` keeps its files in memory, where there is a place for that: they outlive the
    member, and end with this process.
    """

    def __init__(self, folder: Path, name: str = "etcd0", members: dict[str, tuple[str, str]] | None = None,
                 prefix: Sequence[str] = (), sync: bool = True, extra: Sequence[str] = ()):
        self.members = members or {name: (f"{_LOOPBACK}:{ports.free_port()}", f"{_LOOPBACK}:{ports.free_port()}")}
        self.address, peer = self.members[name]
        scheme = "https" if "--cert-file" in extra else "http"
        everybody = ",".join(f"{each}=http://{address}" for each, (_, address) in self.members.items())
        data = folder / f"{name}.data" if sync else _in_memory(folder) / f"{name}.data"
        command = ["etcd", "--name", name, "--data-dir", str(data),
                   "--listen-client-urls", f"{scheme}://{self.address}",
                   "--advertise-client-urls", f"{scheme}://{self.address}",
                   "--listen-peer-urls", f"http://{peer}", "--initial-advertise-peer-urls", f"http://{peer}",
                   "--initial-cluster", everybody, "--initial-cluster-state", "new",
                   "--initial-cluster-token", "rmqha-tests", "--heartbeat-interval", "50", "--election-timeout", "500",
                   *extra]
        super().__init__(name, [*prefix, *command], folder, "")

    def _is_ready(self, begin: int) -> bool:
        code = self.process.poll()
        assert code is None, f"{self.name} ended with code {code}:\n{self.tail()}"
        return self.is_healthy()

    def is_healthy(self) -> bool:
        """Whether it answers, and its cluster has a leader. Only of a member without TLS."""
        try:
            with urllib.request.urlopen(f"http://{self.address}/health", timeout=2) as answer:
                return json.loads(answer.read()).get("health") == "true"
        except (OSError, ValueError, urllib.error.URLError):
            return False


def _in_memory(folder: Path) -> Path:
    """A folder in memory: the given one if it is, which whoever made it removes, or else one until this process ends.
    (Processes of a pool end without what `atexit` knows.)
    """
    if folder.is_relative_to(_MEMORY):
        return folder
    folder = Path(tempfile.mkdtemp(prefix="rmqha-etcd-", dir=_MEMORY if _MEMORY.is_dir() else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def etcd_cluster(folder: Path, count: int, **keys: object) -> list[EtcdNode]:
    """Members on this host, not started."""
    members = {f"etcd{number}": (f"{_LOOPBACK}:{ports.free_port()}", f"{_LOOPBACK}:{ports.free_port()}")
               for number in range(count)}
    return [EtcdNode(folder, name, members, **keys) for name in members]


def start_etcd(nodes: Iterable[EtcdNode], timeout_ms: int = 60_000) -> None:
    """Start the members of a new cluster, none of which is ready before most are."""
    nodes = list(nodes)
    for node in nodes:
        node.launch()
    for node in nodes:
        wait_until(lambda node=node: node._is_ready(0), timeout_ms, f"{node.name} is healthy")
