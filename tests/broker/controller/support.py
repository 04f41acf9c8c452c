"""A broker and a replication service that only note what a ReplicasManager tells them."""
import threading
from types import SimpleNamespace

from rmqha.broker.controller.broker_id_registration import RegisterState
from rmqha.broker.controller.controller_heartbeat import MasterHaAddress
from rmqha.broker.controller.replicas_manager import ReplicasManager, State
from rmqha.common.broker_config import BrokerConfig
from rmqha.remoting.remoting_config import RemotingClientConfig
from rmqha.store.ha.autoswitch.auto_switch_ha_service import AutoSwitchHAService
from rmqha.store.message_store_config import BrokerRole, MessageStoreConfig
from rmqha.store.role import Role
from rmqha.store.running_flags import RunningFlags

ME, OTHER = 1, 2
HERE, THERE = "127.0.0.1:10911", "127.0.0.1:20911"


class FakeHa(AutoSwitchHAService):
    """Notes what it is told; no epoch up to `last_epoch` can be begun here."""

    def __init__(self) -> None:
        self.told: list[tuple] = []
        self.last_epoch = 0
        self.failing = False
        self.epoch_cache = SimpleNamespace(last_epoch=lambda: self.last_epoch)

    def _change(self, what: str, epoch: int, *rest: object) -> bool:
        if self.failing:
            raise OSError("the disk")
        if epoch <= self.last_epoch and what.startswith("master"):
            return False
        self.told.append((what, epoch, *rest))
        return True

    def change_to_master(self, master_epoch, sync_state_set=(), sync_state_set_epoch=0):
        return self._change("master", master_epoch, set(sync_state_set), sync_state_set_epoch)

    def change_to_master_when_last_role_is_master(self, master_epoch, sync_state_set=(), sync_state_set_epoch=0):
        return self._change("master again", master_epoch, set(sync_state_set), sync_state_set_epoch)

    def change_to_slave(self, new_master_addr, new_master_epoch=None):
        return self._change("slave", new_master_epoch, new_master_addr)

    def change_to_slave_when_master_not_change(self, new_master_addr, new_master_epoch):
        return self._change("slave again", new_master_epoch, new_master_addr)

    def update_master_address(self, new_addr):
        self.told.append(("address", new_addr))

    def set_sync_state_set(self, sync_state_set, epoch):
        self.told.append(("set", set(sync_state_set), epoch))

    def set_local_broker_id(self, broker_id):
        self.told.append(("id", broker_id))

    def lease_granted(self):
        self.told.append(("lease",))

    def use_lease(self, holds, renounce=None):
        self.holds = holds

    def register_sync_state_set_changed_listener(self, listener):
        self.told.append(("listener", listener))

    def confirm_offset(self):
        return 7


class _NoQueues(dict):
    lock = threading.Lock()


class FakeBroker:
    """As much of a broker's parts as a ReplicasManager asks for: it is all of them."""

    def __init__(self, **config: object) -> None:
        self.broker_config = BrokerConfig(
            brokerName="b", brokerClusterName="c", controllerAddr="127.0.0.1:1", enableControllerMode=True, **config)
        self.client_config = RemotingClientConfig()
        self.ha = FakeHa()
        self.ha.role = Role(MessageStoreConfig(), self.broker_config)
        self.message_store = SimpleNamespace(ha_service=self.ha, auto_switch=self.ha, running_flags=RunningFlags(),
                                             message_store_config=MessageStoreConfig(storePathRootDir="/nowhere"),
                                             get_max_phy_offset=lambda: 9,
                                             consume_queue_table=_NoQueues())
        self.broker_addr, self.ha_server_addr = HERE, "127.0.0.1:10912"
        self.is_isolated = True
        self.slave_sync: list[tuple[BrokerRole, str | None]] = []
        self.topic_config_manager = SimpleNamespace(note_another_owner=lambda: None, topic_config_table={})
        self.slave_synchronize = SimpleNamespace(take_consumer_offsets=lambda _address: None)

    def handle_slave_synchronize(self, role, master_address=None):
        self.slave_sync.append((role, master_address))

    def register_broker_at_once(self) -> None:
        pass

    def change_special_service_status(self, should_start: bool) -> None:
        pass


def registered_manager(**config: object) -> ReplicasManager:
    """A manager that has its id, and whose threads do not run."""
    broker = FakeBroker(**config)
    manager = ReplicasManager(broker.broker_config, broker.client_config, broker, broker.message_store,
                              broker.topic_config_manager, broker, broker, MasterHaAddress(None, broker))
    broker.message_store.running_flags.make_fenced(True)
    manager.registration.broker_id, manager.registration.state = ME, RegisterState.REGISTERED
    manager.state = State.REGISTER_TO_CONTROLLER_DONE
    return manager
