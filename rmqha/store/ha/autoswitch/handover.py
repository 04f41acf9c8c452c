"""A planned change of masters: the master pauses puts, and responds once another replica (the heir) holds its log.

    HANDOVER_MASTER --> hand_over --pause--> PutGuard
                           | waits for: the heir's connection (before the pause), its acknowledgement, the response to
                           |            every put, the flush
                           | renounces the lease
                           v
    response; then the controller elects the heir. If it does not, puts are accepted again after 1 s.

An unplanned failover has to wait until the old master's lease has expired, and producers see errors meanwhile. If the
old master cooperates, the pause need not be longer than the following steps take. They make it safe:

- Puts are paused under the put lock, so the log's end is final: every put is either below `end` or refused.
- The old master waits until the heir has acknowledged `end`, `end` is confirmed, every waiting put has its response
  and, with SYNC_FLUSH, the log is flushed. No put is left whose fate is unknown, and the heir lacks nothing.
- Then it renounces its lease, and rejects any lease requested within the next second. Only after that does it respond.
  So when the controller learns of the handover, the old master can no longer acknowledge anything, and the controller
  need not wait for the lease to expire.

Every wait has a limit. If the heir is too slow, the pause ends and the master continues as before. If the controller
dies between the response and the election, the pause expires after 1 s, and a new lease may be granted. Without the
pause, puts would be acknowledged up to the election, and the heir might be elected without them.
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
_ANSWERS_LEAVE_MS = 5  # for the responses that were completed just now
_ELECTION_MS = 1000
_MAX_TIMEOUT_MS = 10_000
_CHANGED = "this broker's role has changed meanwhile"


class HandoverError(Exception):
    """The reason why the master role is not handed over; puts are accepted as before."""


def hand_over(service: AutoSwitchHAService, heir: int, timeout_ms: int) -> int:
    """Refuse puts until the roles change, for at most 1 s after the return. Return the end of both logs.

    HandoverError: this broker is not the master, or `heir` is not in sync or does not hold everything in `timeout_ms`.
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
    log.info("handing the master role over to broker %d at %d: puts are paused", heir, end)
    while not _is_done(service, heir, end):
        if role.term != term:
            raise HandoverError(_CHANGED)
        if time.monotonic_ns() > deadline_ns:
            guard.resume()
            raise HandoverError(f"broker {heir} does not hold all of the log up to {end} within {timeout_ms} ms, or "
                                "messages still wait for other replicas; puts are accepted again")
        time.sleep(_STEP_MS / 1000)
    time.sleep(_ANSWERS_LEAVE_MS / 1000)
    if guard.renounce is not None:
        guard.renounce(_ELECTION_MS)
    # Checked before the second pause, which is meant for the old role.
    if role.term != term:
        raise HandoverError(_CHANGED)
    guard.pause(heir, _ELECTION_MS)
    return end


def _wait_for_connection(service: AutoSwitchHAService, heir: int, timeout_ms: int) -> None:
    """Wait for the beginning of the transfer if the heir is reconnecting, so that puts don't pause for its greeting."""
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
        raise HandoverError(f"broker {heir} is connecting, and its transfer did not begin within {timeout_ms} ms")


def _is_done(service: AutoSwitchHAService, heir: int, end: int) -> bool:
    flushed = service.config.flushDiskType is not FlushDiskType.SYNC_FLUSH \
        or service.commit_log.mapped_file_queue.flushed_where >= end
    return flushed and service.sync_state_set.holds(heir, end) and service.confirm_offset() >= end \
        and not service.group_transfer_service.waiting_requests()
