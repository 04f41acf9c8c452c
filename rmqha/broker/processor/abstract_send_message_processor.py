"""What all ways of sending check first."""
import logging
import random
from typing import TYPE_CHECKING

from rmqha.common import mix_all
from rmqha.common.constant import perm_name
from rmqha.common.help import faq_url
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.header.send_headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rmqha.common.sysflag import topic_sys_flag
from rmqha.common.topic_config import TopicConfig
from rmqha.remoting.common.remoting_helper import parse_channel_remote_addr
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.remoting.channel import Channel

log = logging.getLogger("RocketmqBroker")

DLQ_NUMS_PER_GROUP = 1
READ_WRITE = perm_name.PERM_READ | perm_name.PERM_WRITE


# Texts of the numbers that fields mostly hold: looking one up is cheaper than to check and convert it.
_NUMBERS = {str(number): number for number in range(1024)}
_MILLIS_LENGTH = 13  # digits of the time in ms, from 2001 to 2286
_PLAIN_BOOLEANS = frozenset((None, "true", "false"))


class AbstractSendMessageProcessor:
    """Header parsing and checks shared by sends and replies.

    Java: org.apache.rocketmq.broker.processor.AbstractSendMessageProcessor (4.9.8)
    """

    def __init__(self, broker_controller: "BrokerController") -> None:
        self.broker_controller = broker_controller
        self._checked_topics: set[str] = set()  # names that passed the name checks

    def parse_request_header(self, request: RemotingCommand) -> SendMessageRequestHeader:
        """The header in its long form, whichever form came."""
        if request.code == request_code.SEND_MESSAGE:
            return request.decode_command_custom_header(SendMessageRequestHeader)
        header = _parse_plain_v2(request.ext_fields or {})
        if header is not None:
            return header
        header = request.decode_command_custom_header(SendMessageRequestHeaderV2)
        return SendMessageRequestHeaderV2.create_send_message_request_header_v1(header)

    def msg_check(self, channel: "Channel", header: SendMessageRequestHeader,
                  response: RemotingCommand) -> TopicConfig | None:
        """The topic to send to, made when it is new and may be. None: `response` says why not."""
        controller = self.broker_controller
        topic = header.topic
        topics = controller.topic_config_manager
        if not controller.broker_config.brokerPermission & perm_name.PERM_WRITE and topics.is_order_topic(topic):
            response.code = response_code.NO_PERMISSION
            response.remark = f"the broker[{controller.broker_config.brokerIP1}] sending message is forbidden"
            return None
        if topic not in self._checked_topics and not self._check_name(topic, response):
            return None
        config = topics.select_topic_config(topic)
        if config is None:
            config = self._create_topic(channel, header)
            if config is None:
                response.code = response_code.TOPIC_NOT_EXIST
                response.remark = (f"topic[{topic}] not exist, apply first please!"
                                   + faq_url.suggest_todo(faq_url.APPLY_TOPIC_URL))
                return None
            self._add_checked(topic)
        if header.queueId >= config.writeQueueNums and header.queueId >= config.readQueueNums:
            return self._refuse_queue_id(channel, header, config, response)
        if header.queueId < 0 and config.writeQueueNums <= 0:
            # Differs: a topic without write queues refuses sends to "any queue" by name; the original divides by zero,
            # which its server answers with the same code
            return self._refuse_queue_id(channel, header, config, response)
        return config

    def has_checked(self, topic: str) -> bool:
        """Whether the topic's name has passed all checks."""
        return topic in self._checked_topics

    def reject_request(self) -> bool:
        """Whether requests are refused before they are looked at."""
        return False

    def _check_name(self, topic: str, response: RemotingCommand) -> bool:
        validator = self.broker_controller.topic_config_manager.topic_validator
        if not validator.validate_topic(topic, response):
            return False
        if validator.is_not_allowed_send_topic(topic, response):
            return False
        if topic in self.broker_controller.topic_config_manager.topic_config_table:
            self._add_checked(topic)
        return True

    def _add_checked(self, topic: str) -> None:
        """Note that the name passed; those of topics that are gone go when they are more than the others."""
        table = self.broker_controller.topic_config_manager.topic_config_table
        if len(self._checked_topics) > 2 * len(table):
            self._checked_topics.intersection_update(list(table))
        self._checked_topics.add(topic)

    def _create_topic(self, channel: "Channel", header: SendMessageRequestHeader) -> TopicConfig | None:
        topic = header.topic
        is_retry = topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX)
        sys_flag = topic_sys_flag.build_sys_flag(not is_retry, is_retry) if header.unitMode else 0
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


def _parse_plain_v2(fields: dict[str, str]) -> SendMessageRequestHeader | None:
    """The header of a V2 request as clients send them; None for whatever is unusual: the header's plan decides then."""
    get, number = fields.get, _NUMBERS.get
    born = get("g", "")
    header = SendMessageRequestHeader(
        get("a"), get("b"), get("c"), number(get("d")), number(get("e")), number(get("f")), None, number(get("h")),
        get("i"), number(get("j")), get("k") == "true", get("m") == "true", number(get("l")), bname=get("n"))
    if (None in (header.producerGroup, header.topic, header.defaultTopic, header.defaultTopicQueueNums, header.queueId,
                 header.sysFlag, header.flag)
            or len(born) != _MILLIS_LENGTH or not (born.isascii() and born.isdigit())
            or (header.reconsumeTimes is None and "j" in fields) or (header.maxReconsumeTimes is None and "l" in fields)
            or not _PLAIN_BOOLEANS.issuperset((get("k"), get("m")))):
        return None
    header.bornTimestamp = int(born)
    return header


def random_queue_id(queue_nums: int) -> int:
    """One of the queues."""
    return random.randrange(99_999_999) % queue_nums
