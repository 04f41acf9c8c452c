"""Topics and groups that a request names, and what it needs of each.

What a request names by a commit log offset is checked by its processor, on the record that is there: RecordAccess.
"""
from collections.abc import Callable, Iterable, Iterator

from rmqha.acl.common import permission
from rmqha.acl.plain.plain_access_resource import get_retry_topic
from rmqha.common import mix_all, stats, util_all
from rmqha.common.java import string_of
from rmqha.common.message import message_const, message_layout
from rmqha.common.message.message_decoder import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqha.common.protocol import request_code
from rmqha.common.protocol.client_bodies import CheckClientRequestBody, LockBatchRequestBody
from rmqha.common.subscriptions import HeartbeatData
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand

Need = tuple[str, int]
"""A topic, or a group as its retry topic, and a permission."""
_Rule = Callable[[RemotingCommand, dict[str, str]], Iterable[Need]]

_FURTHER_QUEUES = message_const.PROPERTY_INNER_MULTI_DISPATCH
_FURTHER_QUEUES_UTF8 = _FURTHER_QUEUES.encode()
_TOPIC_STATS = (stats.TOPIC_PUT_NUMS, stats.TOPIC_PUT_SIZE, stats.QUEUE_PUT_NUMS, stats.QUEUE_PUT_SIZE)
_BROKER_STATS = (stats.BROKER_PUT_NUMS, stats.BROKER_GET_NUMS, stats.BROKER_GET_FROM_DISK_NUMS,
                 stats.BROKER_GET_FROM_DISK_SIZE)


def needs_of(request: RemotingCommand) -> list[Need]:
    """What the request needs. FastjsonError, MessageDecodeError or ValueError for a malformed body."""
    rule = _RULES.get(request.code)
    return [] if rule is None else list(rule(request, request.ext_fields or {}))


def group_need(group: str | None) -> Need:
    """To consume as a group. One that is missing counts as "null", the name that brokers make of it."""
    return get_retry_topic(string_of(group)), permission.SUB


def topic_need(topic: str | None, perm: int = permission.SUB) -> Need:
    """A permission for a topic; for a retry topic the group's, which knows no other than to consume."""
    topic = string_of(topic)
    if topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX):
        return topic, permission.SUB
    return topic, perm


def further_queues(properties: str | None) -> Iterator[str]:
    """The queues (of light queues, say) to which a message goes beside its topic's, by the text of its properties."""
    if not properties or _FURTHER_QUEUES not in properties:
        return
    for entry in properties.split(PROPERTY_SEPARATOR):
        name, _, value = entry.partition(NAME_VALUE_SEPARATOR)
        if name == _FURTHER_QUEUES:
            for queue in {*value.split(","), *value.strip().split(",")}:
                if queue:
                    yield queue


def _send(topic: str, properties: str, batch: str | None) -> _Rule:
    """A send whose fields have these names."""
    # Differs: a batch needs what its single messages would, a reply what a send does, and each further queue
    # (INNER_MULTI_DISPATCH) PUB; the original lets each account send batches and replies to any topic, and to any queue
    # Differs: a send to a retry topic needs SUB on the group that the topic belongs to; the original asks for the group
    # that another field names, and so lets each account that has SUB on any group write into all of them
    def rule(request: RemotingCommand, fields: dict[str, str]) -> Iterator[Need]:
        yield topic_need(fields.get(topic), permission.PUB)
        for queue in further_queues(fields.get(properties)):
            yield topic_need(queue, permission.PUB)
        body = request.body or b""
        if batch is not None and fields.get(batch, "").lower() == "true" and _FURTHER_QUEUES_UTF8 in body:
            for message in message_layout.iterate_batch(body):
                for queue in further_queues(str(message.properties, "utf-8", "replace")):
                    yield topic_need(queue, permission.PUB)

    return rule


def _named(*, topic: str | None = None, perm: int = permission.SUB, groups: Iterable[str] = (),
           optional: Iterable[str] = (), is_group_first: bool = False) -> _Rule:
    """A request that names a topic and groups in these fields; those of `optional` count if they are there.

    The order is the original's, which decides what is named as denied first.
    """
    optional, groups = frozenset(optional), tuple(groups)

    def rule(_request: RemotingCommand, fields: dict[str, str]) -> list[Need]:
        needs = []
        if topic is not None and not (topic in optional and util_all.is_blank(fields.get(topic))):
            needs.append(topic_need(fields.get(topic), perm))
        needs += [group_need(fields.get(group)) for group in groups if group in fields or group not in optional]
        return needs[::-1] if is_group_first else needs

    return rule


def _heartbeat(request: RemotingCommand, _fields: dict[str, str]) -> Iterator[Need]:
    heartbeat = remoting_serializable.from_json(HeartbeatData, request.body or b"")
    for data in heartbeat.consumerDataSet or ():
        yield group_need(data.groupName)
        for subscription in data.subscriptionDataSet or ():
            yield topic_need(subscription.topic)


