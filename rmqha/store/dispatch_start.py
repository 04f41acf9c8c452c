"""Where the dispatch begins when a store starts, and what is known not to be on the disk before it has gone on."""
from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rmqha.store.config.message_store_config import SLAVE

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore
    from rmqha.store.store_checkpoint import StoreCheckpoint

log = logging.getLogger("RocketmqStore")

_STEP_MS = 1000


def start_dispatch(store: DefaultMessageStore, checkpoint: StoreCheckpoint) -> None:
    """Start the ReputMessageService and wait until everything is dispatched, or the store goes down.

    The next queue offsets come from the consume queues, so nothing may be put before.
    """
    service = store.reput_message_service
    service.reput_from_offset = _first_offset(store)
    _lower_checkpoint(store, checkpoint, service.reput_from_offset)
    service.start()
    while not service.wait_caught_up(_STEP_MS) and not store.pause(0):
        log.info("Try to finish doing reput the messages fall behind during the starting, reputOffset=%s "
                 "maxOffset=%s behind=%s", service.reput_from_offset, store.get_max_phy_offset(),
                 store.dispatch_behind_bytes())
        if service.has_only_part_of_a_record():
            break


def _first_offset(store: DefaultMessageStore) -> int:
    """Everything before the end of the furthest consume queue is dispatched."""
    commit_log = store.commit_log
    min_offset, furthest = commit_log.get_min_offset(), store.consume_queue_table.max_physic_offset()
    offset = max(furthest, min_offset, 0)
    if max(furthest, 0) < min_offset:
        log.warning("[TooSmallCqOffset] maxPhysicalPosInLogicQueue=%s clMinOffset=%s", furthest, min_offset)
    log.info("[SetReputOffset] maxPhysicalPosInLogicQueue=%s clMinOffset=%s clMaxOffset=%s clConfirmedOffset=%s",
             offset, min_offset, commit_log.get_max_offset(), commit_log.get_confirm_offset())
    return store.reput_message_service.take_start(offset)


def _lower_checkpoint(store: DefaultMessageStore, checkpoint: StoreCheckpoint, offset: int) -> None:
    """What lies behind `offset` has no units and keys yet.

    Differs: so the checkpoint must not say that they are on disk, for the case of a power loss before they are; the
    original leaves it at what it said of files that somebody has deleted since.
    """
    request = next(store.commit_log.walk_records(offset, store.get_max_phy_offset()), None)
    checkpoint.by_slave |= store.message_store_config.brokerRole is SLAVE
    checkpoint.dispatched = min(checkpoint.dispatched, offset)
    if request is not None and request.store_timestamp < max(checkpoint.logics_msg_timestamp,
                                                             checkpoint.index_msg_timestamp):
        checkpoint.logics_msg_timestamp = min(checkpoint.logics_msg_timestamp, request.store_timestamp)
        checkpoint.index_msg_timestamp = min(checkpoint.index_msg_timestamp, request.store_timestamp)
        checkpoint.flush()
    checkpoint.flush_positions()
