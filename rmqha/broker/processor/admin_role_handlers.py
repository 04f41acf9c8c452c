"""Admin requests that change a broker's role, and tell how its log came to be."""
import logging
import threading
from typing import TYPE_CHECKING

from rmqha.broker.processor.admin_handlers import AdminHandlers, Handler, success, system_error
from rmqha.common import mix_all
from rmqha.common.protocol import request_code
from rmqha.common.protocol.admin_headers import (
    HandoverMasterRequestHeader,
    HandoverMasterResponseHeader,
    NotifyBrokerRoleChangedRequestHeader,
)
from rmqha.common.protocol.cluster_bodies import EpochEntry, EpochEntryCache
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.ha.autoswitch.auto_switch_ha_service import AutoSwitchHAService
from rmqha.store.ha.autoswitch.put_guard import HandoverError, hand_over
from rmqha.store.message_store_config import BrokerRole

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.remoting.channel import Channel

log = logging.getLogger("RocketmqBroker")

_NO_ROLES = "this broker's role does not change: its configuration lacks enableAutoSwitchHA=true"


class AdminRoleHandlers(AdminHandlers):
    """Who is the master is told by these requests: by a controller, or by `rmqha ha promote` where there is none.

    Java: org.apache.rocketmq.broker.controller.ReplicasManager (5.1.4)
    """

    def __init__(self, broker_controller: "BrokerController") -> None:
        super().__init__(broker_controller)
        self._change = threading.Lock()  # one role change at a time

    def handlers(self) -> dict[int, Handler]:
        """Handler by request code."""
        return {request_code.GET_BROKER_EPOCH_CACHE: self.get_broker_epoch_cache,
                request_code.NOTIFY_BROKER_ROLE_CHANGED: self.notify_broker_role_changed,
                request_code.HANDOVER_MASTER: self.handover_master}

    def _service(self) -> AutoSwitchHAService | None:
        service = self.broker_controller.message_store.ha_service
        return service if isinstance(service, AutoSwitchHAService) else None

    def get_broker_epoch_cache(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """This replica's id, the epochs of its log, and the log's end."""
        service, config = self._service(), self.broker_controller.broker_config
        if service is None:
            return system_error(_NO_ROLES)
        entries = [EpochEntry(*entry) for entry in service.epoch_cache.get_all_entries()]
        return success(EpochEntryCache(config.brokerClusterName, config.brokerName, service.local_broker_id, entries,
                                       self.broker_controller.message_store.get_max_phy_offset()))

    def notify_broker_role_changed(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Become the master, or follow the one that is named."""
        header = request.decode_command_custom_header(NotifyBrokerRoleChangedRequestHeader)
        service = self._service()
        if service is None:
            return system_error(_NO_ROLES)
        log.info("Receive notifyBrokerRoleChanged request, try to change brokerRole, request:%s", header)
        manager = self.broker_controller.replicas_manager
        if manager is not None:
            from rmqha.common.protocol.cluster_bodies import SyncStateSet  # most brokers have no controller

            told = remoting_serializable.from_json(SyncStateSet, request.body or b"{}")
            manager.change_broker_role(header.masterBrokerId, header.masterAddress, header.masterEpoch,
                                       told.syncStateSet, header.syncStateSetEpoch or told.syncStateSetEpoch,
                                       header.masterHaAddress)
            manager.beat_now()  # a controller that has begun to lead tells so by the same notice
            return success()
        with self._change:
            if header.masterBrokerId == service.local_broker_id:
                done = self._change_to_master(service, header.masterEpoch)
            else:
                done = self._change_to_slave(service, header)
        if not done:
            return system_error(f"epoch {header.masterEpoch} is too old: the last one of this log is "
                                f"{service.epoch_cache.last_epoch()}")
        return success()

    def handover_master(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Take no messages until another replica holds all of them, and is the master."""
        header = request.decode_command_custom_header(HandoverMasterRequestHeader)
        service = self._service()
        if service is None:
            return system_error(_NO_ROLES)
        try:
            end = hand_over(service, header.brokerId or 0, header.timeoutMillis or 0)
        except HandoverError as error:
            return system_error(f"the mastership is not handed over: {error}")
        return success(header=HandoverMasterResponseHeader(maxOffset=end))

    def _change_to_master(self, service: AutoSwitchHAService, epoch: int) -> bool:
        controller = self.broker_controller
        if not service.change_to_master(epoch):
            return False
        role = controller.message_store_config.brokerRole
        controller.handle_slave_synchronize(role)
        controller.message_store.handle_schedule_message_service(role)
        controller.transactional_message_service.open()
        controller.transactional_message_check_service.start()
        controller.broker_config.brokerId = mix_all.MASTER_ID
        self._register()
        return True

    def _change_to_slave(self, service: AutoSwitchHAService, header: NotifyBrokerRoleChangedRequestHeader) -> bool:
        controller = self.broker_controller
        if not service.change_to_slave(header.masterHaAddress, header.masterEpoch):
            return False
        controller.broker_config.brokerId = service.local_broker_id
        controller.message_store.handle_schedule_message_service(BrokerRole.SLAVE)
        controller.transactional_message_check_service.shutdown()
        controller.handle_slave_synchronize(BrokerRole.SLAVE)
        self._register()
        return True

    def _register(self) -> None:
        controller = self.broker_controller
        controller.topic_config_manager.note_another_owner()
        controller.register_broker_all(True, False, True)
