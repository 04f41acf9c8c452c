"""Registration of a broker: it sends its topics and addresses to the name servers, which return the master's address.

    pools, BrokerControllerScheduledThread1, ReplicasManager_RegisterThread_ --one at a time--> BrokerOuterAPI
"""
import logging
import threading
from collections.abc import Callable, Iterable

from rmqha.broker.broker_addresses import BrokerAddresses, Place
from rmqha.broker.broker_outer_api import BrokerOuterAPI, Registration
from rmqha.broker.topic_config_manager import TopicConfigManager
from rmqha.common import sys_flags
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.mix_all import MASTER_ID
from rmqha.common.protocol.cluster_bodies import RegisterBrokerResult
from rmqha.common.protocol.table_bodies import TopicConfigSerializeWrapper
from rmqha.common.topics import TopicConfig
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.store.role import Role

log = logging.getLogger("RocketmqBroker")

_REGISTER_PATIENCE_S = 0.05


class BrokerRegistration:
    """Registers one broker at its name servers, and unregisters it. Any thread.

    Java: org.apache.rocketmq.broker.BrokerController#registerBrokerAll (4.9.8)
    """

    def __init__(self, broker_config: BrokerConfig, message_store_config: MessageStoreConfig,
                 role: Role, addresses: BrokerAddresses, topics: TopicConfigManager, api: BrokerOuterAPI) -> None:
        self._config, self._store_config = broker_config, message_store_config
        self._role = role
        self._addresses = addresses
        self._topics = topics
        self._api = api
        self._lock = threading.RLock()  # one registration at a time
        if addresses.master_address:
            # Imported here because few brokers have one.
            from rmqha.broker.shared_address import SharedAddress

            api.shared = SharedAddress(addresses.master_address, self._is_current, api.unregister_broker,
                                       api.remoting_client)
        # Returns the epoch of this broker's mastership; 0 where masters have none.
        self.master_epoch: Callable[[], int] = lambda: 0
        # True until a controller has decided this broker's role: the broker does not register before that.
        self.is_isolated = broker_config.enableControllerMode
        # Called before each registration while the broker is not isolated.
        self.may_register: Callable[[], bool] = lambda: True
        # Called with the master's address, or with None without a master.
        self.on_master: Callable[[str | None], None] | None = None
        # Called with the master's HA address.
        self.on_master_ha: Callable[[str], None] | None = None
        # Main address and HA address of the master, as returned by the first name server; guarded by _lock.
        self.registered_master: tuple[str, str] | None = None
        # True for a slave when no name server knows a master with its name; guarded by _lock.
        self.lacks_master = False
        # Number of name servers that accepted the last registration; guarded by _lock.
        self.name_servers_registered = 0

    def register_increment_broker_data(self, topic_config: TopicConfig) -> None:
        """Register one topic that was created or changed."""
        with self._lock:
            if self._may_register():
                self._do_register_broker_all(True, False, topic_config.topicName)

    def register_broker_all(self, check_order_config: bool, oneway: bool, force_register: bool) -> None:
        """Register all topics; without `force_register` only if a name server lacks some of them."""
        with self._lock:
            if self._may_register() and (force_register or self._need_register()):
                self._do_register_broker_all(check_order_config, oneway)

    def register_another_owner(self, check_order_config: bool) -> None:
        """Register all topics under a new version after a change of role or permission."""
        self._topics.note_another_owner()
        self.register_broker_all(check_order_config, False, True)

    def register_broker_at_once(self) -> None:
        """Register all topics, even while another registration still waits for an unresponsive name server."""
        has_lock = self._lock.acquire(timeout=_REGISTER_PATIENCE_S)
        try:
            if self._may_register():
                self._do_register_broker_all(True, False)
        finally:
            if has_lock:
                self._lock.release()

    def register_periodically(self) -> None:
        """Register all topics if a name server lacks some; always with forceRegister=true."""
        self.register_broker_all(True, False, self._config.forceRegister)

    def is_registered_everywhere(self) -> bool:
        """Return whether each name server accepted the last registration."""
        addresses = self._api.remoting_client.get_name_server_address_list() or []
        return self.name_servers_registered >= len(addresses)

    def unregister_broker_all(self) -> None:
        """Unregister the broker from all name servers."""
        self._api.unregister_broker_all(*self._place())

    def isolate(self) -> None:
        """Unregister the broker if it may be registered, and do not register it again."""
        with self._lock:
            if self._may_register():
                self.unregister_broker_all()
            self.is_isolated = True

    def _may_register(self) -> bool:
        # A slave that still has the master's id is in the middle of a role change, which registers at its end.
        is_changing = self._api.shared is not None and self._role.is_slave and self._role.broker_id == MASTER_ID
        return not self.is_isolated and not is_changing and self.may_register()

    def _place(self) -> Place:
        config, broker_id = self._config, self._role.broker_id
        return Place(config.brokerClusterName, self._addresses.registered_addr(broker_id), config.brokerName, broker_id)

    def _is_current(self, place: Place) -> bool:
        return self._may_register() and self._place() == place

    def _registered_topics(self, names: Iterable[str] | None) -> TopicConfigSerializeWrapper:
        """Return these topics, or all for None, in the form in which they are registered."""
        wrapper = self._topics.build_topic_config_serialize_wrapper(names)
        wrapper.topicConfigTable = {name: self._as_permitted(config)
                                    for name, config in wrapper.topicConfigTable.items()}
        return wrapper

    def _as_permitted(self, config: TopicConfig) -> TopicConfig:
        permission = self._config.brokerPermission
        if sys_flags.is_writeable(permission) and sys_flags.is_readable(permission):
            return config
        return TopicConfig(config.topicName, config.readQueueNums, config.writeQueueNums, permission)

    def _do_register_broker_all(self, check_order_config: bool, oneway: bool, alone: str | None = None) -> None:
        config, place = self._config, self._place()
        registration = Registration(self._topics.changes, self._registered_topics, alone)
        has_epoch = self._api.shared is not None and place.broker_id == MASTER_ID
        results = self._api.register_broker_all(
            *place, self._addresses.ha_server_addr, registration, [], oneway, config.registerBrokerTimeoutMills,
            config.compressedRegister, self.master_epoch() if has_epoch else 0)
        if not oneway:
            self.name_servers_registered = len(results)
        if not results:
            return
        result = results[0]
        if result.masterAddr is not None and result.masterAddr == self._addresses.master_address \
                and result.haServerAddr == self._addresses.ha_server_addr:
            # This broker's own registration, from when it was the master: no other broker is yet.
            result = RegisterBrokerResult(None, None, result.kvTable)
        self.registered_master = None if result.masterAddr is None or result.haServerAddr is None \
            else (result.masterAddr, result.haServerAddr)
        if self.on_master_ha is not None and result.haServerAddr is not None:
            self.on_master_ha(result.haServerAddr)
        if self.on_master is not None:
            self.on_master(result.masterAddr)
            self._note_master(has_master=bool(result.masterAddr))
        if check_order_config:
            self._topics.update_order_topic_config(result.kvTable)

    def _note_master(self, has_master: bool) -> None:
        """Warn once when no master has the slave's brokerName: it is misspelled, or the master is down."""
        lacked = self.lacks_master
        self.lacks_master = not has_master and self._role.is_slave
        # Differs: a slave that finds no master to follow is logged; the original logs nothing
        if self.lacks_master and not lacked:
            log.warning("%s", self.lacking_master_text())
        elif lacked and has_master:
            log.info("a master of brokerName=%s is registered now", self._config.brokerName)

    def lacking_master_text(self) -> str:
        """Return the warning for `lacks_master`."""
        follows, name_servers = self._store_config.haMasterAddress, self._config.namesrvAddr or "the name server"
        return (f"no master of brokerName={self._config.brokerName} is registered at {name_servers}: "
                + (f"this slave follows {follows} (its haMasterAddress) but receives neither topics nor offsets"
                   if follows else "this slave has no master to follow")
                + ". Start the master, or correct brokerName: it must match the master's")

    def _need_register(self) -> bool:
        version = self._topics.data_version.copy()
        return any(self._api.need_register(*self._place(), version, self._config.registerBrokerTimeoutMills))
