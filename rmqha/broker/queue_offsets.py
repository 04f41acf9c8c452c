"""What a broker asks of its store about queues."""
from typing import Protocol


class QueueOffsets(Protocol):
    """Where queues begin and end, and when their messages were stored; as DefaultMessageStore answers it."""

    def get_min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Index of the queue's oldest message."""

    def get_max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Index of the queue's next message."""

    def get_offset_in_queue_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Index of the message stored nearest to `timestamp` (ms)."""

    def get_earliest_message_time(self, topic: str | None = None, queue_id: int | None = None) -> int:
        """Store time (ms) of the oldest message of a queue, or of all; -1 when there is none."""

    def get_message_store_timestamp(self, topic: str, queue_id: int, consume_queue_offset: int) -> int:
        """Store time (ms) of a message; -1 when it is not there."""

    def check_in_disk_by_consume_offset(self, topic: str, queue_id: int, consume_offset: int) -> bool:
        """Whether a message is so old that it is probably not in memory."""
