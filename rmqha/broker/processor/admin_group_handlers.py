"""Admin requests about groups: settings, members, offsets, progress.

Admin requests about accounts and addresses of access control.

Admin requests about transactions.
"""
import logging
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from rmqha.acl.common import AccessValidator, AclException
from rmqha.broker.processor.admin_handlers import (
    AdminHandlers,
    Handler,
    decode_body,
    success,
    system_error,
    table_answer,
)
from rmqha.broker.subscription_group_manager import MAX_GROUP_LENGTH, MAX_GROUPS
from rmqha.broker.topic_config_manager import MAX_QUEUE_NUMS
from rmqha.broker.transaction import transactional_message_service_impl
from rmqha.broker.transaction.transactional_message_service_impl import TransactionalMessageBridge
from rmqha.common import util_all
from rmqha.common.java import string_of
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message.message import MessageQueue
from rmqha.common.message.message_layout import MessageDecodeError
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import (
    CloneGroupOffsetRequestHeader,
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetBrokerAclConfigResponseHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
    QueryTopicConsumeByWhoRequestHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from rmqha.common.protocol.client_bodies import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QueueTimeSpan,
)
from rmqha.common.protocol.client_headers import ResumeCheckHalfMessageRequestHeader
from rmqha.common.protocol.table_bodies import ConsumeStats, ConsumeStatsList, GroupList, OffsetWrapper
from rmqha.common.topics import PlainAccessConfig, SubscriptionGroupConfig
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.results import PutMessageStatus

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.broker.client.client_channels import ClientChannelInfo
    from rmqha.remoting.channel import Channel


log = logging.getLogger("RocketmqBroker")


