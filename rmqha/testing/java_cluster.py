"""A cluster of the real Apache RocketMQ, with the interface of EmbeddedRocketMQ except for faults in the broker's code.

    JavaCluster --starts, kills--> JVM of the name server, JVMs of the brokers <--requests-- ClusterAdmin

`python -m rmqha.testing.server` runs it beside the test's process.
"""
from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import psutil

from rmqha.common.protocol.namespace_util import NAMESPACE_ORDER_TOPIC_CONFIG
from rmqha.testing.broker_keys import PATIENT, SMALL, check_java_config
from rmqha.testing.cluster_admin import ClusterAdmin
from rmqha.testing.cluster_parts import (
    EmbeddedError,
    NotSupportedError,
    Place,
    TemporaryFolder,
    free_broker_port,
    parse_topology,
    wait_until,
)
from rmqha.testing.java_servers import BROKER, NAMESRV, JavaServer, release_at

_WAIT_S = 120
_AGAIN_S = 0.1
# Keys of 5.x, which 4.9 does not read: no files of 37 MiB for timers, and no 3 s until the end of a transaction is
# stored
_OF_5 = {"timerWheelEnable": False, "transactionOpBatchInterval": 100}
_LONG_MS = 86_400_000
_TIME_OUT = "transactionTimeOut"
# Brokers register every 10 s, by which slaves find their masters. Open transactions are checked only when the test
# requests it; RocketMQ reads the interval at its start, but the time-out in each round
_QUICK = {"registerNameServerPeriod": 10_000, _TIME_OUT: _LONG_MS, "transactionCheckInterval": 1_000}
# Slaves report their end at once, not 5 s after they are connected; those of 5.x serve reads only with the second key
_OF_SLAVES = {"haSendHeartbeatInterval": 100, "slaveReadEnable": True}


