"""Answers requests that brokers and tools send to a controller, and heartbeats of brokers.

The IO thread notes each heartbeat, always before it notes the end of its connection. A thread of the pool
ControllerHeartbeatThread_<n> answers it.
"""
from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from rmqha.common import logs, mix_all
from rmqha.common.configuration import ConfigError, Configuration, refused_keys
from rmqha.common.futures import Completable
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.cluster_bodies import SyncStateSet
from rmqha.common.protocol.controller_headers import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    BrokerHeartbeatRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    GetNextBrokerIdRequestHeader,
    GetReplicaInfoRequestHeader,
    RegisterBrokerToControllerRequestHeader,
)
from rmqha.common.threads import NamedThreadPool
from rmqha.controller.broker_liveness import LAST_PRIORITY, NOT_TOLD_EPOCH, NOT_TOLD_OFFSET, BrokerLiveInfo, check_names
from rmqha.controller.local_store import NotLeaderError, StoreFailedError
from rmqha.controller.replicas_info_manager import Decision
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.interfaces import Answer
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.controller.controller import Controller
    from rmqha.remoting.channel import Channel


log = logging.getLogger("RocketmqController")

T = TypeVar("T")
Handler = Callable[["Channel", RemotingCommand], RemotingCommand]


class ControllerRequestProcessor:
    """One handler per request code, except for heartbeats; all run in the controller's pool.

    Java: org.apache.rocketmq.controller.processor.ControllerRequestProcessor (5.1.4)
    """

    def __init__(self, controller: Controller, configuration: Configuration, peers: dict[str, str],
                 is_to_wait: Callable[[Channel, str | None], bool]) -> None:
        self._controller = controller
        self._configuration = configuration
        # Addresses of all controllers by their ids.
        self._peers = peers
        # Whether a polling broker will soon be notified of a new master.
        self._is_to_wait = is_to_wait
        self.handlers: dict[int, Handler] = {
            request_code.CONTROLLER_ALTER_SYNC_STATE_SET: self.handle_alter_sync_state_set,
            request_code.CONTROLLER_ELECT_MASTER: self.handle_controller_elect_master,
            request_code.CONTROLLER_GET_REPLICA_INFO: self.handle_controller_get_replica_info,
            request_code.CONTROLLER_GET_METADATA_INFO: self.handle_controller_get_metadata_info,
            request_code.CONTROLLER_GET_SYNC_STATE_DATA: self.handle_controller_get_sync_state_data,
            request_code.UPDATE_CONTROLLER_CONFIG: self.handle_update_controller_config,
            request_code.GET_CONTROLLER_CONFIG: self.handle_get_controller_config,
            request_code.CLEAN_BROKER_DATA: self.handle_clean_broker_data,
            request_code.CONTROLLER_GET_NEXT_BROKER_ID: self.handle_get_next_broker_id,
            request_code.CONTROLLER_APPLY_BROKER_ID: self.handle_apply_broker_id,
            request_code.CONTROLLER_REGISTER_BROKER: self.handle_register_broker,
        }

    def reject_request(self) -> bool:
        """Never."""
        return False

    def process_request(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Serve a request, and count it."""
        log.debug("Receive request, %d %s %s", request.code, parse_channel_remote_addr(channel), request)
        handler = self.handlers.get(request.code)
        if handler is None:
            return RemotingCommand.create_response_command(
                response_code.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")
        begin_ns, succeeded = time.monotonic_ns(), False
        try:
            response = handler(channel, request)
            succeeded = True
            return response
        except NotLeaderError:
            # Differs: the remark of a CONTROLLER_NOT_LEADER answer names the leader
            leader = self._controller.store.leader_address
            remark = "The controller is not in leader state"
            return RemotingCommand.create_response_command(
                response_code.CONTROLLER_NOT_LEADER, f"{remark}, the leader is {leader}" if leader else remark)
        except StoreFailedError as failure:
            log.error("process request: %s error, %s", request, failure)
            return RemotingCommand.create_response_command(response_code.SYSTEM_ERROR, str(failure))
        finally:
            self._controller.counts.requested(request.code, succeeded, time.monotonic_ns() - begin_ns)

    def handle_alter_sync_state_set(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Serve CONTROLLER_ALTER_SYNC_STATE_SET: the body is the requested set."""
        header = request.decode_command_custom_header(AlterSyncStateSetRequestHeader)
        return _response(self._controller.alter_sync_state_set(header, _body(SyncStateSet, request)))

    def handle_controller_elect_master(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CONTROLLER_ELECT_MASTER."""
        return _response(self._controller.elect_master(request.decode_command_custom_header(ElectMasterRequestHeader)))

    def handle_controller_get_replica_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CONTROLLER_GET_REPLICA_INFO."""
        header = request.decode_command_custom_header(GetReplicaInfoRequestHeader)
        if self._is_to_wait(channel, header.brokerName):
            return RemotingCommand.create_response_command(
                response_code.CONTROLLER_MASTER_NOT_AVAILABLE,
                f"the brokers of {header.brokerName} are being notified of a new master")
        return _response(self._controller.get_replica_info(header.brokerName))

    def handle_controller_get_metadata_info(self, _channel: Channel, _request: RemotingCommand) -> RemotingCommand:
        """Serve CONTROLLER_GET_METADATA_INFO, which every controller answers."""
        return RemotingCommand.create_response_command(
            response_code.SUCCESS, None, self._controller.get_controller_metadata(self._peers))

    def handle_controller_get_sync_state_data(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Serve CONTROLLER_GET_SYNC_STATE_DATA: the body is a list of broker names."""
        names = _body(list[str], request) if request.body else []
        if not names:
            # Differs: a request for sync-state sets without broker names gets an error with a message; 5.1.4's answer
            # has the code SYSTEM_ERROR, and no message
            return RemotingCommand.create_response_command(response_code.SYSTEM_ERROR, "no broker names in the body")
        response = RemotingCommand.create_response_command(response_code.SUCCESS, None)
        response.body = remoting_serializable.encode(self._controller.get_sync_state_data(names))
        return response

    def handle_update_controller_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Serve UPDATE_CONTROLLER_CONFIG: the body is a properties text."""
        log.info("updateConfig called by %s", parse_channel_remote_addr(channel))
        if request.body is None:
            return RemotingCommand.create_response_command(response_code.SUCCESS, None)
        text = bytes(request.body).decode("utf-8", "replace")
        properties = mix_all.string2properties(text)
        if properties is None:
            # Without the text, which may contain secrets.
            log.error("updateConfig MixAll.string2Properties error")
            return RemotingCommand.create_response_command(response_code.SYSTEM_ERROR, "string2Properties error")
        if "configStorePath" in properties:
            return RemotingCommand.create_response_command(response_code.NO_PERMISSION, "Can not update config path")
        fixed = refused_keys(properties)
        if fixed:
            # Differs: a controller refuses an update of keys that it reads only at its start; 5.1.4 accepts them,
            # without any effect
            return RemotingCommand.create_response_command(
                response_code.NO_PERMISSION, f"{', '.join(fixed)} can't be changed while the controller runs")
        try:
            self._configuration.update(properties)
        except ConfigError as failure:
            return RemotingCommand.create_response_command(response_code.SYSTEM_ERROR, str(failure))
        if "logLevel" in properties:
            logs.set_level(self._controller.config.logLevel)
        return RemotingCommand.create_response_command(response_code.SUCCESS, None)

    def handle_get_controller_config(self, _channel: Channel, _request: RemotingCommand) -> RemotingCommand:
        """Serve GET_CONTROLLER_CONFIG: all keys except secrets."""
        text = self._configuration.get_all_configs_format_string()
        response = RemotingCommand.create_response_command(response_code.SUCCESS, None)
        response.body = text.encode() or None
        return response

    def handle_clean_broker_data(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CLEAN_BROKER_DATA."""
        header = request.decode_command_custom_header(CleanControllerBrokerDataRequestHeader)
        return _response(self._controller.clean_broker_data(header))

    def handle_get_next_broker_id(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CONTROLLER_GET_NEXT_BROKER_ID."""
        header = request.decode_command_custom_header(GetNextBrokerIdRequestHeader)
        return _response(self._controller.get_next_broker_id(header))

    def handle_apply_broker_id(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CONTROLLER_APPLY_BROKER_ID."""
        header = request.decode_command_custom_header(ApplyBrokerIdRequestHeader)
        return _response(self._controller.apply_broker_id(header))

    def handle_register_broker(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CONTROLLER_REGISTER_BROKER."""
        header = request.decode_command_custom_header(RegisterBrokerToControllerRequestHeader)
        return _response(self._controller.register_broker(header))


def _body(kind: type[T], request: RemotingCommand) -> T:
    try:
        return remoting_serializable.decode(kind, request.body or b"")
    except ValueError as failure:
        raise RemotingCommandException(f"Failed to decode the body: {failure}") from failure


def _response(decision: Decision) -> RemotingCommand:
    response = RemotingCommand.create_response_command(decision.code, decision.remark, decision.header)
    if decision.body is not None:
        response.body = remoting_serializable.encode(decision.body)
    return response


# Of a broker that does not report one.
_DEFAULT_TIMEOUT_MS = 10_000
_THREADS = 16
_QUEUE = 10_000


class HeartbeatProcessor:
    """Notes each heartbeat where it was read, so that a slow store does not make brokers look dead.

    Every controller notes it; the leader answers with the name's master, and grants that one its lease.

    Java: org.apache.rocketmq.controller.processor.ControllerRequestProcessor#handleBrokerHeartbeat (5.1.4)
    """

    def __init__(self, controller: Controller, note_heartbeat: Callable[[BrokerLiveInfo], None]) -> None:
        self._controller = controller
        self._note_heartbeat = note_heartbeat
        self._pool = NamedThreadPool("ControllerHeartbeatThread_", _THREADS, _QUEUE)

    def shutdown(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def reject_request(self) -> bool:
        """Never."""
        return False

    def process_request(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Handle BROKER_HEARTBEAT. On the IO thread."""
        header = request.decode_command_custom_header(BrokerHeartbeatRequestHeader)
        if header.brokerId is None:
            return RemotingCommand.create_response_command(response_code.CONTROLLER_INVALID_REQUEST,
                                                           "Heart beat with empty brokerId")
        check_names(header.clusterName, header.brokerName, header.brokerAddr, header.haServerAddr)
        info = BrokerLiveInfo(
            (header.clusterName or "", header.brokerName or "", header.brokerId), header.brokerAddr or "",
            time.monotonic_ns(), max(0, _or(header.heartbeatTimeoutMills, _DEFAULT_TIMEOUT_MS)), channel,
            header.haServerAddr, _or(header.epoch, NOT_TOLD_EPOCH), _or(header.maxOffset, NOT_TOLD_OFFSET),
            _or(header.confirmOffset, NOT_TOLD_OFFSET), _or(header.electionPriority, LAST_PRIORITY),
            _or(header.leaderTerm, 0))
        self._note_heartbeat(info)
        answer: Completable[RemotingCommand | None] = Completable()
        self._pool.submit(self._answer, info, answer)
        return answer

    def _answer(self, info: BrokerLiveInfo, answer: Completable[RemotingCommand | None]) -> None:
        succeeded = False
        try:
            header = self._controller.on_broker_heartbeat(info)
            response = RemotingCommand.create_response_command(response_code.SUCCESS, "Heart beat success", header)
            answer.complete(response)
            succeeded = True
        finally:
            if not succeeded:
                answer.complete(RemotingCommand.create_response_command(
                    response_code.SYSTEM_ERROR, "the store of the controller can't be read, see its log"))
            self._controller.counts.requested(request_code.BROKER_HEARTBEAT, succeeded,
                                              time.monotonic_ns() - info.heard_ns)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
