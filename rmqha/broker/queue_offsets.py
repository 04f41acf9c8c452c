"""Queries of a broker to its store about queues."""
from typing import Protocol


class QueueOffsets(Protocol):
    """The bounds of queues and the store times of their messages, as DefaultMessageStore returns them."""

    def get_min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the index of the queue's oldest message."""

    def get_max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the index of the queue's next message."""

    def get_offset_in_queue_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the index of the message stored nearest to `timestamp` (ms)."""

    def get_earliest_message_time(self, topic: str | None = None, queue_id: int | None = None) -> int:
        """Return the store time (ms) of the oldest message of a queue, or of all queues; -1 if not found."""

    def get_message_store_timestamp(self, topic: str, queue_id: int, consume_queue_offset: int) -> int:
        """Return the store time (ms) of a message; -1 if not found."""

    def check_in_disk_by_consume_offset(self, topic: str, queue_id: int, consume_offset: int) -> bool:
        """Return whether a message is so old that it is probably not in memory."""
