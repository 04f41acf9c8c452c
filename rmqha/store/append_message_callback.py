"""Writing a message's bytes at the end of a mapped file, under the put lock."""
from __future__ import annotations

import itertools
import operator
import struct
from typing import TYPE_CHECKING, Protocol

from rmqha.common.message import message_layout
from rmqha.common.message.message import MessageExt
from rmqha.common.message.message_layout import bytes_to_host
from rmqha.store.append_message_result import AppendMessageStatus
from rmqha.store.mapped_file import MappedFile
from rmqha.store.message_rows import MessageRow, Totals, records_of_rows

if TYPE_CHECKING:
    from rmqha.common.futures import Completable
    from rmqha.store.commit_log import CommitLog
    from rmqha.store.message_ext_broker_inner import MessageExtBrokerInner
    from rmqha.store.put_message_result import PutMessageStatus

END_FILE_MIN_BLANK_LENGTH = message_layout.END_FILE_MIN_BLANK_LENGTH
_PUT_OK = AppendMessageStatus.PUT_OK
_SIZE = operator.attrgetter("size")


class PutMessageContext:
    """What one put carries through the lock, and what has become of it.

    A message is a batch of one. `rows`: of `message`, which is asked for what is unusual, or those that came together
    and have no other form; none for a message of several queues, `multi_dispatch`, whose row is made under the lock.
    `prepared_offset`: commit log offset of the prepared message that they end. `waits`: their sender waits for disk and
    slaves. `is_ok`: they are in the log, up to its offset `end`, whatever flush and replicas say. Queue offsets and
    commit log offsets are in the order of the rows; the first are set just before they are counted.

    The key of the queue, which is all that it has in Java, is in the rows.

    Java: org.apache.rocketmq.store.CommitLog$PutMessageContext (4.9.8)
    """

    __slots__ = ("rows", "size", "message", "is_batch", "multi_dispatch", "store_host", "prepared_offset", "waits",
                 "store_timestamp", "is_ok", "end", "queue_offsets", "physical_offsets", "data", "totals",
                 "begin", "status")

    # known once they are appended
    store_timestamp: int  # ms
    end: int
    physical_offsets: list[int]
    data: bytes
    totals: Totals
    # of rows that came together
    begin: int  # ms
    status: Completable[PutMessageStatus]

    def __init__(self, rows: list[MessageRow], store_host: bytes, message: MessageExt | None = None,
                 prepared_offset: int = 0, is_batch: bool = False,
                 multi_dispatch: MessageExtBrokerInner | None = None) -> None:
        self.rows = rows
        self.store_host = store_host
        self.message = message
        self.prepared_offset = prepared_offset
        self.is_batch = is_batch
        self.waits = message is None or message.wait_store_msg_ok
        self.is_ok = False
        self.queue_offsets: list[int] = []
        self.multi_dispatch = multi_dispatch
        self.size = rows[0].size if len(rows) == 1 else sum(map(_SIZE, rows))

    @property
    def topic(self) -> str:
        """For log lines: the topic, that of the first row where they have several."""
        return (self.message or self.rows[0]).topic

    @property
    def client(self) -> str | None:
        """For log lines: the host of whoever made the first message."""
        return self.message.born_host_string if self.message else bytes_to_host(self.rows[0].born_host)[0]

    def keep_what_fits(self, room: int) -> bool:
        """Leave to the next put those of the rows that `room` bytes are not enough for; False when all of them wait for
        the next file: none fits, or they are one message or one batch."""
        ends = list(itertools.takewhile(lambda end: end <= room, itertools.accumulate(map(_SIZE, self.rows))))
        if self.message is not None or not ends:
            return False
        self.rows, self.size = self.rows[:len(ends)], ends[-1]
        return True


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
    `records_of_rows` fills in what they write into the encoded messages.

    Java: org.apache.rocketmq.store.CommitLog$DefaultAppendMessageCallback (4.9.8)
    """

    def __init__(self, commit_log: CommitLog) -> None:
        self.commit_log = commit_log

    def do_append(self, mapped_file: MappedFile, position: int, context: PutMessageContext) -> AppendMessageStatus:
        """See AppendMessageCallback."""
        commit_log = self.commit_log
        message = context.multi_dispatch
        if message is not None and not context.rows \
                and not commit_log.multi_dispatch.wrap_multi_dispatch(message, context):
            return AppendMessageStatus.UNKNOWN_ERROR
        begin, room = mapped_file.file_from_offset + position, mapped_file.file_size - position
        if context.size > room - END_FILE_MIN_BLANK_LENGTH \
                and not context.keep_what_fits(room - END_FILE_MIN_BLANK_LENGTH):
            return self._end_of_file(mapped_file, position, room, context)
        rows, size = context.rows, context.size
        try:
            queue_offsets, context.physical_offsets, data, next_offsets, context.totals, with_nuls = records_of_rows(
                rows, size, commit_log.topic_queue_table, begin, context.store_timestamp, context.store_host,
                context.prepared_offset)
        except (TypeError, OverflowError, struct.error) as error:
            raise ValueError(error) from error
        mapped_file.write_at(position, data)
        if with_nuls is not None:
            for index in with_nuls:
                place = context.physical_offsets[index] - mapped_file.file_from_offset
                commit_log.note_if_it_looks_torn(mapped_file, place, rows[index].size)
        context.data, context.queue_offsets, context.end = data, queue_offsets, begin + size
        commit_log.topic_queue_table.update(next_offsets)
        if message is not None and next_offsets:
            commit_log.multi_dispatch.update_multi_queue_offset(message)
        return _PUT_OK

    @staticmethod
    def _end_of_file(mapped_file: MappedFile, position: int, room: int,
                     context: PutMessageContext) -> AppendMessageStatus:
        """Close the file with a blank, unless what is to be put is larger than any file."""
        size = context.size if context.message is not None else context.rows[0].size
        if size + END_FILE_MIN_BLANK_LENGTH > mapped_file.file_size:
            # Differs: the original closes one empty file after the other for such a message
            return AppendMessageStatus.MESSAGE_SIZE_EXCEEDED
        mapped_file.write_at(position, message_layout.encode_blank(room))
        return AppendMessageStatus.END_OF_FILE
