"""One broker of a test's cluster, with its settings, free ports and place in the topology.

- `EmbeddedBroker`: can be stopped or killed, and started again with its data.
- `free_broker_port`: finds a listenPort. A broker's other ports are computed from it, so three arbitrary free ports are
  not enough.
- `parse_topology`: returns the brokers of a cluster; "2m-2s" is two masters with one slave each.
- `EmbeddedError`, `wait_until`: the errors of a test's cluster, and waiting with a time limit.
"""
from __future__ import annotations

import random
import re
import shutil
import string
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from rmqha.broker.broker_controller import BrokerController
from rmqha.common import mix_all, threads
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_keys import config_keys
from rmqha.common.configuration import nearest_key
from rmqha.remoting.addresses import PortError, is_free
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.message_store_config import BrokerRole, MessageStoreConfig

_STEP_S = 0.002


class EmbeddedError(Exception):
    """The test's cluster can't do what was requested. The text states the problem and what to do."""


def wait_until(predicate: Callable[[], object], timeout_s: float, what: str) -> None:
    """Wait until `predicate` is true. After the timeout, raise an EmbeddedError with `what`, the expected condition."""
    if not threads.wait_until(predicate, timeout_s, _STEP_S):
        raise EmbeddedError(f"timed out after {timeout_s:g} s, waiting until {what}")


# Below the ports that Linux uses for outgoing connections, so that a restarted broker can bind its old ports again.
_LOWEST, _HIGHEST = 12_000, 22_900
_TRIES = 1000


def free_broker_port() -> int:
    """Return a free listenPort. The fast port (two below) and the HA port (one above) are free too."""
    # Not the shared generator: tests that seed `random` would all choose the same ports
    chooser = random.SystemRandom()
    for _ in range(_TRIES):
        port = chooser.randrange(_LOWEST + 2, _HIGHEST)
        if all(map(is_free, (port - 2, port, port + 1))):
            return port
    raise EmbeddedError(f"found no free ports for a broker between {_LOWEST} and {_HIGHEST}")


_FORM = re.compile(r"([1-9])m(?:-([1-9])s)?")


class Place(NamedTuple):
    """A broker's place in the cluster. `node` is a unique name; a master and its slaves share `broker_name`."""

    node: str
    broker_name: str
    broker_id: int  # 0: the master


