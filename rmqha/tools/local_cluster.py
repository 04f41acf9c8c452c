"""A whole cluster on this host, in a folder of its own: for the quickstart and for trying things out."""
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rmqha.common import mix_all
from rmqha.common.config_file import read_config_file

HOST = "127.0.0.1"
PORTS_PER_BROKER = 4  # listenPort - 2, listenPort, listenPort + 1, and one to spare
STOP_TIMEOUT_S = 15
TAIL_BYTES = 4_000

# Small files: four brokers of these take about 100 MB, where RocketMQ's defaults take some GiB each.
SMALL_FILES = {
    "mappedFileSizeCommitLog": 8 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 3_000 * 20,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
}


class ClusterError(Exception):
    """A server did not do what it should; the text says which and what it printed last."""


@dataclass
class Server:
    """One server process, and where its things are. `name` is its file's, `broker_name` what clients see."""

    name: str
    broker_name: str
    role: str
    port: int
    config_file: Path
    output_file: Path
    store: Path
    command: list[str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """ "ip:port" for clients."""
        return f"{HOST}:{self.port}"

    @property
    def commit_log(self) -> Path:
        """The folder of the commit log."""
        return self.store / "commitlog"

    def tail(self) -> str:
        """The end of what the process printed."""
        if not self.output_file.exists():
            return ""
        return self.output_file.read_bytes()[-TAIL_BYTES:].decode("utf-8", "replace").strip()


class LocalCluster:
    """A name server, and one broker for each file of a conf folder, with ports and store folders of their own.

        with LocalCluster(Path("conf/2m-2s-sync"), Path("/tmp/play"), first_port=21000) as cluster:
            cluster.start(cluster.name_server)
            for broker in cluster.brokers:
                cluster.start(broker)

    On leaving all processes are ended.
    """

    def __init__(self, conf_folder: Path, folder: Path, first_port: int) -> None:
        files = sorted(conf_folder.glob("*.properties"))
        if not files:
            raise ClusterError(f"no .properties files in {conf_folder}")
        self.folder = folder
        self.segment_size = SMALL_FILES["mappedFileSizeCommitLog"]
        self.name_server = self._name_server(first_port)
        self.brokers = [
            self._broker(file, first_port + (index + 1) * PORTS_PER_BROKER) for index, file in enumerate(files)]

    @staticmethod
    def ports_needed(conf_folder: Path) -> int:
        """How many ports in a row a cluster of this conf folder takes."""
        return (1 + len(list(conf_folder.glob("*.properties")))) * PORTS_PER_BROKER

    @property
    def masters(self) -> list[Server]:
        """The brokers that take messages."""
        return [broker for broker in self.brokers if broker.role != "SLAVE"]

    @property
    def slaves(self) -> list[Server]:
        """The brokers that copy."""
        return [broker for broker in self.brokers if broker.role == "SLAVE"]

    def _name_server(self, port: int) -> Server:
        properties = {"listenPort": port, "kvConfigPath": self.folder / "namesrv" / "kvConfig.json"}
        return self._server("namesrv", "NAME SERVER", port, properties, "rmqha.namesrv.namesrv_startup")

    def _broker(self, file: Path, port: int) -> Server:
        properties: dict[str, object] = dict(read_config_file(str(file)))
        store = self.folder / "store" / file.stem
        properties |= SMALL_FILES
        properties |= {
            "namesrvAddr": self.name_server.address,
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "listenPort": port,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
        }
        return self._server(file.stem, str(properties["brokerRole"]), port, properties, "rmqha.broker.broker_startup")

    def _server(self, name: str, role: str, port: int, properties: dict[str, object], module: str) -> Server:
        config_file = self.folder / "conf" / f"{name}.properties"
        config_file.parent.mkdir(parents=True, exist_ok=True)
        texts = {key: str(value) for key, value in properties.items()}
        config_file.write_text(mix_all.properties2string(texts), encoding="utf-8")
        command = [sys.executable, "-m", module, "-c", str(config_file)]
        return Server(name, texts.get("brokerName", ""), role, port, config_file, self.folder / f"{name}.out",
                      self.folder / "store" / name, command)

    def start(self, server: Server) -> None:
        """Start a server's process; its home, and with it its logs, is the cluster's folder."""
        environment = {**os.environ, "HOME": str(self.folder), "ROCKETMQ_HOME": str(self.folder),
                       "PYTHONUNBUFFERED": "1"}
        environment.pop(mix_all.NAMESRV_ADDR_ENV, None)
        with open(server.output_file, "ab") as output:
            server.process = subprocess.Popen(
                server.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment,
                cwd=self.folder, start_new_session=True)

    def check_alive(self) -> None:
        """ClusterError when a process that was started has ended by itself."""
        for server in [self.name_server, *self.brokers]:
            code = server.process.poll() if server.process is not None else None
            if code is not None:
                raise ClusterError(f"{server.name} ended with code {code}; it printed:\n{server.tail()}")

    def wait_until(self, predicate: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait for a condition (`what`, for people); ClusterError when time is over or a server ends meanwhile."""
        deadline = time.monotonic() + timeout_s
        while not predicate():
            self.check_alive()
            if time.monotonic() > deadline:
                raise ClusterError(f"waited {timeout_s:.0f} s in vain for: {what}")
            time.sleep(0.05)

    def kill(self, server: Server) -> None:
        """End a server as a crash does: SIGKILL."""
        if server.process is not None:
            server.process.kill()
            server.process.wait()
            server.process = None

    def stop(self) -> None:
        """End all: slaves first, the name server last; what does not end within 15 s is killed. Idempotent."""
        for group in (self.slaves, self.masters, [self.name_server]):
            running = [(server, server.process) for server in group if server.process is not None]
            for _server, process in running:
                process.send_signal(signal.SIGTERM)
            for server, process in running:
                self._wait_for_end(server, process)

    def pairs(self) -> list[tuple[Server, Server]]:
        """Each slave with its master: (master, slave)."""
        return [(master, slave) for master in self.masters for slave in self.slaves
                if slave.broker_name == master.broker_name]

    def _wait_for_end(self, server: Server, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(STOP_TIMEOUT_S)
            server.process = None
        except subprocess.TimeoutExpired:
            self.kill(server)

    def __enter__(self) -> "LocalCluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
