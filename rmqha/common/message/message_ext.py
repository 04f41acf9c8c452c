"""A message as a broker stored it."""
from rmqha.common.later import LATER
from rmqha.common.message import message_const
from rmqha.common.message.message import Message
from rmqha.common.message.message_layout import Host, host_to_bytes
from rmqha.common.sysflag import message_sys_flag
from rmqha.common.topic_filter_type import TopicFilterType


class MessageExt(Message):
    """A message with what the broker added. Hosts are (address, port); times are ms since the epoch.

    Java: org.apache.rocketmq.common.message.MessageExt (4.9.8)
    """

    __slots__ = ("broker_name", "queue_id", "store_size", "queue_offset", "sys_flag", "born_timestamp", "born_host",
                 "store_timestamp", "store_host", "msg_id", "commit_log_offset", "body_crc", "reconsume_times",
                 "prepared_transaction_offset")

    def __init__(self, topic: str = LATER, body: bytes | memoryview = b"") -> None:
        self.topic = topic
        self.flag = 0
        self.properties: dict[str, str] = {}
        self.body = body
        self.transaction_id: str | None = None
        self.broker_name: str | None = None
        self.queue_id = 0
        self.store_size = 0
        self.queue_offset = 0
        self.sys_flag = 0
        self.born_timestamp = 0
        self.born_host: Host | None = None
        self.store_timestamp = 0
        self.store_host: Host | None = None
        self._init_msg_id()
        self.commit_log_offset = 0
        self.body_crc = 0
        self.reconsume_times = 0
        self.prepared_transaction_offset = 0

    def _init_msg_id(self) -> None:
        self.msg_id: str | None = None

    @staticmethod
    def parse_topic_filter_type(sys_flag: int) -> TopicFilterType:
        """Whether the record may have several tags."""
        return (TopicFilterType.MULTI_TAG if sys_flag & message_sys_flag.MULTI_TAGS_FLAG
                else TopicFilterType.SINGLE_TAG)

    @property
    def born_host_bytes(self) -> bytes:
        """BORNHOST of the record: 8 or 20 bytes."""
        return host_to_bytes(self.born_host)

    @property
    def store_host_bytes(self) -> bytes:
        """STOREHOSTADDRESS of the record: 8 or 20 bytes."""
        return host_to_bytes(self.store_host)

    @property
    def born_host_string(self) -> str | None:
        """The producer's address without port."""
        return self.born_host[0] if self.born_host else None

    def __repr__(self) -> str:
        return (f"{type(self).__name__} [brokerName={self.broker_name}, queueId={self.queue_id}, "
                f"storeSize={self.store_size}, queueOffset={self.queue_offset}, sysFlag={self.sys_flag}, "
                f"bornTimestamp={self.born_timestamp}, bornHost={self.born_host}, "
                f"storeTimestamp={self.store_timestamp}, storeHost={self.store_host}, msgId={self.msg_id}, "
                f"commitLogOffset={self.commit_log_offset}, bodyCRC={self.body_crc}, "
                f"reconsumeTimes={self.reconsume_times}, "
                f"preparedTransactionOffset={self.prepared_transaction_offset}, {super().__repr__()}]")


class MessageClientExt(MessageExt):
    """A stored message whose `msg_id` is its producer's unique id, or the offset id when it has none.

    Java: org.apache.rocketmq.common.message.MessageClientExt (4.9.8)
    """

    __slots__ = ("offset_msg_id",)

    def _init_msg_id(self) -> None:
        self.offset_msg_id: str | None = None

    @property
    def msg_id(self) -> str | None:  # type: ignore[override]  # as in Java, a getter takes the attribute's place
        """UNIQ_KEY, else the offset id."""
        return self.properties.get(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX) or self.offset_msg_id


class MessageExtBatch(MessageExt):
    """A batch request: `body` is the encoded messages, `encoded_buff` the records that the store made of them.

    Java: org.apache.rocketmq.common.message.MessageExtBatch (4.9.8)
    """

    __slots__ = ("encoded_buff",)

    def __init__(self, topic: str = LATER, body: bytes | memoryview = b"") -> None:
        super().__init__(topic, body)
        self.encoded_buff: bytes | bytearray | memoryview | None = None