class JavaBroker:
    """One broker of the cluster. `node`, `broker_name`, `broker_id`, `is_master`, `is_running`, `address` and `pid` are
    public."""

    def __init__(self, place: Place, cluster: JavaCluster, port: int) -> None:
        self.node, self.broker_name, self.broker_id = place
        self.is_master = place.broker_id == 0
        self.port = port
        self.address = f"{cluster.host}:{port}"
        self._cluster = cluster
        self._folder = cluster.folder / self.node
        self._server = JavaServer(self.node, cluster.release, BROKER, self._folder)

    @property
    def is_running(self) -> bool:
        """True if the broker was started, and not stopped or killed since."""
        return self._server.is_running

    @property
    def pid(self) -> int:
        """The process id of the broker's JVM."""
        return self._server.pid

    @property
    def ha_port(self) -> int:
        """The port for slaves."""
        return self.port + 1

    def launch(self) -> None:
        """Start the broker with its existing store, and do not wait until it is ready."""
        self._delete_empty_files()
        self._server.launch(self._cluster.broker_config(self, self._folder / "store"))

    def wait_until_ready(self) -> None:
        """Wait until the broker serves."""
        self._server.wait_until_ready()

    def _delete_empty_files(self) -> None:
        """Delete the empty files that remain if RocketMQ is killed while it creates them. It does not start with them.
        """
        for folder in ("commitlog", "consumequeue"):
            for file in (self._folder / "store" / folder).rglob("*"):
                if file.is_file() and not file.stat().st_size:
                    file.unlink()

    def kill(self) -> None:
        """Kill the broker like SIGKILL. Idempotent."""
        self._server.kill()

    def wipe(self) -> None:
        """Kill the broker and delete its data."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def connections(self, port: int, is_peer: bool) -> int:
        """Return the number of its established connections to a port of another process, or at its own port."""
        process = psutil.Process(self.pid)
        found: Any = getattr(process, "net_connections", None) or process.connections  # renamed in psutil 6
        return sum(one.status == psutil.CONN_ESTABLISHED and bool(one.raddr)
                   and (one.raddr if is_peer else one.laddr).port == port for one in found("tcp"))


class JavaCluster:
    """Name server and brokers of a release of RocketMQ, on free ports, with small stores that are deleted at the end.

    `home`: the folder of the unpacked release. The other arguments are those of EmbeddedRocketMQ.
    """

    def __init__(self, home: str | os.PathLike[str], topology: str = "1m", *, sync: bool = False,
                 host: str = "127.0.0.1", port: int = 0, store_dir: str | os.PathLike[str] | None = None,
                 config: Mapping[str, object] | None = None) -> None:
        self.topology = topology
        self.host = host
        self.release = release_at(home)
        self._places = parse_topology(topology)
        self._sync = sync
        self._config = dict(config or {})
        check_java_config(self._config, self.release.version)
        self._port = port
        self._store_dir = store_dir
        # These four are set while the cluster is running
        self._folder: TemporaryFolder | None = None
        self._namesrv: JavaServer | None = None
        self._admin: ClusterAdmin | None = None
        self._brokers: dict[str, JavaBroker] = {}
        self._stores = count()
        self._store = 0

    # Life.

    def __enter__(self) -> JavaCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all servers. On return the slaves are connected, and all brokers are registered at the name server."""
        if self._folder is not None:
            raise EmbeddedError("the cluster is already running")
        self._folder = TemporaryFolder(self._store_dir)
        try:
            self._port = self._port or free_broker_port()
            self._namesrv = JavaServer("namesrv", self.release, NAMESRV, self._folder.path / "namesrv")
            self._namesrv.launch({"listenPort": self._port})
            self._namesrv.wait_until_ready()
            self._admin = ClusterAdmin(self.namesrv_addr)
            self._brokers = {place.node: JavaBroker(place, self, free_broker_port()) for place in self._places}
            self._start_brokers(self._brokers.values())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill all servers and delete their data. Idempotent."""
        for broker in self._brokers.values():
            broker.kill()
        self._brokers = {}
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        if self._namesrv is not None:
            self._namesrv.kill()
            self._namesrv = None
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def reset(self) -> None:
        """Return to the state after the start, with the same addresses: new brokers with empty stores."""
        brokers = self.brokers
        for broker in brokers:
            broker.wipe()
        self._wait_until_gone(broker.address for broker in brokers)
        self._forget_orders()
        self._store = next(self._stores)
        self._brokers = {place.node: JavaBroker(place, self, self._brokers[place.node].port) for place in self._places}
        self._start_brokers(self._brokers.values())

    def _forget_orders(self) -> None:
        """Delete the queue orders of topics at the name server."""
        from rmqha.client.exception import MQClientException

        api = self.admin.api
        try:
            orders = api.get_kv_list_by_namespace(NAMESPACE_ORDER_TOPIC_CONFIG, _WAIT_S * 1000).table or {}
        except MQClientException:  # it has none
            return
        for key in orders:
            api.delete_kv_config_value(NAMESPACE_ORDER_TOPIC_CONFIG, key, _WAIT_S * 1000)

    # Servers.

    @property
    def admin(self) -> ClusterAdmin:
        """The requests to the cluster."""
        if self._admin is None:
            raise EmbeddedError("the cluster is not started")
        return self._admin

    @property
    def folder(self) -> Path:
        """The folder of the current stores."""
        assert self._folder is not None  # the cluster is running
        return self._folder.path / f"stores-{self._store}"

    @property
    def namesrv_addr(self) -> str:
        """The address ("host:port") of the name server for clients."""
        return f"{self.host}:{self._port}"

    @property
    def brokers(self) -> list[JavaBroker]:
        """All brokers, masters first, including those that are down."""
        return list(self._brokers.values())

    def broker(self, node: str) -> JavaBroker:
        """Return the broker with this name."""
        if node not in self._brokers:
            raise EmbeddedError(f"unknown broker {node!r}; {self.topology} has {', '.join(self._brokers)}")
        return self._brokers[node]

    def broker_config(self, broker: JavaBroker, store: Path) -> dict[str, object]:
        """Return the keys of a broker's config file."""
        role = "SYNC_MASTER" if self._sync else "ASYNC_MASTER"
        own: dict[str, object] = {}
        if self._sync and broker.is_master:
            # Keys of 5.x, whose SYNC_MASTER otherwise waits for no slave
            slaves = sum(place.broker_name == broker.broker_name for place in self._places) - 1
            own = {"totalReplicas": 1 + slaves, "inSyncReplicas": 2}
        if not broker.is_master:
            role, own = "SLAVE", dict(_OF_SLAVES)
            if self.release.version.startswith("4."):
                # Otherwise it waits 5 s before it connects. 5.x forgets this key, and then never connects
                own["haMasterAddress"] = f"{self.host}:{self._brokers[broker.broker_name].ha_port}"
        return {**_OF_5, **_QUICK, **SMALL, **PATIENT, **own, **self._config, "brokerClusterName": "DefaultCluster",
                "brokerName": broker.broker_name, "brokerId": broker.broker_id, "brokerRole": role,
                "brokerIP1": self.host, "brokerIP2": self.host, "namesrvAddr": self.namesrv_addr,
                "listenPort": broker.port, "haListenPort": broker.ha_port, "storePathRootDir": store,
                "storePathCommitLog": store / "commitlog"}

    def _start_brokers(self, brokers: Iterable[JavaBroker]) -> None:
        """Start brokers: all masters side by side, then all slaves. Wait until they are registered, and slaves follow
        their masters."""
        brokers = list(brokers)
        for is_master in (True, False):
            started = [broker for broker in brokers if broker.is_master == is_master]
            for broker in started:
                broker.launch()
            for broker in started:
                broker.wait_until_ready()
            self._register({broker.address for broker in started})
        for slave, master in self._pairs():
            # The slave's connection is accepted, not only in the kernel's queue
            wait_until(lambda slave=slave, master=master: slave.connections(master.ha_port, True)  # type: ignore[misc]
                       and master.connections(master.ha_port, False), _WAIT_S, f"{slave.node} follows {master.node}")

    def _register(self, addresses: set[str]) -> None:
        """Wait until the brokers at these addresses are registered.

        A broker of 5.x often finds its name server only after its first registration, and registers again 10 s later.
        A change of brokerPermission makes it register now.
        """
        deadline = time.monotonic() + _WAIT_S
        while missing := addresses - self._addresses():
            if time.monotonic() > deadline:
                raise EmbeddedError(f"after {_WAIT_S} s the name server does not know {', '.join(sorted(missing))}")
            for address in missing:
                self.admin.update_broker_config(address, {"brokerPermission": "6"})
            time.sleep(_AGAIN_S)

    def _pairs(self) -> list[tuple[JavaBroker, JavaBroker]]:
        """Return pairs of a slave and its master that are both running."""
        pairs = [(slave, self._brokers[slave.broker_name]) for slave in self.brokers if not slave.is_master]
        return [(slave, master) for slave, master in pairs if slave.is_running and master.is_running]

    def _addresses(self) -> set[str]:
        return {address for by_id in self.admin.brokers().values() for address in by_id.values()}

    def _wait_until_gone(self, addresses: Iterable[str]) -> None:
        gone = set(addresses)
        wait_until(lambda: not gone & self._addresses(), _WAIT_S, "the name server has noticed the end of brokers")

    # Topics, replication, kills and restarts.

    def create_topic(self, name: str, queues: int = 4) -> None:
        """Create a topic with `queues` queues on each running master. On return, the name server knows it."""
        self.admin.create_topic(name, queues)

    def wait_for_slaves(self, timeout_s: float = 60) -> None:
        """Wait until each slave has the log and the topics of its master. RocketMQ copies the tables every 10 s."""
        pairs = self._pairs()
        left_out = {broker.node for broker in self.brokers if not broker.is_master} - {slave.node for slave, _ in pairs}
        if left_out:
            raise EmbeddedError(f"{', '.join(sorted(left_out))} can't replicate: it or its master is down")
        for slave, master in pairs:
            # mypy infers no types for a lambda's defaults
            wait_until(lambda slave=slave, master=master: self.admin.has_all_data(  # type: ignore[misc]
                slave.address, master.address), timeout_s, f"{slave.node} has all data of {master.node}")

    def kill(self, node: str) -> None:
        """Kill a broker with SIGKILL. The name server has noticed it when this returns."""
        broker = self.broker(node)
        if not broker.is_running:
            raise EmbeddedError(f"{node} is down; restart({node!r}) starts it again")
        broker.kill()
        self._wait_until_gone([broker.address])

    def kill_master(self, name: str | None = None) -> str:
        """Kill a master, by default the first that is running, and return its name."""
        running = [broker for broker in self.brokers if broker.is_master and broker.is_running]
        if name is None and not running:
            raise EmbeddedError("no master is running; restart() starts them again")
        master = self.broker(name) if name is not None else running[0]
        if not master.is_master:
            raise EmbeddedError(f"{name} is a slave; use kill({name!r})")
        self.kill(master.node)
        return master.node

    def restart(self, node: str | None = None) -> None:
        """Kill and start all brokers, or one; start those that are down. Data and addresses stay."""
        brokers = [self.broker(node)] if node is not None else self.brokers
        running = [broker.address for broker in brokers if broker.is_running]
        for broker in brokers:
            broker.kill()
        self._wait_until_gone(running)
        self._start_brokers(brokers)

    def hurry_transaction_checks(self, on: bool) -> None:
        """Have the masters check all open transactions, whatever their age, within a second, until `on` is False."""
        time_out = "1" if on else str(self._config.get(_TIME_OUT, _LONG_MS))
        for address in self.admin.masters().values():
            self.admin.update_broker_config(address, {_TIME_OUT: time_out})

    # Faults.

    def heal(self) -> None:
        """Do nothing: RocketMQ has no faults to end."""

    def _no_fault(self, *_: object, **__: object) -> NoReturn:
        raise NotSupportedError(f"RocketMQ {self.release.version} can't inject this fault; refuse, slow_down, "
                                "fill_disk and partition need the backend embedded or process")

    slow_down = refuse = fill_disk = partition = _no_fault
