"""Handlers of admin requests about groups, access control and transactions."""
import logging
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from rmqha.acl.common import AccessValidator, AclException
from rmqha.broker.processor.admin_handlers import (
    AdminHandlers,
    Handler,
    decode_body,
    refuse_on_slave,
    success,
    system_error,
    table_answer,
)
from rmqha.broker.subscription_group_manager import MAX_GROUP_LENGTH, MAX_GROUPS
from rmqha.broker.topic_config_manager import MAX_QUEUE_NUMS
from rmqha.broker.transaction import transactional_message_service_impl
from rmqha.broker.transaction.transactional_message_service_impl import TransactionalMessageBridge
from rmqha.common import util_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message.message import MessageExt
from rmqha.common.message.message_layout import MessageDecodeError
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetBrokerAclConfigResponseHeader,
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from rmqha.common.protocol.client_bodies import Connection, ConsumerConnection, ProducerConnection
from rmqha.common.protocol.client_headers import ResumeCheckHalfMessageRequestHeader
from rmqha.common.topics import PlainAccessConfig, SubscriptionGroupConfig
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.results import PutMessageResult, PutMessageStatus

if TYPE_CHECKING:
    from rmqha.acl.plain_access_validator import PlainAccessValidator
    from rmqha.broker.broker_addresses import BrokerAddresses
    from rmqha.broker.client.client_channels import ClientChannelInfo
    from rmqha.broker.client.consumer_manager import ConsumerManager
    from rmqha.broker.client.producer_manager import ProducerManager
    from rmqha.broker.consumer_offset_manager import ConsumerOffsetManager
    from rmqha.broker.record_access import RecordAccess
    from rmqha.broker.subscription_group_manager import SubscriptionGroupManager
    from rmqha.remoting.channel import Channel
    from rmqha.store.broker_stats_manager import BrokerStatsManager
    from rmqha.store.role import Role


log = logging.getLogger("RocketmqBroker")


