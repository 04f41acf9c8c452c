"""Writing a message's bytes at the end of a mapped file, under the put lock."""
from __future__ import annotations

import operator
import struct
from typing import TYPE_CHECKING, Protocol

from rmqha.common.message import message_layout
from rmqha.common.message.message_ext import MessageExt
from rmqha.store.append_message_result import AppendMessageStatus
from rmqha.store.mapped_file import MappedFile
from rmqha.store.message_rows import MessageRow, record_parts, records_of_rows

if TYPE_CHECKING:
    from rmqha.store.commit_log import CommitLog

END_FILE_MIN_BLANK_LENGTH = message_layout.END_FILE_MIN_BLANK_LENGTH
_PUT_OK = AppendMessageStatus.PUT_OK
_SIZE = operator.attrgetter("size")
_JOIN_LIMIT = 64 * 1024  # records up to this are joined and written by one assignment


class PutMessageContext:
    """What one put carries through the lock, and what has become of it.

    A message is a batch of one. `rows`: of `message`, or those that came together and have no other form; None for a
    message of several queues, whose row is made under the lock. `prepared_offset`: commit log offset of the prepared
    message that they end. `waits`: their sender waits for disk and slaves. `may_roll`: they go to the next file when
    the last one is full; those that came together are put one by one instead. `message` is asked for what is unusual.
    `is_ok`: they are in the log, up to its offset `end`, whatever flush and replicas say. Queue offsets and commit log
    offsets are in the order of the rows.

    The key of the queue, which is all that it has in Java, is in the rows.

    Java: org.apache.rocketmq.store.CommitLog$PutMessageContext (4.9.8)
    """

    __slots__ = ("rows", "size", "message", "is_batch", "multi_dispatch", "store_host", "prepared_offset", "waits",
                 "may_roll", "store_timestamp", "is_ok", "end", "queue_offsets", "physical_offsets", "data", "totals",
                 "begin", "status")

    def __init__(self, rows: list[MessageRow] | None, store_host: bytes, message: MessageExt | None = None,
                 prepared_offset: int = 0, is_batch: bool = False) -> None:
        self.rows = rows
        self.store_host = store_host
        self.message = message
        self.prepared_offset = prepared_offset
        self.is_batch = is_batch
        self.may_roll = message is not None
        self.waits = message is None or message.wait_store_msg_ok
        self.is_ok = False
        self.queue_offsets: list[int] | None = None  # set just before they are counted
        if rows is None:
            self.multi_dispatch = True
        else:
            self.multi_dispatch = False
            self.size = rows[0].size if len(rows) == 1 else sum(map(_SIZE, rows))

    @property
    def topic(self) -> str:
        """For log lines: the topic, that of the first row where they have several."""
        return (self.message or self.rows[0]).topic


class AppendMessageCallback(Protocol):
    """Writes one message or batch, or rows that came together.

    Java: org.apache.rocketmq.store.AppendMessageCallback (4.9.8)
    """

    def do_append(self, mapped_file: MappedFile, position: int, context: PutMessageContext) -> AppendMessageStatus:
        """Write at `position`; END_OF_FILE when the file has no room for it."""


class DefaultAppendMessageCallback:
    """Gives messages their queue offsets, their places and their store time, and writes them.

    Runs under the put lock, which guards the topic queue table. ValueError when a field does not fit: then nothing was
    written and no offset was used. One method does what both doAppend of Java do, of a message and of a batch;
    `record_parts` fills in what they write into the encoded messages.

    Java: org.apache.rocketmq.store.CommitLog$DefaultAppendMessageCallback (4.9.8)
    """

    def __init__(self, commit_log: CommitLog) -> None:
        self.commit_log = commit_log

    def do_append(self, mapped_file: MappedFile, position: int, context: PutMessageContext) -> AppendMessageStatus:
        """See AppendMessageCallback."""
        commit_log = self.commit_log
        if context.rows is None and not commit_log.multi_dispatch.wrap_multi_dispatch(context.message, context):
            return AppendMessageStatus.UNKNOWN_ERROR
        begin, size, rows = mapped_file.file_from_offset + position, context.size, context.rows
        if position + size + END_FILE_MIN_BLANK_LENGTH > mapped_file.file_size:
            return self._end_of_file(mapped_file, position, context.may_roll)
        in_parts = size > _JOIN_LIMIT and context.may_roll and len(rows) == 1
        try:
            queue_offsets, context.physical_offsets, data, next_offsets, context.totals, with_nuls = (
                record_parts if in_parts else records_of_rows)(
                rows, size, commit_log.topic_queue_table, begin, context.store_timestamp,
                context.store_host, context.prepared_offset)
        except (TypeError, OverflowError, struct.error) as error:
            raise ValueError(error) from error
        if in_parts:
            mapped_file.write_parts_at(position, data, size)
        else:
            mapped_file.write_at(position, data)
        if with_nuls is not None:
            for index in with_nuls:
                place = context.physical_offsets[index] - mapped_file.file_from_offset
                commit_log.note_if_it_looks_torn(mapped_file, place, rows[index].size)
        context.data, context.queue_offsets, context.end = data, queue_offsets, begin + size
        commit_log.topic_queue_table.update(next_offsets)
        if context.multi_dispatch and next_offsets:
            commit_log.multi_dispatch.update_multi_queue_offset(context.message)
        return _PUT_OK

    @staticmethod
    def _end_of_file(mapped_file: MappedFile, position: int, may_roll: bool) -> AppendMessageStatus:
        """Close the file with a blank; of rows that came together the first ones may still find room, one by one."""
        if not may_roll:
            return AppendMessageStatus.UNKNOWN_ERROR
        mapped_file.write_at(position, message_layout.encode_blank(mapped_file.file_size - position))
        return AppendMessageStatus.END_OF_FILE
