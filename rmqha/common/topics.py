"""Names and settings of topics, consumer groups and accounts.

- `check_topic`, `TopicValidator`: valid topic names, and the topics of the system.
- `TopicConfig`: the settings of a topic, as brokers keep and register them.
- `SubscriptionGroupConfig`: the settings of a consumer group on a broker.
- `PlainAccessConfig`, `AclConfig`: accounts of access control, as tools describe them.
"""
import re
from typing import Any

from rmqha.common import sys_flags
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.message.message import parse_int
from rmqha.common.protocol import response_code
from rmqha.common.sys_flags import TopicFilterType
from rmqha.common.texts import LATER, text_hash

AUTO_CREATE_TOPIC_KEY_TOPIC = "TBW102"
RMQ_SYS_SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
RMQ_SYS_BENCHMARK_TOPIC = "BenchmarkTest"
RMQ_SYS_TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
RMQ_SYS_TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
RMQ_SYS_TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
RMQ_SYS_SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
RMQ_SYS_OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"

SYSTEM_TOPIC_PREFIX = "rmq_sys_"
TOPIC_MAX_LENGTH = 127

SYSTEM_TOPIC_SET = frozenset((
    AUTO_CREATE_TOPIC_KEY_TOPIC, RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_BENCHMARK_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRACE_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC, RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, RMQ_SYS_SELF_TEST_TOPIC,
    RMQ_SYS_OFFSET_MOVED_EVENT))
NOT_ALLOWED_SEND_TOPIC_SET = frozenset((
    RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC,
    RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, RMQ_SYS_SELF_TEST_TOPIC, RMQ_SYS_OFFSET_MOVED_EVENT))

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]*\Z").match


def is_topic_or_group_illegal(name: str) -> bool:
    """Return whether `name` has a character outside `%|a-zA-Z0-9_-`. The empty name is not illegal here."""
    return _LEGAL(name) is None


