"""Notifies brokers of a new master, and asks an old one to hand over.

    Controller --an election--> ControllerManager_NotifyService_<n>, one task a broker --> the broker's port
        the old master, if it is of RocketMQ and alive
    --> the new master, and the replicas that need not ask where it is
    --> slaves of RocketMQ, after ControllerScheduledThread has waited for a moment
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import HandoverMasterRequestHeader, NotifyBrokerRoleChangedRequestHeader
from rmqha.common.protocol.cluster_bodies import SyncStateSet
from rmqha.common.threads import NamedThreadPool, RejectedExecutionError, ScheduledService
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient

log = logging.getLogger("RocketmqController")

_THREADS = 8
_QUEUE = 10_000
_NOTIFY_TIMEOUT_MS = 3_000
# For a master, old or new, to answer that its role has changed.
_CHANGE_TIMEOUT_MS = 2_000
# Differs: an old master of RocketMQ that is alive is notified before the new master, and slaves of RocketMQ 300 ms
# after the new master has changed its role; until then the controller refuses their polls, one every 5 s. 5.1.4's
# controller notifies all brokers at once, and they ask a name server for the new master's HA address. A slave that asks
# while the old master is still registered as the master follows that one permanently. A slave that asks before the new
# one is registered follows no broker until its own next registration (30 s).
_SLAVES_OF_ROCKETMQ_MS = 300
# How long a master may wait until its successor has everything.
HANDOVER_MS = 1_000
_HANDOVER_TIMEOUT_MS = HANDOVER_MS + 500


@dataclass(frozen=True)
class RoleChange:
    """The new master of a broker name.

    Java: org.apache.rocketmq.remoting.protocol.RoleChangeNotifyEntry (5.1.4)
    """

    header: NotifyBrokerRoleChangedRequestHeader
    sync_state_set: SyncStateSet


@dataclass(frozen=True)
class Audience:
    """The addresses of the replicas that are alive, by when they are notified of a new master."""

    # Only one of RocketMQ.
    old_master: str | None
    new_master: str | None
    # Replicas that learn the new master's HA address from the notification.
    at_once: tuple[str, ...]
    # Slaves of RocketMQ, which ask a name server for it.
    later: tuple[str, ...]


class NotifyService:
    """Notifies brokers of role changes, once each: a broker that misses one learns it from its next heartbeat's answer.

    Java: org.apache.rocketmq.controller.ControllerManager$NotifyService (5.1.4)
    """

    def __init__(self, client: RemotingClient, scheduled_service: ScheduledService) -> None:
        self._client, self._scheduled_service = client, scheduled_service
        self._pool = NamedThreadPool("ControllerManager_NotifyService_", _THREADS, _QUEUE)
        # Epochs; single dict operations.
        # Address -> the epoch of the newest change for it.
        self._latest: dict[str, int] = {}
        # Broker name -> the epoch of the change that slaves of RocketMQ are yet to learn.
        self._pending: dict[str, int] = {}

    def shutdown(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def notify(self, addresses: Iterable[str], change: RoleChange) -> None:
        """Notify these brokers, without waiting for them."""
        for address in addresses:
            self._submit(address, change, None)

    def notify_in_turn(self, broker_name: str, audience: Audience, change: RoleChange) -> None:
        """Notify the replicas of a broker name of their new master, each group once the previous one may follow it."""
        if audience.later:
            self._pending[broker_name] = change.header.masterEpoch
        else:
            self._pending.pop(broker_name, None)

        def notify_slaves() -> None:
            # Otherwise a newer change replaces this one.
            if self._pending.get(broker_name) == change.header.masterEpoch:
                self._pending.pop(broker_name, None)
                self.notify(audience.later, change)

        def notify_new_master() -> None:
            if audience.later:
                self._await_change(audience.new_master, change, lambda: self._scheduled_service.schedule(
                    notify_slaves, _SLAVES_OF_ROCKETMQ_MS))
            elif audience.new_master is not None:
                self._submit(audience.new_master, change, None)
            self.notify(audience.at_once, change)

        self._await_change(audience.old_master, change, notify_new_master)

    def has_slaves_to_notify(self, broker_name: str | None) -> bool:
        """Return whether slaves of RocketMQ with this broker name will soon be notified of a new master."""
        return broker_name in self._pending

    def _await_change(self, address: str | None, change: RoleChange, then: Callable[[], object]) -> None:
        """Notify this broker, and call `then` once it has changed its role, does not answer, or can't be notified."""
        if address is None:
            then()
        else:
            self._submit(address, change, then)

    def _submit(self, address: str, change: RoleChange, then: Callable[[], object] | None) -> None:
        self._latest[address] = change.header.masterEpoch
        try:
            self._pool.submit(self._send, address, change, then)
        except RejectedExecutionError as failure:
            log.error("Failed to notify broker %s that role changed: %s", address, failure)
            if then is not None:
                then()

    def _send(self, address: str, change: RoleChange, then: Callable[[], object] | None) -> None:
        if self._latest.get(address, 0) > change.header.masterEpoch:
            # A newer change for this broker is under way, and continues with its own next step.
            return
        log.info("Try notify broker %s that role changed, RoleChangeNotifyEntry:%s", address, change)
        request = RemotingCommand.create_request_command(request_code.NOTIFY_BROKER_ROLE_CHANGED, change.header)
        request.body = remoting_serializable.encode(change.sync_state_set)
        try:
            if then is None:
                self._client.invoke_oneway(address, request, _NOTIFY_TIMEOUT_MS)
            else:
                self._client.invoke_sync(address, request, _CHANGE_TIMEOUT_MS)
        except RemotingException as failure:
            log.error("Failed to notify broker %s that role changed: %s", address, failure)
        finally:
            if then is not None:
                then()

    def hand_over(self, address: str, successor: int) -> str | None:
        """Ask a master to give up its lease once its successor has everything; return why it did not, or None."""
        request = RemotingCommand.create_request_command(
            request_code.HANDOVER_MASTER, HandoverMasterRequestHeader(brokerId=successor, timeoutMillis=HANDOVER_MS))
        try:
            response = self._client.invoke_sync(address, request, _HANDOVER_TIMEOUT_MS)
        except RemotingException as failure:
            return str(failure)
        if response.code == response_code.SUCCESS:
            return None
        return f"code {response.code}, {response.remark}"
