"""Whether a send is taken: each check is written here, once, whichever way the send has come.

    SendMessageProcessor, ReplyMessageProcessor --msg_check--> the topic; or the answer that says why not
    ExpressSend --SendRoutes.are_open--> msg_check, for each topic of what one read has brought
"""
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.common import mix_all, sys_flags, util_all
from rmqha.common.futures import Completable
from rmqha.common.protocol import namespace_util, response_code
from rmqha.common.protocol.client_headers import SendMessageRequestHeader
from rmqha.common.topics import TopicConfig
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.interfaces import Answer

log = logging.getLogger("RocketmqBroker")

READ_WRITE = sys_flags.PERM_READ | sys_flags.PERM_WRITE
_WRITE = sys_flags.PERM_WRITE


class SendAdmission:
    """The checks of AbstractSendMessageProcessor, which is one; those of its methods that look at a message are there.

    A new check belongs into `msg_check`, or into `reject_request` when it needs no header: all sends come by both.
    Sends that came together are checked together: see SendRoutes for what the header tells then.

    Java: org.apache.rocketmq.broker.processor.AbstractSendMessageProcessor (4.9.8)
    """

    def __init__(self, broker_controller: "BrokerController") -> None:
        self.broker_controller = broker_controller
        self._config = broker_controller.broker_config
        self._topics = broker_controller.topic_config_manager.topic_config_table
        self._checked_topics: set[str] = set()  # names that passed the name checks

    def msg_check(self, channel: "Channel", header: SendMessageRequestHeader,
                  response: RemotingCommand) -> TopicConfig | None:
        """The topic to send to, made when it is new and may be. None: `response` says why not.

        Java's preSend comes first here, so that nobody asks half of it.
        """
        config, topic, topics = self._config, header.topic, self.broker_controller.topic_config_manager
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
            # Differs: a topic without write queues refuses sends to "any queue" by name; the original divides by zero,
            # which its server answers with the same code
            return self._refuse_queue_id(channel, header, topic_config, response)
        return topic_config

    def is_served_at_once(self, topic: str) -> bool:
        """Whether the thread that has read a send to the topic may serve it: it makes no topic, which takes time."""
        return topic in self._topics and not topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX)

    def hand_over(self, work: "Callable[[], Answer]") -> Completable[RemotingCommand | None]:
        """The answer of `work`, by the pool of sends; SYSTEM_BUSY when it has too much to do."""
        controller = self.broker_controller
        return controller.broker_fast_failure.run_in(controller.send_message_executor,
                                                     self._config.waitTimeMillsInSendQueue, work)

    def reject_request(self) -> bool:
        """Whether requests are refused before they are looked at."""
        return False

    def _check_name(self, topic: str, response: RemotingCommand) -> bool:
        validator = self.broker_controller.topic_config_manager.topic_validator
        if not validator.validate_topic(topic, response):
            return False
        if validator.is_not_allowed_send_topic(topic, response):
            return False
        if topic in self._topics:
            self._add_checked(topic)
        return True

    def _add_checked(self, topic: str) -> None:
        """Note that the name passed; those of topics that are gone go when they are more than the others."""
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
        topics = self.broker_controller.topic_config_manager
        config = topics.create_topic_in_send_message_method(topic, header.defaultTopic, remote,
                                                            header.defaultTopicQueueNums, sys_flag)
        if config is None and is_retry:
            config = topics.create_topic_in_send_message_back_method(topic, 1, READ_WRITE, sys_flag)
        return config

    @staticmethod
    def _refuse_queue_id(channel: "Channel", header: SendMessageRequestHeader, config: TopicConfig,
                         response: RemotingCommand) -> None:
        error = (f"request queueId[{header.queueId}] is illegal, {config} Producer: "
                 f"{parse_channel_remote_addr(channel)}")
        log.warning(error)
        response.code = response_code.SYSTEM_ERROR
        response.remark = error
