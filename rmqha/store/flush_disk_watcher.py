"""Gives up on flushes that take too long.

    putting threads --add--> [deque in order of deadline] --> FlushDiskWatcher: sleeps until the head is due
"""
import logging
import time
from collections import deque

from rmqha.common.futures import Round
from rmqha.common.service_thread import ServiceThread
from rmqha.store.flush_services import GroupCommitRequest
from rmqha.store.results import PutMessageStatus

log = logging.getLogger("RocketmqStore")

_IDLE_MS = 1000
_LOOK_MS = 100


class FlushDiskWatcher(ServiceThread):
    """Completes overdue flush requests with FLUSH_DISK_TIMEOUT.

    Differs: looks at the queue each 100 ms instead of each 10 ms while any request is open, and at all requests that
    are overdue together, so that it does not compete with the flush for the GIL.

    Java: org.apache.rocketmq.store.FlushDiskWatcher (4.9.8)
    """

    def __init__(self) -> None:
        super().__init__()
        self.daemon = True
        self._commit_requests: deque[GroupCommitRequest] = deque()  # appended by putters, popped by the service

    def run(self) -> None:
        while not self.stopped:
            self.wait_for_running(self._complete_overdue())

    def shutdown(self, interrupt: bool = False) -> None:
        """Stop; what is still open is given up."""
        super().shutdown(interrupt)
        while self._commit_requests:
            self._commit_requests.popleft().wakeup_customer(PutMessageStatus.FLUSH_DISK_TIMEOUT)

    def _complete_overdue(self) -> float:
        """Complete what is due; milliseconds until there is something to look at."""
        requests = self._commit_requests
        with Round():
            while requests:
                head = requests[0]
                if not head.future.is_done:
                    left_ms = (head.deadline_ns - time.monotonic_ns()) / 1e6
                    if left_ms > 0:
                        return min(max(left_ms, 1), _LOOK_MS)
                    head.wakeup_customer(PutMessageStatus.FLUSH_DISK_TIMEOUT)
                requests.popleft()
        return _IDLE_MS

    def add(self, request: GroupCommitRequest) -> None:
        """Watch `request`."""
        requests = self._commit_requests
        first = not requests
        requests.append(request)
        if first:
            self.wakeup()

    def queue_size(self) -> int:
        """Requests not looked at yet."""
        return len(self._commit_requests)
