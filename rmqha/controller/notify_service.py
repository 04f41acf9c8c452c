"""Brokers are told who their master is, and an old master is asked to give way.

    Controller --an election--> ControllerManager_NotifyService_<n>, one task a broker --> the broker's port
    slaves that have to ask where the new master is are told when the old one and that one have answered
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.body.controller_bodies import SyncStateSet
from rmqha.common.protocol.header.role_headers import HandoverMasterRequestHeader, NotifyBrokerRoleChangedRequestHeader
from rmqha.common.thread_pool import NamedThreadPool, RejectedExecutionError
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient

log = logging.getLogger("RocketmqController")

_THREADS = 8
_QUEUE = 10_000
_NOTIFY_TIMEOUT_MS = 3_000
_CHANGE_TIMEOUT_MS = 2_000  # for a broker that is waited for to change its role
HANDOVER_MS = 1_000  # how long a master may wait for its successor to hold all
_HANDOVER_TIMEOUT_MS = HANDOVER_MS + 500


@dataclass(frozen=True)
class RoleChange:
    """Who is the master of a broker name from now on.

    Java: org.apache.rocketmq.remoting.protocol.RoleChangeNotifyEntry (5.1.4)
    """

    header: NotifyBrokerRoleChangedRequestHeader
    sync_state_set: SyncStateSet


class NotifyService:
    """Tells brokers of role changes, each once: who misses it hears it with the answer to its next heartbeat.

    Java: org.apache.rocketmq.controller.ControllerManager$NotifyService (5.1.4)
    """

    def __init__(self, client: RemotingClient) -> None:
        self._client = client
        self._pool = NamedThreadPool("ControllerManager_NotifyService_", _THREADS, _QUEUE)
        self._latest: dict[str, int] = {}  # the epoch of the last change for an address; single dict operations

    def shutdown(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def notify(self, addresses: Mapping[int, str], change: RoleChange, awaited: int | None = None,
               on_answered: Callable[[], None] | None = None) -> None:
        """Tell these brokers, `awaited` first.

        `on_answered` is called when that one has changed its role, or does not say so for a while, or is not told.
        """
        if on_answered is not None and awaited not in addresses:
            on_answered()
        for id_, address in sorted(addresses.items(), key=lambda item: item[0] != awaited):
            self._latest[address] = change.header.masterEpoch
            try:
                self._pool.submit(self._tell, address, change, on_answered if id_ == awaited else None)
            except RejectedExecutionError as failure:
                log.error("Failed to notify broker %s (%d) that role changed: %s", address, id_, failure)
                if id_ == awaited and on_answered is not None:
                    on_answered()

    def _tell(self, address: str, change: RoleChange, on_answered: Callable[[], None] | None) -> None:
        if self._latest.get(address, 0) > change.header.masterEpoch:
            return  # another change has followed while this one waited
        log.info("Try notify broker %s that role changed, RoleChangeNotifyEntry:%s", address, change)
        request = RemotingCommand.create_request_command(request_code.NOTIFY_BROKER_ROLE_CHANGED, change.header)
        request.body = remoting_serializable.encode(change.sync_state_set)
        try:
            if on_answered is None:
                self._client.invoke_oneway(address, request, _NOTIFY_TIMEOUT_MS)
            else:
                self._client.invoke_sync(address, request, _CHANGE_TIMEOUT_MS)
        except RemotingException as failure:
            log.error("Failed to notify broker %s that role changed: %s", address, failure)
        finally:
            if on_answered is not None:
                on_answered()

    def hand_over(self, address: str, successor: int) -> str | None:
        """Ask the master at an address to give its lease up once its successor holds all; why it did not, or None."""
        request = RemotingCommand.create_request_command(
            request_code.HANDOVER_MASTER, HandoverMasterRequestHeader(brokerId=successor, timeoutMillis=HANDOVER_MS))
        try:
            response = self._client.invoke_sync(address, request, _HANDOVER_TIMEOUT_MS)
        except RemotingException as failure:
            return str(failure)
        if response.code == response_code.SUCCESS:
            return None
        return f"code {response.code}, {response.remark}"
