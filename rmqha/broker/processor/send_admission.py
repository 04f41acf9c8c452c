"""Checks that decide whether a send is accepted: each is written once, here, for every path that a send can take.

    SendMessageProcessor, ReplyMessageProcessor --msg_check--> the topic, or the error response
    ExpressSend --SendRoutes.are_open--> msg_check, for each topic of one read

- `SendAdmission`: the checks.
- `SendRoutes`: the topics whose simple sends are accepted without a check of each one.
- `AbstractSendMessageProcessor`: base of the processors: the checks, and the parsing of headers.
"""
import itertools
import logging
import random
from typing import TYPE_CHECKING

from rmqha.broker.processor.send_codec import Routes
from rmqha.common import mix_all, sys_flags, util_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.protocol import namespace_util, request_code, response_code
from rmqha.common.protocol.client_headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rmqha.common.sys_flags import TopicFilterType
from rmqha.common.topics import TopicConfig
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.broker.broker_fast_failure import HandOver
    from rmqha.broker.topic_config_manager import TopicConfigManager
    from rmqha.remoting.channel import Channel


log = logging.getLogger("RocketmqBroker")

READ_WRITE = sys_flags.PERM_READ | sys_flags.PERM_WRITE
_WRITE = sys_flags.PERM_WRITE


class RouteHeader:
    """The part of the header that checks get for sends that arrived together."""

    __slots__ = ("topic", "queueId")

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queueId = queue_id


CheckedHeader = SendMessageRequestHeader | RouteHeader


class SendAdmission:
    """The checks of AbstractSendMessageProcessor, which is a subclass and has the methods that need the message.

    A new check belongs in `msg_check`, or in `reject_request` if it needs no header: all sends pass both. Sends that
    arrive together are checked together; see SendRoutes for the header that the checks get then.

    Java: org.apache.rocketmq.broker.processor.AbstractSendMessageProcessor (4.9.8)
    """

    def __init__(self, broker_config: BrokerConfig, topics: "TopicConfigManager", hand_over: "HandOver") -> None:
        self._config = broker_config
        self.topic_config_manager = topics
        self._topics = topics.topic_config_table
        # Submits work to the pool of sends; SYSTEM_BUSY when its queue is full.
        self.hand_over = hand_over
        # Names that passed the name checks.
        self._checked_topics: set[str] = set()

    def msg_check(self, channel: "Channel", header: CheckedHeader, response: RemotingCommand) -> TopicConfig | None:
        """Return the topic; create it if it is new and allowed. None: `response` contains the error.

        The checks of Java's preSend are included first, so that no caller can omit them. A check that needs more than a
        RouteHeader refuses one: sends that arrived together then go the general way, one by one.
        """
        config, topic, topics = self._config, header.topic, self.topic_config_manager
        start = config.startAcceptSendRequestTimeStamp
        if start and util_all.current_time_millis() < start:
            response.code = response_code.SYSTEM_ERROR
            response.remark = f"broker unable to service, until {util_all.time_millis_to_human_string2(start)}"
            return None
        if not config.brokerPermission & _WRITE and topics.is_order_topic(topic):
            response.code = response_code.NO_PERMISSION
            response.remark = f"the broker[{config.brokerIP1}] sending message is forbidden"
            return None
        if topic not in self._checked_topics and not self._check_name(topic, response):
            return None
        topic_config = self._topics.get(topic) or topics.select_topic_config(topic)
        if topic_config is None:
            if isinstance(header, SendMessageRequestHeader):
                topic_config = self._create_topic(channel, header)
            if topic_config is None:
                response.code = response_code.TOPIC_NOT_EXIST
                response.remark = (f"topic[{topic}] not exist, apply first please!"
                                   + namespace_util.suggest_todo(namespace_util.APPLY_TOPIC_URL))
                return None
            self._add_checked(topic)
        if header.queueId >= topic_config.writeQueueNums and header.queueId >= topic_config.readQueueNums:
            return self._refuse_queue_id(channel, header, topic_config, response)
        if header.queueId < 0 and topic_config.writeQueueNums <= 0:
            # Differs: a send to "any queue" of a topic without write queues gets an error that names the topic; the
            # original divides by zero, which its server answers with the same code
            return self._refuse_queue_id(channel, header, topic_config, response)
        return topic_config

    def is_served_at_once(self, topic: str) -> bool:
        """Return whether the reading thread may serve a send to the topic: it creates no topic, which takes time."""
        return topic in self._topics and not topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX)

    def reject_request(self) -> bool:
        """Return whether requests are rejected before they are decoded."""
        return False

    def _check_name(self, topic: str, response: RemotingCommand) -> bool:
        validator = self.topic_config_manager.topic_validator
        if not validator.validate_topic(topic, response):
            return False
        if validator.is_not_allowed_send_topic(topic, response):
            return False
        if topic in self._topics:
            self._add_checked(topic)
        return True

    def _add_checked(self, topic: str) -> None:
        """Note that the name passed; names of deleted topics are removed when they are the majority."""
        if len(self._checked_topics) > 2 * len(self._topics):
            self._checked_topics.intersection_update(list(self._topics))
        self._checked_topics.add(topic)

    def _create_topic(self, channel: "Channel", header: SendMessageRequestHeader) -> TopicConfig | None:
        topic = header.topic
        is_retry = topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX)
        sys_flag = sys_flags.build_topic_sys_flag(not is_retry, is_retry) if header.unitMode else 0
        remote = parse_channel_remote_addr(channel)
        log.warning("the topic %s not exist, producer: %s", topic, remote)
        for name in ("defaultTopic", "defaultTopicQueueNums"):
            if getattr(header, name) is None:
                raise RemotingCommandException(f"the custom field <{name}> is null")
        topics = self.topic_config_manager
        config = topics.create_topic_in_send_message_method(topic, header.defaultTopic, remote,
                                                            header.defaultTopicQueueNums, sys_flag)
        if config is None and is_retry:
            config = topics.create_topic_in_send_message_back_method(topic, 1, READ_WRITE, sys_flag)
        return config

    @staticmethod
    def _refuse_queue_id(channel: "Channel", header: CheckedHeader, config: TopicConfig,
                         response: RemotingCommand) -> None:
        error = (f"request queueId[{header.queueId}] is illegal, {config} Producer: "
                 f"{parse_channel_remote_addr(channel)}")
        log.warning(error)
        response.code = response_code.SYSTEM_ERROR
        response.remark = error


