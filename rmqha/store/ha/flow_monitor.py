"""How many bytes a second a connection transfers, and how many more it may."""
from __future__ import annotations

import time

from rmqha.store.message_store_config import MessageStoreConfig

_SECOND_NS = 1_000_000_000
_UNLIMITED = 0x7FFF_FFFF


class FlowMonitor:
    """Counts bytes in seconds of the monotonic clock. One thread adds; any reads `transferred_byte_in_second`.

    Differs: in 5.1.4 each is a thread that wakes once a second; here who adds, or asks, finds the second over.

    Java: org.apache.rocketmq.store.ha.FlowMonitor (5.1.4)
    """

    def __init__(self, message_store_config: MessageStoreConfig) -> None:
        self.message_store_config = message_store_config
        # (beginning of the present second in ns, its bytes, the bytes of the second before); replaced whole
        self._counts = (time.monotonic_ns(), 0, 0)

    def can_transfer_max_byte_num(self) -> int:
        """Bytes that may still be sent in this second."""
        if not self.message_store_config.haFlowControlEnable:
            return _UNLIMITED
        _begin, count, _last = self._now()
        return min(_UNLIMITED, max(self.max_transfer_byte_in_second - count, 0))

    def add_byte_count_transferred(self, count: int) -> None:
        """`count` bytes went over the connection."""
        begin, present, last = self._counts
        if time.monotonic_ns() - begin >= _SECOND_NS:
            begin, present, last = self._now()
        self._counts = (begin, present + count, last)

    @property
    def transferred_byte_in_second(self) -> int:
        """Bytes of the last whole second."""
        return self._now()[2]

    @property
    def max_transfer_byte_in_second(self) -> int:
        """The limit; at least one byte, so that a slave gets on."""
        return max(1, self.message_store_config.maxHaTransferByteInSecond)

    def next_second_in_ms(self) -> float:
        """How long this second lasts yet."""
        begin = self._now()[0]
        return max(0, begin + _SECOND_NS - time.monotonic_ns()) / 1e6

    def _now(self) -> tuple[int, int, int]:
        begin, present, last = self._counts
        past = (time.monotonic_ns() - begin) // _SECOND_NS
        if past <= 0:
            return begin, present, last
        return begin + past * _SECOND_NS, 0, present if past == 1 else 0
