"""Requests to the controller of automatic failover, one method each.

MQClientAPIImpl inherits these methods; as there, each takes an address and a timeout in ms. `controller_addr` is any
controller of a group. Requests that only the leader can answer are sent to the leader that this controller names.
"""
from typing import Any

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.client_remoting_processor import ClientRemoting
from rmqha.common import java, mix_all
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.cluster_bodies import (
    BrokerMemberGroup,
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    EpochEntryCache,
    SyncStateSet,
)
from rmqha.common.protocol.command_custom_header import CommandCustomHeader
from rmqha.common.protocol.controller_headers import (
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
)
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand

# Requests whose errors are raised as MQClientException.
_CLIENT_EXCEPTION_CODES = frozenset((request_code.GET_CONTROLLER_CONFIG, request_code.UPDATE_CONTROLLER_CONFIG))


class MQClientAPIController:
    """The part of MQClientAPIImpl with the requests to controllers.

    Java: org.apache.rocketmq.client.impl.MQClientAPIImpl (5.1.4)
    """

    remoting_client: ClientRemoting

    def get_controller_meta_data(self, controller_addr: str, timeout_ms: float) -> GetMetaDataResponseHeader:
        """Return the group of a controller, its members, and its leader."""
        response = self._ask_controller(controller_addr, request_code.CONTROLLER_GET_METADATA_INFO, None, timeout_ms)
        return response.decode_command_custom_header(GetMetaDataResponseHeader)

    def get_in_sync_state_data(
        self, controller_addr: str, broker_names: list[str], timeout_ms: float
    ) -> BrokerReplicasInfo:
        """Return the master, epochs and replicas of broker names, without names unknown to the controller."""
        response = self._ask_leader(controller_addr, request_code.CONTROLLER_GET_SYNC_STATE_DATA, None, timeout_ms,
                                    remoting_serializable.encode(broker_names))
        return remoting_serializable.from_json(BrokerReplicasInfo, response.body or b"{}")

    def get_replica_info(
        self, controller_addr: str, broker_name: str, timeout_ms: float
    ) -> tuple[GetReplicaInfoResponseHeader, SyncStateSet]:
        """Return the master of a broker name, and its sync-state set."""
        header = GetReplicaInfoRequestHeader(brokerName=broker_name)
        response = self._ask_leader(controller_addr, request_code.CONTROLLER_GET_REPLICA_INFO, header, timeout_ms)
        return (response.decode_command_custom_header(GetReplicaInfoResponseHeader),
                remoting_serializable.from_json(SyncStateSet, response.body or b"{}"))

    def elect_master(
        self, controller_addr: str, cluster_name: str, broker_name: str, broker_id: int, timeout_ms: float
    ) -> tuple[ElectMasterResponseHeader, BrokerMemberGroup | None]:
        """Make a replica the master.

        Differs: a client reads a controller's replicas from the place where the controller writes them; 5.1.4's tool
        looks one level too high.
        """
        header = ElectMasterRequestHeader(clusterName=cluster_name, brokerName=broker_name, brokerId=broker_id,
                                          designateElect=True)
        response = self._ask_leader(controller_addr, request_code.CONTROLLER_ELECT_MASTER, header, timeout_ms)
        body = remoting_serializable.from_json(ElectMasterResponseBody, response.body or b"{}")
        return response.decode_command_custom_header(ElectMasterResponseHeader), body.brokerMemberGroup

    def clean_controller_broker_data(
        self, controller_addr: str, cluster_name: str | None, broker_name: str, broker_ids: str | None,
        clean_living_broker: bool, timeout_ms: float
    ) -> None:
        """Have the controller forget replicas: those with the ids in `broker_ids`, separated by `;`, or (None) all."""
        header = CleanControllerBrokerDataRequestHeader(
            clusterName=cluster_name, brokerName=broker_name, brokerControllerIdsToClean=broker_ids,
            isCleanLivingBroker=clean_living_broker)
        self._ask_leader(controller_addr, request_code.CLEAN_BROKER_DATA, header, timeout_ms)

    def get_controller_config(self, controller_addr: str, timeout_ms: float) -> dict[str, str]:
        """Return all settings of one controller."""
        response = self._ask_controller(controller_addr, request_code.GET_CONTROLLER_CONFIG, None, timeout_ms)
        return java.loads(bytes(response.body or b"").decode("utf-8"))

    def update_controller_config(self, controller_addr: str, properties: dict[str, str], timeout_ms: float) -> None:
        """Change settings of one controller."""
        body = mix_all.properties2string(properties).encode("utf-8")
        if body:
            self._ask_controller(controller_addr, request_code.UPDATE_CONTROLLER_CONFIG, None, timeout_ms, body)

    def get_broker_epoch_cache(self, addr: str, timeout_ms: float) -> EpochEntryCache:
        """Return a replica's id, the epochs of its log, and the end of the log."""
        response = self._ask_controller(addr, request_code.GET_BROKER_EPOCH_CACHE, None, timeout_ms)
        return remoting_serializable.from_json(EpochEntryCache, response.body or b"{}")

    # ---- sending the requests

    def _ask_leader(
        self, controller_addr: str, code: int, header: CommandCustomHeader | None, timeout_ms: float,
        body: bytes | None = None
    ) -> RemotingCommand:
        leader = self.get_controller_meta_data(controller_addr, timeout_ms).controllerLeaderAddress
        if not leader:
            # Differs: a controller that knows no leader is reported, where 5.1.4 sends the request to a name server
            raise MQClientException(f"the controller {controller_addr} does not know a leader",
                                    response_code.CONTROLLER_NOT_LEADER)
        return self._ask_controller(leader, code, header, timeout_ms, body)

    def _ask_controller(
        self, addr: str, code: int, header: CommandCustomHeader | None, timeout_ms: float, body: bytes | None = None
    ) -> RemotingCommand:
        request: Any = RemotingCommand.create_request_command(code, header)
        request.body = body
        response = self.remoting_client.invoke_sync(addr, request, timeout_ms)
        if response.code == response_code.SUCCESS:
            return response
        if code in _CLIENT_EXCEPTION_CODES:
            raise MQClientException(response.remark, response.code)
        raise MQBrokerException(response.code, response.remark, addr)
