"""The offsets that a consumer holds in memory, whoever keeps them."""
import threading

from rmqha.common.message.message import MessageQueue

NO_OFFSET = -1


class OffsetTable:
    """By queue, the next offset to consume. What both of Java's offset stores have; any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offset_table: dict[MessageQueue, int] = {}  # guarded by _lock

    def update_offset(self, mq: MessageQueue, offset: int, increase_only: bool) -> None:
        """Remember the next offset to consume; `increase_only` keeps the higher one."""
        with self._lock:
            old = self._offset_table.get(mq)
            if old is None or not increase_only or offset > old:
                self._offset_table[mq] = offset

    def clone_offset_table(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """The offsets in memory, of one topic or of all."""
        with self._lock:
            return {mq: offset for mq, offset in self._offset_table.items() if not topic or mq.topic == topic}
