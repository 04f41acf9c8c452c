"""Handlers of admin requests about a broker's role, the epochs of its log, and replication."""
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.broker.master_main_port import handshake_fields
from rmqha.broker.processor.admin_handlers import AdminHandlers, Handler, success, system_error
from rmqha.common import mix_all
from rmqha.common.broker_config import BrokerConfig
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
from rmqha.store.commit_log import CommitLog
from rmqha.store.ha.autoswitch.auto_switch_ha_service import AutoSwitchHAService
from rmqha.store.ha.autoswitch.handover import HandoverError, hand_over
from rmqha.store.ha.ha_service import HAService
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.store.record_check import newest_store_timestamp, store_timestamp_from
from rmqha.store.role import Role

if TYPE_CHECKING:
    from rmqha.broker.broker_addresses import BrokerAddresses
    from rmqha.broker.broker_registration import BrokerRegistration
    from rmqha.broker.controller.replicas_manager import ReplicasManager
    from rmqha.broker.role_services import RoleServices
    from rmqha.remoting.channel import Channel
    from rmqha.store.default_message_store import DefaultMessageStore


log = logging.getLogger("RocketmqBroker")

_NO_ROLES = "this broker's role cannot be changed: enableAutoSwitchHA=true is not set in its configuration"


class AdminRoleHandlers(AdminHandlers):
    """Handlers for role changes, which a controller requests, or `rmqha ha promote` without a controller.

    Java: org.apache.rocketmq.broker.controller.ReplicasManager (5.1.4)
    """

    def __init__(self, broker_config: BrokerConfig, ha_service: AutoSwitchHAService | None, log_end: Callable[[], int],
                 roles: "RoleServices", registration: "BrokerRegistration",
                 replicas_manager: "ReplicasManager | None") -> None:
        self._config = broker_config
        self._ha_service = ha_service  # None: the role does not change
        self._log_end = log_end
        self._roles = roles
        self._registration = registration
        self._replicas_manager = replicas_manager  # None: no controller decides the role
        self._change = threading.Lock()  # one role change at a time

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {request_code.GET_BROKER_EPOCH_CACHE: self.get_broker_epoch_cache,
                request_code.NOTIFY_BROKER_ROLE_CHANGED: self.notify_broker_role_changed,
                request_code.HANDOVER_MASTER: self.handover_master}

    def get_broker_epoch_cache(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """Return this replica's id, the epochs of its log, and the end of the log."""
        service, config = self._ha_service, self._config
        if service is None:
            return system_error(_NO_ROLES)
        entries = [EpochEntry(*entry) for entry in service.epoch_cache.get_all_entries()]
        return success(EpochEntryCache(config.brokerClusterName, config.brokerName, service.local_broker_id, entries,
                                       self._log_end()))

    def notify_broker_role_changed(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Become the master, or follow the master in the request."""
        header = request.decode_command_custom_header(NotifyBrokerRoleChangedRequestHeader)
        service = self._ha_service
        if service is None:
            return system_error(_NO_ROLES)
        log.info("Receive notifyBrokerRoleChanged request, try to change brokerRole, request:%s", header)
        manager = self._replicas_manager
        if manager is not None:
            # Imported here because most brokers have no controller.
            from rmqha.common.protocol.cluster_bodies import SyncStateSet

            told = remoting_serializable.from_json(SyncStateSet, request.body or b"{}")
            manager.change_broker_role(header.masterBrokerId, header.masterAddress, header.masterEpoch,
                                       told.syncStateSet, header.syncStateSetEpoch or told.syncStateSetEpoch,
                                       header.masterHaAddress)
            # A controller that has just become the leader sends the same request.
            manager.beat_now()
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
        """Hand the mastership over: accept no messages until another replica has all of them and is the master."""
        header = request.decode_command_custom_header(HandoverMasterRequestHeader)
        service = self._ha_service
        if service is None:
            return system_error(_NO_ROLES)
        try:
            end = hand_over(service, header.brokerId or 0, header.timeoutMillis or 0)
        except HandoverError as error:
            return system_error(f"the mastership was not handed over: {error}")
        return success(header=HandoverMasterResponseHeader(maxOffset=end))

    def _change_to_master(self, service: AutoSwitchHAService, epoch: int) -> bool:
        if not service.change_to_master(epoch):
            return False
        self._roles.becomes_master()
        service.role.take_id(mix_all.MASTER_ID)
        self._registration.register_another_owner(check_order_config=True)
        return True

    def _change_to_slave(self, service: AutoSwitchHAService, header: NotifyBrokerRoleChangedRequestHeader) -> bool:
        if not service.change_to_slave(header.masterHaAddress, header.masterEpoch):
            return False
        service.role.take_id(service.local_broker_id)
        self._roles.becomes_slave()
        self._registration.register_another_owner(check_order_config=True)
        return True


class AdminHaHandlers(AdminHandlers):
    """Handlers for the state of replication, and for requests of slaves that concern no table of the broker."""

    def __init__(self, message_store_config: MessageStoreConfig, role: Role, addresses: "BrokerAddresses",
                 ha_service: HAService, commit_log: CommitLog,
                 checksums: Callable[[int, int, int, list[bytes] | None], list[int]],
                 encode_delay_offsets: Callable[[], str]) -> None:
        self._store_config = message_store_config
        self._role = role
        self._addresses = addresses
        self._ha_service = ha_service
        self._commit_log = commit_log
        # Returns checksums of blocks of the log.
        self._checksums = checksums
        self._encode_delay_offsets = encode_delay_offsets

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {request_code.GET_BROKER_HA_STATUS: self.get_broker_ha_status,
                request_code.GET_ALL_DELAY_OFFSET: self.get_all_delay_offset,
                request_code.REJOIN_MASTER: self.rejoin_master,
                request_code.GET_COMMIT_LOG_CHECKSUMS: self.get_commit_log_checksums}

    def get_broker_ha_status(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """Return a master's slaves, or a slave's connection to its master, for haStatus of 5.1.4.

        Java: org.apache.rocketmq.broker.processor.AdminBrokerProcessor#getBrokerHaStatus (5.1.4)
        """
        # Differs: 4.9 does not know GET_BROKER_HA_STATUS
        response = success(self._ha_service.get_runtime_info(self._commit_log.get_max_offset()))
        for name, value in handshake_fields(self._store_config, self._ha_service, self._addresses).items():
            response.add_ext_field(name, value)
        return response

    def get_all_delay_offset(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """Return the progress of delivery for each delay level."""
        return success(self._encode_delay_offsets())

    def rejoin_master(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """Have a diverged slave truncate its log, at the next handshake, to the part that it shares with its master."""
        if not self._role.is_slave:
            return system_error("this broker is not a slave")
        if self._ha_service.divergence.found_in_log is None:
            return system_error("this slave's log has not diverged from its master's, as far as it knows")
        self._ha_service.ha_client.rejoin()
        return success()

    def get_commit_log_checksums(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return CRC32s of blocks of the log, for a slave or a tool that compares it with another replica's."""
        header = request.decode_command_custom_header(GetCommitLogChecksumsRequestHeader)
        blocks: list[bytes] | None = [] if header.withBytes else None
        crcs = self._checksums(header.offset, header.blockSize, header.count, blocks)
        return success(log_checksums.encode(crcs) + b"".join(blocks or ()), GetCommitLogChecksumsResponseHeader(
            minOffset=self._commit_log.get_min_offset(), maxOffset=self._commit_log.get_max_offset()))


def replication_times(store: "DefaultMessageStore") -> dict[str, str]:
    """Return how many ms of stored messages each slave is behind, for GET_BROKER_RUNTIME_INFO.

    `haSlaveLagMs_<address>`: the store time of the newest record minus that of the first record that the slave lacks.
    """
    # Differs: the state of replication has each slave's lag as a time, too; 4.9 reports no times
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
