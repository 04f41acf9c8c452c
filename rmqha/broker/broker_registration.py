"""A broker tells the name servers its topics and addresses, and hears of them which master has its name.

    pools, BrokerControllerScheduledThread1, ReplicasManager_RegisterThread_ --one at a time--> BrokerOuterAPI
"""
import logging
import threading
from collections.abc import Callable, Iterable

from rmqha.broker.broker_addresses import BrokerAddresses
from rmqha.broker.broker_outer_api import BrokerOuterAPI, Registration
from rmqha.broker.topic_config_manager import TopicConfigManager
from rmqha.common import sys_flags
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.protocol.table_bodies import TopicConfigSerializeWrapper
from rmqha.common.topics import TopicConfig
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.store.role import Role

log = logging.getLogger("RocketmqBroker")

_REGISTER_PATIENCE_S = 0.05


class BrokerRegistration:
    """Registers one broker at its name servers, and takes it away again. Any thread.

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
        # a controller has not decided this broker's role yet: no name server hears of it
        self.is_isolated = broker_config.enableControllerMode
        self.may_register: Callable[[], bool] = lambda: True  # asked while it is not isolated
        self.on_master: Callable[[str | None], None] | None = None  # told the master's address, None: there is none
        self.on_master_ha: Callable[[str], None] | None = None  # told its HA address
        # main address and HA address of the master that the first name server has told; guarded by _lock
        self.registered_master: tuple[str, str] | None = None
        self.lacks_master = False  # a slave, and no name server knows a master of its name; under _lock
        self.name_servers_registered = 0  # that took the last registration; guarded by _lock

    def register_increment_broker_data(self, topic_config: TopicConfig) -> None:
        """Register one topic that was made or changed."""
        with self._lock:
            if self._may_register():
                self._do_register_broker_all(True, False, topic_config.topicName)

    def register_broker_all(self, check_order_config: bool, oneway: bool, force_register: bool) -> None:
        """Register all topics, unless the name servers have them already and `force_register` is false."""
        with self._lock:
            if self._may_register() and (force_register or self._need_register()):
                self._do_register_broker_all(check_order_config, oneway)

    def register_another_owner(self, check_order_config: bool) -> None:
        """Register all topics, which name servers are to take anew: role or permission is another one."""
        self._topics.note_another_owner()
        self.register_broker_all(check_order_config, False, True)

    def register_broker_at_once(self) -> None:
        """Register all topics, even while another registration still waits for a name server that does not answer."""
        has_lock = self._lock.acquire(timeout=_REGISTER_PATIENCE_S)
        try:
            if self._may_register():
                self._do_register_broker_all(True, False)
        finally:
            if has_lock:
                self._lock.release()

    def register_periodically(self) -> None:
        """Register all topics if a name server lacks some, or always, as the configuration says."""
        self.register_broker_all(True, False, self._config.forceRegister)

    def is_registered_everywhere(self) -> bool:
        """Whether each name server took the last registration."""
        addresses = self._api.remoting_client.get_name_server_address_list() or []
        return self.name_servers_registered >= len(addresses)

    def unregister_broker_all(self) -> None:
        """Take the broker away from all name servers."""
        config = self._config
        self._api.unregister_broker_all(config.brokerClusterName, self._addresses.broker_addr, config.brokerName,
                                        config.brokerId)

    def isolate(self) -> None:
        """Take the broker away, if it may be there, and register it no more."""
        with self._lock:
            if self._may_register():
                self.unregister_broker_all()
            self.is_isolated = True

    def _may_register(self) -> bool:
        return not self.is_isolated and self.may_register()

    def _registered_topics(self, names: Iterable[str] | None) -> TopicConfigSerializeWrapper:
        """These topics, or all, as name servers are told of them."""
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
        config, addresses = self._config, self._addresses
        registration = Registration(self._topics.changes, self._registered_topics, alone)
        results = self._api.register_broker_all(
            config.brokerClusterName, addresses.broker_addr, config.brokerName, config.brokerId,
            addresses.ha_server_addr, registration, [], oneway, config.registerBrokerTimeoutMills,
            config.compressedRegister)
        if not oneway:
            self.name_servers_registered = len(results)
        if not results:
            return
        result = results[0]
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
        """Warn once when no master has a slave's name: it is misspelt, or the master is gone."""
        lacked = self.lacks_master
        self.lacks_master = not has_master and self._role.is_slave
        # Differs: the original says nothing, and follows nobody for ever
        if self.lacks_master and not lacked:
            log.warning("%s", self.lacking_master_text())
        elif lacked and has_master:
            log.info("a master of brokerName=%s is registered now", self._config.brokerName)

    def lacking_master_text(self) -> str:
        """What is wrong when `lacks_master`."""
        follows, name_servers = self._store_config.haMasterAddress, self._config.namesrvAddr or "the name server"
        return (f"no master of brokerName={self._config.brokerName} is registered at {name_servers}: "
                + (f"this slave follows {follows} by its haMasterAddress, and gets neither topics nor offsets"
                   if follows else "this slave has nobody to follow")
                + ". Start the master, or correct brokerName: it has to be the master's")

    def _need_register(self) -> bool:
        config = self._config
        version = self._topics.data_version.copy()
        return any(self._api.need_register(
            config.brokerClusterName, self._addresses.broker_addr, config.brokerName, config.brokerId, version,
            config.registerBrokerTimeoutMills))
