"""The timeout of flushes.

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
    """The thread that completes overdue flush requests with FLUSH_DISK_TIMEOUT.

    Differs: while a flush request is open, the watcher checks the queue every 100 ms instead of every 10 ms, and
    completes all overdue requests at once, so that it does not compete with the flush for the GIL.

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
        """Stop, and complete the open requests with FLUSH_DISK_TIMEOUT."""
        super().shutdown(interrupt)
        while self._commit_requests:
            self._commit_requests.popleft().wakeup_customer(PutMessageStatus.FLUSH_DISK_TIMEOUT)

    def _complete_overdue(self) -> float:
        """Complete the overdue requests; return the milliseconds until the next check."""
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
        """Return the number of requests that were not checked yet."""
        return len(self._commit_requests)