def _locks(request: RemotingCommand, _fields: dict[str, str]) -> Iterator[Need]:
    body = remoting_serializable.from_json(LockBatchRequestBody, request.body or b"")
    yield group_need(body.consumerGroup)
    for queue in body.mqSet or ():
        yield topic_need(queue.topic)


def _client_config(request: RemotingCommand, _fields: dict[str, str]) -> Iterator[Need]:
    body = remoting_serializable.from_json(CheckClientRequestBody, request.body or b"")
    yield group_need(body.group)
    if body.subscriptionData is not None:
        yield topic_need(body.subscriptionData.topic)


def _stats_item(_request: RemotingCommand, fields: dict[str, str]) -> Iterator[Need]:
    """Counters of a topic (`topic`, `topic@queue`), of a group in it (`topic@group`, `topic@queue@group`)."""
    name, parts = string_of(fields.get("statsName")), string_of(fields.get("statsKey")).split("@")
    if name in _BROKER_STATS:
        return
    yield topic_need(parts[0], permission.ANY)
    if name not in _TOPIC_STATS:
        yield group_need(parts[-1])


_OFFSETS_OF_A_TOPIC = _named(topic="topic", perm=permission.ANY)
_GROUP_IN_TOPIC = _named(topic="topic", groups=("group",))
_CONSUMER_GROUP = _named(groups=("consumerGroup",))

# Differs: of these the original checks sends, pulls, queries by key, heartbeats, members and goodbyes of a group, and
# offsets that are committed; with all the others each account may use what belongs to any topic and group
_RULES: dict[int, _Rule] = {
    request_code.SEND_MESSAGE: _send("topic", "properties", "batch"),
    request_code.SEND_MESSAGE_V2: _send("b", "i", "m"),
    request_code.SEND_BATCH_MESSAGE: _send("b", "i", "m"),
    request_code.SEND_REPLY_MESSAGE: _send("topic", "properties", None),
    request_code.SEND_REPLY_MESSAGE_V2: _send("b", "i", None),
    request_code.CONSUMER_SEND_MSG_BACK: _named(groups=("group",)),
    request_code.PULL_MESSAGE: _named(topic="topic", groups=("consumerGroup",)),
    request_code.QUERY_MESSAGE: _named(topic="topic"),
    request_code.HEART_BEAT: _heartbeat,
    request_code.UNREGISTER_CLIENT: _named(groups=("consumerGroup",), optional=("consumerGroup",)),
    request_code.CHECK_CLIENT_CONFIG: _client_config,
    request_code.GET_CONSUMER_LIST_BY_GROUP: _CONSUMER_GROUP,
    request_code.UPDATE_CONSUMER_OFFSET: _named(topic="topic", groups=("consumerGroup",), is_group_first=True),
    request_code.QUERY_CONSUMER_OFFSET: _named(topic="topic", groups=("consumerGroup",)),
    request_code.LOCK_BATCH_MQ: _locks,
    request_code.UNLOCK_BATCH_MQ: _locks,
    request_code.SEARCH_OFFSET_BY_TIMESTAMP: _OFFSETS_OF_A_TOPIC,
    request_code.GET_MAX_OFFSET: _OFFSETS_OF_A_TOPIC,
    request_code.GET_MIN_OFFSET: _OFFSETS_OF_A_TOPIC,
    request_code.GET_EARLIEST_MSG_STORETIME: _OFFSETS_OF_A_TOPIC,
    request_code.GET_TOPIC_STATS_INFO: _OFFSETS_OF_A_TOPIC,
    request_code.QUERY_TOPIC_CONSUME_BY_WHO: _OFFSETS_OF_A_TOPIC,
    request_code.GET_CONSUMER_CONNECTION_LIST: _CONSUMER_GROUP,
    request_code.GET_CONSUMER_RUNNING_INFO: _CONSUMER_GROUP,
    request_code.CONSUME_MESSAGE_DIRECTLY: _CONSUMER_GROUP,
    request_code.GET_CONSUME_STATS: _named(topic="topic", groups=("consumerGroup",), optional=("topic",)),
    request_code.QUERY_CONSUME_QUEUE: _named(topic="topic", groups=("consumerGroup",), optional=("consumerGroup",)),
    request_code.CLONE_GROUP_OFFSET: _named(topic="topic", groups=("srcGroup", "destGroup"), optional=("topic",)),
    request_code.INVOKE_BROKER_TO_RESET_OFFSET: _GROUP_IN_TOPIC,
    request_code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _GROUP_IN_TOPIC,
    request_code.QUERY_CONSUME_TIME_SPAN: _GROUP_IN_TOPIC,
    request_code.VIEW_BROKER_STATS_DATA: _stats_item,
}
