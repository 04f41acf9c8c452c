"""Name servers and brokers of any kind ('java', 'java5', 'rmqha') with one face, so that a test can mix them freely.

The kind 'before', for benchmarks, is rmqha of another checkout.
"""
import os
from pathlib import Path

import psutil

from tests.support import ports, real_rocketmq, real_rocketmq_5, rmqha_servers
from tests.support.processes import ServerProcess
from tests.support.wait import wait_until

MIB = 1 << 20
_KINDS = {"java": real_rocketmq, "java5": real_rocketmq_5, "rmqha": rmqha_servers.OURS}
if os.environ.get("RMQHA_BEFORE"):
    _KINDS["before"] = rmqha_servers.before()

# A busy machine is no reason to refuse requests.
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
    """A properties file; values that are None are left out."""
    lines = [f"{key}={value}\n" for key, value in properties.items() if value is not None]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")
    return path


class NamesrvNode(ServerProcess):
    """A name server of the kind asked for, on a free port, with its files in `folder`."""

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
    """A broker of the kind asked for on a free port block, its store in `folder/store`.

    `properties` go over the defaults (None removes one); `kind` may be changed while it is down (`become`).
    """

    def __init__(self, kind: str, folder: Path, namesrv: str | None, name: str = "broker",
                 shared_jvm: bool = False, **properties: object):
        self.port = ports.free_broker_port()
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
        self.empty_files = 0  # of the original that were taken away before starts
        self.shared_jvm = shared_jvm
        self.become(kind)

    def launch(self) -> int:
        """As ServerProcess's. The original does not start over an empty file, in the making of which it was killed: it
        is taken away, as an operator would."""
        if self.kind in ("java", "java5"):
            for folder in ("commitlog", "consumequeue"):
                for file in (self.store / folder).rglob("*"):
                    if file.is_file() and not file.stat().st_size:
                        file.unlink()
                        self.empty_files += 1
        return super().launch()

    def become(self, kind: str, keep_file: bool = False) -> "BrokerNode":
        """(Re)write the config file, unless it is kept as it is, and take the command of `kind`; the store stays."""
        self.kind = kind
        if not keep_file:
            write_properties(self.config_file, self.properties)
        command, env = _KINDS[kind].broker_command(self.config_file, self.folder)
        super().__init__(f"{kind}-{self.base_name}", command, self.folder, "boot success", env,
                         shared_jvm=self.shared_jvm)
        return self

    @property
    def commit_log(self) -> Path:
        """Folder of the commit log."""
        return self.store / "commitlog"

    @property
    def segment_size(self) -> int:
        """Size of a commit log file."""
        return int(self.properties["mappedFileSizeCommitLog"])

    def config_text(self, name: str) -> str:
        """A table that the broker keeps, as text; empty while there is none, as for a moment while Java replaces it."""
        try:
            return (self.store / "config" / name).read_text("utf-8")
        except FileNotFoundError:
            return ""

    def slaves_connected(self) -> int:
        """Established connections that others hold to this broker's HA port."""
        process = psutil.Process(self.pid)
        connections = getattr(process, "net_connections", None) or process.connections  # renamed in psutil 6
        return sum(c.status == psutil.CONN_ESTABLISHED and c.laddr.port == self.ha_port for c in connections("tcp"))

    def wait_for_slave(self, timeout_ms: int = 60_000) -> None:
        """Until a slave is connected to the HA port."""
        wait_until(self.slaves_connected, timeout_ms, f"a slave connected to {self.ha_address}")
