"""Messages that need nothing but to be appended, as many as came together.

    IO thread --put--> [put lock] all records in one piece at the end of the last file -> one wait for flush and replica
"""
from __future__ import annotations

import logging
from time import time_ns
from typing import TYPE_CHECKING, NamedTuple

from rmqha.common.completable import Completable
from rmqha.common.message.message_layout import END_FILE_MIN_BLANK_LENGTH
from rmqha.remoting.write_round import serves_one_connection
from rmqha.store.config.broker_role import SLAVE, SYNC_MASTER
from rmqha.store.plain_records import PlainSend, Totals, plain_records
from rmqha.store.put_message_status import PutMessageStatus

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore

log = logging.getLogger("RocketmqStore")

_LENGTHS = 3  # bytes of a tail: topic length and properties length


class PlainPutResult(NamedTuple):
    """Where the messages lie, in their order, and how safe they have become."""

    begin: int  # of the put, ms since 1970
    queue_offsets: list[int]
    physical_offsets: list[int]
    totals: Totals
    status: Completable[PutMessageStatus]

    is_ok = True  # they are in the log, whatever the status


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

    def put(self, sends: list[PlainSend], store_host: bytes) -> PlainPutResult | None:
        """Append all; None, with nothing done, when they have to be put one by one: the file is full, or the store
        can't or may not take them. Whoever puts them then gets the reason."""
        store, commit_log = self._store, self._commit_log
        if not self._may_put():
            return None
        ha_service, ack_nums = store.ha_service, None
        term = ha_service.term  # before the role is looked at
        if self._config.brokerRole is SYNC_MASTER:
            ack_nums = ha_service.need_ack_nums()
            if ack_nums is None:
                return None
        begin = time_ns() // 1_000_000
        with commit_log.put_message_lock:
            if self._config.brokerRole is SLAVE or ha_service.term != term or store.is_shutdown:
                return None
            if store.deleted_topics.names and store.deleted_topics.refuses_any(sends):
                return None
            commit_log.begin_time_in_lock = now = time_ns() // 1_000_000
            try:
                appended = self._append(sends, store_host, now)
            except OSError as error:
                log.warning("plain messages are put one by one: %s", error)
                return None
            finally:
                commit_log.begin_time_in_lock = 0
        if appended is None:
            return None
        queue_offsets, physical_offsets, data, totals = appended
        first = physical_offsets[0]
        self._tell(sends, first, data)
        status = commit_log.when_safe(first + len(data), sends[-1], ack_nums, term)
        return PlainPutResult(begin, queue_offsets, physical_offsets, totals, status)

    def count(self, result: PlainPutResult) -> None:
        """Count a put that is done."""
        for topic, (times, size) in result.totals.items():
            self._store.store_stats_service.count_put(topic, times, size)
        self._store.count_put(result, result.begin, len(result.queue_offsets))

    def _may_put(self) -> bool:
        config, store = self._config, self._store
        return (store.may_put and not (config.transientStorePoolEnable and store.is_transient_store_pool_deficient())
                and not config.enableMultiDispatch and not config.enableLmq
                and config.maxMessageSize == self._commit_log.message_ext_encoder.max_message_body_size)

    def _append(self, sends: list[PlainSend], store_host: bytes,
                now: int) -> tuple[list[int], list[int], bytes, Totals] | None:
        """Under the put lock: the offsets in queues and log, the records, and their totals."""
        commit_log = self._commit_log
        files = commit_log.mapped_file_queue.mapped_files
        if not files:
            return None
        mapped_file = files[-1]
        position = mapped_file.wrote_position
        total = sends[0].size if len(sends) == 1 else sum([send.size for send in sends])
        if position + total + END_FILE_MIN_BLANK_LENGTH > mapped_file.file_size:
            return None
        table = commit_log.topic_queue_table
        queue_offsets, physical_offsets, data, next_offsets, totals = plain_records(
            sends, total, table, mapped_file.file_from_offset + position, now, store_host)
        mapped_file.append_bytes(data)
        mapped_file.store_timestamp = now
        try:
            table.update(next_offsets)
        except BaseException:
            log.error("The commit log has messages that their queues don't count. The store takes no more messages.")
            self._store.running_flags.make_flush_error()
            raise
        for send, offset in zip(sends, physical_offsets, strict=True):
            if send.tail.find(0, send.tail[0] + _LENGTHS) >= 0:  # NULs in the properties
                commit_log.note_if_it_looks_torn(mapped_file, offset - mapped_file.file_from_offset, send.size)
        return queue_offsets, physical_offsets, data, totals

    def _tell(self, sends: list[PlainSend], offset: int, data: bytes) -> None:
        """Wake who follows the log: it has got `data` at `offset`."""
        if self._commit_log.transient_store_pool.is_in_use:
            return  # a commit makes them readable
        store = self._store
        if serves_one_connection():
            store.ha_service.on_appended(offset, data)
        else:
            store.ha_service.on_appended()
        for topic, queue_id in {(send.topic, send.queue_id) for send in sends}:
            store.reput_message_service.on_appended(topic, queue_id)
