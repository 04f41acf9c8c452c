"""The express lane: simple sends are served together, as many as arrived in one read.

    IO thread: bytes read -> simple sends -> put_rows -> one buffer of responses, by the thread that completes the put

For a small message, most of the time of a send is overhead: decoding a command, building header and message objects,
taking the log's lock, encoding a response. The express lane pays for this once per read instead of once per message.
It reads the frames directly into rows for the commit log, appends them with one lock and one write, waits once for the
disk and the slaves, and encodes all responses into one buffer.

The rule is that the result does not depend on the way: records and responses are the same, byte for byte, as those of
SendMessageProcessor. Only sends that match fixed patterns are taken, to topics that exist, without properties that mean
more than appending (delay, transaction, further queues). The first frame that is unusual in any way ends the lane's
work: it and the rest of the read are decoded in the general way, so the order of the messages of a connection is kept.
All checks are the same functions, called through `SendRoutes` with topic and queue only; a check that refuses, or that
needs more than these, sends the messages the general way, where it is called again for each message and produces the
error response. Likewise, when the store takes none of the rows, each send is served alone, to get its own error.
"""
from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.broker.processor.send_admission import SendRoutes
from rmqha.broker.processor.send_codec import SENT, SENT_CODES, SendAnswers, cluster_property, read_simple_sends
from rmqha.broker.processor.send_message_processor import SendMessageProcessor
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.futures import COUNT, at_round_end
from rmqha.common.message import message_layout
from rmqha.common.message.message_layout import Host
from rmqha.remoting.frame_decoder import FRAME_MAX_LENGTH, LENGTH_FIELD_SIZE, FrameDecoder
from rmqha.remoting.large_requests import LARGE_HEADER_OF_SEND
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.append import MessageRow, PutMessageContext
from rmqha.store.results import PutMessageStatus

if TYPE_CHECKING:
    from rmqha.broker.broker_addresses import BrokerAddresses
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.remoting_server import RemotingServer
    from rmqha.store.broker_stats_manager import BrokerStatsManager
    from rmqha.store.message_store_config import MessageStoreConfig


# Messages per put. Limits how long the lock is held and how long the first message waits.
_MAX_TOGETHER = 256
_FRAME_START = struct.Struct(">iI")  # length, header mark
# Bytes, including the length field and the mark; every send has more.
_SHORTEST_HEADER = 90
_IPV4_HOSTS = 2 * message_layout.HOST_LENGTH
_PUT_OK = PutMessageStatus.PUT_OK


