"""What a broker asks the controllers of automatic failover."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from rmqha.broker.out.broker_outer_api import BrokerAnswerException
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.cluster_bodies import ElectMasterResponseBody, SyncStateSet
from rmqha.common.protocol.controller_headers import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    BrokerHeartbeatRequestHeader,
    BrokerHeartbeatResponseHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import WatchedClient

if TYPE_CHECKING:
    from rmqha.common.protocol.command_custom_header import CommandCustomHeader
    from rmqha.remoting.interfaces import RPCHook
    from rmqha.remoting.remoting_config import ClientConfig

_TIMEOUT_MS = 3000

Header = TypeVar("Header", bound="CommandCustomHeader")


class ControllerApi:
    """Each call raises RemotingException, of which BrokerAnswerException has the controller's code, or FastjsonError.

    Java: org.apache.rocketmq.broker.out.BrokerOuterAPI (5.1.4)
    """

    def __init__(self, client_config: ClientConfig, before_close: Callable[[], None],
                 after_close: Callable[[], None]) -> None:
        self.remoting_client = WatchedClient(client_config, before_close, after_close)

    def register_rpc_hook(self, rpc_hook: RPCHook) -> None:
        """Let a hook see the requests and answers."""
        self.remoting_client.register_rpc_hook(rpc_hook)

    def start(self) -> None:
        """Open the client."""
        self.remoting_client.start()

    def shutdown(self) -> None:
        """Close all connections, and end the calls. Idempotent."""
        self.remoting_client.shutdown()

    def close_all(self) -> None:
        """Close all connections; the next call opens another one."""
        for address in list(self.remoting_client.channel_tables):
            self.remoting_client.close_channel(address)

    def close(self, address: str) -> None:
        """Close the connection to a controller."""
        self.remoting_client.close_channel(address)

    def get_controller_meta_data(self, address: str, timeout_ms: int = _TIMEOUT_MS) -> GetMetaDataResponseHeader:
        """Which controller leads, as this one knows."""
        return self._ask(address, request_code.CONTROLLER_GET_METADATA_INFO, None, GetMetaDataResponseHeader,
                         timeout_ms)[0]

    def alter_sync_state_set(self, address: str, header: AlterSyncStateSetRequestHeader, members: Iterable[int],
                             epoch: int, timeout_ms: int = _TIMEOUT_MS) -> SyncStateSet:
        """Ask for another sync-state set than that of `epoch`; the one that the controller has then."""
        request = RemotingCommand.create_request_command(request_code.CONTROLLER_ALTER_SYNC_STATE_SET, header)
        request.body = remoting_serializable.encode(SyncStateSet(sorted(members), epoch))
        return _sync_state_set(self._invoke(address, request, timeout_ms))

    def broker_elect(self, address: str, cluster: str, name: str,
                     broker_id: int) -> tuple[ElectMasterResponseHeader, list[int]]:
        """Try to become the master; who it is then, and the sync-state set."""
        header = ElectMasterRequestHeader(cluster, name, broker_id, False)
        request = RemotingCommand.create_request_command(request_code.CONTROLLER_ELECT_MASTER, header)
        response = self.remoting_client.invoke_sync(address, request, _TIMEOUT_MS)
        if response.code not in (response_code.SUCCESS, response_code.CONTROLLER_MASTER_STILL_EXIST):
            raise BrokerAnswerException(response.code, response.remark, address)
        body = remoting_serializable.from_json(ElectMasterResponseBody, response.body or b"{}")
        return response.decode_command_custom_header(ElectMasterResponseHeader), body.syncStateSet or []

    def get_next_broker_id(self, address: str, cluster: str, name: str) -> int | None:
        """The id that is not taken yet."""
        header = GetNextBrokerIdRequestHeader(cluster, name)
        return self._ask(address, request_code.CONTROLLER_GET_NEXT_BROKER_ID, header,
                         GetNextBrokerIdResponseHeader)[0].nextBrokerId

    def apply_broker_id(self, address: str, header: ApplyBrokerIdRequestHeader) -> None:
        """Take an id."""
        self._invoke(address, RemotingCommand.create_request_command(request_code.CONTROLLER_APPLY_BROKER_ID, header))

    def register_broker_to_controller(self, address: str, header: RegisterBrokerToControllerRequestHeader) \
            -> tuple[RegisterBrokerToControllerResponseHeader, SyncStateSet]:
        """Say where this broker is; who is the master, and the sync-state set."""
        answer, response = self._ask(address, request_code.CONTROLLER_REGISTER_BROKER, header,
                                     RegisterBrokerToControllerResponseHeader)
        return answer, _sync_state_set(response)

    def get_replica_info(self, address: str, name: str,
                         timeout_ms: int = _TIMEOUT_MS) -> tuple[GetReplicaInfoResponseHeader, SyncStateSet]:
        """Who is the master, and the sync-state set."""
        answer, response = self._ask(address, request_code.CONTROLLER_GET_REPLICA_INFO,
                                     GetReplicaInfoRequestHeader(name), GetReplicaInfoResponseHeader, timeout_ms)
        return answer, _sync_state_set(response)

    def send_heartbeat(self, address: str, header: BrokerHeartbeatRequestHeader,
                       timeout_ms: int) -> BrokerHeartbeatResponseHeader:
        """This broker lives; what only a leading controller of rmqha tells then.

        Differs: 5.1.4 waits for no answer, so a master goes on when nobody hears it.
        """
        return self._ask(address, request_code.BROKER_HEARTBEAT, header, BrokerHeartbeatResponseHeader, timeout_ms)[0]

    def _ask(self, address: str, code: int, header: CommandCustomHeader | None, answer: type[Header],
             timeout_ms: int = _TIMEOUT_MS) -> tuple[Header, RemotingCommand]:
        response = self._invoke(address, RemotingCommand.create_request_command(code, header), timeout_ms)
        return response.decode_command_custom_header(answer), response

    def _invoke(self, address: str, request: RemotingCommand, timeout_ms: int = _TIMEOUT_MS) -> RemotingCommand:
        response = self.remoting_client.invoke_sync(address, request, timeout_ms)
        if response.code != response_code.SUCCESS:
            raise BrokerAnswerException(response.code, response.remark, address)
        return response


def _sync_state_set(response: RemotingCommand) -> SyncStateSet:
    return remoting_serializable.from_json(SyncStateSet, response.body or b"{}")
