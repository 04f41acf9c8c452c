"""Bodies that are lists or tables of topics, groups, offsets and statistics, and the size limits of request bodies.

The tables of all topics, groups or offsets of a broker are the contents of its files, and its slaves copy them.

BODY_LIMITS has the limits of parsed bodies, by request code. They are many times what real clients and brokers send: a
subscription takes 17 elements, a queue to lock 8, a registered topic 17. A code without an entry has no body, or one
that is stored or forwarded unparsed, up to `maxMessageSize` or the length of a frame.
"""
from rmqha.common.data_version import DataVersion
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import request_code
from rmqha.common.texts import LATER
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig


@dataclass(slots=True)
class TopicList:
    """Topics, and in some answers the address of a broker.

    Java: org.apache.rocketmq.common.protocol.body.TopicList (4.9.8)
    """

    topicList: set[str] = field(default_factory=set)
    brokerAddr: str | None = None


@dataclass(slots=True)
class GroupList:
    """Groups (answer of QUERY_TOPIC_CONSUME_BY_WHO).

    Java: org.apache.rocketmq.common.protocol.body.GroupList (4.9.8)
    """

    groupList: set[str] = field(default_factory=set)


@dataclass(slots=True)
class ConsumeByWho:
    """The groups that consumed a message, and those that did not. Unused by 4.9's servers.

    Java: org.apache.rocketmq.common.protocol.body.ConsumeByWho (4.9.8)
    """

    consumedGroup: set[str] = field(default_factory=set)
    notConsumedGroup: set[str] = field(default_factory=set)
    topic: str | None = None
    queueId: int = 0
    offset: int = 0


@dataclass(slots=True)
class KVTable:
    """A table of texts (run-time information, order topics).

    Java: org.apache.rocketmq.common.protocol.body.KVTable (4.9.8)
    """

    table: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class TopicConfigSerializeWrapper:
    """Topics by name (answer of GET_ALL_TOPIC_CONFIG, topics.json, part of registrations).

    Java: org.apache.rocketmq.common.protocol.body.TopicConfigSerializeWrapper (4.9.8)
    """

    topicConfigTable: dict[str, TopicConfig] = field(default_factory=dict)
    dataVersion: DataVersion = field(default_factory=DataVersion)
    # An extension of rmqha, only in answers of GET_ALL_TOPIC_CONFIG, and only if there are any: deleted topic -> commit
    # log offset below which its records are dead. 4.9 ignores it.
    deletedTopics: dict[str, int] | None = None


@dataclass(slots=True)
class SubscriptionGroupWrapper:
    """Groups by name (answer of GET_ALL_SUBSCRIPTIONGROUP_CONFIG, subscriptionGroup.json).

    Java: org.apache.rocketmq.common.protocol.body.SubscriptionGroupWrapper (4.9.8)
    """

    subscriptionGroupTable: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    dataVersion: DataVersion = field(default_factory=DataVersion)


