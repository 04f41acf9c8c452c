"""Admin requests about replication."""
from typing import TYPE_CHECKING

from rmqha.broker.processor.admin_handlers import AdminHandlers, Handler, success, system_error
from rmqha.broker.slave.master_inquiry import handshake_fields
from rmqha.common.protocol import log_checksums, request_code
from rmqha.common.protocol.controller_headers import (
    GetCommitLogChecksumsRequestHeader,
    GetCommitLogChecksumsResponseHeader,
)
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.message_store_config import SLAVE
from rmqha.store.record_check import block_checksums, newest_store_timestamp, store_timestamp_from

if TYPE_CHECKING:
    from rmqha.remoting.channel import Channel
    from rmqha.store.default_message_store import DefaultMessageStore


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
