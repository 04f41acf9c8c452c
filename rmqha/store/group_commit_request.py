"""A put that waits for the flush or for a slave."""
import time

from rmqha.common.futures import Completable
from rmqha.store.put_message_result import PutMessageStatus


class GroupCommitRequest(Completable[PutMessageStatus]):
    """Done once the log is safe up to `next_offset`, or at `deadline_ns` (monotonic); the first status wins.

    `ack_nums`, as in 5.1.4: how many replicas must have it, the master included; 1: any one slave; -1: all in sync.
    `term` is HAService's at the append: what a later one acknowledges may be other bytes.

    Java: org.apache.rocketmq.store.CommitLog$GroupCommitRequest (4.9.8)
    """

    __slots__ = ("next_offset", "deadline_ns", "ack_nums", "term")

    def __init__(self, next_offset: int, timeout_ms: int, ack_nums: int = 1, term: int = 0) -> None:
        super().__init__()
        self.next_offset = next_offset
        self.ack_nums = ack_nums
        self.term = term
        self.deadline_ns = time.monotonic_ns() + timeout_ms * 1_000_000

    wakeup_customer = Completable.complete

    @property
    def future(self) -> Completable[PutMessageStatus]:
        """The status that comes: the request itself."""
        return self