class ExpressSend:
    """The express lane of SEND_MESSAGE_V2: sends to existing topics, in the format of clients of 4.9.

    Responses and records are the same as those of SendMessageProcessor, byte for byte; sends that are unusual in any
    way are left to it. Owned by the IO thread of its server; any thread may use `answers`, `count_rows` and `stats`.
    """

    def __init__(self, broker_config: BrokerConfig, message_store_config: MessageStoreConfig, server: RemotingServer,
                 processor: SendMessageProcessor,
                 put_rows: Callable[[list[MessageRow], bytes], PutMessageContext | None],
                 count_rows: Callable[[PutMessageContext], None], stats: BrokerStatsManager,
                 addresses: BrokerAddresses) -> None:
        self._store_config = message_store_config
        self._addresses = addresses
        self._server = server
        self._processor = processor
        self.put_rows, self.count_rows = put_rows, count_rows
        self.answers = SendAnswers(broker_config)
        self.stats = stats
        self._cluster = cluster_property(broker_config.brokerClusterName)
        self._routes = SendRoutes(processor)
        # The address from which the next two are made.
        self._store_host: Host | None = None
        # The address in the format of records, and in the hex format of message ids.
        self._store_host_bytes = self._store_host_text = b""

    def serve(self, channel: Channel, data: memoryview, position: int) -> int:
        """Put and answer the simple sends; see ExpressLane."""
        born_host = message_layout.host_to_bytes(channel.remote_address)
        if self._addresses.store_host is not self._store_host:
            self._note_store_host(self._addresses.store_host)
        if self._server.rpc_hooks or len(born_host) + len(self._store_host_bytes) != _IPV4_HOSTS:
            return position  # Hooks need decoded commands; rows have room for IPv4 hosts only.
        routes, processor = self._routes, self._processor
        while position < len(data) and not processor.reject_request():
            sends, opaques, topics, kind, end, unknown = read_simple_sends(
                data, position, self._cluster, born_host, routes.keys, self._store_config.maxMessageSize,
                _MAX_TOGETHER, MessageRow)
            if sends:
                sends, opaques, end = within_limits(sends, opaques, data, position, end)
                if not sends:
                    break
                if routes.are_open(channel, topics):
                    position = self._put(channel, kind, sends, opaques, data, position, end)
            elif unknown is None or not routes.make(channel, unknown):
                break
        return position

    def _note_store_host(self, host: Host) -> None:
        """Set the broker's address and port, which are known once it has started."""
        self._store_host, self._store_host_bytes = host, message_layout.host_to_bytes(host)
        self._store_host_text = self._store_host_bytes.hex().upper().encode()

    def _put(self, channel: Channel, kind: int, sends: list[MessageRow], opaques: list[int], data: memoryview,
             position: int, end: int) -> int:
        """Put the sends whose frames are `data[position:end]`; return the position after those that were put."""
        result = self.put_rows(sends, self._store_host_bytes)
        if result is None:
            for frame in FrameDecoder().feed(data[position:end]):
                self._server.on_command(channel, RemotingCommand.decode(frame))
            return end
        if len(result.rows) < len(sends):
            opaques, end = opaques[:len(result.rows)], position
            for _ in opaques:
                end += LENGTH_FIELD_SIZE + int.from_bytes(data[end:end + LENGTH_FIELD_SIZE])
        result.status.then(_Put(self, channel, kind, opaques, self._store_host_text, result).answer)
        return end


def within_limits(sends: list[MessageRow], opaques: list[int], data: memoryview, position: int,
                  end: int) -> tuple[list[MessageRow], list[int], int]:
    """Return the sends whose frames are `data[position:end]`, up to the first that exceeds a size limit: that of
    requests that the reading thread serves, or that of frames. The general way handles it."""
    headers = end - position - sum([len(send.body) for send in sends])
    if headers - (len(sends) - 1) * _SHORTEST_HEADER <= LARGE_HEADER_OF_SEND and end - position <= FRAME_MAX_LENGTH:
        return sends, opaques, end  # The usual case: no send can exceed the limits.
    for index in range(len(sends)):
        length, mark = _FRAME_START.unpack_from(data, position)
        if mark & 0xFFFFFF > LARGE_HEADER_OF_SEND or LENGTH_FIELD_SIZE + length > FRAME_MAX_LENGTH:
            return sends[:index], opaques[:index], position
        position += LENGTH_FIELD_SIZE + length
    return sends, opaques, end


class _Put:
    """The sends of one put, until they are answered and counted."""

    __slots__ = ("_lane", "_channel", "_kind", "_opaques", "_host", "_result", "_answers")

    def __init__(self, lane: ExpressSend, channel: Channel, kind: int, opaques: list[int], host: bytes,
                 result: PutMessageContext) -> None:
        self._lane = lane
        self._channel = channel
        self._kind = kind
        self._opaques = opaques
        self._host = host
        self._result = result
        # Encoded in advance: while a slave or the disk is waited for, this thread is free.
        self._answers = self._encode(SENT)

    def answer(self, status: PutMessageStatus) -> None:
        """Answer the sends when the wait for disk and slaves is over. Called by the thread that completes the put."""
        self._channel.write_encoded(self._answers if status is _PUT_OK else self._encode(SENT_CODES[status]))
        # The senders are waiting, so counting comes after all responses of the round.
        if not at_round_end(COUNT, self.count):
            self.count()

    def _encode(self, code: int) -> bytes:
        result = self._result
        return self._lane.answers.encode(code, self._kind, self._host, result.physical_offsets, result.rows,
                                         result.queue_offsets, self._opaques)

    def count(self) -> None:
        """Add the answered sends to the statistics."""
        stats = self._lane.stats
        self._lane.count_rows(self._result)
        for topic, (times, size) in self._result.totals.items():
            stats.inc_topic_put(topic, times, size)
        stats.inc_broker_put_nums(len(self._opaques))
