"""The topics that simple sends go to without being looked at one by one."""
import itertools
import logging
from typing import TYPE_CHECKING, cast

from rmqha.broker.processor.send.send_admission import SendAdmission
from rmqha.broker.processor.send.send_codec import Routes
from rmqha.common.protocol.client_headers import SendMessageRequestHeader
from rmqha.common.sys_flags import TopicFilterType
from rmqha.common.topics import TopicConfig
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.remoting.channel import Channel

log = logging.getLogger("RocketmqBroker")

_MAX_ROUTES = 4096
_MAX_QUEUES = 1024  # of a route


class RouteHeader:
    """What the checks are told of sends that came together. Whoever asks for more gets an AttributeError."""

    __slots__ = ("topic", "queueId")

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queueId = queue_id


class SendRoutes:
    """The checks, asked for many sends at once. Owned by one IO thread.

    A topic gets its route when a send to it has come: `msg_check` is asked for each of its queues, and what it says of
    those is kept until the topic is changed. What it says of the topic is asked again whenever sends to it have come.
    It is told topic and queue, no more: where it needs more, all sends go the general way, where it is asked for each
    of them; and so they do where it refuses.
    """

    def __init__(self, admission: SendAdmission) -> None:
        self.keys: Routes = {}
        self._admission = admission
        self._topics = admission.broker_controller.topic_config_manager.topic_config_table
        self._passed: dict[str, tuple[TopicConfig, SendMessageRequestHeader]] = {}  # by topic of a route
        self._response = RemotingCommand.create_response_command(0)  # the checks write into it, the general way answers

    def are_open(self, channel: "Channel", topics: list[str]) -> bool:
        """Whether sends to the topics, which have routes, are taken. Otherwise one of them has no route any more."""
        for topic in topics:
            config, header = self._passed[topic]
            if not self._passes(channel, config, header):
                del self.keys[topic], self._passed[topic]
                return False
        return True

    def make(self, channel: "Channel", topic: str) -> bool:
        """Make the route of a topic. False when sends to it go the general way: they may make topics, the topic has
        something to add to them, or a check is against them."""
        config = self._topics.get(topic)
        if (config is None or not self._admission.is_served_at_once(topic)
                or config.topicFilterType is not TopicFilterType.SINGLE_TAG):
            return False
        queues = max(config.writeQueueNums, config.readQueueNums)
        if queues > _MAX_QUEUES:
            return False
        headers = (cast(SendMessageRequestHeader, RouteHeader(topic, queue_id)) for queue_id in range(queues))
        passed = list(itertools.takewhile(lambda header: self._passes(channel, config, header), headers))
        if not passed:
            return False
        if len(self.keys) >= _MAX_ROUTES:
            self.keys.clear()
            self._passed.clear()
        self.keys[topic] = tuple([f"{topic}-{header.queueId}" for header in passed])
        self._passed[topic] = config, passed[0]
        return True

    def _passes(self, channel: "Channel", config: TopicConfig, header: SendMessageRequestHeader) -> bool:
        if self._topics.get(header.topic) is not config:  # deleted or changed: the checks would make it again
            return False
        try:
            return self._admission.msg_check(channel, header, self._response) is config
        except Exception as error:  # the general way meets it, too, and answers; or the check needs a whole header
            log.debug("sends to %s go the general way: %s", header.topic, error)
            return False
