"""Heartbeats of clients, and their unregistration.

    IO thread: heartbeats of known groups; a group or retry topic that has to be created first: HeartbeatThread_<n>
"""
import logging
from typing import TYPE_CHECKING

from rmqha.broker.client.client_channels import ClientChannelInfo
from rmqha.broker.consumer_filter_manager import MAX_EXPRESSION_LENGTH
from rmqha.broker.processor.admin_handlers import decode_body
from rmqha.common import mix_all, subscriptions, sys_flags, topics
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import UnregisterClientRequestHeader
from rmqha.common.protocol.client_bodies import CheckClientRequestBody
from rmqha.common.subscriptions import ConsumerData, HeartbeatData, ProducerData
from rmqha.filter import selector_parser
from rmqha.filter.expressions import MQFilterException
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.broker.broker_fast_failure import HandOver
    from rmqha.broker.client.client_channels import ClientHousekeepingService
    from rmqha.broker.client.consumer_manager import ConsumerManager
    from rmqha.broker.client.producer_manager import ProducerManager
    from rmqha.broker.consumer_subscription_manager import ConsumerSubscriptionManager
    from rmqha.broker.record_access import RecordAccess
    from rmqha.broker.subscription_group_manager import SubscriptionGroupManager
    from rmqha.broker.topic_config_manager import TopicConfigManager
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.interfaces import Answer

log = logging.getLogger("RocketmqBroker")

_READ_WRITE = sys_flags.PERM_READ | sys_flags.PERM_WRITE


