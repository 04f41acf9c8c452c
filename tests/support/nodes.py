"""Name servers, brokers and controllers of any kind ('java', 'java5', 'rmqha') with one interface, so that a test
can mix them freely."""
import atexit
import json
import os
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

from tests.support import ports, processes, real_rocketmq
from tests.support.processes import ServerProcess
from tests.support.raw_remoting import Answer, RawClient
from tests.support.wait import wait_until

# Name servers and brokers of any kind ('java', 'java5', 'rmqha') with one interface. The kind 'before', for
# benchmarks, is rmqha of another checkout.

MIB = 1 << 20
_KINDS = {"java": real_rocketmq, "java5": real_rocketmq.Java5, "rmqha": processes.OURS}
if os.environ.get("RMQHA_BEFORE"):
    _KINDS["before"] = processes.before()

# A busy machine must not make brokers refuse requests.
_PATIENT = {"waitTimeMillsInSendQueue": 60_000, "waitTimeMillsInPullQueue": 60_000,
            "waitTimeMillsInHeartbeatQueue": 60_000, "waitTimeMillsInTransactionQueue": 60_000,
            "osPageCacheBusyTimeOutMills": 60_000, "syncFlushTimeout": 30_000}
SMALL_STORE = {
    "mappedFileSizeCommitLog": MIB,
    "mappedFileSizeConsumeQueue": 1000 * 20,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
}


def write_properties(path: Path, properties: dict[str, object]) -> Path:
    """Write a properties file; values that are None are left out."""
    lines = [f"{key}={value}\n" for key, value in properties.items() if value is not None]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")
    return path


class NamesrvNode(ServerProcess):
    """A name server of the given kind, on a free port, with its files in `folder`."""

    def __init__(self, kind: str, folder: Path, name: str = "namesrv", shared_jvm: bool = False):
        self.kind = kind
        self.port = ports.free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.config_file = write_properties(folder / f"{name}.properties", {
            "listenPort": self.port,
            "kvConfigPath": folder / "kvConfig.json",
            "configStorePath": folder / f"{name}.properties",
        })
        command, env = _KINDS[kind].namesrv_command(self.config_file, folder)
        super().__init__(f"{kind}-{name}", command, folder, "boot success", env, shared_jvm=shared_jvm)


class BrokerNode(ServerProcess):
    """A broker of the given kind, its store in `folder/store`. Without `listenPort` it is on a free port block.

    `properties` override the defaults (None removes one); `kind` may be changed while it is down (`become`).
    """

    def __init__(self, kind: str, folder: Path, namesrv: str | None, name: str = "broker",
                 shared_jvm: bool = False, **properties: object):
        self.port = int(str(properties.get("listenPort") or ports.free_broker_port()))
        self.address = f"127.0.0.1:{self.port}"
        self.ha_port = self.port + 1
        self.ha_address = f"127.0.0.1:{self.ha_port}"
        self.store = folder / "store"
        self.base_name = name
        self.folder = folder
        self.namesrv = namesrv
        self.properties = {
            "brokerClusterName": "InteropCluster", "brokerName": "broker-a", "brokerId": 0,
            "brokerRole": "ASYNC_MASTER", "flushDiskType": "ASYNC_FLUSH",
            "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1", "namesrvAddr": namesrv, "listenPort": self.port,
            "storePathRootDir": self.store, "storePathCommitLog": self.store / "commitlog",
            "slaveTimeout": 20_000, "haSendHeartbeatInterval": 1000, "deleteWhen": "04",
            **SMALL_STORE, **_PATIENT, **properties,
        }
        self.config_file = folder / f"{name}.properties"
        self.empty_files = 0  # of the original, removed before starts
        self.shared_jvm = shared_jvm
        self.become(kind)

    def launch(self) -> int:
        """Start without waiting, as ServerProcess does.

        The original does not start over an empty file, which remains if it is killed while creating it. The file is
        removed, as an operator would.
        """
        if self.kind in ("java", "java5"):
            for folder in ("commitlog", "consumequeue"):
                for file in (self.store / folder).rglob("*"):
                    if file.is_file() and not file.stat().st_size:
                        file.unlink()
                        self.empty_files += 1
        return super().launch()

    def become(self, kind: str, keep_file: bool = False) -> "BrokerNode":
        """Write the config file again, unless it is to be kept, and use the command of `kind`; the store stays."""
        self.kind = kind
        if not keep_file:
            write_properties(self.config_file, self.properties)
        command, env = _KINDS[kind].broker_command(self.config_file, self.folder)
        super().__init__(f"{kind}-{self.base_name}", command, self.folder, "boot success", env,
                         shared_jvm=self.shared_jvm)
        return self

    @property
    def commit_log(self) -> Path:
        """The folder of the commit log."""
        return self.store / "commitlog"

    @property
    def segment_size(self) -> int:
        """The size of a commit log file."""
        return int(self.properties["mappedFileSizeCommitLog"])

    def config_text(self, name: str) -> str:
        """Return a table that the broker saves, as text; empty if there is none, which is so for a moment while Java
        replaces it."""
        try:
            return (self.store / "config" / name).read_text("utf-8")
        except FileNotFoundError:
            return ""

    def slaves_connected(self) -> int:
        """Return the number of established connections of other processes to this broker's HA port."""
        process = psutil.Process(self.pid)
        connections = getattr(process, "net_connections", None) or process.connections  # renamed in psutil 6
        return sum(c.status == psutil.CONN_ESTABLISHED and c.laddr.port == self.ha_port for c in connections("tcp"))

    def wait_for_slave(self, timeout_ms: int = 60_000) -> None:
        """Wait until a slave is connected to the HA port."""
        wait_until(self.slaves_connected, timeout_ms, f"a slave connected to {self.ha_address}")


