"""A whole cluster on this host, in a folder of its own, that ends with its program: for the quickstart.

The folder is one that `rmqha up` can start again.
"""
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rmqha.common.configuration import read_config_file
from rmqha.tools.cluster import layout
from rmqha.tools.cluster.layout import Layout
from rmqha.tools.cluster.node import (
    CONTROLLER,
    HOST,
    NAMESRV,
    PORTS_PER_BROKER,
    REPLICA,
    SMALL_FILES,
    ClusterError,
    Node,
)

STOP_TIMEOUT_S = 15


@dataclass
class Server(Node):
    """One server, and its process while it runs."""

    command: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.command = self.start_command()


class LocalCluster:
    """A name server, and one broker for each file of a conf folder, with ports and store folders of their own.

        with LocalCluster(Path("conf/2m-2s-sync"), Path("/tmp/play"), first_port=21000) as cluster:
            cluster.start(cluster.name_server)
            for broker in cluster.brokers:
                cluster.start(broker)

    Where the files have enableControllerMode=true there is a controller, too. On leaving all processes are ended.
    """

    def __init__(self, conf_folder: Path, folder: Path, first_port: int) -> None:
        files = sorted(conf_folder.glob("*.properties"))
        if not files:
            raise ClusterError(f"no .properties files in {conf_folder}")
        self.folder = folder
        self.segment_size = SMALL_FILES["mappedFileSizeCommitLog"]
        self.name_server = Server(folder, "namesrv", NAMESRV, first_port)
        last_port = first_port + (len(files) + 1) * PORTS_PER_BROKER
        self.controller = Server(folder, "controller", CONTROLLER, last_port) if any(map(_is_controlled, files)) else (
            None)
        self.brokers = [self._broker(file, first_port + (index + 1) * PORTS_PER_BROKER, index)
                        for index, file in enumerate(files)]
        first = (self.name_server, *filter(None, [self.controller]))
        whole = Layout((*first, *self.brokers), layout.SMALL)
        for server in first:
            layout.write_config(server, layout.properties_of(server, whole))
        layout.write(folder, whole)

    @staticmethod
    def ports_needed(conf_folder: Path) -> int:
        """How many ports in a row a cluster of this conf folder takes."""
        files = list(conf_folder.glob("*.properties"))
        return (1 + len(files) + any(map(_is_controlled, files))) * PORTS_PER_BROKER

    @property
    def masters(self) -> list[Server]:
        """The brokers that take messages."""
        return [broker for broker in self.brokers if broker.role != "SLAVE"]

    @property
    def slaves(self) -> list[Server]:
        """The brokers that copy."""
        return [broker for broker in self.brokers if broker.role == "SLAVE"]

    def _broker(self, file: Path, port: int, index: int) -> Server:
        properties: dict[str, object] = dict(read_config_file(str(file)))
        name, role, broker_id = (str(properties[key]) for key in ("brokerName", "brokerRole", "brokerId"))
        server = Server(self.folder, file.stem, role, port, name, int(broker_id))
        if self.controller is not None:
            server.role, server.broker_id = REPLICA, index
            properties["controllerAddr"] = self.controller.address
        layout.write_config(server, properties | SMALL_FILES | layout.QUICK | {
            "namesrvAddr": self.name_server.address,
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "listenPort": port,
            "storePathRootDir": server.store,
            "storePathCommitLog": server.commit_log,
        })
        return server

    def start(self, server: Server) -> None:
        """Start a server's process; its home is the cluster's folder."""
        with open(server.output_file, "ab") as output:
            server.process = subprocess.Popen(
                server.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env=server.environment(), cwd=self.folder, start_new_session=True)

    def check_alive(self) -> None:
        """ClusterError when a process that was started has ended by itself."""
        for server in [self.name_server, *filter(None, [self.controller]), *self.brokers]:
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
        controllers = [self.controller] if self.controller is not None else []
        for group in (controllers, self.slaves, self.masters, [self.name_server]):
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


def _is_controlled(file: Path) -> bool:
    return read_config_file(str(file)).get("enableControllerMode") == "true"
