"""A store without threads: what its services do, they do when they are told to, on the caller's thread."""
from __future__ import annotations

import functools
import random
from collections.abc import Callable

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.service_thread import ServiceThread
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.flush_services import GroupCommitService
from rmqha.store.message_store_config import MessageStoreConfig


class SteppedStore(DefaultMessageStore):
    """`open`, then any of the steps, then `shutdown` (the real one) or `kill`."""

    def __init__(self, config: MessageStoreConfig) -> None:
        super().__init__(config, None, None, _broker_config())
        self.index_flushes = _Later()
        self._dispatch_limit: int | None = None
        self._take_threads_away()

    def _take_threads_away(self) -> None:
        for service in (self.ha_service, self.schedule_message_service, self.store_stats_service,
                        self.commit_log.flush_disk_watcher):
            service.start = _nothing
        for service in (self.commit_log.flush_commit_log_service, self.commit_log.commit_log_service,
                        self.flush_consume_queue_service):
            service.start = _nothing
            service.shutdown = _last_round_of(service)
        self.allocate_mapped_file_service.start = _nothing
        self.allocate_mapped_file_service.wakeup = self._make_files
        self.index_service._flush_pool = self.index_flushes
        reput = self.reput_message_service
        self._limit_of_reput, reput._limit = reput._limit, self._limit
        reput.start = _nothing
        reput.is_alive = lambda: True
        reput.wait_caught_up = self._dispatch_all
        reput.shutdown = lambda *_: self._dispatch_all(0)
        self._add_schedule_task = _nothing

    # What the services do.

    def _make_files(self) -> None:
        service = self.allocate_mapped_file_service
        while service._request_queue:
            service._mmap_operation(service._request_queue.popleft())

    def _limit(self) -> int:
        limit = self._limit_of_reput()
        return limit if self._dispatch_limit is None else min(limit, self._dispatch_limit)

    def _dispatch_all(self, _timeout_ms: int) -> bool:
        self._dispatch_limit = None
        self.reput_message_service.do_reput()
        return self.reput_message_service.behind() <= 0

    def dispatch(self, up_to: int | None = None) -> None:
        """ReputMessageService: everything, or what lies before an offset."""
        self._dispatch_limit = up_to
        try:
            self.reput_message_service.do_reput()
        finally:
            self._dispatch_limit = None

    def commit_buffers(self, least_pages: int) -> None:
        """CommitRealTimeService: one round."""
        self.commit_log.commit_log_service._commit(least_pages)

    def flush_log(self, least_pages: int = 0) -> None:
        """GroupCommitService or FlushRealTimeService: one round."""
        service = self.commit_log.flush_commit_log_service
        if isinstance(service, GroupCommitService):
            service._swap_requests()
            service._do_commit()
        else:
            service.flush(least_pages)

    def flush_queues(self, thoroughly: bool) -> None:
        """FlushConsumeQueueService: one round."""
        service = self.flush_consume_queue_service
        service._last_flush_ms = 0.0 if thoroughly else float("inf")
        service._try_flush(1)

    # Beginning and end.

    def open(self) -> bool:
        """Recover and start; False when it can't be used."""
        if not self.load():
            return False
        self.start()
        return True

    def kill(self) -> None:
        """The process is gone: nothing is flushed, said or tidied up."""
        if self.store_checkpoint is not None:
            self.store_checkpoint.flush = _nothing
        for request in self.allocate_mapped_file_service._request_table.values():
            if request.mapped_file is not None:
                request.mapped_file.shutdown(0)
        self._unmap()
        self.transient_store_pool.destroy()
        self._store_lock.release()


@functools.cache
def _broker_config() -> BrokerConfig:
    """One for all: to look for this machine's address takes longer than to open a store."""
    return BrokerConfig()


class _Later:
    """FlushIndexFileThread: what was handed to it waits until it is told."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def submit(self, flush: Callable[..., None], *args: object) -> None:
        """Flush this file later."""
        self._waiting.append(lambda: flush(*args))

    def run(self) -> None:
        """Flush what waits."""
        while self._waiting:
            self._waiting.pop(0)()

    def shutdown(self) -> None:
        """The store closes."""
        self.run()


class Clock:
    """What `time.time_ns` says."""

    def __init__(self, rng: random.Random) -> None:
        self.now_ms = 1_600_000_000_000 + rng.randrange(1_000_000)

    def __call__(self) -> int:
        return self.now_ms * 1_000_000


def _last_round_of(service: ServiceThread) -> Callable[..., None]:
    def shutdown(*_args: object) -> None:
        service._stopped = True
        service.run()

    return shutdown


def _nothing(*_args: object) -> None:
    """A service that has no thread."""
