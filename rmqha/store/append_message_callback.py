"""Writing a message's bytes at the end of a mapped file, under the put lock."""
from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rmqha.common.message import message_decoder, message_layout
from rmqha.common.sysflag import message_sys_flag
from rmqha.store.append_message_result import AppendMessageResult
from rmqha.store.append_message_status import AppendMessageStatus
from rmqha.store.mapped_file import MappedFile
from rmqha.store.message_ext_broker_inner import MessageExtBrokerInner

if TYPE_CHECKING:
    from rmqha.common.message.message_ext_batch import MessageExtBatch
    from rmqha.store.commit_log import CommitLog
    from rmqha.store.message_ext_encoder import EncodedRecord

END_FILE_MIN_BLANK_LENGTH = message_layout.END_FILE_MIN_BLANK_LENGTH
_TRANSACTION_MASK = message_sys_flag.TRANSACTION_ROLLBACK_TYPE
_WITHOUT_QUEUE_OFFSET = (message_sys_flag.TRANSACTION_PREPARED_TYPE, message_sys_flag.TRANSACTION_ROLLBACK_TYPE)


class PutMessageContext:
    """What one put carries through the lock: the key of its queue and its prepared records.

    Java: org.apache.rocketmq.store.CommitLog$PutMessageContext (4.9.8)
    """

    __slots__ = ("topic_queue_table_key", "records")

    def __init__(self, topic_queue_table_key: str, records: list[EncodedRecord] | None = None) -> None:
        self.topic_queue_table_key = topic_queue_table_key
        self.records = records


class AppendMessageCallback(Protocol):
    """Writes one message or batch.

    Java: org.apache.rocketmq.store.AppendMessageCallback (4.9.8)
    """

    def do_append(self, mapped_file: MappedFile, position: int, max_blank: int, msg: MessageExtBrokerInner,
                  context: PutMessageContext) -> AppendMessageResult:
        """Write at `position`, where `max_blank` bytes are left; END_OF_FILE when the message does not fit."""


class DefaultAppendMessageCallback:
    """Gives a message its queue offset, its place and its store time, and writes it.

    Runs under the put lock, which guards the topic queue table.

    Java: org.apache.rocketmq.store.CommitLog$DefaultAppendMessageCallback (4.9.8)
    """

    def __init__(self, commit_log: CommitLog) -> None:
        self.commit_log = commit_log

    def do_append(self, mapped_file: MappedFile, position: int, max_blank: int,
                  msg: MessageExtBrokerInner | MessageExtBatch, context: PutMessageContext) -> AppendMessageResult:
        """See AppendMessageCallback."""
        if isinstance(msg, MessageExtBrokerInner):
            return self._append_one(mapped_file, position, max_blank, msg, context)
        return self._append_batch(mapped_file, position, max_blank, msg, context)

    def _append_one(self, mapped_file: MappedFile, position: int, max_blank: int, msg: MessageExtBrokerInner,
                    context: PutMessageContext) -> AppendMessageResult:
        commit_log = self.commit_log
        wrote_offset = mapped_file.file_from_offset + position
        key = context.topic_queue_table_key
        queue_offset = commit_log.topic_queue_table.setdefault(key, 0)
        if context.records is None and not commit_log.multi_dispatch.wrap_multi_dispatch(msg, context):
            return AppendMessageResult(AppendMessageStatus.UNKNOWN_ERROR)
        tran_type = msg.sys_flag & _TRANSACTION_MASK
        if tran_type in _WITHOUT_QUEUE_OFFSET:
            queue_offset = 0
        record = context.records[0]
        size = record.size

        def msg_id() -> str:
            return message_decoder.create_message_id(msg.store_host, wrote_offset)

        store_timestamp = msg.store_timestamp
        if size + END_FILE_MIN_BLANK_LENGTH > max_blank:
            mapped_file.write_at(position, message_layout.encode_blank(max_blank))
            return AppendMessageResult(AppendMessageStatus.END_OF_FILE, wrote_offset, max_blank, msg_id,
                                       store_timestamp, queue_offset)
        parts = record.finish(queue_offset, wrote_offset, store_timestamp)
        if len(parts) == 1:
            mapped_file.write_at(position, parts[0])
        else:
            mapped_file.write_parts_at(position, parts, size)
        if tran_type not in _WITHOUT_QUEUE_OFFSET:
            commit_log.topic_queue_table[key] = queue_offset + 1
            commit_log.multi_dispatch.update_multi_queue_offset(msg)
        return AppendMessageResult(AppendMessageStatus.PUT_OK, wrote_offset, size, msg_id, store_timestamp,
                                   queue_offset)

    def _append_batch(self, mapped_file: MappedFile, position: int, max_blank: int, batch: MessageExtBatch,
                      context: PutMessageContext) -> AppendMessageResult:
        wrote_offset = mapped_file.file_from_offset + position
        table, key = self.commit_log.topic_queue_table, context.topic_queue_table_key
        begin_queue_offset = table.setdefault(key, 0)
        records, store_timestamp = context.records, batch.store_timestamp
        total = sum(record.size for record in records)
        offsets: list[int] = []

        def msg_id() -> str:
            return ",".join(message_decoder.create_message_id(batch.store_host, offset) for offset in offsets)

        if total + END_FILE_MIN_BLANK_LENGTH > max_blank:
            mapped_file.write_at(position, message_layout.encode_blank(max_blank))
            return AppendMessageResult(AppendMessageStatus.END_OF_FILE, wrote_offset, max_blank, msg_id,
                                       store_timestamp, begin_queue_offset)
        parts: list[bytes | memoryview] = []
        offset = wrote_offset
        for index, record in enumerate(records):
            parts += record.finish(begin_queue_offset + index, offset, store_timestamp)
            offsets.append(offset)
            offset += record.size
        mapped_file.write_at(position, b"".join(parts))
        table[key] = begin_queue_offset + len(records)
        return AppendMessageResult(AppendMessageStatus.PUT_OK, wrote_offset, total, msg_id, store_timestamp,
                                   begin_queue_offset, msg_num=len(records))