class AdminGroupHandlers(AdminHandlers):
    """Groups: create, delete, list, who is online; offsets: all, by group, by time, copied."""

    def handlers(self) -> dict[int, Handler]:
        """Handler by request code."""
        return {
            request_code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update_and_create_subscription_group,
            request_code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all_subscription_group,
            request_code.DELETE_SUBSCRIPTIONGROUP: self.delete_subscription_group,
            request_code.GET_CONSUMER_CONNECTION_LIST: self.get_consumer_connection_list,
            request_code.GET_PRODUCER_CONNECTION_LIST: self.get_producer_connection_list,
            request_code.GET_ALL_PRODUCER_INFO: self.get_all_producer_info,
            request_code.GET_CONSUME_STATS: self.get_consume_stats,
            request_code.GET_ALL_CONSUMER_OFFSET: self.get_all_consumer_offset,
            request_code.GET_ALL_DELAY_OFFSET: self.get_all_delay_offset,
            request_code.QUERY_TOPIC_CONSUME_BY_WHO: self.query_topic_consume_by_who,
            request_code.QUERY_CONSUME_TIME_SPAN: self.query_consume_time_span,
            request_code.QUERY_CORRECTION_OFFSET: self.query_correction_offset,
            request_code.CLONE_GROUP_OFFSET: self.clone_group_offset,
            request_code.GET_BROKER_CONSUME_STATS: self.fetch_all_consume_stats_in_broker,
        }

    def update_and_create_subscription_group(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Create or change a group."""
        refused = self.refuse_on_slave()
        if refused is not None:
            return refused
        log.info("updateAndCreateSubscriptionGroup called by %s", parse_channel_remote_addr(channel))
        config = decode_body(request, SubscriptionGroupConfig)
        if config.groupName is None:
            return system_error("the subscription group has no groupName")
        reason = self._refuse_group(config)
        if reason is not None:
            return system_error(reason)
        self.broker_controller.subscription_group_manager.update_subscription_group_config(config)
        return success()

    def _refuse_group(self, config: SubscriptionGroupConfig) -> str | None:
        """Why a group is not made or changed, None when it is."""
        table = self.broker_controller.subscription_group_manager.subscription_group_table
        # Differs: groups have the limits of what clients of 4.9 can use; the original takes any length and number
        if config.groupName not in table:
            if len(config.groupName) > MAX_GROUP_LENGTH:
                return f"the name of a group has at most {MAX_GROUP_LENGTH} characters"
            if len(table) >= MAX_GROUPS:
                return f"there are {MAX_GROUPS} subscription groups on this broker"
        if config.retryQueueNums > MAX_QUEUE_NUMS:
            return f"the number of retry queues is illegal: {config.retryQueueNums}"
        return None

    def get_all_subscription_group(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """All groups."""
        manager = self.broker_controller.subscription_group_manager
        return table_answer(request, manager.changes, manager.encode_entries)

    def delete_subscription_group(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Forget a group, and its offsets if asked to."""
        refused = self.refuse_on_slave()
        if refused is not None:
            return refused
        header = request.decode_command_custom_header(DeleteSubscriptionGroupRequestHeader)
        log.info("deleteSubscriptionGroup called by %s", parse_channel_remote_addr(channel))
        controller = self.broker_controller
        controller.subscription_group_manager.delete_subscription_group_config(header.groupName)
        if header.removeOffset:
            controller.consumer_offset_manager.remove_offset(header.groupName)
        if controller.broker_config.autoDeleteUnusedStats:
            controller.broker_stats_manager.on_group_deleted(header.groupName)
        return success()

    def get_consumer_connection_list(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Who consumes as a group."""
        group = request.decode_command_custom_header(GetConsumerConnectionListRequestHeader).consumerGroup
        info = self.broker_controller.consumer_manager.get_consumer_group_info(group)
        if info is None:
            return RemotingCommand.create_response_command(response_code.CONSUMER_NOT_ONLINE,
                                                           f"the consumer group[{group}] not online")
        return success(ConsumerConnection(
            connectionSet=_connections(list(info.channel_info_table.values())),
            subscriptionTable=dict(info.subscription_table), consumeType=info.consume_type,
            messageModel=info.message_model, consumeFromWhere=info.consume_from_where))

    def get_producer_connection_list(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Who produces as a group."""
        group = request.decode_command_custom_header(GetProducerConnectionListRequestHeader).producerGroup
        channels = self.broker_controller.producer_manager.group_channel_table.get(group)
        if channels is None:
            return system_error(f"the producer group[{group}] not exist")
        return success(ProducerConnection(connectionSet=_connections(list(channels.values()))))

    def get_all_producer_info(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """All producers."""
        return success(self.broker_controller.producer_manager.get_producer_table())

    def get_consume_stats(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """How far a group is in its topics, or in one."""
        header = request.decode_command_custom_header(GetConsumeStatsRequestHeader)
        group = header.consumerGroup
        offsets = self.broker_controller.consumer_offset_manager
        topics = _only(header.topic) or offsets.which_topic_by_consumer(group)
        self.broker_controller.record_access.check_topics(channel, request, topics)
        result = ConsumeStats()
        for topic in topics:
            config = self.broker_controller.topic_config_manager.select_topic_config(topic)
            if config is None:
                log.warning("consumeStats, topic config not exist, %s", topic)
            elif self._is_subscribed("consumeStats", group, topic):
                result.offsetTable.update(self._places(group, topic, config.readQueueNums))
                result.consumeTps += self.broker_controller.broker_stats_manager.tps_group_get_nums(group, topic)
        return success(result)

    def get_all_consumer_offset(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """All consumer offsets."""
        manager = self.broker_controller.consumer_offset_manager
        return table_answer(request, manager.changes, manager.encode_entries)

    def get_all_delay_offset(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """How far each delay level is delivered."""
        return success(self.broker_controller.message_store.schedule_message_service.encode())

    def query_topic_consume_by_who(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """The groups that consume a topic, online or by their offsets."""
        topic = request.decode_command_custom_header(QueryTopicConsumeByWhoRequestHeader).topic
        controller = self.broker_controller
        groups = controller.consumer_manager.query_topic_consume_by_who(topic)
        return success(GroupList(groups | controller.consumer_offset_manager.which_group_by_topic(topic)))

    def query_consume_time_span(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Store times of the first, the last and the last consumed message of each queue."""
        header = request.decode_command_custom_header(QueryConsumeTimeSpanRequestHeader)
        config = self.broker_controller.topic_config_manager.select_topic_config(header.topic)
        if config is None:
            return RemotingCommand.create_response_command(response_code.TOPIC_NOT_EXIST,
                                                           f"topic[{header.topic}] not exist")
        return success(QueryConsumeTimeSpanBody([self._time_span(header.topic, header.group, queue_id)
                                                 for queue_id in range(config.writeQueueNums)]))

    def query_correction_offset(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """The least offsets of the other groups."""
        # The original means to compare with a group's own offsets, but asks for them with topic and group swapped,
        # finds none, and answers the plain minimum.
        header = request.decode_command_custom_header(QueryCorrectionOffsetHeader)
        offsets = self.broker_controller.consumer_offset_manager
        return success(QueryCorrectionOffsetBody(
            offsets.query_min_offset_in_all_group(header.topic, header.filterGroups)))

    def clone_group_offset(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Copy a group's offsets to another one."""
        header = request.decode_command_custom_header(CloneGroupOffsetRequestHeader)
        offsets = self.broker_controller.consumer_offset_manager
        topics = _only(header.topic) or offsets.which_topic_by_consumer(header.srcGroup)
        self.broker_controller.record_access.check_topics(channel, request, topics)
        for topic in topics:
            if self.broker_controller.topic_config_manager.select_topic_config(topic) is None:
                log.warning("[cloneGroupOffset], topic config not exist, %s", topic)
            elif header.offline or self._is_subscribed("[cloneGroupOffset]", header.srcGroup, topic):
                # Differs: CLONE_GROUP_OFFSET without a topic clones all topics; the original clones the request's topic
                # each time, and so nothing
                offsets.clone_offset(header.srcGroup, header.destGroup, topic)
        return success()

    def fetch_all_consume_stats_in_broker(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """How far all groups are."""
        only_ordered = request.decode_command_custom_header(GetConsumeStatsInBrokerHeader).isOrder
        controller = self.broker_controller
        result = ConsumeStatsList(brokerAddr=controller.broker_addr)
        topics = controller.consumer_offset_manager.topics_by_group()
        for group in list(controller.subscription_group_manager.subscription_group_table):
            stats = list(self._group_stats(group, topics.get(group, ()), only_ordered))
            result.totalDiff += sum(one.compute_total_diff() for one in stats)
            result.consumeStatsList.append({group: stats})
        return success(result)

    def _group_stats(self, group: str, topics: Iterable[str], only_ordered: bool) -> Iterable[ConsumeStats]:
        for topic in topics:
            config = self.broker_controller.topic_config_manager.select_topic_config(topic)
            if config is None:
                log.warning("consumeStats, topic config not exist, %s", topic)
            elif (config.order or not only_ordered) and self._is_subscribed("consumeStats", group, topic):
                tps = self.broker_controller.broker_stats_manager.tps_group_get_nums(group, topic)
                yield ConsumeStats(self._places(group, topic, config.writeQueueNums), tps)

    def _is_subscribed(self, what: str, group: str, topic: str) -> bool:
        """True as well when nobody of the group is online."""
        consumers = self.broker_controller.consumer_manager
        if consumers.find_subscription_data(group, topic) is None and consumers.find_subscription_data_count(group) > 0:
            log.warning("%s, the consumer group[%s], topic[%s] not exist", what, group, topic)
            return False
        return True

    def _places(self, group: str, topic: str, queue_nums: int) -> dict[MessageQueue, OffsetWrapper]:
        controller = self.broker_controller
        places = {}
        for queue_id in range(queue_nums):
            broker_offset = max(0, controller.message_store.get_max_offset_in_queue(topic, queue_id))
            consumer_offset = max(0, controller.consumer_offset_manager.query_offset(group, topic, queue_id))
            timestamp = 0
            if consumer_offset > 0:
                timestamp = max(0, controller.message_store.get_message_store_timestamp(topic, queue_id,
                                                                                        consumer_offset - 1))
            queue = MessageQueue(topic, controller.broker_config.brokerName, queue_id)
            places[queue] = OffsetWrapper(broker_offset, consumer_offset, timestamp)
        return places

    def _time_span(self, topic: str, group: str | None, queue_id: int) -> QueueTimeSpan:
        controller = self.broker_controller
        store = controller.message_store
        min_time = store.get_earliest_message_time(topic, queue_id)
        maximum = store.get_max_offset_in_queue(topic, queue_id)
        max_time = store.get_message_store_timestamp(topic, queue_id, maximum - 1)
        consumer_offset = controller.consumer_offset_manager.query_offset(string_of(group), topic, queue_id)
        consume_time, delay = min_time, 0
        if consumer_offset > 0:
            consume_time = store.get_message_store_timestamp(topic, queue_id, consumer_offset - 1)
        if consumer_offset < maximum:
            next_time = store.get_message_store_timestamp(topic, queue_id, consumer_offset)
            delay = util_all.current_time_millis() - next_time
        queue = MessageQueue(topic, controller.broker_config.brokerName, queue_id)
        return QueueTimeSpan(queue, min_time, max_time, consume_time, delay)


def _only(topic: str | None) -> set[str]:
    """The topic that a request names; nothing when it names none, and means all."""
    return set() if topic is None or util_all.is_blank(topic) else {topic}


def _connections(clients: "Iterable[ClientChannelInfo]") -> set[Connection]:
    return {Connection(client.client_id, parse_channel_remote_addr(client.channel),
                       client.language.name if client.language is not None else None, client.version)
            for client in clients}


# Differs: what the original answers when access control is off: it fails at a null and tells of that, and to a question
# for the versions it gives no answer at all
ACL_IS_OFF = "access control is off on this broker, set aclEnable=true"


class AdminAclHandlers(AdminHandlers):
    """Accounts: make, change, delete; addresses that need no account; the files' versions."""

    def __init__(self, broker_controller: "BrokerController") -> None:
        super().__init__(broker_controller)
        self._lock = threading.Lock()  # one change at a time

    def handlers(self) -> dict[int, Handler]:
        """Handler by request code."""
        return {
            request_code.UPDATE_AND_CREATE_ACL_CONFIG: self.update_and_create_access_config,
            request_code.DELETE_ACL_CONFIG: self.delete_access_config,
            request_code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.update_global_white_addrs_config,
            request_code.GET_BROKER_CLUSTER_ACL_INFO: self.get_broker_acl_config_version,
        }

    def update_and_create_access_config(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Make or change an account."""
        header = request.decode_command_custom_header(CreateAccessConfigRequestHeader)
        config = PlainAccessConfig(
            header.accessKey, header.secretKey, header.whiteRemoteAddress, header.admin, header.defaultTopicPerm,
            header.defaultGroupPerm, util_all.split(header.topicPerms, ","), util_all.split(header.groupPerms, ","))
        return self._change(
            lambda validator: validator.update_access_config(config),
            response_code.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
            f"The accesskey[{_shown(header.accessKey)}] corresponding to accessConfig has been updated failed.")

    def delete_access_config(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Delete an account."""
        header = request.decode_command_custom_header(DeleteAccessConfigRequestHeader)
        log.info("DeleteAccessConfig called by %s", parse_channel_remote_addr(channel))
        return self._change(
            lambda validator: validator.delete_access_config(header.accessKey),
            response_code.DELETE_ACL_CONFIG_FAILED,
            f"The accesskey[{_shown(header.accessKey)}] corresponding to accessConfig has been deleted failed.")

    def update_global_white_addrs_config(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Replace a file's addresses that need no account."""
        header = request.decode_command_custom_header(UpdateGlobalWhiteAddrsConfigRequestHeader)
        addresses = util_all.split(header.globalWhiteAddrs, ",")
        return self._change(
            lambda validator: validator.update_global_white_addrs_config(addresses, header.aclFileFullPath),
            response_code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
            f"The globalWhiteAddresses[{_shown(header.globalWhiteAddrs)}] has been updated failed.")

    def get_broker_acl_config_version(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """The versions of the files."""
        controller = self.broker_controller
        validator = controller.access_validator
        if validator is None:
            return RemotingCommand.create_response_command(response_code.SYSTEM_ERROR, ACL_IS_OFF)
        return success(header=GetBrokerAclConfigResponseHeader(
            validator.get_acl_config_version(),
            remoting_serializable.to_json(validator.get_all_acl_config_version()),
            controller.broker_config.brokerName, controller.broker_addr, controller.broker_config.brokerClusterName))

    def _change(self, change: Callable[[AccessValidator[Any]], bool], failure_code: int,
                refused: str) -> RemotingCommand:
        """Do it; `refused` is the remark when nothing was changed."""
        validator = self.broker_controller.access_validator
        if validator is None:
            return RemotingCommand.create_response_command(failure_code, ACL_IS_OFF)
        try:
            with self._lock:
                if change(validator):
                    return success()
        except AclException as error:
            log.error("Failed to change the access control: %s", error)
            return RemotingCommand.create_response_command(failure_code, error.answer)
        log.warning(refused)
        return RemotingCommand.create_response_command(failure_code, refused)


def _shown(text: str | None) -> str:
    return "null" if text is None else text


class AdminTransactionHandlers(AdminHandlers):
    """RESUME_CHECK_HALF_MESSAGE."""

    def handlers(self) -> dict[int, Handler]:
        """Handler by request code."""
        return {request_code.RESUME_CHECK_HALF_MESSAGE: self.resume_check_half_message}

    def resume_check_half_message(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Put a half message back, as one that was never asked about."""
        header = request.decode_command_custom_header(ResumeCheckHalfMessageRequestHeader)
        offset = _offset_of(header.msgId)
        message = self.broker_controller.message_store.look_message_by_offset(offset) if offset is not None else None
        if offset is None or message is None:
            log.error("Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC.")
            return system_error("Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC.")
        self.broker_controller.record_access.check_ending(channel, request, message, offset)
        message.put_user_property(message_const.PROPERTY_TRANSACTION_CHECK_TIMES, "0")
        inner = TransactionalMessageBridge.renew_half_message_inner(message)
        inner.topic = transactional_message_service_impl.build_half_topic()
        inner.queue_id = 0
        inner.reconsume_times = message.reconsume_times
        result = self.broker_controller.message_store.put_message(inner)
        if result is not None and result.put_message_status is PutMessageStatus.PUT_OK:
            log.info("Put message back to RMQ_SYS_TRANS_HALF_TOPIC. real topic=%s",
                     message.get_user_property(message_const.PROPERTY_REAL_TOPIC))
            return success()
        log.error("Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.")
        return system_error("Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.")


def _offset_of(msg_id: str | None) -> int | None:
    """The commit log offset of an offset message id; None when it is not one.

    Differs: the message's body stays as it is stored; the original decompresses it and stores it with the flag of a
    compressed one.
    """
    try:
        return message_decoder.decode_message_id(msg_id or "").offset
    except MessageDecodeError as failure:
        log.error("resumeCheckHalfMessage: %s", failure)
        return None
