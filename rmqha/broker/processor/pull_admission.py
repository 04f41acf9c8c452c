"""Checks that decide whether a pull is served: its group, its topic, and the group's subscription.

    PullMessageProcessor --check_group, check_topic, message_filter--> or the error response
"""
import logging
from typing import TYPE_CHECKING

from rmqha.broker import consumer_filter_manager
from rmqha.broker.consumer_filter_manager import ConsumerFilterData, ConsumerFilterManager
from rmqha.broker.consumer_subscription_manager import ConsumerSubscriptionManager, KeptGroup
from rmqha.broker.expression_message_filter import ExpressionForRetryMessageFilter, ExpressionMessageFilter
from rmqha.common import subscriptions, sys_flags
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.protocol import namespace_util, response_code
from rmqha.common.protocol.client_headers import PullMessageRequestHeader
from rmqha.common.subscriptions import MessageModel, SubscriptionData
from rmqha.common.topics import SubscriptionGroupConfig
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.broker.broker_fast_failure import HandOver
    from rmqha.broker.client.consumer_manager import ConsumerManager
    from rmqha.broker.subscription_group_manager import SubscriptionGroupManager
    from rmqha.broker.topic_config_manager import TopicConfigManager
    from rmqha.remoting.channel import Channel

log = logging.getLogger("RocketmqBroker")

_Subscription = tuple[SubscriptionData, ConsumerFilterData | None]


