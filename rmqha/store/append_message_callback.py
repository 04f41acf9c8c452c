"""Writing a message's bytes at the end of a mapped file, under the put lock."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from rmqha.common.message import message_layout
from rmqha.common.message.message_ext import MessageExt
from rmqha.common.sysflag import message_sys_flag
from rmqha.store.append_message_result import AppendMessageResult
from rmqha.store.append_message_status import AppendMessageStatus
from rmqha.store.mapped_file import MappedFile
from rmqha.store.message_ext_encoder import EncodedRecord, finish_record

if TYPE_CHECKING:
    from rmqha.store.commit_log import CommitLog
    from rmqha.store.plain_records import PlainSend

END_FILE_MIN_BLANK_LENGTH = message_layout.END_FILE_MIN_BLANK_LENGTH
_TRANSACTION_MASK = message_sys_flag.TRANSACTION_ROLLBACK_TYPE
_WITHOUT_QUEUE_OFFSET = (message_sys_flag.TRANSACTION_PREPARED_TYPE, message_sys_flag.TRANSACTION_ROLLBACK_TYPE)


class PutMessageContext:
    """What one put carries through the lock, and what has become of it.

    `rows`: the prepared records of `message`, or those of plain messages, which have no other form (`message` is None);
    None for a message of several queues, whose record is made under the lock. `is_ok`: they are in the log, up to its
    offset `end`, whatever flush and replicas say. `result`: of a message; the rest is told of plain messages, in their
    order.

    Java: org.apache.rocketmq.store.CommitLog$PutMessageContext (4.9.8)
    """

    __slots__ = ("topic_queue_table_key", "rows", "message", "is_batch", "multi_dispatch", "wait_store_msg_ok",
                 "store_host", "is_ok", "end", "result", "begin", "queue_offsets", "physical_offsets", "data", "totals",
                 "status")

    def __init__(self, topic_queue_table_key: str, rows: Sequence[EncodedRecord] | list[PlainSend] | None,
                 message: MessageExt | None, store_host: bytes = b"", is_batch: bool = False) -> None:
        self.topic_queue_table_key = topic_queue_table_key
        self.rows = rows
        self.message = message
        self.is_batch = is_batch
        self.multi_dispatch = rows is None
        self.wait_store_msg_ok = message is None or message.wait_store_msg_ok
        self.store_host = store_host
        self.is_ok = False
        self.result: AppendMessageResult | None = None


class AppendMessageCallback(Protocol):
    """Writes one message or batch.

    Java: org.apache.rocketmq.store.AppendMessageCallback (4.9.8)
    """

    def do_append(self, mapped_file: MappedFile, position: int, max_blank: int, msg: MessageExt,
                  context: PutMessageContext) -> AppendMessageResult:
        """Write at `position`, where `max_blank` bytes are left; END_OF_FILE when the message does not fit."""


class DefaultAppendMessageCallback:
    """Gives a message its queue offset, its place and its store time, and writes it.

    Runs under the put lock, which guards the topic queue table. struct.error when a field does not fit: then nothing
    was written and no offset was used.

    Java: org.apache.rocketmq.store.CommitLog$DefaultAppendMessageCallback (4.9.8)
    """

    def __init__(self, commit_log: CommitLog) -> None:
        self.commit_log = commit_log

    def do_append(self, mapped_file: MappedFile, position: int, max_blank: int, msg: MessageExt,
                  context: PutMessageContext) -> AppendMessageResult:
        """See AppendMessageCallback."""
        if context.is_batch:
            return self._append_batch(mapped_file, position, max_blank, msg, context)
        commit_log = self.commit_log
        wrote_offset = mapped_file.file_from_offset + position
        key = context.topic_queue_table_key
        queue_offset = commit_log.topic_queue_table.get(key, 0)
        if context.rows is None and not commit_log.multi_dispatch.wrap_multi_dispatch(msg, context):
            return AppendMessageResult(AppendMessageStatus.UNKNOWN_ERROR)
        queued = msg.sys_flag & _TRANSACTION_MASK not in _WITHOUT_QUEUE_OFFSET
        if not queued:
            queue_offset = 0
        record = context.rows[0]
        size = record.size
        if size + END_FILE_MIN_BLANK_LENGTH > max_blank:
            return self._end_of_file(mapped_file, position, max_blank, msg, queue_offset)
        parts = finish_record(record, msg, queue_offset, wrote_offset, msg.prepared_transaction_offset)
        if len(parts) == 1:
            mapped_file.write_at(position, parts[0])
        else:
            mapped_file.write_parts_at(position, parts, size)
        if 0 in record.properties:
            commit_log.note_if_it_looks_torn(mapped_file, position, size)
        if queued:
            commit_log.topic_queue_table[key] = queue_offset + 1
            if context.multi_dispatch:
                commit_log.multi_dispatch.update_multi_queue_offset(msg)
        return AppendMessageResult(AppendMessageStatus.PUT_OK, wrote_offset, size, msg.store_host, msg.store_timestamp,
                                   queue_offset)

    @staticmethod
    def _end_of_file(mapped_file: MappedFile, position: int, max_blank: int, msg: MessageExt,
                     queue_offset: int) -> AppendMessageResult:
        """Close the file with a blank."""
        mapped_file.write_at(position, message_layout.encode_blank(max_blank))
        return AppendMessageResult(AppendMessageStatus.END_OF_FILE, mapped_file.file_from_offset + position, max_blank,
                                   msg.store_host, msg.store_timestamp, queue_offset)

    def _append_batch(self, mapped_file: MappedFile, position: int, max_blank: int, batch: MessageExt,
                      context: PutMessageContext) -> AppendMessageResult:
        wrote_offset = mapped_file.file_from_offset + position
        table, key = self.commit_log.topic_queue_table, context.topic_queue_table_key
        begin_queue_offset = table.get(key, 0)
        total = sum(record.size for record in context.rows)
        if total + END_FILE_MIN_BLANK_LENGTH > max_blank:
            return self._end_of_file(mapped_file, position, max_blank, batch, begin_queue_offset)
        parts: list[message_layout.Buffer] = []
        offsets: list[int] = []
        offset = wrote_offset
        for queue_offset, record in enumerate(context.rows, begin_queue_offset):
            parts += finish_record(record, batch, queue_offset, offset, 0)
            offsets.append(offset)
            offset += record.size
        mapped_file.write_at(position, b"".join(parts))
        for at, record in zip(offsets, context.rows, strict=True):
            if 0 in record.properties:
                self.commit_log.note_if_it_looks_torn(mapped_file, at - mapped_file.file_from_offset, record.size)
        table[key] = begin_queue_offset + len(offsets)
        return AppendMessageResult(AppendMessageStatus.PUT_OK, wrote_offset, total, batch.store_host,
                                   batch.store_timestamp, begin_queue_offset, offsets)
