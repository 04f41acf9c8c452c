"""Admin requests that change a broker's role, and tell how its log came to be.

Admin requests about replication.
"""
import logging
import threading
from typing import TYPE_CHECKING

from rmqha.broker.processor.admin_handlers import AdminHandlers, Handler, success, system_error
from rmqha.broker.slave_synchronize import handshake_fields
from rmqha.common import mix_all
from rmqha.common.protocol import log_checksums, request_code
from rmqha.common.protocol.admin_headers import (
    HandoverMasterRequestHeader,
    HandoverMasterResponseHeader,
    NotifyBrokerRoleChangedRequestHeader,
)
from rmqha.common.protocol.cluster_bodies import EpochEntry, EpochEntryCache
from rmqha.common.protocol.controller_headers import (
    GetCommitLogChecksumsRequestHeader,
    GetCommitLogChecksumsResponseHeader,
)
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.ha.autoswitch.auto_switch_ha_service import AutoSwitchHAService
from rmqha.store.ha.autoswitch.handover import HandoverError, hand_over
from rmqha.store.message_store_config import SLAVE, BrokerRole
from rmqha.store.record_check import block_checksums, newest_store_timestamp, store_timestamp_from

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.remoting.channel import Channel
    from rmqha.store.default_message_store import DefaultMessageStore


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
        controller.message_store.role.take_id(mix_all.MASTER_ID)
        self._register()
        return True

    def _change_to_slave(self, service: AutoSwitchHAService, header: NotifyBrokerRoleChangedRequestHeader) -> bool:
        controller = self.broker_controller
        if not service.change_to_slave(header.masterHaAddress, header.masterEpoch):
            return False
        controller.message_store.role.take_id(service.local_broker_id)
        controller.message_store.handle_schedule_message_service(BrokerRole.SLAVE)
        controller.transactional_message_check_service.shutdown()
        controller.handle_slave_synchronize(BrokerRole.SLAVE)
        self._register()
        return True

    def _register(self) -> None:
        controller = self.broker_controller
        controller.topic_config_manager.note_another_owner()
        controller.register_broker_all(True, False, True)


class AdminHaHandlers(AdminHandlers):
    """How replication stands."""

    def handlers(self) -> dict[int, Handler]:
        """Handler by request code."""
        return {request_code.GET_BROKER_HA_STATUS: self.get_broker_ha_status,
                request_code.REJOIN_MASTER: self.rejoin_master,
                request_code.GET_COMMIT_LOG_CHECKSUMS: self.get_commit_log_checksums}

    def get_broker_ha_status(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """A master's slaves, or a slave's connection to its master, as 5.1.4's haStatus asks for it.

        Java: org.apache.rocketmq.broker.processor.AdminBrokerProcessor#getBrokerHaStatus (5.1.4)
        """
        # Differs: 4.9 does not know the request
        store = self.broker_controller.message_store
        response = success(store.ha_service.get_runtime_info(store.get_max_phy_offset()))
        for name, value in handshake_fields(self.broker_controller).items():
            response.add_ext_field(name, value)
        return response

    def rejoin_master(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """A slave that has diverged cuts off what its master does not have, at its next handshake."""
        store = self.broker_controller.message_store
        if store.message_store_config.brokerRole is not SLAVE:
            return system_error("this broker is no slave")
        if store.ha_service.divergence.found_in_log is None:
            return system_error("this slave's log has not diverged from its master's, as far as it knows")
        store.ha_service.ha_client.rejoin()
        return success()

    def get_commit_log_checksums(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """CRC32 of blocks of the log, by which a slave or a tool compares it with another replica's."""
        header = request.decode_command_custom_header(GetCommitLogChecksumsRequestHeader)
        store = self.broker_controller.message_store
        blocks: list[bytes] | None = [] if header.withBytes else None
        crcs = block_checksums(store, header.offset, header.blockSize, header.count, blocks)
        return success(log_checksums.encode(crcs) + b"".join(blocks or ()), GetCommitLogChecksumsResponseHeader(
            minOffset=store.get_min_phy_offset(), maxOffset=store.get_max_phy_offset()))


def replication_times(store: "DefaultMessageStore") -> dict[str, str]:
    """By how many ms of stored messages each slave is behind, for GET_BROKER_RUNTIME_INFO.

    `haSlaveLagMs_<address>`: the time of the newest record less that of the first which the slave has not got.
    """
    # Differs: 4.9 tells no times
    newest = newest_store_timestamp(store)
    if newest is None:
        return {}
    times = {"haNewestStoreTimestamp": str(newest)}
    for connection in store.ha_service.connection_list:
        acked = connection.slave_ack_offset
        if acked >= 0:
            first = store_timestamp_from(store, acked) if acked < store.get_max_phy_offset() else None
            times[f"haSlaveLagMs_{connection.client_addr}"] = str(max(newest - first, 0) if first is not None else 0)
    return times
