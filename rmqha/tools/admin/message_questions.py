"""Questions about messages and the clients that they went to, each of several requests of an admin client."""
import logging
import random

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.common import mix_all
from rmqha.common.java import hash_map_order
from rmqha.common.message.message import MessageClientExt, MessageExt
from rmqha.common.protocol import response_code
from rmqha.common.protocol.client_bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
)
from rmqha.common.subscriptions import ConsumeType
from rmqha.remoting.addresses import parse_socket_address_addr
from rmqha.remoting.exception import RemotingException
from rmqha.tools.admin.api.message_track import MessageTrack, TrackType
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.stack_trace import java_name

log = logging.getLogger("RocketmqClient")

ASK_ERRORS = (MQClientException, MQBrokerException, RemotingException)  # what any question may raise


def examine_producer_connection_info(admin: DefaultMQAdminExt, producer_group: str, topic: str) -> ProducerConnection:
    """Who produces as a group, asked of any of the topic's brokers; MQClientException when nobody does.

    Java: org.apache.rocketmq.tools.admin.DefaultMQAdminExtImpl#examineProducerConnectionInfo (4.9.8)
    """
    addr, result = random.choice(_addrs_of(admin, topic)), ProducerConnection()
    if addr is not None:
        result = admin.api.get_producer_connection_list(addr, producer_group, admin.timeout_millis)
    if not result.connectionSet:
        log.warning("the producer group not online. brokerAddr=%s, group=%s", addr, producer_group)
        raise MQClientException("Not found the producer group connection")
    return result


def get_consumer_running_info(
    admin: DefaultMQAdminExt, consumer_group: str, client_id: str, jstack: bool
) -> ConsumerRunningInfo:
    """What one client of a group does now, asked through the retry topic's first broker.

    Java: org.apache.rocketmq.tools.admin.DefaultMQAdminExtImpl#getConsumerRunningInfo (4.9.8)
    """
    addrs = [addr for addr in _addrs_of(admin, mix_all.get_retry_topic(consumer_group)) if addr is not None]
    if not addrs:
        raise MQClientException(f"no broker of the group {consumer_group} has an address")
    return admin.api.get_consumer_running_info(addrs[0], consumer_group, client_id, jstack, admin.timeout_millis * 3)


def view_message(admin: DefaultMQAdminExt, msg_id: str, topic: str) -> MessageExt:
    """The message of an offset id or of a unique id; MQClientException when there is none.

    Java: org.apache.rocketmq.tools.admin.DefaultMQAdminExtImpl#viewMessage (4.9.8)
    """
    try:
        return admin.mq_admin.view_message(msg_id)
    except ASK_ERRORS as error:
        log.warning("the msgId maybe created by new client. msgId=%s: %s", msg_id, error)
    return admin.mq_admin.query_message_by_uniq_key(topic, msg_id).message_list[0]


def consume_message_directly(
    admin: DefaultMQAdminExt, consumer_group: str, client_id: str, msg_id: str, topic: str | None = None
) -> ConsumeMessageDirectlyResult:
    """Let one client of a group consume one message now. Without a topic the id is an offset id.

    Java: org.apache.rocketmq.tools.admin.DefaultMQAdminExtImpl#consumeMessageDirectly (4.9.8)
    """
    msg = admin.mq_admin.view_message(msg_id) if topic is None else view_message(admin, msg_id, topic)
    offset_msg_id = msg.offset_msg_id if isinstance(msg, MessageClientExt) else msg.msg_id
    assert offset_msg_id is not None  # a decoded message has one
    return admin.api.consume_message_directly(
        parse_socket_address_addr(msg.store_host), consumer_group, client_id, offset_msg_id, admin.timeout_millis * 3)


def message_track_detail(admin: DefaultMQAdminExt, msg: MessageExt) -> list[MessageTrack]:
    """What became of a message in each group that consumes its topic.

    Java: org.apache.rocketmq.tools.admin.DefaultMQAdminExtImpl#messageTrackDetail (4.9.8)
    """
    groups = admin.query_topic_consume_by_who(msg.topic)
    # Differs: no group instead of a NullPointerException when no broker has an address
    names = hash_map_order(sorted(groups.groupList)) if groups is not None else []
    return [_track(admin, msg, group) for group in names]


def _track(admin: DefaultMQAdminExt, msg: MessageExt, group: str) -> MessageTrack:
    track = MessageTrack(group)
    try:
        connection = admin.examine_consumer_connection_info(group)
    except MQBrokerException as error:
        return _failed(track, error)
    except (MQClientException, RemotingException) as error:
        track.exceptionDesc = simple_description(error)
        return track
    if connection.consumeType is ConsumeType.CONSUME_ACTIVELY:
        track.trackType = TrackType.PULL
        return track
    try:
        is_consumed = consumed(admin, msg, group)
    except (MQClientException, MQBrokerException) as error:
        return _failed(track, error)
    except RemotingException as error:
        track.exceptionDesc = simple_description(error)
        return track
    if not is_consumed:
        track.trackType = TrackType.NOT_CONSUME_YET
    elif _is_wanted(msg, connection):
        track.trackType = TrackType.CONSUMED
    else:
        track.trackType = TrackType.CONSUMED_BUT_FILTERED
    return track


def consumed(admin: DefaultMQAdminExt, msg: MessageExt, group: str) -> bool:
    """Whether a group's offset lies behind a message, in its queue on the master that stores it.

    Java: org.apache.rocketmq.tools.admin.DefaultMQAdminExtImpl#consumed (4.9.8)
    """
    stats = admin.examine_consume_stats(group)
    brokers = admin.examine_broker_cluster_info().brokerAddrTable
    stored_at = parse_socket_address_addr(msg.store_host)
    # Differs: a broker's address is compared as it is registered; the original looks host names up
    return any(place.consumerOffset > msg.queue_offset for mq, place in stats.offsetTable.items()
               if mq.topic == msg.topic and mq.queueId == msg.queue_id and mq.brokerName in brokers
               and brokers[mq.brokerName].brokerAddrs.get(mix_all.MASTER_ID) == stored_at)


def simple_description(error: BaseException) -> str:
    """`name: message`, with the name that the exception has in Java."""
    # Differs: not followed by the line of code that raised it
    return f"{java_name(error)}: {error}"


def _addrs_of(admin: DefaultMQAdminExt, topic: str) -> list[str | None]:
    return [broker.select_broker_addr() for broker in admin.examine_topic_route_info(topic).brokerDatas] or [None]


def _failed(track: MessageTrack, error: MQBrokerException | MQClientException) -> MessageTrack:
    if error.response_code == response_code.CONSUMER_NOT_ONLINE:
        track.trackType = TrackType.NOT_ONLINE
    message = "null" if error.error_message is None else error.error_message
    track.exceptionDesc = f"CODE:{error.response_code} DESC:{message}"
    return track


def _is_wanted(msg: MessageExt, connection: ConsumerConnection) -> bool:
    """False when the group subscribes to other tags of the topic."""
    subscription = connection.subscriptionTable.get(msg.topic)
    tags = subscription.tagsSet if subscription is not None else None
    return not tags or msg.tags in tags or "*" in tags