def check_topic(topic: str | None) -> str | None:
    """Return why `topic` is not a valid topic name, in Java's words; None when it is valid."""
    if topic is None or not topic.strip():
        return "The specified topic is blank."
    if is_topic_or_group_illegal(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > TOPIC_MAX_LENGTH:
        return "The specified topic is longer than topic max length."
    return None


def validate_topic(topic: str | None, response: Any) -> bool:
    """Return whether `topic` is a valid topic name; if not, set `response.code` and `response.remark`."""
    remark = check_topic(topic)
    if remark is None:
        return True
    response.code = response_code.SYSTEM_ERROR
    response.remark = remark
    return False


def is_system_topic(topic: str) -> bool:
    """Return whether `topic` is a system topic of every cluster. (For a broker's own ones see TopicValidator.)"""
    return topic in SYSTEM_TOPIC_SET or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_not_allowed_send_topic(topic: str) -> bool:
    """Return whether clients are forbidden to send to `topic`."""
    return topic in NOT_ALLOWED_SEND_TOPIC_SET


class TopicValidator:
    """The system topics of one broker: the common ones, and those that it adds (its name, its cluster's name, ...).

    Names are added while the broker is constructed; later they are only read.

    Java: org.apache.rocketmq.common.topic.TopicValidator (4.9.8)
    """

    # Differs: each broker has its own set of added system topics; Java's is static, so two brokers in one process share
    # it.
    def __init__(self) -> None:
        self._system_topics = set(SYSTEM_TOPIC_SET)

    validate_topic = staticmethod(validate_topic)
    is_topic_or_group_illegal = staticmethod(is_topic_or_group_illegal)

    def is_system_topic(self, topic: str, response: Any = None) -> bool:
        """Return whether `topic` is a system topic; if so, set SYSTEM_ERROR and a remark in `response`, when given."""
        if topic not in self._system_topics and not topic.startswith(SYSTEM_TOPIC_PREFIX):
            return False
        if response is not None:
            response.code = response_code.SYSTEM_ERROR
            response.remark = f"The topic[{topic}] is conflict with system topic."
        return True

    def is_not_allowed_send_topic(self, topic: str, response: Any = None) -> bool:
        """Return whether clients are forbidden to send to `topic`; if so, set NO_PERMISSION and a remark in `response`.
        """
        if topic not in NOT_ALLOWED_SEND_TOPIC_SET:
            return False
        if response is not None:
            response.code = response_code.NO_PERMISSION
            response.remark = f"Sending message to topic[{topic}] is forbidden."
        return True

    def add_system_topic(self, system_topic: str) -> None:
        """Add a name that users may neither create nor delete."""
        self._system_topics.add(system_topic)

    @property
    def system_topic_set(self) -> set[str]:
        """Return a copy of the set of all system topics."""
        return set(self._system_topics)


SEPARATOR = " "


@dataclass(slots=True)
class TopicConfig:
    """The queues, permission and flags of one topic on one broker. Field names are the JSON's.

    Java: org.apache.rocketmq.common.TopicConfig (4.9.8)
    """

    topicName: str = LATER
    readQueueNums: int = 16
    writeQueueNums: int = 16
    perm: int = sys_flags.PERM_READ | sys_flags.PERM_WRITE
    topicFilterType: TopicFilterType = TopicFilterType.SINGLE_TAG
    topicSysFlag: int = 0
    order: bool = False

    def encode(self) -> str:
        """Return `name read write perm filterType`, for compressed registrations; the system flag and order are lost.
        """
        return SEPARATOR.join((str(self.topicName), str(self.readQueueNums), str(self.writeQueueNums), str(self.perm),
                               self.topicFilterType.name))

    def decode(self, text: str) -> bool:
        """Read what `encode` wrote. Return False when it does not have five parts; ValueError for an invalid part."""
        parts = text.split(SEPARATOR, 5)
        if len(parts) != 5:
            return False
        read, write, perm = parse_int(parts[1]), parse_int(parts[2]), parse_int(parts[3])
        if parts[4] not in TopicFilterType.__members__:
            raise ValueError(f"topicFilterType = [{parts[4]}] value invalid")
        self.topicName, self.readQueueNums, self.writeQueueNums, self.perm = parts[0], read, write, perm
        self.topicFilterType = TopicFilterType[parts[4]]
        return True

    def __hash__(self) -> int:
        return text_hash(self.topicName, self.readQueueNums, self.writeQueueNums, self.perm, self.topicFilterType,
                         self.topicSysFlag, self.order)

    def __str__(self) -> str:
        return (f"TopicConfig [topicName={self.topicName}, readQueueNums={self.readQueueNums}, "
                f"writeQueueNums={self.writeQueueNums}, perm={sys_flags.perm2_string(self.perm)}, "
                f"topicFilterType={self.topicFilterType.name}, topicSysFlag={self.topicSysFlag}, "
                f"order={str(self.order).lower()}]")


@dataclass(slots=True)
class SubscriptionGroupConfig:
    """The settings of a consumer group: its permissions, retries and the broker it reads from. Names are the JSON's.

    Java: org.apache.rocketmq.common.subscription.SubscriptionGroupConfig (4.9.8)
    """

    groupName: str = LATER
    consumeEnable: bool = True
    consumeFromMinEnable: bool = True
    consumeBroadcastEnable: bool = True
    retryQueueNums: int = 1
    retryMaxTimes: int = 16
    brokerId: int = 0
    whichBrokerWhenConsumeSlowly: int = 1
    notifyConsumerIdsChangedEnable: bool = True

    def __hash__(self) -> int:
        return text_hash(self.groupName, self.consumeEnable, self.consumeFromMinEnable, self.consumeBroadcastEnable,
                         self.retryQueueNums, self.retryMaxTimes, self.brokerId, self.whichBrokerWhenConsumeSlowly,
                         self.notifyConsumerIdsChangedEnable)

    def __str__(self) -> str:
        return (f"SubscriptionGroupConfig [groupName={self.groupName}, "
                f"consumeEnable={str(self.consumeEnable).lower()}, "
                f"consumeFromMinEnable={str(self.consumeFromMinEnable).lower()}, "
                f"consumeBroadcastEnable={str(self.consumeBroadcastEnable).lower()}, "
                f"retryQueueNums={self.retryQueueNums}, retryMaxTimes={self.retryMaxTimes}, brokerId={self.brokerId}, "
                f"whichBrokerWhenConsumeSlowly={self.whichBrokerWhenConsumeSlowly}, "
                f"notifyConsumerIdsChangedEnable={str(self.notifyConsumerIdsChangedEnable).lower()}]")


@dataclass(slots=True)
class PlainAccessConfig:
    """An account: a key, its secret, its addresses and its permissions, which are texts such as "topicA=DENY".

    Its text omits the secret.

    Java: org.apache.rocketmq.common.PlainAccessConfig (4.9.8)
    """

    accessKey: str | None = None
    secretKey: str | None = None
    whiteRemoteAddress: str | None = None
    admin: bool = False
    defaultTopicPerm: str | None = None
    defaultGroupPerm: str | None = None
    topicPerms: list[str] | None = None
    groupPerms: list[str] | None = None

    # Differs: the text of a PlainAccessConfig shows its fields; the original has no toString, so its tools print the
    # object's address
    def __str__(self) -> str:
        return (f"PlainAccessConfig [accessKey={self.accessKey}, whiteRemoteAddress={self.whiteRemoteAddress}, "
                f"admin={str(self.admin).lower()}, defaultTopicPerm={self.defaultTopicPerm}, "
                f"defaultGroupPerm={self.defaultGroupPerm}, topicPerms={self.topicPerms}, "
                f"groupPerms={self.groupPerms}]")


@dataclass(slots=True)
class AclConfig:
    """The contents of all account files together.

    Java: org.apache.rocketmq.common.AclConfig (4.9.8)
    """

    globalWhiteAddrs: list[str] = field(default_factory=list)
    plainAccessConfigs: list[PlainAccessConfig] = field(default_factory=list)
