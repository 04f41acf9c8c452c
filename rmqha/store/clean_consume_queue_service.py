"""Deleting files of consume queues and index that point at deleted parts of the commit log."""
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore


class CleanConsumeQueueService:
    """Runs on the store's scheduled thread.

    Java: org.apache.rocketmq.store.DefaultMessageStore$CleanConsumeQueueService (4.9.8)
    """

    def __init__(self, default_message_store: DefaultMessageStore) -> None:
        self.default_message_store = default_message_store
        self._last_physical_min_offset = 0

    def run(self) -> None:
        """One round; does nothing until the commit log begins later than in the last round."""
        store = self.default_message_store
        interval_ms = store.message_store_config.deleteConsumeQueueFilesInterval
        min_offset = store.commit_log.get_min_offset()
        if min_offset <= self._last_physical_min_offset:
            return
        self._last_physical_min_offset = min_offset
        for queue in store.all_consume_queues():
            if queue.delete_expired_file(min_offset) > 0 and interval_ms > 0 and store.pause(interval_ms):
                return
        store.index_service.delete_expired_file(min_offset)
        store.deleted_topics.expire(min_offset)
