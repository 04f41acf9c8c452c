"""A planned change of masters: this one stops taking puts, and tells when another replica holds all that it has.

    HANDOVER_MASTER --> hand_over --pause--> PutGuard
                           | waits: the heir's connection (before the pause), its acknowledgement, every put's answer,
                           |        the flush
                           | renounces the lease
                           v
    the answer, behind which the controller elects; puts are taken again after 1 s if it does not
"""
from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from rmqha.store.ha.ha_connection_state_notification_service import HAConnectionStateNotificationRequest
from rmqha.store.ha.peers import SERVING, HAConnectionState
from rmqha.store.message_store_config import FlushDiskType

if TYPE_CHECKING:
    from rmqha.store.ha.autoswitch.auto_switch_ha_service import AutoSwitchHAService

log = logging.getLogger("RocketmqStore")

_NS_PER_MS = 1_000_000
_STEP_MS = 2
_ANSWERS_LEAVE_MS = 5  # those that were completed just now
_ELECTION_MS = 1000
_MAX_TIMEOUT_MS = 10_000
_CHANGED = "this broker's role has changed meanwhile"


class HandoverError(Exception):
    """Why the mastership is not handed over; puts are taken as before."""


def hand_over(service: AutoSwitchHAService, heir: int, timeout_ms: int) -> int:
    """Take no puts until the roles change, 1 s at most from the return on. Returns the end of both logs.

    HandoverError: this is no master, `heir` is not in sync, or does not hold all within `timeout_ms`.
    """
    if not service.is_master:
        raise HandoverError("this broker is not the master")
    in_sync = service.get_local_sync_state_set()
    if heir == service.local_broker_id:
        raise HandoverError(f"broker {heir} is the master")
    if heir not in in_sync:
        raise HandoverError(f"broker {heir} is not in sync, only {sorted(in_sync)}")
    role, timeout_ms = service.role, min(max(timeout_ms, 0), _MAX_TIMEOUT_MS)
    deadline_ns = time.monotonic_ns() + timeout_ms * _NS_PER_MS
    _wait_for_connection(service, heir, timeout_ms)
    guard = role.need_guard()
    with service.commit_log.put_message_lock:
        guard.pause(heir, timeout_ms + _ELECTION_MS)
        end, term = service.replicated_log.get_max_phy_offset(), role.term
    log.info("the mastership is handed over to broker %d at %d: no messages are taken", heir, end)
    while not _is_done(service, heir, end):
        if role.term != term:
            raise HandoverError(_CHANGED)
        if time.monotonic_ns() > deadline_ns:
            guard.resume()
            raise HandoverError(f"broker {heir} does not hold all of the log up to {end} within {timeout_ms} ms, or "
                                "messages still wait for other replicas: messages are taken again")
        time.sleep(_STEP_MS / 1000)
    time.sleep(_ANSWERS_LEAVE_MS / 1000)
    if guard.renounce is not None:
        guard.renounce(_ELECTION_MS)
    if role.term != term:  # before the pause, which is for the old role
        raise HandoverError(_CHANGED)
    guard.pause(heir, _ELECTION_MS)
    return end


def _wait_for_connection(service: AutoSwitchHAService, heir: int, timeout_ms: int) -> None:
    """Wait until the heir, if it is connecting anew, is sent the log: puts need not pause for its greeting."""
    connection = next((each for each in reversed(service.connection_list) if each.slave_id == heir), None)
    if connection is None or connection.state in SERVING:
        return
    request = HAConnectionStateNotificationRequest(HAConnectionState.TRANSFER, connection.client_addr,
                                                   notify_when_shutdown=True)
    service.put_group_connection_state_request(request)
    try:
        serves = request.request_future.get(timeout_ms)
    except TimeoutError:
        serves = False
    if not serves:
        raise HandoverError(f"broker {heir} is connecting, and was not sent the log within {timeout_ms} ms")


def _is_done(service: AutoSwitchHAService, heir: int, end: int) -> bool:
    flushed = service.config.flushDiskType is not FlushDiskType.SYNC_FLUSH \
        or service.commit_log.mapped_file_queue.flushed_where >= end
    return flushed and service.sync_state_set.holds(heir, end) and service.confirm_offset() >= end \
        and not service.group_transfer_service.waiting_requests()
