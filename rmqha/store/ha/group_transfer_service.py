"""Puts that wait until enough slaves have acknowledged them.

    putting thread --put_request--> [requests]
    ReadSocketService --notify_transfer_some--> PUT_OK for all requests that its acknowledgement completes
    GroupTransferService --at the deadline--> FLUSH_SLAVE_TIMEOUT
"""
from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time

from rmqha.common.futures import Round
from rmqha.common.service_thread import ServiceThread
from rmqha.store.flush_services import GroupCommitRequest
from rmqha.store.ha.ack_rules import ANY_SLAVE, AckRule
from rmqha.store.results import PutMessageStatus
from rmqha.store.role import Role

log = logging.getLogger("RocketmqStore")

_PUT_OK = PutMessageStatus.PUT_OK

# The service checks at least this often. So a request wakes it only if its deadline comes before the next check. With
# the default slaveTimeout of 3 s, that never happens.
_IDLE_MS = 1000

_Heap = list[tuple[int, int, "_Waiting"]]


class _Waiting:
    __slots__ = ("request", "done")

    def __init__(self, request: GroupCommitRequest) -> None:
        self.request = request
        self.done = False  # guarded by GroupTransferService._lock


class GroupTransferService(ServiceThread):
    """The requests that wait for slaves; each completes when enough have acknowledged its offset, or at its deadline.

    Deadlines are monotonic, and each request has its own.

    Differs: Java processes the requests strictly in order, so a request that has long been acknowledged can wait for an
    earlier one that has not. In 4.9.8 it then completes late; in 5.1.4 it may time out. Here every round first
    completes all acknowledged requests, and then all whose deadline has passed. Of the requests that wait for the same
    number of slaves, the earlier ones complete first. Moreover, the thread that reads an acknowledgement completes the
    requests that waited for it, which saves a hand-over between threads per response.

    Java: org.apache.rocketmq.store.ha.HAService$GroupTransferService (4.9.8)
    """

    def __init__(self, ack_rule: AckRule, role: Role) -> None:
        super().__init__()
        self._ack_rule = ack_rule
        self._role = role
        self._lock = threading.Lock()  # guards all below
        self._arrival = itertools.count()
        # ack_nums -> heap of (next_offset, arrival, request)
        self._by_offset: dict[int, _Heap] = {}
        # heap of (deadline_ns, arrival, request)
        self._by_deadline: _Heap = []
        # when the service checks again without being woken
        self._wakes_at_ns = 0
        self._closed = False

    @property
    def waits_for_several(self) -> bool:
        """True if any request waits for more than ANY_SLAVE: for several slaves, or for all that are in sync."""
        return len(self._by_offset) > (ANY_SLAVE in self._by_offset)

    def put_request(self, request: GroupCommitRequest) -> None:
        """Complete `request` when its offset is acknowledged, which may be at once. If its term is over, or the service
        is closed, complete it at once with FLUSH_SLAVE_TIMEOUT."""
        acked_offset, ack_nums, role = self._ack_rule.acked_offset, request.ack_nums, self._role
        # The term is read after the offset: if it is still the request's term, the offset belongs to that term, too.
        if acked_offset(ack_nums) >= request.next_offset and role.term == request.term:
            request.wakeup_customer(_PUT_OK)
            return
        with self._lock:
            # A change of roles first raises the term, and then calls `give_up`, which completes all requests that were
            # added before. A request of an old term that is added later would not be given up, so it is not added.
            closed = self._closed or role.term != request.term
            if not closed:
                waiting, arrival = _Waiting(request), next(self._arrival)
                heap = self._by_offset.get(ack_nums)
                if heap is None:
                    heap = self._by_offset[ack_nums] = []
                heapq.heappush(heap, (request.next_offset, arrival, waiting))
                heapq.heappush(self._by_deadline, (request.deadline_ns, arrival, waiting))
                sooner = request.deadline_ns < self._wakes_at_ns
        if closed:
            request.wakeup_customer(PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
            return
        if sooner:
            self.wakeup()
        # The acknowledgement may have arrived between the first check and the push.
        if acked_offset(ack_nums) >= request.next_offset:
            self.notify_transfer_some()

    def notify_transfer_some(self) -> None:
        """Complete, on the calling thread, the requests whose acknowledgement has just arrived."""
        with self._lock:
            transferred: _Heap = []
            for ack_nums, heap in self._by_offset.items():
                transferred += self._take(heap, self._ack_rule.acked_offset(ack_nums))
        if transferred:
            # A single response needs no round.
            if len(transferred) == 1:
                transferred[0][2].request.wakeup_customer(_PUT_OK)
            else:
                self._complete(transferred, _PUT_OK)
            with self._lock:
                self._drop_done(self._by_deadline)

    def waiting_requests(self) -> int:
        """Return the number of waiting requests."""
        return sum(map(len, self._by_offset.values()))

    def start(self) -> None:
        with self._lock:
            self._closed = False
        super().start()

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        while not self.stopped:
            self._do_wait_transfer()
            self.wait_for_running(self._interval_ms())
        log.info("%s service end", self.get_service_name())

    def shutdown(self, interrupt: bool = False) -> None:
        """Stop; complete the waiting requests, and any later ones, with FLUSH_SLAVE_TIMEOUT."""
        super().shutdown(interrupt)
        # Differs: puts that still wait for slaves at a shutdown are completed with FLUSH_SLAVE_TIMEOUT; Java never
        # completes them.
        with self._lock:
            self._closed = True
        self.give_up()

    def give_up(self) -> None:
        """Complete the waiting requests with FLUSH_SLAVE_TIMEOUT: later acknowledgements refer to another log."""
        with self._lock:
            rest = sorted(itertools.chain(*self._by_offset.values()), key=lambda entry: entry[1])
            self._by_offset, self._by_deadline = {}, []
        self._complete(rest, PutMessageStatus.FLUSH_SLAVE_TIMEOUT)

    def _do_wait_transfer(self) -> None:
        self.notify_transfer_some()
        with self._lock:
            late = self._take(self._by_deadline, time.monotonic_ns())
            self._drop_done(self._by_deadline)
            for ack_nums, heap in list(self._by_offset.items()):
                self._drop_done(heap)
                if not heap:
                    del self._by_offset[ack_nums]
        self._complete(late, PutMessageStatus.FLUSH_SLAVE_TIMEOUT)

    @staticmethod
    def _take(heap: _Heap, limit: int) -> _Heap:
        """Remove and return the entries up to `limit` that are not done yet, in order of arrival, and mark them done.
        """
        taken = []
        while heap and heap[0][0] <= limit:
            entry = heapq.heappop(heap)
            if not entry[2].done:
                entry[2].done = True
                taken.append(entry)
        if len(taken) > 1:
            taken.sort(key=lambda entry: entry[1])
        return taken

    @staticmethod
    def _drop_done(heap: _Heap) -> None:
        while heap and heap[0][2].done:
            heapq.heappop(heap)

    @staticmethod
    def _complete(entries: _Heap, status: PutMessageStatus) -> None:
        with Round():
            for _key, _arrival, waiting in entries:
                waiting.request.wakeup_customer(status)

    def _interval_ms(self) -> float:
        now = time.monotonic_ns()
        with self._lock:
            wakes_at_ns = now + _IDLE_MS * 1_000_000
            if self._by_deadline:
                wakes_at_ns = min(wakes_at_ns, self._by_deadline[0][0])
            self._wakes_at_ns = wakes_at_ns
        return max(0.0, (wakes_at_ns - now) / 1e6)
