"""Heartbeats of brokers.

    IO thread: noted, before the end of their connection can be  -->  ControllerHeartbeatThread_<n>: answered
"""
from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from rmqha.common.futures import Completable
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.controller_headers import BrokerHeartbeatRequestHeader
from rmqha.common.threads import NamedThreadPool
from rmqha.controller.broker_liveness import LAST_PRIORITY, NOT_TOLD_EPOCH, NOT_TOLD_OFFSET, BrokerLiveInfo
from rmqha.controller.controller_limits import check_names
from rmqha.remoting.interfaces import Answer
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.controller.controller_manager import ControllerManager
    from rmqha.remoting.channel import Channel

log = logging.getLogger("RocketmqController")

_DEFAULT_TIMEOUT_MS = 10_000  # of a broker that tells none
_THREADS = 16
_QUEUE = 10_000


class HeartbeatProcessor:
    """Notes each heartbeat where it was read, so that a store that takes its time makes no broker look dead.

    Every controller notes it; the leader tells who is the master, and grants that one its lease.

    Java: org.apache.rocketmq.controller.processor.ControllerRequestProcessor#handleBrokerHeartbeat (5.1.4)
    """

    def __init__(self, controller_manager: ControllerManager) -> None:
        self._manager = controller_manager
        self._pool = NamedThreadPool("ControllerHeartbeatThread_", _THREADS, _QUEUE)

    def shutdown(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def reject_request(self) -> bool:
        """Never."""
        return False

    def process_request(self, channel: Channel, request: RemotingCommand) -> Answer:
        """BROKER_HEARTBEAT. On the IO thread."""
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
        self._manager.note_heartbeat(info)
        answer: Completable[RemotingCommand | None] = Completable()
        self._pool.submit(self._answer, info, answer)
        return answer

    def _answer(self, info: BrokerLiveInfo, answer: Completable[RemotingCommand | None]) -> None:
        succeeded = False
        try:
            header = self._manager.controller.on_broker_heartbeat(info)
            response = RemotingCommand.create_response_command(response_code.SUCCESS, "Heart beat success", header)
            answer.complete(response)
            succeeded = True
        finally:
            if not succeeded:
                answer.complete(RemotingCommand.create_response_command(
                    response_code.SYSTEM_ERROR, "the store of the controller can't be read, see its log"))
            self._manager.controller.counts.requested(request_code.BROKER_HEARTBEAT, succeeded,
                                                      time.monotonic_ns() - info.heard_ns)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