class AdminGroupHandlers(AdminHandlers):
    """Handlers for groups: create, delete and list them, and list their clients."""

    def __init__(self, broker_config: BrokerConfig, role: "Role",
                 groups: "SubscriptionGroupManager", offsets: "ConsumerOffsetManager", consumers: "ConsumerManager",
                 producers: "ProducerManager", stats: "BrokerStatsManager") -> None:
        self._config, self._role = broker_config, role
        self._groups, self._offsets = groups, offsets
        self._consumers, self._producers = consumers, producers
        self._stats = stats

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            request_code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update_and_create_subscription_group,
            request_code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all_subscription_group,
            request_code.DELETE_SUBSCRIPTIONGROUP: self.delete_subscription_group,
            request_code.GET_CONSUMER_CONNECTION_LIST: self.get_consumer_connection_list,
            request_code.GET_PRODUCER_CONNECTION_LIST: self.get_producer_connection_list,
            request_code.GET_ALL_PRODUCER_INFO: self.get_all_producer_info,
        }

    def update_and_create_subscription_group(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Create or change a group."""
        refused = refuse_on_slave(self._role)
        if refused is not None:
            return refused
        log.info("updateAndCreateSubscriptionGroup called by %s", parse_channel_remote_addr(channel))
        config = decode_body(request, SubscriptionGroupConfig)
        if config.groupName is None:
            return system_error("the subscription group has no groupName")
        reason = self._refuse_group(config)
        if reason is not None:
            return system_error(reason)
        self._groups.update_subscription_group_config(config)
        return success()

    def _refuse_group(self, config: SubscriptionGroupConfig) -> str | None:
        """Return why a group may not be created or changed; None when it may."""
        table = self._groups.subscription_group_table
        # Differs: the consumer groups that a request creates have the limits of clients of 4.9; the original accepts
        # any length and number
        if config.groupName not in table:
            if len(config.groupName) > MAX_GROUP_LENGTH:
                return f"the name of a group has at most {MAX_GROUP_LENGTH} characters"
            if len(table) >= MAX_GROUPS:
                return f"there are {MAX_GROUPS} subscription groups on this broker"
        if config.retryQueueNums > MAX_QUEUE_NUMS:
            return f"the number of retry queues is illegal: {config.retryQueueNums}"
        return None

    def get_all_subscription_group(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return all groups."""
        manager = self._groups
        return table_answer(request, manager.changes, manager.encode_entries)

    def delete_subscription_group(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Delete a group, and its offsets if requested."""
        refused = refuse_on_slave(self._role)
        if refused is not None:
            return refused
        header = request.decode_command_custom_header(DeleteSubscriptionGroupRequestHeader)
        log.info("deleteSubscriptionGroup called by %s", parse_channel_remote_addr(channel))
        self._groups.delete_subscription_group_config(header.groupName)
        if header.removeOffset:
            self._offsets.remove_offset(header.groupName)
        if self._config.autoDeleteUnusedStats:
            self._stats.on_group_deleted(header.groupName)
        return success()

    def get_consumer_connection_list(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return the connected consumers of a group."""
        group = request.decode_command_custom_header(GetConsumerConnectionListRequestHeader).consumerGroup
        info = self._consumers.get_consumer_group_info(group)
        if info is None:
            return RemotingCommand.create_response_command(response_code.CONSUMER_NOT_ONLINE,
                                                           f"the consumer group[{group}] not online")
        return success(ConsumerConnection(
            connectionSet=_connections(list(info.channel_info_table.values())),
            subscriptionTable=dict(info.subscription_table), consumeType=info.consume_type,
            messageModel=info.message_model, consumeFromWhere=info.consume_from_where))

    def get_producer_connection_list(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Return the connected producers of a group."""
        group = request.decode_command_custom_header(GetProducerConnectionListRequestHeader).producerGroup
        channels = self._producers.group_channel_table.get(group)
        if channels is None:
            return system_error(f"the producer group[{group}] not exist")
        return success(ProducerConnection(connectionSet=_connections(list(channels.values()))))

    def get_all_producer_info(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """Return all producers."""
        return success(self._producers.get_producer_table())


def _connections(clients: "Iterable[ClientChannelInfo]") -> set[Connection]:
    return {Connection(client.client_id, parse_channel_remote_addr(client.channel),
                       client.language.name if client.language is not None else None, client.version)
            for client in clients}


# Differs: when access control is off, requests about accounts get an error with the reason; the original responds with
# a NullPointerException, and not at all to a request for the versions
ACL_IS_OFF = "access control is off on this broker, set aclEnable=true"


class AdminAclHandlers(AdminHandlers):
    """Handlers for accounts: create, change, delete and list them, set the addresses that need no account, and return
    the versions of the files."""

    def __init__(self, broker_config: BrokerConfig, addresses: "BrokerAddresses",
                 validator: "PlainAccessValidator | None") -> None:
        self._config = broker_config
        self._addresses = addresses
        self._validator = validator  # None: access control is off
        self._lock = threading.Lock()  # one change at a time

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            request_code.UPDATE_AND_CREATE_ACL_CONFIG: self.update_and_create_access_config,
            request_code.DELETE_ACL_CONFIG: self.delete_access_config,
            request_code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.update_global_white_addrs_config,
            request_code.GET_BROKER_CLUSTER_ACL_INFO: self.get_broker_acl_config_version,
            request_code.GET_BROKER_CLUSTER_ACL_CONFIG: self.get_broker_cluster_acl_config,
        }

    def update_and_create_access_config(self, _channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Create or change an account."""
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
        """Replace the addresses in a file that need no account."""
        header = request.decode_command_custom_header(UpdateGlobalWhiteAddrsConfigRequestHeader)
        addresses = util_all.split(header.globalWhiteAddrs, ",")
        return self._change(
            lambda validator: validator.update_global_white_addrs_config(addresses, header.aclFileFullPath),
            response_code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
            f"The globalWhiteAddresses[{_shown(header.globalWhiteAddrs)}] has been updated failed.")

    def get_broker_acl_config_version(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """Return the versions of the files."""
        config, validator = self._config, self._validator
        if validator is None:
            return RemotingCommand.create_response_command(response_code.SYSTEM_ERROR, ACL_IS_OFF)
        return success(header=GetBrokerAclConfigResponseHeader(
            validator.get_acl_config_version(),
            remoting_serializable.to_json(validator.get_all_acl_config_version()),
            config.brokerName, self._addresses.broker_addr, config.brokerClusterName))

    def get_broker_cluster_acl_config(self, _channel: "Channel", _request: RemotingCommand) -> RemotingCommand:
        """Return the accounts and the addresses that need none, as they are in the files now, without secrets."""
        validator = self._validator
        if validator is None:
            return system_error(ACL_IS_OFF)
        try:
            config = validator.get_all_acl_config()
        except AclException as error:
            return system_error(error.answer)
        for account in config.plainAccessConfigs:
            account.secretKey = None
        return success(config)

    def _change(self, change: Callable[[AccessValidator[Any]], bool], failure_code: int,
                refused: str) -> RemotingCommand:
        """Call `change` and return the response; `refused` is the remark when nothing was changed."""
        validator = self._validator
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
    """Handler of RESUME_CHECK_HALF_MESSAGE."""

    def __init__(self, look_up: Callable[[int], MessageExt | None],
                 put: Callable[[MessageExtBrokerInner], PutMessageResult], record_access: "RecordAccess") -> None:
        # Returns the message at an offset of the log.
        self._look_up = look_up
        self._put = put
        self._record_access = record_access

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {request_code.RESUME_CHECK_HALF_MESSAGE: self.resume_check_half_message}

    def resume_check_half_message(self, channel: "Channel", request: RemotingCommand) -> RemotingCommand:
        """Append a half message again, with its number of checks reset to 0."""
        header = request.decode_command_custom_header(ResumeCheckHalfMessageRequestHeader)
        offset = _offset_of(header.msgId)
        message = self._look_up(offset) if offset is not None else None
        if offset is None or message is None:
            log.error("Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC.")
            return system_error("Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC.")
        self._record_access.check_ending(channel, request, message, offset)
        message.put_user_property(message_const.PROPERTY_TRANSACTION_CHECK_TIMES, "0")
        inner = TransactionalMessageBridge.renew_half_message_inner(message)
        inner.topic = transactional_message_service_impl.build_half_topic()
        inner.queue_id = 0
        inner.reconsume_times = message.reconsume_times
        result = self._put(inner)
        if result is not None and result.put_message_status is PutMessageStatus.PUT_OK:
            log.info("Put message back to RMQ_SYS_TRANS_HALF_TOPIC. real topic=%s",
                     message.get_user_property(message_const.PROPERTY_REAL_TOPIC))
            return success()
        log.error("Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.")
        return system_error("Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.")


def _offset_of(msg_id: str | None) -> int | None:
    """Return the commit log offset of an offset message id; None when the id is invalid.

    Differs: RESUME_CHECK_HALF_MESSAGE stores the message's body unchanged; the original decompresses it but keeps the
    flag of a compressed body.
    """
    try:
        return message_decoder.decode_message_id(msg_id or "").offset
    except MessageDecodeError as failure:
        log.error("resumeCheckHalfMessage: %s", failure)
        return None