@dataclass(slots=True)
class ConsumerOffsetSerializeWrapper:
    """Offsets by queue id, by `topic@group` (answer of GET_ALL_CONSUMER_OFFSET, consumerOffset.json).

    Java: org.apache.rocketmq.common.protocol.body.ConsumerOffsetSerializeWrapper (4.9.8)
    """

    offsetTable: dict[str, dict[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class TopicOffset:
    """A queue's first and next offset, and the store time in ms of its last message.

    Java: org.apache.rocketmq.common.admin.TopicOffset (4.9.8)
    """

    minOffset: int = 0
    maxOffset: int = 0
    lastUpdateTimestamp: int = 0


@dataclass(slots=True)
class TopicStatsTable:
    """The answer of GET_TOPIC_STATS_INFO.

    Java: org.apache.rocketmq.common.admin.TopicStatsTable (4.9.8)
    """

    offsetTable: dict[MessageQueue, TopicOffset] = field(default_factory=dict)


@dataclass(slots=True)
class OffsetWrapper:
    """The queue's end, the group's offset, and the store time in ms of the last consumed message.

    Java: org.apache.rocketmq.common.admin.OffsetWrapper (4.9.8)
    """

    brokerOffset: int = 0
    consumerOffset: int = 0
    lastTimestamp: int = 0


@dataclass(slots=True)
class ConsumeStats:
    """A group's offsets by queue, and its rate in messages per second (answer of GET_CONSUME_STATS).

    Java: org.apache.rocketmq.common.admin.ConsumeStats (4.9.8)
    """

    offsetTable: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consumeTps: float = 0.0

    def compute_total_diff(self) -> int:
        """Return the number of messages that the group is behind."""
        return sum(place.brokerOffset - place.consumerOffset for place in self.offsetTable.values())


@dataclass(slots=True)
class RollbackStats:
    """The offsets of a queue before and after a reset.

    Java: org.apache.rocketmq.common.admin.RollbackStats (4.9.8)
    """

    brokerName: str | None = None
    queueId: int = 0
    brokerOffset: int = 0
    consumerOffset: int = 0
    timestampOffset: int = 0
    rollbackOffset: int = 0


@dataclass(slots=True)
class BrokerStatsItem:
    """The sum over a window, the sum per second, and the sum per call.

    Java: org.apache.rocketmq.common.protocol.body.BrokerStatsItem (4.9.8)
    """

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


@dataclass(slots=True)
class BrokerStatsData:
    """A statistic over the last minute, hour and day (answer of VIEW_BROKER_STATS_DATA).

    Java: org.apache.rocketmq.common.protocol.body.BrokerStatsData (4.9.8)
    """

    statsMinute: BrokerStatsItem = LATER
    statsHour: BrokerStatsItem = LATER
    statsDay: BrokerStatsItem = LATER


@dataclass(slots=True)
class ConsumeStatsList:
    """A list of ConsumeStats per group (answer of GET_BROKER_CONSUME_STATS).

    Java: org.apache.rocketmq.common.protocol.body.ConsumeStatsList (4.9.8)
    """

    consumeStatsList: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    brokerAddr: str | None = None
    totalDiff: int = 0


MIB = 1 << 20
MAX_FRAME_BYTES = 16 * MIB

# The characters that make parsing JSON expensive, apart from its length.
JSON_MARKS = b"{[,:\\"
PROPERTIES_MARKS = b"\n\r\\"
_SHOWN = str.maketrans({"\n": "\\n", "\r": "\\r"})


class BodyLimit(NamedTuple):
    """The limits of a body; `marks` are the bytes that are counted as its elements."""

    max_bytes: int
    max_elements: int
    marks: bytes = JSON_MARKS

    def bytes_excess(self, code: int, body: bytes) -> str | None:
        """Return an error text when the body has too many bytes; None otherwise."""
        if len(body) <= self.max_bytes:
            return None
        return f"the body of {code_name(code)} has {len(body)} bytes, the limit is {self.max_bytes}"

    def elements_excess(self, code: int, body: bytes) -> str | None:
        """Return an error text when the body has too many elements; None otherwise. The body is not parsed for this."""
        if len(body) <= self.max_elements:
            return None
        elements = len(body) - len(body.translate(None, self.marks))
        if elements <= self.max_elements:
            return None
        return (f"the body of {code_name(code)} has {elements} elements, counted by "
                f"{' '.join(self.marks.decode()).translate(_SHOWN)}, the limit is {self.max_elements}")


# Differs: the JSON bodies of requests have limits of bytes and of elements; 4.9 parses any body that fits in a frame
BODY_LIMITS: dict[int, BodyLimit] = {
    request_code.HEART_BEAT: BodyLimit(8 * MIB, 400_000),
    request_code.CHECK_CLIENT_CONFIG: BodyLimit(MIB, 50_000),
    request_code.LOCK_BATCH_MQ: BodyLimit(4 * MIB, 200_000),
    request_code.UNLOCK_BATCH_MQ: BodyLimit(4 * MIB, 200_000),
    request_code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: BodyLimit(MIB // 4, 10_000),
    request_code.UPDATE_BROKER_CONFIG: BodyLimit(MIB // 4, 10_000, PROPERTIES_MARKS),
    request_code.REGISTER_BROKER: BodyLimit(MAX_FRAME_BYTES, 850_000),
    request_code.QUERY_DATA_VERSION: BodyLimit(MIB // 16, 1_000),
    request_code.UPDATE_NAMESRV_CONFIG: BodyLimit(MIB // 4, 10_000, PROPERTIES_MARKS),
    request_code.UPDATE_CONTROLLER_CONFIG: BodyLimit(MIB // 4, 10_000, PROPERTIES_MARKS),
    request_code.CONTROLLER_ALTER_SYNC_STATE_SET: BodyLimit(MIB // 16, 1_000),
    request_code.CONTROLLER_GET_SYNC_STATE_DATA: BodyLimit(MIB // 4, 10_000),
    request_code.NOTIFY_BROKER_ROLE_CHANGED: BodyLimit(MIB // 16, 1_000),
}

_NAMES = {code: name for name, code in vars(request_code).items() if isinstance(code, int) and name.isupper()}


def code_name(code: int) -> str:
    """Return a code as `HEART_BEAT (34)`; the number alone for an unknown code."""
    return f"{_NAMES[code]} ({code})" if code in _NAMES else str(code)
