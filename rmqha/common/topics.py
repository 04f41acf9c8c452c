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
    """Whether `name` has a character outside `%|a-zA-Z0-9_-`. The empty name is not illegal here."""
    return _LEGAL(name) is None


def check_topic(topic: str | None) -> str | None:
    """Why `topic` is no topic name (Java's remark), or None when it is one."""
    if topic is None or not topic.strip():
        return "The specified topic is blank."
    if is_topic_or_group_illegal(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > TOPIC_MAX_LENGTH:
        return "The specified topic is longer than topic max length."
    return None


def validate_topic(topic: str | None, response: Any) -> bool:
    """Whether `topic` is a topic name; when not, `response.code` and `response.remark` say why."""
    remark = check_topic(topic)
    if remark is None:
        return True
    response.code = response_code.SYSTEM_ERROR
    response.remark = remark
    return False


def is_system_topic(topic: str) -> bool:
    """Whether `topic` is one that every cluster has (a broker's own ones: TopicValidator)."""
    return topic in SYSTEM_TOPIC_SET or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_not_allowed_send_topic(topic: str) -> bool:
    """Whether clients may not send to `topic`."""
    return topic in NOT_ALLOWED_SEND_TOPIC_SET


class TopicValidator:
    """The system topics of one broker: everybody's, and those it adds (its name, its cluster's name, ...).

    The added names are written while the broker is constructed and only read later.

    Java: org.apache.rocketmq.common.topic.TopicValidator (4.9.8)
    """

    # Differs: Java keeps the added names in a static set; two brokers in one process would share them.
    def __init__(self) -> None:
        self._system_topics = set(SYSTEM_TOPIC_SET)

    validate_topic = staticmethod(validate_topic)
    is_topic_or_group_illegal = staticmethod(is_topic_or_group_illegal)

    def is_system_topic(self, topic: str, response: Any = None) -> bool:
        """Whether `topic` is the system's; then `response`, when given, gets SYSTEM_ERROR and a remark."""
        if topic not in self._system_topics and not topic.startswith(SYSTEM_TOPIC_PREFIX):
            return False
        if response is not None:
            response.code = response_code.SYSTEM_ERROR
            response.remark = f"The topic[{topic}] is conflict with system topic."
        return True

    def is_not_allowed_send_topic(self, topic: str, response: Any = None) -> bool:
        """Whether clients may not send to `topic`; then `response`, when given, gets NO_PERMISSION and a remark."""
        if topic not in NOT_ALLOWED_SEND_TOPIC_SET:
            return False
        if response is not None:
            response.code = response_code.NO_PERMISSION
            response.remark = f"Sending message to topic[{topic}] is forbidden."
        return True

    def add_system_topic(self, system_topic: str) -> None:
        """One more name that people may neither create nor delete."""
        self._system_topics.add(system_topic)

    @property
    def system_topic_set(self) -> set[str]:
        """A copy of all system topics."""
        return set(self._system_topics)


SEPARATOR = " "


@dataclass(slots=True)
class TopicConfig:
    """Queues, permission and flags of one topic on one broker. Field names are the JSON's.

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
        """`name read write perm filterType`, for compressed registrations; the system flag and order are lost."""
        return SEPARATOR.join((str(self.topicName), str(self.readQueueNums), str(self.writeQueueNums), str(self.perm),
                               self.topicFilterType.name))

    def decode(self, text: str) -> bool:
        """Take over what `encode` wrote. False when there are not five parts; ValueError for a part that is wrong."""
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
    """What a consumer group may do, how often it retries and where it reads. Field names are the JSON's.

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
    """A key, its secret, where it may come from and what it may do; permissions are texts as "topicA=DENY".

    Its text leaves the secret out.

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

    # Differs: a text of the fields; the original has none, so its tools print the object's address
    def __str__(self) -> str:
        return (f"PlainAccessConfig [accessKey={self.accessKey}, whiteRemoteAddress={self.whiteRemoteAddress}, "
                f"admin={str(self.admin).lower()}, defaultTopicPerm={self.defaultTopicPerm}, "
                f"defaultGroupPerm={self.defaultGroupPerm}, topicPerms={self.topicPerms}, "
                f"groupPerms={self.groupPerms}]")


@dataclass(slots=True)
class AclConfig:
    """What all account files together say.

    Java: org.apache.rocketmq.common.AclConfig (4.9.8)
    """

    globalWhiteAddrs: list[str] = field(default_factory=list)
    plainAccessConfigs: list[PlainAccessConfig] = field(default_factory=list)