_MAX_ROUTES = 4096
_MAX_QUEUES = 1024  # per route


class SendRoutes:
    """The checks for many sends at a time. Owned by one IO thread.

    A topic gets a route with the first send to it: `msg_check` is called for each of its queues, and the result for the
    queues is kept until the topic is changed. For the topic itself, the check is repeated for each read with sends to
    it. It gets only topic and queue. If it needs more, or refuses, the sends go the general way, where it is called for
    each of them.
    """

    def __init__(self, admission: SendAdmission) -> None:
        self.keys: Routes = {}
        self._admission = admission
        self._topics = admission.topic_config_manager.topic_config_table
        self._passed: dict[str, tuple[TopicConfig, RouteHeader]] = {}  # by topic of a route
        # The checks write errors into it; it is never sent, since the general way produces the response.
        self._response = RemotingCommand.create_response_command(0)

    def are_open(self, channel: "Channel", topics: list[str]) -> bool:
        """Return whether sends to these topics are accepted. If not, the route of the refused one is removed."""
        for topic in topics:
            config, header = self._passed[topic]
            if not self._passes(channel, config, header):
                del self.keys[topic], self._passed[topic]
                return False
        return True

    def make(self, channel: "Channel", topic: str) -> bool:
        """Make the route of a topic; return False if sends to it go the general way.

        These are sends that may create topics, that the topic adds a flag to, or that a check refuses.
        """
        config = self._topics.get(topic)
        if (config is None or not self._admission.is_served_at_once(topic)
                or config.topicFilterType is not TopicFilterType.SINGLE_TAG):
            return False
        queues = max(config.writeQueueNums, config.readQueueNums)
        if queues > _MAX_QUEUES:
            return False
        headers = (RouteHeader(topic, queue_id) for queue_id in range(queues))
        passed = list(itertools.takewhile(lambda header: self._passes(channel, config, header), headers))
        if not passed:
            return False
        if len(self.keys) >= _MAX_ROUTES:
            self.keys.clear()
            self._passed.clear()
        self.keys[topic] = tuple([f"{topic}-{header.queueId}" for header in passed])
        self._passed[topic] = config, passed[0]
        return True

    def _passes(self, channel: "Channel", config: TopicConfig, header: RouteHeader) -> bool:
        # The topic was deleted or changed; for a deleted one the check could create it again.
        if self._topics.get(header.topic) is not config:
            return False
        try:
            return self._admission.msg_check(channel, header, self._response) is config
        except Exception as error:
            # The general way fails in the same way, and sends the error response.
            log.debug("sends to %s go the general way: %s", header.topic, error)
            return False


class AbstractSendMessageProcessor(SendAdmission):
    """Header parsing and checks shared by sends and replies; the checks, including msgCheck, are in SendAdmission.

    Java: org.apache.rocketmq.broker.processor.AbstractSendMessageProcessor (4.9.8)
    """

    def parse_request_header(self, request: RemotingCommand) -> SendMessageRequestHeader:
        """Return the header in its long form, for both forms of requests."""
        if request.code == request_code.SEND_MESSAGE:
            return request.decode_command_custom_header(SendMessageRequestHeader)
        return SendMessageRequestHeaderV2.create_send_message_request_header_v1(
            request.decode_command_custom_header(SendMessageRequestHeaderV2))


def random_queue_id(queue_nums: int) -> int:
    """Return the id of a random queue."""
    return random.randrange(99_999_999) % queue_nums
