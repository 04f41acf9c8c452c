"""Messages that need nothing but to be appended, as many as came together.

    IO thread --put--> CommitLog.put: all records in one piece behind the last one, one wait for flush and replica
"""
from __future__ import annotations

from time import time_ns
from typing import TYPE_CHECKING

from rmqha.store.append_message_callback import PutMessageContext
from rmqha.store.plain_records import MessageRow

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore


class PlainPut:
    """Appends plain messages together.

    What `DefaultMessageStore.async_put_message` does for one message is done once for all of them: checks, lock, clock,
    write, wake-ups, and the wait for the disk and the slaves, which ends when the last of them is safe. Whoever answers
    calls `count` behind his answer.
    """

    def __init__(self, store: DefaultMessageStore) -> None:
        self._store = store
        self._commit_log = store.commit_log
        self._config = store.message_store_config

    def put(self, sends: list[MessageRow], store_host: bytes) -> PutMessageContext | None:
        """Append all; None, with nothing done, when they have to be put one by one: the file is full, or the store
        can't or may not take them. Whoever puts them then gets the reason."""
        if not self._may_put():
            return None
        context = PutMessageContext(sends, None, store_host)
        context.begin = time_ns() // 1_000_000
        context.status = self._commit_log.put(context)
        return context if context.is_ok else None

    def count(self, result: PutMessageContext) -> None:
        """Count a put that is done."""
        for topic, (times, size) in result.totals.items():
            self._store.store_stats_service.count_put(topic, times, size)
        self._store.count_put(result, result.begin, len(result.queue_offsets))

    def _may_put(self) -> bool:
        config, store = self._config, self._store
        return (store.may_put and not (config.transientStorePoolEnable and store.is_transient_store_pool_deficient())
                and not config.enableMultiDispatch and not config.enableLmq
                and config.maxMessageSize == self._commit_log.message_ext_encoder.max_message_body_size)