def parse_topology(topology: str) -> list[Place]:
    """Return the places, masters first. "1m-2s" is one master with two slaves. EmbeddedError for another form."""
    found = _FORM.fullmatch(topology)
    masters, slaves = (int(found[1]), int(found[2] or 0)) if found else (1, 0)
    if not found or slaves % masters:
        raise EmbeddedError(f"invalid topology {topology!r}; use numbers of masters and slaves, the same number of "
                            "slaves for each master: 1m, 1m-1s, 2m, 2m-2s, 1m-2s ...")
    names = [f"broker-{letter}" for letter in string.ascii_lowercase[:masters]]
    places = [Place(name, name, 0) for name in names]
    for number in range(1, slaves // masters + 1):
        places += [Place(f"{name}-s{number if number > 1 else ''}", name, number) for name in names]
    return places


MIB = 1 << 20
# Small files without preallocation, so that an empty store needs only a few kilobytes. A commit log file has space for
# a message of maxMessageSize.
_SMALL = {"mappedFileSizeCommitLog": 8 * MIB, "mappedFileSizeConsumeQueue": 3_000 * 20, "maxHashSlotNum": 10_000,
          "maxIndexNum": 40_000, "preallocateMappedFile": False, "cleanFileForciblyEnable": False}
# A machine that is busy with other tests must not make the broker report itself as busy.
_PATIENT = {"waitTimeMillsInSendQueue": 60_000, "waitTimeMillsInPullQueue": 60_000,
            "waitTimeMillsInHeartbeatQueue": 60_000, "waitTimeMillsInTransactionQueue": 60_000,
            "osPageCacheBusyTimeOutMills": 60_000, "registerBrokerTimeoutMills": 60_000}
_OWN = {"brokerName", "brokerId", "brokerRole", "brokerIP1", "brokerIP2", "namesrvAddr", "listenPort", "haListenPort",
        "haMasterAddress", "storePathRootDir", "storePathCommitLog"}
_SEEN_S = 0.003
_PORT_TRIES = 20


class Settings(NamedTuple):
    """The common settings of a cluster's brokers. `config` has keys of broker.conf."""

    host: str
    is_sync: bool
    config: Mapping[str, object]


class EmbeddedBroker:
    """One broker of a cluster.

    `node`, `broker_name`, `broker_id`, `is_master`, `is_running` and `address` are public. `controller` is the running
    broker itself, for operations without a method here.
    """

    def __init__(self, place: Place, folder: Path, settings: Settings, namesrv_addr: str) -> None:
        self.node, self.broker_name, self.broker_id = place
        self.is_master = place.broker_id == 0
        self._folder = folder
        self._settings = settings
        self._namesrv_addr = namesrv_addr
        self._port = 0  # listenPort of the last start; 0: never started
        self._controller: BrokerController | None = None  # set while the broker is running
        self.is_cut_off = False  # True for a slave without a link to its master
        check_config(settings.config)

    def __repr__(self) -> str:
        return f"EmbeddedBroker({self.node!r}, {self.address if self.is_running else 'down'})"

    @property
    def is_running(self) -> bool:
        """True if the broker was started, and not stopped or killed since."""
        return self._controller is not None

    @property
    def controller(self) -> BrokerController:
        """The running broker; EmbeddedError if it is down."""
        if self._controller is None:
            raise EmbeddedError(f"{self.node} is down; restart({self.node!r}) starts it again")
        return self._controller

    @property
    def store(self) -> DefaultMessageStore:
        """The running broker's store."""
        return self.controller.message_store

    @property
    def address(self) -> str:
        """The address ("host:port") of the running broker for clients."""
        return self.controller.broker_addr

    @property
    def ha_address(self) -> str:
        """The address ("host:port") of the running broker for slaves."""
        return self.controller.ha_server_addr

    def start(self, master_ha_address: str | None = None) -> None:
        """Start the broker with its existing store, on its previous ports unless another process uses them now."""
        for _ in range(_PORT_TRIES):
            port = self._port or free_broker_port()
            try:
                self._start(port, master_ha_address)
            except PortError as error:
                # Another process has bound one of the ports in the meantime
                self._port, last = 0, error
            else:
                self._port = port
                return
        raise EmbeddedError(f"{self.node} found no free ports: {last}")

    def _start(self, port: int, master_ha_address: str | None) -> None:
        controller = self._new_controller(port, master_ha_address)
        try:
            if not controller.initialize():
                raise EmbeddedError(f"{self.node} can't open its store in {self._folder}; see the logger RocketmqStore "
                                    "for the reason")
            # The usage of the disk must not affect a test. If the disk is really full, a put fails anyway
            controller.message_store.clean_commit_log_service.disk_space_warning_level_ratio = 1.0
            controller.start()
        except BaseException:
            controller.shutdown()
            raise
        self._controller, self.is_cut_off = controller, False

    def _new_controller(self, port: int, master_ha_address: str | None) -> BrokerController:
        settings, host = self._settings, self._settings.host
        broker = BrokerConfig(brokerName=self.broker_name, brokerId=self.broker_id, brokerIP1=host, brokerIP2=host,
                              namesrvAddr=self._namesrv_addr, rocketmqHome=str(self._folder))
        server = ServerConfig(listenPort=port)
        store = MessageStoreConfig(storePathRootDir=str(self._folder / "store"), haListenPort=port + 1,
                                   brokerRole=self._role(), haMasterAddress=master_ha_address)
        texts = {key: mix_all.property_text(value) for key, value in {**_SMALL, **_PATIENT, **settings.config}.items()}
        for config in (broker, server, store):
            mix_all.properties2object(texts, config, _refuse_value)
        self._folder.mkdir(parents=True, exist_ok=True)
        return BrokerController(broker, server, RemotingClientConfig(), store, str(self._folder / "broker.conf"))

    def _role(self) -> BrokerRole:
        if not self.is_master:
            return BrokerRole.SLAVE
        return BrokerRole.SYNC_MASTER if self._settings.is_sync else BrokerRole.ASYNC_MASTER

    def stop(self) -> None:
        """Shut the broker down like SIGTERM, which saves everything. Do nothing if it is down."""
        controller, self._controller = self._controller, None
        if controller is not None:
            controller.shutdown()

    def kill(self) -> None:
        """End the broker like SIGKILL: its connections break, and nothing is saved. Do nothing if it is down.

        Appended messages are kept, as the page cache keeps those of a killed process. State that is saved only
        periodically (consumers' offsets, the progress of delayed messages) is as it was last saved.
        """
        controller, self._controller = self._controller, None
        if controller is None:
            return
        tables, kept = self._folder / "store" / "config", self._folder / "kept"
        try:
            controller.remoting_server.shutdown()
            controller.fast_remoting_server.shutdown()
            controller.message_store.ha_service.shutdown()
            kept.mkdir()
            if tables.exists():
                shutil.copytree(tables, kept, dirs_exist_ok=True)
            # Prevents the store from recording a clean shutdown
            controller.message_store.running_flags.get_and_make_not_writeable()
        finally:
            controller.shutdown()
        shutil.rmtree(tables, ignore_errors=True)
        kept.rename(tables)

    def wipe(self) -> None:
        """Stop the broker and delete its data."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def take_port_of(self, other: EmbeddedBroker) -> None:
        """Use the ports of another broker, which is down, at the next start."""
        self._port = other._port

    def cut_off(self) -> None:
        """Keep a running slave from connecting to its master and copying its tables. The caller closes the
        connection."""
        self.is_cut_off = True
        self.store.update_ha_master_address(None)
        # A master does not copy tables from another broker, so this stops the copying
        self.controller.role_services.handle_slave_synchronize(BrokerRole.ASYNC_MASTER)

    def end_cut(self) -> None:
        """Let a slave that was cut off copy its master's tables again. To reconnect it, the caller also calls
        `follow`."""
        self.is_cut_off = False
        self.controller.role_services.handle_slave_synchronize(BrokerRole.SLAVE)
        # The answer to the registration contains the master's address
        self.controller.registration.register_broker_all(True, False, True)

    def follow(self, master_ha_address: str) -> None:
        """Connect a running slave to this master now, without waiting for the pause after a failed connect."""
        self.store.update_ha_master_address(None)
        # A changed address ends the pause, once the HA client has seen it
        time.sleep(_SEEN_S)
        self.store.update_ha_master_address(master_ha_address)


def check_config(config: Mapping[str, object]) -> None:
    """Raise EmbeddedError for an unknown key, or one that the cluster sets itself. Values are checked at the start."""
    known = {key for one in (BrokerConfig, ServerConfig, MessageStoreConfig) for key in config_keys(one)}
    for key in config:
        if key in _OWN:
            raise EmbeddedError(f"config: {key} is set by the cluster for each broker and can't be changed")
        if key not in known:
            near = nearest_key(key, known)
            raise EmbeddedError(f"config: unknown key {key}" + (f", did you mean {near}?" if near else ""))


def _refuse_value(key: str, value: Any, problem: str) -> NoReturn:
    raise EmbeddedError(f"config: {key}={value}: {problem}")
