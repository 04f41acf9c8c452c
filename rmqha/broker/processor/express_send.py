"""Simple sends, as many as one read has brought, served together.

    IO thread: bytes read -> simple sends -> put_rows -> one buffer of answers, by whoever completes the put
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


_MAX_TOGETHER = 256  # messages of one put: the lock is held, and the first of them waits, no longer than that
_FRAME_START = struct.Struct(">iI")  # length, header mark
_SHORTEST_HEADER = 90  # bytes, with the length field and the mark; less than any send has
_IPV4_HOSTS = 2 * message_layout.HOST_LENGTH
_PUT_OK = PutMessageStatus.PUT_OK


class ExpressSend:
    """The express lane of SEND_MESSAGE_V2: sends to topics that exist, as clients of 4.9 write them.

    Answers and records are those of SendMessageProcessor, byte by byte; a send that is unusual in any way is left to
    it. Owned by the IO thread of its server; `answers`, `count_rows` and `stats` serve any thread.
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
        self.put_rows, self.count_rows = put_rows, count_rows  # of the store
        self.answers = SendAnswers(broker_config)
        self.stats = stats
        self._cluster = cluster_property(broker_config.brokerClusterName)
        self._routes = SendRoutes(processor)
        self._store_host: Host | None = None  # of the two that follow
        self._store_host_bytes = self._store_host_text = b""  # as records have it; as message ids do, in hex

    def serve(self, channel: Channel, data: memoryview, position: int) -> int:
        """Put and answer what are simple sends; see ExpressLane."""
        born_host = message_layout.host_to_bytes(channel.remote_address)
        if self._addresses.store_host is not self._store_host:
            self._note_store_host(self._addresses.store_host)
        if self._server.rpc_hooks or len(born_host) + len(self._store_host_bytes) != _IPV4_HOSTS:
            return position  # hooks are shown commands
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
        """The broker's address and port, which it has once it is started."""
        self._store_host, self._store_host_bytes = host, message_layout.host_to_bytes(host)
        self._store_host_text = self._store_host_bytes.hex().upper().encode()

    def _put(self, channel: Channel, kind: int, sends: list[MessageRow], opaques: list[int], data: memoryview,
             position: int, end: int) -> int:
        """Put the sends, whose frames are `data` from `position` to `end`; the position behind those that were put."""
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
    """The sends, whose frames are `data` from `position` to `end`, up to the first that is longer than the thread that
    reads serves, or than anybody does: the general way knows what to do with it."""
    headers = end - position - sum([len(send.body) for send in sends])
    if headers - (len(sends) - 1) * _SHORTEST_HEADER <= LARGE_HEADER_OF_SEND and end - position <= FRAME_MAX_LENGTH:
        return sends, opaques, end  # as almost always: none can be so long
    for index in range(len(sends)):
        length, mark = _FRAME_START.unpack_from(data, position)
        if mark & 0xFFFFFF > LARGE_HEADER_OF_SEND or LENGTH_FIELD_SIZE + length > FRAME_MAX_LENGTH:
            return sends[:index], opaques[:index], position
        position += LENGTH_FIELD_SIZE + length
    return sends, opaques, end


class _Put:
    """Sends that were put together, until they are answered and counted."""

    __slots__ = ("_lane", "_channel", "_kind", "_opaques", "_host", "_result", "_answers")

    def __init__(self, lane: ExpressSend, channel: Channel, kind: int, opaques: list[int], host: bytes,
                 result: PutMessageContext) -> None:
        self._lane = lane
        self._channel = channel
        self._kind = kind
        self._opaques = opaques
        self._host = host
        self._result = result
        self._answers = self._encode(SENT)  # now: if there is a slave to be waited for, this thread has the time

    def answer(self, status: PutMessageStatus) -> None:
        """The messages are as safe as they get: answer them. By whoever completes the put."""
        self._channel.write_encoded(self._answers if status is _PUT_OK else self._encode(SENT_CODES[status]))
        if not at_round_end(COUNT, self.count):  # the senders wait: count behind the answers of the round
            self.count()

    def _encode(self, code: int) -> bytes:
        result = self._result
        return self._lane.answers.encode(code, self._kind, self._host, result.physical_offsets, result.rows,
                                         result.queue_offsets, self._opaques)

    def count(self) -> None:
        """Count what was answered."""
        stats = self._lane.stats
        self._lane.count_rows(self._result)
        for topic, (times, size) in self._result.totals.items():
            stats.inc_topic_put(topic, times, size)
        stats.inc_broker_put_nums(len(self._opaques))