class ClientManageProcessor:
    """Processor of HEART_BEAT, UNREGISTER_CLIENT and CHECK_CLIENT_CONFIG.

    Java: org.apache.rocketmq.broker.processor.ClientManageProcessor (4.9.8)
    """

    def __init__(self, broker_config: BrokerConfig, topics: "TopicConfigManager", groups: "SubscriptionGroupManager",
                 consumers: "ConsumerManager", kept: "ConsumerSubscriptionManager", producers: "ProducerManager",
                 record_access: "RecordAccess", housekeeping: "ClientHousekeepingService",
                 hand_over: "HandOver") -> None:
        self._config = broker_config
        self._topics, self._groups = topics, groups
        self._consumers, self._kept, self._producers = consumers, kept, producers
        self._record_access = record_access
        self._housekeeping = housekeeping
        self._hand_over = hand_over  # to HeartbeatThread_<n>

    def process_request(self, channel: "Channel", request: RemotingCommand) -> "Answer":
        """Serve one request."""
        if request.code == request_code.HEART_BEAT:
            return self._heart_beat(channel, request)
        if request.code == request_code.UNREGISTER_CLIENT:
            return self._unregister_client(channel, request)
        return self._check_client_config(request)

    def reject_request(self) -> bool:
        """Return False: these requests are never rejected."""
        return False

    def _heart_beat(self, channel: "Channel", request: RemotingCommand) -> "Answer":
        heartbeat = decode_body(request, HeartbeatData)
        _check(heartbeat)
        if any(self._is_new(data) for data in heartbeat.consumerDataSet):
            return self._hand_over(lambda: self._register(channel, request, heartbeat))
        return self._register(channel, request, heartbeat)

    def _is_new(self, data: ConsumerData) -> bool:
        return (data.groupName not in self._groups.subscription_group_table
                or mix_all.get_retry_topic(data.groupName) not in self._topics.topic_config_table)

    def _register(self, channel: "Channel", request: RemotingCommand, heartbeat: HeartbeatData) -> RemotingCommand:
        info = ClientChannelInfo(channel, heartbeat.clientID, request.language, request.version,
                                 self._record_access.account_of(request))
        for data in heartbeat.consumerDataSet:
            self._register_consumer(info, data)
        for producer in heartbeat.producerDataSet:
            self._producers.register_producer(producer.groupName, info)
        # The channel closed while the registration waited in the pool, so its close event came too early to remove it.
        if not channel.is_active:
            self._housekeeping.on_channel_close(parse_channel_remote_addr(channel), channel)
        return RemotingCommand.create_response_command(response_code.SUCCESS, None)

    def _register_consumer(self, info: ClientChannelInfo, data: ConsumerData) -> None:
        group_config = self._groups.find_subscription_group_config(data.groupName)
        notify = True
        if group_config is not None:
            notify = group_config.notifyConsumerIdsChangedEnable
            sys_flag = sys_flags.build_topic_sys_flag(False, True) if data.unitMode else 0
            retry_topic = mix_all.get_retry_topic(data.groupName)
            # Differs: a group whose name is not a valid topic name gets no topic, since the name would become a folder
            if topics.check_topic(retry_topic) is None:
                self._topics.create_topic_in_send_message_back_method(
                    retry_topic, group_config.retryQueueNums, _READ_WRITE, sys_flag)
        changed = self._consumers.register_consumer(
            data.groupName, info, data.consumeType, data.messageModel, data.consumeFromWhere,
            data.subscriptionDataSet, notify)
        if changed:
            log.info("registerConsumer info changed %s %s", data, parse_channel_remote_addr(info.channel))

    def _unregister_client(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        header = request.decode_command_custom_header(UnregisterClientRequestHeader)
        info = ClientChannelInfo(channel, header.clientID, request.language, request.version)
        if header.producerGroup is not None:
            self._producers.unregister_producer(header.producerGroup, info)
        if header.consumerGroup is not None:
            # Differs: an unknown group is not created when one of its consumers unregisters
            config = self._groups.subscription_group_table.get(header.consumerGroup)
            notify = config is None or config.notifyConsumerIdsChangedEnable
            self._kept.on_member_left(header.consumerGroup, header.clientID)
            self._consumers.unregister_consumer(header.consumerGroup, info, notify)
        return RemotingCommand.create_response_command(response_code.SUCCESS, None)

    def _check_client_config(self, request: RemotingCommand) -> RemotingCommand:
        body = decode_body(request, CheckClientRequestBody)
        subscription = body.subscriptionData
        if subscription is None or subscriptions.is_tag_type(subscription.expressionType):
            return RemotingCommand.create_response_command(response_code.SUCCESS, None)
        if not self._config.enablePropertyFilter:
            return RemotingCommand.create_response_command(
                response_code.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {subscription.expressionType}")
        spi = selector_parser.get(subscription.expressionType)
        try:
            # Differs: CHECK_CLIENT_CONFIG answers an unknown type of expression with a remark; in the original it
            # causes a NullPointerException and the remark is null
            if spi is None or subscription.subString is None:
                raise MQFilterException("", f"unknown filter type {subscription.expressionType}")
            if len(subscription.subString) > MAX_EXPRESSION_LENGTH:
                raise MQFilterException("", f"the expression is too long: {len(subscription.subString)} characters")
            spi.compile(subscription.subString)
        except MQFilterException as failure:
            log.warning("Client %s@%s filter message, but failed to compile expression! sub=%s, error=%s",
                        body.clientId, body.group, subscription, failure)
            return RemotingCommand.create_response_command(response_code.SUBSCRIPTION_PARSE_FAILED, str(failure))
        return RemotingCommand.create_response_command(response_code.SUCCESS, None)


def _check(heartbeat: HeartbeatData) -> None:
    # Differs: a heartbeat with a missing name registers nothing; the original fails with a NullPointerException in the
    # middle of the registration
    if heartbeat.clientID is None:
        raise RemotingCommandException("the heartbeat has no clientID")
    groups: list[ConsumerData | ProducerData] = [*heartbeat.consumerDataSet, *heartbeat.producerDataSet]
    if any(data is None or data.groupName is None for data in groups):
        raise RemotingCommandException("the heartbeat has a group without groupName")
    if any(one.topic is None for data in heartbeat.consumerDataSet for one in data.subscriptionDataSet):
        raise RemotingCommandException("the heartbeat has a subscription without topic")
