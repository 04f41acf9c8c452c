"""Plain sends, as many as one read has brought, served together.

    IO thread: frames -> header, topic -> PlainPut.put -> one buffer of answers, by whoever completes the put
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from rmqha.broker.processor.plain_send_answer import SendAnswers
from rmqha.broker.processor.plain_send_header import cluster_property, read_plain_send
from rmqha.broker.processor.send_message_processor import SENT_CODES, SendMessageProcessor
from rmqha.common import mix_all
from rmqha.common.constant import perm_name
from rmqha.common.message import message_layout
from rmqha.common.sysflag import message_sys_flag
from rmqha.common.topic_config import TopicConfig
from rmqha.common.topic_filter_type import TopicFilterType
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.write_round import flush_at_end_of_round
from rmqha.store.plain_put import PlainPut, PlainPutResult
from rmqha.store.plain_records import PlainSend
from rmqha.store.put_message_status import PutMessageStatus

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.remoting_server import RemotingServer

_MAX_TOGETHER = 256  # messages of one put: the lock is held, and the first of them waits, no longer than that
_MAX_ROUTES = 4096
_OTHER_SYS_FLAGS = message_sys_flag.TRANSACTION_ROLLBACK_TYPE | message_layout.V6_FLAGS
_PUT_OK = PutMessageStatus.PUT_OK
_SENT = SENT_CODES[_PUT_OK]  # by far the commonest; a status is not quick to look up


class ExpressSend:
    """The express lane of SEND_MESSAGE_V2: sends to topics that exist, as clients of 4.9 write them.

    Answers and records are those of SendMessageProcessor, byte by byte; a send that is unusual in any way is left to
    it. Owned by the IO thread of its server; `answers`, `put.count` and `stats` serve any thread.
    """

    def __init__(self, broker_controller: BrokerController, server: RemotingServer,
                 processor: SendMessageProcessor) -> None:
        self._controller = broker_controller
        self._config = broker_controller.broker_config
        self._store_config = broker_controller.message_store_config
        self._server = server
        self._processor = processor
        self._topics = broker_controller.topic_config_manager.topic_config_table
        self.put = PlainPut(broker_controller.message_store)
        self.answers = SendAnswers(self._config)
        self.stats = broker_controller.broker_stats_manager
        self._cluster = cluster_property(self._config.brokerClusterName)
        self._routes: dict[str, TopicConfig] = {}  # of topics that were checked
        self._queue_keys: dict[tuple[str, int], str] = {}
        self._channel: Channel | None = None  # of what was taken
        self._kind = 0  # the serialize type of what was taken
        self._born_host = b""
        self._sends: list[PlainSend] = []
        self._frames: list[memoryview] = []
        self._opaques: list[int] = []

    def take(self, channel: Channel, frame: memoryview) -> bool:
        """Keep a plain send; see ExpressLane."""
        header = read_plain_send(frame, self._cluster)
        if header is None:
            return False
        topic, queue_id, sys_flag, born, flag, tail, reconsumed, opaque, end, crc, kind = header
        config = self._routes.get(topic)
        if config is None or self._topics.get(topic) is not config:
            config = self._route_of(topic)
            if config is None:
                return False
        body = frame[end:]
        if (queue_id >= config.writeQueueNums and queue_id >= config.readQueueNums or sys_flag & _OTHER_SYS_FLAGS
                or len(body) > self._store_config.maxMessageSize):
            return False
        if kind != self._kind:
            self.flush()
        if channel is not self._channel and not self._begin(channel, kind):
            return False
        key = self._queue_keys.get((topic, queue_id)) or self._queue_key(topic, queue_id)
        self._sends.append(PlainSend(topic, queue_id, key, PlainSend.record_size(len(body), len(tail)), crc, flag,
                                     sys_flag, born, self._born_host, reconsumed, body, tail))
        self._frames.append(frame)
        self._opaques.append(opaque)
        if len(self._sends) >= _MAX_TOGETHER:
            self.flush()
        return True

    def flush(self) -> None:
        """Put what was taken; see ExpressLane."""
        sends = self._sends
        if not sends:
            return
        channel, frames, opaques = self._channel, self._frames, self._opaques
        self._channel, self._sends, self._frames, self._opaques = None, [], [], []
        host = message_layout.host_to_bytes(self._controller.store_host)
        result = self.put.put(sends, host)
        if result is None:
            for frame in frames:
                self._server.on_command(channel, RemotingCommand.decode(frame))
            return
        result.status.then(_Put(self, channel, self._kind, sends, opaques, host, result).answer)

    def _begin(self, channel: Channel, kind: int) -> bool:
        """Whether the channel's plain sends may be served here at all, now."""
        config, host = self._config, channel.remote_address
        if (self._server.rpc_hooks or config.startAcceptSendRequestTimeStamp
                or not perm_name.is_writeable(config.brokerPermission)
                or ":" in host[0] or ":" in self._controller.store_host[0]):
            return False
        self._channel, self._kind, self._born_host = channel, kind, message_layout.host_to_bytes(host)
        return True

    def _route_of(self, topic: str) -> TopicConfig | None:
        """The topic's configuration; None when the processor has not checked the topic yet."""
        config = self._topics.get(topic)
        if (config is None or not self._processor.has_checked(topic)
                or topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX)
                or config.topicFilterType is not TopicFilterType.SINGLE_TAG):
            return None
        if len(self._routes) >= _MAX_ROUTES:
            self._routes.clear()
            self._queue_keys.clear()
        self._routes[topic] = config
        return config

    def _queue_key(self, topic: str, queue_id: int) -> str:
        if len(self._queue_keys) >= 16 * _MAX_ROUTES:
            self._queue_keys.clear()
        key = self._queue_keys[topic, queue_id] = f"{topic}-{queue_id}"
        return key


class _Put:
    """Sends that were put together, until they are answered and counted."""

    __slots__ = ("_lane", "_channel", "_kind", "_sends", "_opaques", "_host", "_result", "_answers")

    def __init__(self, lane: ExpressSend, channel: Channel, kind: int, sends: list[PlainSend], opaques: list[int],
                 host: bytes, result: PlainPutResult) -> None:
        self._lane = lane
        self._channel = channel
        self._kind = kind
        self._sends = sends
        self._opaques = opaques
        self._host = host.hex().upper().encode()
        self._result = result
        self._answers = self._encode(_SENT)  # now: if there is a slave to be waited for, this thread has the time

    def answer(self, status: PutMessageStatus) -> None:
        """The messages are as safe as they get: answer them. By whoever completes the put."""
        self._channel.write_encoded(self._answers if status is _PUT_OK else self._encode(SENT_CODES[status]))
        if not flush_at_end_of_round(self, last=True):  # the senders wait: count behind the answers of the round
            self.flush()

    def _encode(self, code: int) -> bytes:
        result = self._result
        return self._lane.answers.encode(code, self._kind, self._host, result.physical_offsets, self._sends,
                                         result.queue_offsets, self._opaques)

    def flush(self) -> None:
        """Count."""
        stats, sizes = self._lane.stats, {}
        self._lane.put.count(self._result)
        for send in self._sends:
            sizes.setdefault(send.topic, []).append(send.size)
        for topic, of_topic in sizes.items():
            stats.inc_topic_put_nums(topic, len(of_topic), len(of_topic))
            stats.inc_topic_put_size(topic, sum(of_topic), len(of_topic))
        stats.inc_broker_put_nums(len(self._sends))
