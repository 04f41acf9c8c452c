"""Finds messages by id or by key on all masters of a cluster, and says which groups have consumed one.

    on_each master --QUERY_MESSAGE, by its index--> Stored --consumer offsets of its broker--> GroupState
    the broker in an offset id --VIEW_MESSAGE_BY_ID--> Stored
"""
from dataclasses import dataclass

from rmqha.client.exception import MQBrokerException
from rmqha.client.impl.mq_admin_impl import FOREVER_MS
from rmqha.common.compression import BodyBudget
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.protocol import response_code
from rmqha.common.protocol.client_headers import QueryMessageRequestHeader
from rmqha.common.subscriptions import ConsumeType
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin, RefusedError
from rmqha.tools.manage.masters import Outcomes, brokers_of, on_each

MOST = 64  # that a broker returns for one key
_MOST_BYTES = 64 << 20  # of all bodies of a broker's answer, and of one, decompressed
_NOT_THERE = "can not find message by the offset"


@dataclass(frozen=True)
class Stored:
    """A message, and the broker that has it."""

    broker: Broker
    message: MessageExt


@dataclass(frozen=True)
class GroupState:
    """The state of a message in a group. `consumed`: by the group's offset in its queue; None without an offset there.

    `members`: how many run, as the message's broker knows them. `filtered`: their subscription leaves out its tag.
    `pulls`: they pull, and may keep their offsets elsewhere.
    """

    group: str
    consumed: bool | None
    members: int
    filtered: bool = False
    pulls: bool = False


def serving(admin: ClusterAdmin, cluster: str | None = None) -> list[Broker]:
    """Return the master of each broker name; a slave where the name server knows no master."""
    found: dict[str, Broker] = {}
    for broker in brokers_of(admin, cluster):  # masters first
        found.setdefault(broker.name, broker)
    return list(found.values())


def by_offset_id(admin: ClusterAdmin, brokers: list[Broker], msg_id: str) -> Outcomes[list[Stored]] | None:
    """Return the message with an offset id; None for an id that none of these brokers gave.

    The id names an address: no other one is asked.
    """
    try:
        (host, port), offset = message_decoder.decode_message_id(msg_id)
    except ValueError:
        return None
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    there = [broker for broker in brokers if broker.address == address]
    if not there:
        return None

    def ask(broker: Broker) -> list[Stored]:
        try:
            message = admin.ask_broker(broker.address, admin.api.view_message, offset, admin.timeout_millis)
        except RefusedError as refusal:
            if _NOT_THERE in refusal.message:
                return []
            raise
        return [_stored(broker, message)]
    return on_each(admin, there, ask)


def by_key(admin: ClusterAdmin, brokers: list[Broker], topic: str, key: str, is_unique: bool, most: int = MOST
           ) -> Outcomes[list[Stored]]:
    """Return the messages of a topic with a key, by broker; `is_unique`: with the id that a producer gave them."""
    header = QueryMessageRequestHeader(topic, key, most, 0, FOREVER_MS)

    def answer(address: str) -> list[MessageExt]:
        response = admin.api.query_message(address, header, admin.timeout_millis, is_unique)
        if response.code == response_code.QUERY_NOT_FOUND:
            return []
        if response.code != response_code.SUCCESS:
            raise MQBrokerException(response.code, response.remark, address)
        return message_decoder.decodes(response.body or b"", budget=BodyBudget(_MOST_BYTES, _MOST_BYTES), keep_bad=True)

    def ask(broker: Broker) -> list[Stored]:
        # The index compares hash codes only.
        return [_stored(broker, message) for message in admin.ask_broker(broker.address, answer)
                if (message.msg_id == key if is_unique else _has_key(message, topic, key))]
    return on_each(admin, brokers, ask)


def _has_key(message: MessageExt, topic: str, key: str) -> bool:
    return message.topic == topic and key in (message.keys or "").split(message_const.KEY_SEPARATOR)


def _stored(broker: Broker, message: MessageExt) -> Stored:
    message.broker_name = broker.name
    return Stored(broker, message)


def newest_first(outcomes: Outcomes[list[Stored]]) -> list[Stored]:
    """Return the messages of all brokers, the newest first."""
    return sorted((each for found in outcomes.values.values() for each in found),
                  key=lambda each: (-each.message.store_timestamp, each.broker, -each.message.commit_log_offset))


def group_states(admin: ClusterAdmin, stored: Stored) -> list[GroupState]:
    """Return what each group that consumes the message's topic on its broker has done with it. CannotAnswerError."""
    address, topic, limit = stored.broker.address, stored.message.topic, admin.timeout_millis
    groups = admin.ask_broker(address, admin.api.query_topic_consume_by_who, topic, limit).groupList
    return [_state_of(admin, stored, group) for group in sorted(groups)]


def _state_of(admin: ClusterAdmin, stored: Stored, group: str) -> GroupState:
    address, message, limit = stored.broker.address, stored.message, admin.timeout_millis
    stats = admin.ask_broker(address, admin.api.get_consume_stats, group, limit, message.topic)
    place = stats.offsetTable.get(MessageQueue(message.topic, stored.broker.name, message.queue_id))
    consumed = None if place is None or place.consumerOffset < 0 else place.consumerOffset > message.queue_offset
    try:
        connection = admin.ask_broker(address, admin.api.get_consumer_connection_list, group, limit)
    except RefusedError as refusal:
        if refusal.code != response_code.CONSUMER_NOT_ONLINE:
            raise
        return GroupState(group, consumed, 0)
    subscription = connection.subscriptionTable.get(message.topic)
    tags = (subscription.tagsSet if subscription is not None else None) or set()
    return GroupState(group, consumed, len(connection.connectionSet),
                      bool(tags) and "*" not in tags and message.tags not in tags,
                      connection.consumeType is ConsumeType.CONSUME_ACTIVELY)
