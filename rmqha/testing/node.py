"""One broker of a test's cluster: it can be stopped or killed, and started again with its data."""
from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from rmqha.broker.broker_controller import BrokerController
from rmqha.common import mix_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.remoting.addresses import PortError
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.remoting.tls_system_config import TlsMode, TlsSystemConfig, use_tls
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.message_store_config import BrokerRole, MessageStoreConfig
from rmqha.testing.broker_keys import PATIENT, SMALL, check_config
from rmqha.testing.cluster_parts import EmbeddedError, Place, free_broker_port

# Without preallocation an empty store needs only a few kilobytes
_SMALL = {**SMALL, "preallocateMappedFile": False}
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
        texts = {key: mix_all.property_text(value) for key, value in {**_SMALL, **PATIENT, **settings.config}.items()}
        for config in (broker, server, store):
            mix_all.properties2object(texts, config, _refuse_value)
        self._folder.mkdir(parents=True, exist_ok=True)
        # As at the start of the program: a name server with `tls.server.mode=enforcing` accepts only TLS
        client = RemotingClientConfig(useTLS=use_tls(default=TlsSystemConfig().tls_mode is TlsMode.ENFORCING))
        return BrokerController(broker, server, client, store, str(self._folder / "broker.conf"))

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


def _refuse_value(key: str, value: Any, problem: str) -> NoReturn:
    raise EmbeddedError(f"config: {key}={value}: {problem}")
