"""Which topic names are allowed, and which topics belong to the system."""
import re
from typing import Any

from rmqha.common.protocol import response_code

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