class PullAdmission:
    """The checks of PullMessageProcessor, before it reads from the store.

    Java: org.apache.rocketmq.broker.processor.PullMessageProcessor (4.9.8)
    """

    def __init__(self, broker_config: BrokerConfig, topics: "TopicConfigManager", groups: "SubscriptionGroupManager",
                 consumers: "ConsumerManager", kept: ConsumerSubscriptionManager, filters: ConsumerFilterManager,
                 hand_over: "HandOver") -> None:
        self._config = broker_config
        self._topics, self.groups = topics, groups
        self._consumers, self._kept, self._filters = consumers, kept, filters
        # Submits work to the pool of pulls; SYSTEM_BUSY when its queue is full.
        self.hand_over = hand_over

    def check_group(self, header: PullMessageRequestHeader,
                    response: RemotingCommand) -> SubscriptionGroupConfig | None:
        """Return the group; create it if it is new and allowed. None: `response` contains the error."""
        config = self._config
        if not sys_flags.is_readable(config.brokerPermission):
            response.code = response_code.NO_PERMISSION
            response.remark = f"the broker[{config.brokerIP1}] pulling message is forbidden"
            return None
        group = header.consumerGroup
        group_config = self.groups.find_subscription_group_config(group)
        if group_config is None:
            response.code = response_code.SUBSCRIPTION_GROUP_NOT_EXIST
            response.remark = (f"subscription group [{group}] does not exist, "
                               + namespace_util.suggest_todo(namespace_util.SUBSCRIPTION_GROUP_NOT_EXIST))
            return None
        if not group_config.consumeEnable:
            response.code = response_code.NO_PERMISSION
            response.remark = f"subscription group no permission, {group}"
            return None
        return group_config

    def check_topic(self, channel: "Channel", header: PullMessageRequestHeader, response: RemotingCommand) -> bool:
        """Return whether the queue exists and may be read; if not, `response` contains the error."""
        topic = header.topic
        config = self._topics.select_topic_config(topic)
        if config is None:
            log.error("the topic %s not exist, consumer: %s", topic, parse_channel_remote_addr(channel))
            response.code = response_code.TOPIC_NOT_EXIST
            response.remark = (f"topic[{topic}] not exist, apply first please! "
                               + namespace_util.suggest_todo(namespace_util.APPLY_TOPIC_URL))
            return False
        if not sys_flags.is_readable(config.perm):
            response.code = response_code.NO_PERMISSION
            response.remark = f"the topic[{topic}] pulling message is forbidden"
            return False
        if not 0 <= header.queueId < config.readQueueNums:
            response.code = response_code.SYSTEM_ERROR
            response.remark = (f"queueId[{header.queueId}] is illegal, topic:[{topic}] topicConfig.readQueueNums:"
                               f"[{config.readQueueNums}] consumer:[/{parse_channel_remote_addr(channel)}]")
            log.warning(response.remark)
            return False
        return True

    def message_filter(self, channel: "Channel", header: PullMessageRequestHeader,
                       group_config: SubscriptionGroupConfig,
                       response: RemotingCommand) -> ExpressionMessageFilter | None:
        """Return the filter for the group's subscription; None: `response` contains the error."""
        if sys_flags.has_subscription_flag(header.sysFlag):
            found = self._build_subscription(header, response)
        else:
            found = self._find_subscription(header, group_config, response)
        if found is None:
            return None
        if self._kept.is_recent:
            self._kept.see(header, channel)
        subscription, filter_data = found
        config = self._config
        if not config.enablePropertyFilter and not subscriptions.is_tag_type(subscription.expressionType):
            response.code = response_code.SYSTEM_ERROR
            response.remark = ("The broker does not support consumer to filter message by "
                               f"{subscription.expressionType}")
            return None
        make = ExpressionForRetryMessageFilter if config.filterSupportRetry else ExpressionMessageFilter
        return make(subscription, filter_data, self._filters)

    def _build_subscription(self, header: PullMessageRequestHeader, response: RemotingCommand) -> _Subscription | None:
        try:
            subscription = subscriptions.build(header.topic, header.subscription, header.expressionType)
            if subscriptions.is_tag_type(subscription.expressionType):
                return subscription, None
            filter_data = consumer_filter_manager.build(header.topic, header.consumerGroup, header.subscription,
                                                        header.expressionType, header.subVersion)
            # Differs: a pull with an expression that does not compile is refused; the original, which runs without
            # assertions, ignores the expression and returns all messages
            if filter_data is None and self._config.enablePropertyFilter:
                raise ValueError("the expression does not compile")
            return subscription, filter_data
        except ValueError as failure:
            log.warning("Parse the consumer's subscription[%s] failed, group: %s: %s", header.subscription,
                        header.consumerGroup, failure)
            response.code = response_code.SUBSCRIPTION_PARSE_FAILED
            response.remark = "parse the consumer's subscription failed"
            return None

    def _find_subscription(self, header: PullMessageRequestHeader, group_config: SubscriptionGroupConfig,
                           response: RemotingCommand) -> _Subscription | None:
        group = header.consumerGroup
        info = self._consumers.get_consumer_group_info(group) or self._kept.of_pull(header)
        if info is None:
            log.warning("the consumer's group info not exist, group: %s", group)
            response.code = response_code.SUBSCRIPTION_NOT_EXIST
            response.remark = ("the consumer's group info not exist"
                               + namespace_util.suggest_todo(namespace_util.SAME_GROUP_DIFFERENT_TOPIC))
            return None
        if not group_config.consumeBroadcastEnable and info.message_model is MessageModel.BROADCASTING:
            response.code = response_code.NO_PERMISSION
            response.remark = f"the consumer group[{group}] can not consume by broadcast way"
            return None
        subscription = info.find_subscription_data(header.topic)
        if subscription is None:
            log.warning("the consumer's subscription not exist, group: %s, topic:%s", group, header.topic)
            response.code = response_code.SUBSCRIPTION_NOT_EXIST
            response.remark = ("the consumer's subscription not exist"
                               + namespace_util.suggest_todo(namespace_util.SAME_GROUP_DIFFERENT_TOPIC))
            return None
        # Differs: a pull whose consumer has subscribed later than those that sent a heartbeat is served if the broker
        # knows that its subscription is the same; the original refuses it, after a restart for up to 30 s
        is_later = subscription.subVersion < header.subVersion
        if is_later and not self._kept.is_same(header, subscription):
            log.warning("The broker's subscription is not latest, group: %s %s", group, subscription.subString)
            response.code = response_code.SUBSCRIPTION_NOT_LATEST
            response.remark = "the consumer's subscription not latest"
            return None
        if subscriptions.is_tag_type(subscription.expressionType):
            return subscription, None
        is_kept = is_later or isinstance(info, KeptGroup)
        filter_data = self._find_filter_data(header, subscription.subString if is_kept else None, response)
        return (subscription, filter_data) if filter_data is not None else None

    def _find_filter_data(self, header: PullMessageRequestHeader, expression: str | None,
                          response: RemotingCommand) -> ConsumerFilterData | None:
        group = header.consumerGroup
        filter_data = self._filters.get(header.topic, group)
        # The files of filters and of subscriptions may have been saved at different times.
        if filter_data is None or expression is not None and filter_data.expression != expression:
            response.code = response_code.FILTER_DATA_NOT_EXIST
            response.remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
            return None
        if filter_data.clientVersion < header.subVersion:
            log.warning("The broker's consumer filter data is not latest, group: %s, topic: %s, serverV: %d, "
                        "clientV: %d", group, header.topic, filter_data.clientVersion, header.subVersion)
            response.code = response_code.FILTER_DATA_NOT_LATEST
            response.remark = "the consumer's consumer filter data not latest"
            return None
        return filter_data
