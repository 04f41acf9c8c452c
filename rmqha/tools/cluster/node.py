"""One server of a cluster in a folder: what it is, and where its things lie.

    <folder>/cluster.json             what the cluster consists of; says that the folder is a cluster's
    <folder>/conf/<node>.properties   its config, the user's to change
    <folder>/store/<node>/            what a broker keeps
    <folder>/logs/<node>/             its log files
    <folder>/<node>.out               what it prints
    <folder>/run/<node>.pid           its process, while `rmqha up` has it running
"""
import os
import site
import sys
from dataclasses import dataclass
from pathlib import Path

import click

import rmqha
from rmqha.common import logs, mix_all
from rmqha.store.message_store_config import BrokerRole

HOST = "127.0.0.1"
PORTS_PER_BROKER = 4  # listenPort - 2, listenPort, listenPort + 1, and one for metrics
NAMESRV, CONTROLLER = "NAME SERVER", "CONTROLLER"
REPLICA = "REPLICA"  # a broker whose role the controller decides
CONTROLLER_ID = "n0"
TAIL_BYTES = 4_000

# Small files: four brokers of these take about 100 MB, where RocketMQ's defaults take some GiB each.
SMALL_FILES = {
    "mappedFileSizeCommitLog": 8 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 3_000 * 20,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
}


class ClusterError(click.ClickException):
    """A cluster or one of its servers is not as it should be; the text says which, why, and what to do."""


@dataclass
class Node:
    """A server. `name` is its file's, `broker_name` what clients see; `role`: NAMESRV, CONTROLLER, REPLICA or a
    BrokerRole. `broker_id` of a REPLICA only tells it from the others: the controller gives it another one.
    """

    folder: Path
    name: str
    role: str
    port: int
    broker_name: str = ""
    broker_id: int = mix_all.MASTER_ID
    metrics_port: int = 0  # 0: none

    @property
    def address(self) -> str:
        """ "ip:port" for clients."""
        return f"{HOST}:{self.port}"

    @property
    def is_namesrv(self) -> bool:
        """Whether it is the name server."""
        return self.role == NAMESRV

    @property
    def is_controller(self) -> bool:
        """Whether it is the controller."""
        return self.role == CONTROLLER

    @property
    def is_replica(self) -> bool:
        """Whether it is a broker whose role the controller decides."""
        return self.role == REPLICA

    @property
    def is_broker(self) -> bool:
        """Whether it is a broker, whatever its role."""
        return not self.is_namesrv and not self.is_controller

    @property
    def is_slave(self) -> bool:
        """Whether it is a broker that copies."""
        return self.role == BrokerRole.SLAVE.name

    @property
    def is_master(self) -> bool:
        """Whether it is a broker that always takes messages."""
        return self.is_broker and not self.is_slave and not self.is_replica

    @property
    def ports(self) -> tuple[int, ...]:
        """All ports that it listens on."""
        ports = (self.port, self.port - 2, self.port + 1) if self.is_broker else (self.port,)
        return (*ports, self.metrics_port) if self.metrics_port else ports

    @property
    def spare_port(self) -> int:
        """The fourth of its ports."""
        return self.port - 1 if self.is_broker else self.port + 1

    @property
    def config_file(self) -> Path:
        """Its properties file."""
        return self.folder / "conf" / f"{self.name}.properties"

    @property
    def output_file(self) -> Path:
        """What it prints."""
        return self.folder / f"{self.name}.out"

    @property
    def pid_file(self) -> Path:
        """Which process it is."""
        return self.folder / "run" / f"{self.name}.pid"

    @property
    def log_folder(self) -> Path:
        """Its log files."""
        return self.folder / "logs" / self.name

    @property
    def store(self) -> Path:
        """What it keeps: a broker's store, a name server's tables, a controller's decisions."""
        return self.folder / (f"store/{self.name}" if self.is_broker else self.name)

    @property
    def commit_log(self) -> Path:
        """The folder of the commit log."""
        return self.store / "commitlog"

    def start_command(self) -> list[str]:
        """The command that runs it in the foreground."""
        kind = "namesrv" if self.is_namesrv else "controller" if self.is_controller else "broker"
        return [sys.executable, "-m", f"rmqha.{kind}.{kind}_startup", "-c", str(self.config_file)]

    def environment(self) -> dict[str, str]:
        """What it runs with: its home is the cluster's folder, and it finds the package that this process uses."""
        environment = {**os.environ, "HOME": str(self.folder), mix_all.ROCKETMQ_HOME_ENV: str(self.folder),
                       logs.LOG_DIR_ENV: str(self.log_folder), "PYTHONUNBUFFERED": "1"}
        environment.pop(mix_all.NAMESRV_ADDR_ENV, None)
        environment.pop("NOTIFY_SOCKET", None)  # of the service that `rmqha up` may run in
        if site.USER_BASE:  # what was installed with pip's --user is below the home that this process has
            environment["PYTHONUSERBASE"] = site.USER_BASE
        package_folder = str(Path(rmqha.__file__).resolve().parents[1])
        if package_folder not in [*site.getsitepackages(), site.getusersitepackages()]:  # a checkout
            path = [package_folder, *filter(None, [environment.get("PYTHONPATH")])]
            environment["PYTHONPATH"] = os.pathsep.join(path)
        return environment

    def tail(self) -> str:
        """The end of what it printed."""
        if not self.output_file.exists():
            return ""
        return self.output_file.read_bytes()[-TAIL_BYTES:].decode("utf-8", "replace").strip()
