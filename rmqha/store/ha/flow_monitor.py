"""Counting and limiting the bytes per second that a replication connection transfers.

Without a limit, one slave that has a lot to catch up with can fill the master's network link and disk cache, and
producers and consumers suffer. With haFlowControlEnable each connection may send maxHaTransferByteInSecond bytes per
second. The budget is a counter per second of the monotonic clock, not a token bucket: a frame is cut to the rest of
the budget, and when nothing is left, the writer waits for the next second (`next_second_in_ms`, state SUSPEND). The
limit is never below one byte, so that a slave always makes progress.

The seconds are computed when a counter is used, rather than by a thread that ticks: a connection that transfers
nothing costs nothing.
"""
from __future__ import annotations

import time

from rmqha.store.message_store_config import MessageStoreConfig

_SECOND_NS = 1_000_000_000
_UNLIMITED = 0x7FFF_FFFF


class FlowMonitor:
    """A counter of bytes per second of the monotonic clock. One thread adds; any reads `transferred_byte_in_second`.

    Differs: in 5.1.4 each monitor is a thread that wakes once a second; here each call checks whether the second is
    over.

    Java: org.apache.rocketmq.store.ha.FlowMonitor (5.1.4)
    """

    def __init__(self, message_store_config: MessageStoreConfig) -> None:
        self.message_store_config = message_store_config
        # (beginning of the current second in ns, its bytes, the bytes of the previous second); replaced as a whole
        self._counts = (time.monotonic_ns(), 0, 0)

    def can_transfer_max_byte_num(self) -> int:
        """Return the number of bytes that may still be sent in this second."""
        if not self.message_store_config.haFlowControlEnable:
            return _UNLIMITED
        _begin, count, _last = self._now()
        return min(_UNLIMITED, max(self.max_transfer_byte_in_second - count, 0))

    def add_byte_count_transferred(self, count: int) -> None:
        """Count `count` bytes that were transferred."""
        begin, present, last = self._counts
        if time.monotonic_ns() - begin >= _SECOND_NS:
            begin, present, last = self._now()
        self._counts = (begin, present + count, last)

    @property
    def transferred_byte_in_second(self) -> int:
        """Number of bytes transferred in the last complete second."""
        return self._now()[2]

    @property
    def max_transfer_byte_in_second(self) -> int:
        """The limit in bytes per second; at least one byte, so that a slave makes progress."""
        return max(1, self.message_store_config.maxHaTransferByteInSecond)

    def next_second_in_ms(self) -> float:
        """Return the time in ms until the next second begins."""
        begin = self._now()[0]
        return max(0, begin + _SECOND_NS - time.monotonic_ns()) / 1e6

    def _now(self) -> tuple[int, int, int]:
        begin, present, last = self._counts
        past = (time.monotonic_ns() - begin) // _SECOND_NS
        if past <= 0:
            return begin, present, last
        return begin + past * _SECOND_NS, 0, present if past == 1 else 0
