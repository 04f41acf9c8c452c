"""The consumption state of a message in each group that consumes its topic.

Also the text of errors as the original's users know it: Java's names and texts, cause by cause.
"""
import re
import sys
from dataclasses import dataclass
from enum import Enum

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.common import mix_all
from rmqha.common.java import hash_map_order
from rmqha.common.message.message import MessageExt
from rmqha.common.protocol import response_code
from rmqha.common.protocol.client_bodies import ConsumerConnection
from rmqha.common.subscriptions import ConsumeType
from rmqha.remoting.addresses import parse_socket_address_addr
from rmqha.remoting.exception import RemotingException
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt


class TrackType(Enum):
    """The states. CONSUMED is judged by the group's offset; PULL groups keep their offsets themselves.

    Java: org.apache.rocketmq.tools.admin.api.TrackType (4.9.8)
    """

    CONSUMED = 0
    CONSUMED_BUT_FILTERED = 1
    PULL = 2
    NOT_CONSUME_YET = 3
    NOT_ONLINE = 4
    UNKNOWN = 5


@dataclass(slots=True)
class MessageTrack:
    """The state of a message in a group; `exceptionDesc` says why the state is unknown.

    Java: org.apache.rocketmq.tools.admin.api.MessageTrack (4.9.8)
    """

    consumerGroup: str
    trackType: TrackType = TrackType.UNKNOWN
    exceptionDesc: str | None = None

    def __str__(self) -> str:
        why = "null" if self.exceptionDesc is None else self.exceptionDesc
        return (f"MessageTrack [consumerGroup={self.consumerGroup}, trackType={self.trackType.name}, "
                f"exceptionDesc={why}]")


_TWIN = re.compile(r"^\s*Java: ([\w.$]+)", re.MULTILINE)


def java_name(error: BaseException) -> str:
    """Return the name of the Java class that an exception represents; its own name when there is no such class."""
    found = _TWIN.search(type(error).__doc__ or "")
    return found.group(1) if found else f"{type(error).__module__}.{type(error).__qualname__}"


def stack_trace(error: BaseException) -> str:
    """Return `error` and its causes, one per line (or more, if a text has several lines), without the frames."""
    lines: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        lines.append(f"{'Caused by: ' if lines else ''}{java_name(cause)}: {cause}\n")
        cause = cause.__cause__
    return "".join(lines)


def print_stack_trace(error: BaseException) -> None:
    """Report on standard error an error that does not end the command."""
    sys.stderr.write(stack_trace(error))


def message_track_detail(admin: DefaultMQAdminExt, msg: MessageExt) -> list[MessageTrack]:
    """Return the state of a message in each group that consumes its topic.

    Java: org.apache.rocketmq.tools.admin.DefaultMQAdminExtImpl#messageTrackDetail (4.9.8)
    """
    groups = admin.query_topic_consume_by_who(msg.topic)
    # Differs: a message's track has no group, instead of a NullPointerException, when no broker has an address
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
    """Return whether a group's offset is past a message, in the message's queue on the master that stores it.

    Java: org.apache.rocketmq.tools.admin.DefaultMQAdminExtImpl#consumed (4.9.8)
    """
    stats = admin.examine_consume_stats(group)
    brokers = admin.examine_broker_cluster_info().brokerAddrTable
    stored_at = parse_socket_address_addr(msg.store_host)
    # Differs: a broker's address is compared as it is registered; the original resolves host names
    return any(place.consumerOffset > msg.queue_offset for mq, place in stats.offsetTable.items()
               if mq.topic == msg.topic and mq.queueId == msg.queue_id and mq.brokerName in brokers
               and brokers[mq.brokerName].brokerAddrs.get(mix_all.MASTER_ID) == stored_at)


def simple_description(error: BaseException) -> str:
    """Return `name: message`, with the name that the exception has in Java."""
    # Differs: the text of an error in a message's track is not followed by the line of code that raised it
    return f"{java_name(error)}: {error}"


def _failed(track: MessageTrack, error: MQBrokerException | MQClientException) -> MessageTrack:
    if error.response_code == response_code.CONSUMER_NOT_ONLINE:
        track.trackType = TrackType.NOT_ONLINE
    message = "null" if error.error_message is None else error.error_message
    track.exceptionDesc = f"CODE:{error.response_code} DESC:{message}"
    return track


def _is_wanted(msg: MessageExt, connection: ConsumerConnection) -> bool:
    """Return whether the group's subscription matches the message's tag."""
    subscription = connection.subscriptionTable.get(msg.topic)
    tags = subscription.tagsSet if subscription is not None else None
    return not tags or msg.tags in tags or "*" in tags
