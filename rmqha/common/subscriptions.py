"""Subscriptions of consumers: their expressions, the heartbeat that reports them, and the result of a pull.

A TAG expression is `tag1 || tag2`, or `*` or nothing for all. SQL92 has AND, OR, NOT, comparisons, BETWEEN,
IN ('a', 'b') and IS [NOT] NULL over properties, with strings, numbers, TRUE and FALSE.

A client sends its `HeartbeatData` to each broker every 30 seconds. `PullStatus` is also for readers of half messages.

Java: org.apache.rocketmq.common.filter.ExpressionType (4.9.8)
Java: org.apache.rocketmq.common.filter.FilterAPI (4.9.8)
"""
import enum
import time
from enum import Enum

from rmqha.common.java import string_hash_code
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.texts import LATER, text_hash

SQL92 = "SQL92"
TAG = "TAG"


def is_tag_type(expression_type: str | None) -> bool:
    """Return whether a subscription of this type is a list of tags. None and the empty text are."""
    return not expression_type or expression_type == TAG


SUB_ALL = "*"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class SubscriptionData:
    """A topic and an expression; for tags, also their names and hash codes.

    subVersion is in ms since the epoch; the newer subscription wins. Subscriptions sort by `topic@expression`. Java's
    filterClassSource, which is never sent, is left out.

    Java: org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData (4.9.8)
    """

    topic: str = LATER
    subString: str | None = None
    classFilterMode: bool = False
    tagsSet: set[str] = field(default_factory=set)
    codeSet: set[int] = field(default_factory=set)
    subVersion: int = field(default_factory=_now_ms)
    expressionType: str | None = TAG

    def __hash__(self) -> int:
        return text_hash(self.topic, self.subString, self.classFilterMode, sorted(self.tagsSet), sorted(self.codeSet),
                         self.subVersion, self.expressionType)

    def __lt__(self, other: "SubscriptionData") -> bool:
        return f"{self.topic}@{self.subString}" < f"{other.topic}@{other.subString}"

    def __str__(self) -> str:
        return (f"SubscriptionData [classFilterMode={str(self.classFilterMode).lower()}, topic={self.topic}, "
                f"subString={self.subString}, tagsSet={sorted(self.tagsSet)}, codeSet={sorted(self.codeSet)}, "
                f"subVersion={self.subVersion}, expressionType={self.expressionType}]")


# The characters that Java's String.trim removes: everything up to the space.
_TRIMMED = "".join(map(chr, range(0x21)))


def build_subscription_data(topic: str, sub_string: str | None) -> SubscriptionData:
    """Build a subscription by tags: `*` or nothing for all, else tags between `||`. ValueError for only separators."""
    subscription = SubscriptionData(topic, sub_string or SUB_ALL)
    if not sub_string or sub_string == SUB_ALL:
        return subscription
    if not sub_string.replace("||", ""):
        raise ValueError("subString split error")
    for part in sub_string.split("||"):
        tag = part.strip(_TRIMMED)
        if tag:
            subscription.tagsSet.add(tag)
            subscription.codeSet.add(string_hash_code(tag))
    return subscription


def build(topic: str, sub_string: str | None, type_: str | None) -> SubscriptionData:
    """Build a subscription of any type (None: TAG). ValueError for an empty SQL expression."""
    if type_ is None or type_ == TAG:
        return build_subscription_data(topic, sub_string)
    if not sub_string:
        raise ValueError(f"Expression can't be null! {type_}")
    return SubscriptionData(topic, sub_string, expressionType=type_)


class ConsumeFromWhere(enum.Enum):
    """The place where a group without offsets begins: the end, the beginning or a time.

    The middle three values are retired and mean the end.

    Java: org.apache.rocketmq.common.consumer.ConsumeFromWhere (4.9.8)
    """

    CONSUME_FROM_LAST_OFFSET = 0
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = 1
    CONSUME_FROM_MIN_OFFSET = 2
    CONSUME_FROM_MAX_OFFSET = 3
    CONSUME_FROM_FIRST_OFFSET = 4
    CONSUME_FROM_TIMESTAMP = 5


class ConsumeType(enum.Enum):
    """PULL or PUSH; the value is the short name for people.

    Java: org.apache.rocketmq.common.protocol.heartbeat.ConsumeType (4.9.8)
    """

    CONSUME_ACTIVELY = "PULL"
    CONSUME_PASSIVELY = "PUSH"


class MessageModel(enum.Enum):
    """The delivery to a group: each member gets all messages, or the members share them.

    Java: org.apache.rocketmq.common.protocol.heartbeat.MessageModel (4.9.8)
    """

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


@dataclass(slots=True)
class ProducerData:
    """A group that the client produces as.

    Java: org.apache.rocketmq.common.protocol.heartbeat.ProducerData (4.9.8)
    """

    groupName: str = LATER

    def __hash__(self) -> int:
        return hash(self.groupName)


@dataclass(slots=True)
class ConsumerData:
    """A group that the client consumes as, and how.

    Java: org.apache.rocketmq.common.protocol.heartbeat.ConsumerData (4.9.8)
    """

    groupName: str = LATER
    consumeType: ConsumeType | None = None
    messageModel: MessageModel | None = None
    consumeFromWhere: ConsumeFromWhere | None = None
    subscriptionDataSet: set[SubscriptionData] = field(default_factory=set)
    unitMode: bool = False

    def __hash__(self) -> int:
        return text_hash(self.groupName, self.consumeType, self.messageModel, self.consumeFromWhere, self.unitMode,
                         hash(frozenset(self.subscriptionDataSet)))


@dataclass(slots=True)
class HeartbeatData:
    """The client and its groups (body of HEART_BEAT).

    Java: org.apache.rocketmq.common.protocol.heartbeat.HeartbeatData (4.9.8)
    """

    clientID: str = LATER
    producerDataSet: set[ProducerData] = field(default_factory=set)
    consumerDataSet: set[ConsumerData] = field(default_factory=set)


class PullStatus(Enum):
    """The result of a pull: FOUND has messages, the others have only a next offset.

    Java: org.apache.rocketmq.client.consumer.PullStatus (4.9.8)
    """

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"