# Controllers of any kind ('java': 5.1.4's, 'rmqha'), etcd, and the keys of brokers under a controller.

GROUP = "group1"
GET_METADATA_INFO, GET_SYNC_STATE_DATA = 1005, 1006
_CONTROLLERS_KINDS = {"java": real_rocketmq, "rmqha": processes.OURS}
_MEMORY = Path("/dev/shm")
_LOOPBACK = "127.0.0.1"


def broker_keys(store: Path, controllers: Iterable[str], **keys: object) -> dict[str, object]:
    """Return the properties of a replica whose role the controllers decide; `keys` override them."""
    return {"enableControllerMode": "true", "controllerAddr": ";".join(controllers), "brokerId": -1,
            "brokerRole": "SLAVE", "allAckInSyncStateSet": "true", "minInSyncReplicas": 2,
            "storePathEpochFile": store / "epochFileCheckpoint", "storePathBrokerIdentity": store / "brokerIdentity",
            "slaveTimeout": 3000, **keys}


class ControllerNode(ServerProcess):
    """One controller of a group whose members are `peers`, whose ports are free: {id: address}.

    Without `peers` it is alone, on a free port. `properties` override the defaults; `prefix` precedes its command.
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
        command, its_env = _CONTROLLERS_KINDS[kind].controller_command(self.config_file, folder)
        super().__init__(f"{kind}-controller-{self_id}", [*prefix, *command], folder, "boot success",
                         {**its_env, **(env or {})})

    def leader(self) -> str | None:
        """Return the address of the leading controller, according to this one, or None if it knows of none."""
        with RawClient(self.address, 5) as client:
            answer = client.request(GET_METADATA_INFO)
        return answer.fields.get("controllerLeaderAddress") or None


def sync_state(controllers: Iterable[str], broker_name: str, timeout_s: float = 60) -> dict | None:
    """Return the state of a broker name according to the leader among `controllers` (ReplicasInfo as it is on the
    wire), or None if there is no leader."""
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
    """Return why etcd can't run here, or None if it can."""
    return None if shutil.which("etcd") else "not installed: etcd (Debian: etcd-server)"


class EtcdNode(ServerProcess):
    """A member of an etcd cluster, alone unless `members` is given: {name: (client address, peer address)}.

    Its election timeout is short. `sync=False` keeps its files in memory if possible: they outlive the member, and are
    removed when this process ends.
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
        """Return whether it answers, and its cluster has a leader. Only for a member without TLS."""
        try:
            with urllib.request.urlopen(f"http://{self.address}/health", timeout=2) as answer:
                return json.loads(answer.read()).get("health") == "true"
        except (OSError, ValueError, urllib.error.URLError):
            return False


def _in_memory(folder: Path) -> Path:
    """Return a folder in memory: the given one if it is in memory, which its creator removes; otherwise a new one,
    which exists until this process ends. (Processes of a pool end without running `atexit` handlers.)"""
    if folder.is_relative_to(_MEMORY):
        return folder
    folder = Path(tempfile.mkdtemp(prefix="rmqha-etcd-", dir=_MEMORY if _MEMORY.is_dir() else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def etcd_cluster(folder: Path, count: int, **keys: object) -> list[EtcdNode]:
    """Return members on this host, not started."""
    members = {f"etcd{number}": (f"{_LOOPBACK}:{ports.free_port()}", f"{_LOOPBACK}:{ports.free_port()}")
               for number in range(count)}
    return [EtcdNode(folder, name, members, **keys) for name in members]


def start_etcd(nodes: Iterable[EtcdNode], timeout_ms: int = 60_000) -> None:
    """Start the members of a new cluster, none of which is ready before most have started."""
    nodes = list(nodes)
    for node in nodes:
        node.launch()
    for node in nodes:
        wait_until(lambda node=node: node._is_ready(0), timeout_ms, f"{node.name} is healthy")
