"""All about one consumer group: its settings on each broker, its members, its progress by queue, and its faults.

    masters: settings, members, offsets, ends, delays --merge--> GroupDetail
    members: subscriptions, queues (asked through a broker) ----^
"""
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rmqha.common import java, mix_all
from rmqha.common.protocol import response_code
from rmqha.common.protocol.admin_headers import QueryConsumerOffsetRequestHeader
from rmqha.common.protocol.client_bodies import ConsumerConnection, ConsumerRunningInfo
from rmqha.common.subscriptions import SUB_ALL, SubscriptionData, is_tag_type
from rmqha.common.texts import real
from rmqha.common.topics import SubscriptionGroupConfig
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin, NoAnswerError, RefusedError
from rmqha.tools.manage.groups import (
    Member,
    Membership,
    dead_letters_on,
    differing,
    groups_of,
    long_ms,
    members_on,
    membership,
    needed_group,
    queue_bounds,
    span_age,
    state_of,
)
from rmqha.tools.manage.masters import Outcomes, on_each
from rmqha.tools.replication.ask import in_parallel
from rmqha.tools.terminal import CannotAnswerError, counted

_BROADCASTING = "BROADCASTING"
_NAMED = 5  # names in a warning
AT_OFFSET, FIRST = "committed", "first"

Queue = tuple[str, str, int]  # topic, broker, queue id


@dataclass(frozen=True)
class GroupQueue:
    """A group in one queue. `committed`: None without an offset of the group.

    `consumed_ms`: store time of the last consumed message, 0 if unknown. `oldest_ms`: the age of the oldest unread
    message, None if unknown; `oldest_at`: `committed` for the message at the group's offset, `first` for the queue's
    first one, because the group has no offset or that message is deleted. `owners`: client ids; more than one is a
    fault unless the group is broadcasting. Unless `is_counted`, members have its offsets themselves.
    """

    topic: str
    broker: str
    queue_id: int
    committed: int | None
    first: int
    end: int
    consumed_ms: int = 0
    oldest_ms: int | None = None
    oldest_at: str = ""
    owners: tuple[str, ...] = ()
    is_counted: bool = True

    @property
    def key(self) -> Queue:
        """Topic, broker and queue id."""
        return self.topic, self.broker, self.queue_id

    @property
    def unread(self) -> int | None:
        """The number of messages that the broker still has and the group has not consumed; None where not counted."""
        return None if not self.is_counted else max(0, self.end - max(self.committed or 0, self.first))


@dataclass(frozen=True)
class GroupMember:
    """A connected client. `subscriptions` are (topic, expression), `error` the reason if it did not describe itself."""

    client_id: str
    address: str
    language: str
    version: str
    subscriptions: tuple[tuple[str, str], ...] = ()
    queues: tuple[Queue, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class GroupDetail:
    """A group over all masters that answer. `settings` are by broker; `differs` names those that are not the same.

    `rate`: messages per second, as the brokers counted them in the last minute. `warnings`: faults, for people.
    """

    name: str
    state: str
    model: str
    kind: str
    consume_from: str
    settings: Mapping[Broker, SubscriptionGroupConfig]
    differs: tuple[str, ...]
    members: tuple[GroupMember, ...]
    subscription_differs: tuple[str, ...]
    queues: tuple[GroupQueue, ...]
    rate: float
    retry_topic: str
    dead_letter_topic: str
    dead_letters: int
    warnings: tuple[str, ...]
    asked: Outcomes[object]

    @property
    def unread(self) -> int | None:
        """The number of unread messages of the group's topics, without retries; None for a broadcasting group."""
        if self.model == _BROADCASTING:
            return None
        return sum(queue.unread or 0 for queue in self.queues if queue.topic != self.retry_topic)

    @property
    def retries(self) -> int:
        """The number of messages that members sent back, and that are due again but not consumed yet."""
        return sum(queue.unread or 0 for queue in self.queues if queue.topic == self.retry_topic)

    @property
    def is_late(self) -> bool:
        """True if a message is unread, or that is unknown."""
        return self.unread != 0 or self.retries > 0

    @property
    def oldest(self) -> GroupQueue | None:
        """The queue with the oldest unread message; None when nothing is unread, or no age is known."""
        late = [queue for queue in self.queues if queue.unread and queue.oldest_ms is not None]
        return max(late, key=lambda queue: queue.oldest_ms or 0, default=None)


@dataclass
class _OnBroker:
    config: SubscriptionGroupConfig | None
    known: tuple[str, ...]  # names of all groups
    connection: ConsumerConnection | None
    queues: list[GroupQueue] = field(default_factory=list)
    rate: float = 0.0
    dead_letters: int = 0


def describe_group(admin: ClusterAdmin, brokers: Sequence[Broker], group: str) -> GroupDetail:
    """Return everything about a group; CannotAnswerError when no broker answers or none has it."""
    asked = on_each(admin, brokers, lambda broker: _on_broker(admin, broker, group), long_ms(admin))
    answers = asked.needed()
    needed_group(group, [one.known for one in answers.values()])
    joined = membership({broker: one.connection for broker, one in answers.items()})
    infos = _running_infos(admin, group, joined)
    members = tuple(_member(each, infos[name]) for name, each in joined.members.items())
    owners: dict[Queue, list[str]] = {}
    for member in members:
        for queue in member.queues:
            owners.setdefault(queue, []).append(member.client_id)
    queues = tuple(sorted((_with_members(queue, owners, joined.model) for one in answers.values()
                           for queue in one.queues), key=lambda queue: queue.key))
    settings = {broker: one.config for broker, one in sorted(answers.items()) if one.config is not None}
    retry = mix_all.get_retry_topic(group)
    different = subscriptions_that_differ({name: info for name, info in infos.items()
                                           if isinstance(info, ConsumerRunningInfo)}, retry)
    lacking = [broker for broker in answers if broker not in settings]
    return GroupDetail(
        group, state_of(settings.values(), bool(members)), joined.model, joined.kind, joined.consume_from, settings,
        differing(settings), members, different, queues, sum(one.rate for one in answers.values()), retry,
        mix_all.get_dlq_topic(group), sum(one.dead_letters for one in answers.values()),
        tuple(_warnings(settings, lacking, joined, members, different, queues, infos)),
        Outcomes({**answers}, asked.errors))


# ---- one broker


def _on_broker(admin: ClusterAdmin, broker: Broker, group: str) -> _OnBroker:
    configs = groups_of(admin, broker)
    result = _OnBroker(configs.get(group), tuple(configs), members_on(admin, broker, group))
    if result.config is None and result.connection is None:
        return result
    stats = admin.ask_broker(broker.address, admin.api.get_consume_stats, group, long_ms(admin))
    result.rate = real(stats.consumeTps) or 0.0
    subscribed = set(result.connection.subscriptionTable) if result.connection is not None else set()
    places = {(queue.topic, queue.queueId): place for queue, place in stats.offsetTable.items()}
    for topic in sorted(subscribed | {topic for topic, _queue_id in places}):
        bounds = queue_bounds(admin, broker, topic)
        if bounds is None:
            continue
        ages = _ages(admin, broker, group, topic)
        for queue_id, (first, end, _last_ms) in sorted(bounds.items()):
            place = places.get((topic, queue_id))
            committed = place.consumerOffset if place is not None and place.consumerOffset > 0 else committed_on(
                admin, broker, group, topic, queue_id)
            age, is_there = ages.get(queue_id, (None, False)) if committed is None or committed < end else (0, True)
            result.queues.append(GroupQueue(
                topic, broker.name, queue_id, committed, first, end, place.lastTimestamp if place is not None else 0,
                age, "" if not age else AT_OFFSET if is_there else FIRST))
    result.dead_letters = dead_letters_on(admin, broker, group)
    return result


def committed_on(admin: ClusterAdmin, broker: Broker, group: str, topic: str, queue_id: int) -> int | None:
    """Return the offset at which a member would begin a queue; None when the broker has none.

    Then the member decides (consumeFromWhere). For a young queue whose first message is still in memory, a broker
    answers 0 instead.
    """
    header = QueryConsumerOffsetRequestHeader(consumerGroup=group, topic=topic, queueId=queue_id, bname=broker.name)
    try:
        return admin.ask_broker(broker.address, admin.api.query_consumer_offset, header, admin.timeout_millis)
    except RefusedError as error:
        if error.code == response_code.QUERY_NOT_FOUND:
            return None
        raise


def _ages(admin: ClusterAdmin, broker: Broker, group: str, topic: str) -> dict[int, tuple[int | None, bool]]:
    """Return the age of the oldest unread message by queue id, and whether it is at the group's offset."""
    now_ms = round(time.time() * 1000)
    try:
        spans = admin.ask_broker(broker.address, admin.api.query_consume_time_span, topic, group, admin.timeout_millis)
    except RefusedError as error:
        if error.code == response_code.TOPIC_NOT_EXIST:
            return {}
        raise
    return {span.messageQueue.queueId: span_age(span, now_ms) for span in spans if span.messageQueue is not None}


# ---- the members


def _running_infos(admin: ClusterAdmin, group: str, joined: Membership) -> dict[str, ConsumerRunningInfo | str]:
    """Return what each member reports of itself, or why it does not, by client id."""
    def of_member(client_id: str) -> ConsumerRunningInfo | str:
        broker = joined.via[client_id]
        try:
            return admin.ask_broker(broker.address, admin.api.get_consumer_running_info, group, client_id, False,
                                    admin.timeout_millis)
        except CannotAnswerError as error:
            return error.message
    if not joined.members:
        return {}
    return in_parallel(of_member, list(joined.members), 2 * admin.timeout_millis, lambda client_id: NoAnswerError(
        f"it did not answer within {2 * admin.timeout_millis / 1000:g} s").message)


def _member(member: Member, info: ConsumerRunningInfo | str) -> GroupMember:
    # A negative number is not a version.
    version = java.get_version_desc(max(0, member.version))
    if isinstance(info, str):
        return GroupMember(member.client_id, member.address, member.language, version, error=info)
    subscriptions = tuple(sorted((data.topic, expression(data)) for data in info.subscriptionSet if data.topic))
    queues = tuple(sorted((queue.topic, queue.brokerName, queue.queueId) for queue in info.mqTable))
    return GroupMember(member.client_id, member.address, member.language, version, subscriptions, queues)


def expression(subscription: SubscriptionData) -> str:
    """Return a subscription's expression in one form: tags sorted, other types with their name."""
    if not is_tag_type(subscription.expressionType):
        return f"{subscription.expressionType}: {subscription.subString}"
    tags = sorted({tag.strip() for tag in (subscription.subString or SUB_ALL).split("||") if tag.strip()})
    return " || ".join(tags) or SUB_ALL


def subscriptions_that_differ(infos: Mapping[str, ConsumerRunningInfo], retry_topic: str) -> tuple[str, ...]:
    """Return the topics to which a group's members (by client id) subscribe in different ways, or not all of them."""
    subscribed = [{data.topic: expression(data) for data in info.subscriptionSet if data.topic}
                  for info in infos.values()]
    topics = {topic for each in subscribed for topic in each if topic != retry_topic}
    return tuple(sorted(topic for topic in topics if len({each.get(topic) for each in subscribed}) > 1))


def _with_members(queue: GroupQueue, owners: Mapping[Queue, Sequence[str]], model: str) -> GroupQueue:
    queue = replace(queue, owners=tuple(owners.get(queue.key, ())))
    return queue if model != _BROADCASTING else replace(queue, is_counted=False, oldest_ms=None, oldest_at="")


def queue_text(queue: Queue) -> str:
    """Return a queue as `topic broker:id`."""
    topic, broker, queue_id = queue
    return f"{topic} {broker}:{queue_id}"


# ---- the faults


def _warnings(settings: Mapping[Broker, SubscriptionGroupConfig], lacking: Sequence[Broker], joined: Membership,
              members: Sequence[GroupMember], different: Sequence[str], queues: Sequence[GroupQueue],
              infos: Mapping[str, ConsumerRunningInfo | str]) -> Iterable[str]:
    for name in differing(settings):
        values = ", ".join(f"{broker.name} has {getattr(config, name)}" for broker, config in settings.items())
        yield f"the setting {name} differs: {values}. `rmqha group alter` sets it on all brokers"
    if lacking:
        yield (f"the group is not on {_some([broker.name for broker in lacking])}; `rmqha group create` adds it there")
    for topic in different:
        yield (f"members have different subscriptions to {topic!r}: messages may be skipped. "
               f"{_by_expression(topic, members)}")
    silent = [client_id for client_id, info in infos.items() if isinstance(info, str)]
    if silent:
        yield f"{counted(len(silent), 'member')} did not answer: {_some(silent)}; their queues are not known"
    # Clients in some languages do not report their queues.
    if joined.kind != "push" or joined.model == _BROADCASTING or silent or not any(each.queues for each in members):
        return
    free = [queue for queue in queues if not queue.owners and queue.topic in joined.subscriptions]
    if free:
        yield (f"{counted(len(free), 'queue')} without a member: {_some([queue_text(each.key) for each in free])}. "
               "A rebalance ends within 20 s; beyond that, members have different subscriptions or see different "
               "members")
    shared = [queue for queue in queues if len(queue.owners) > 1]
    if shared:
        yield (f"{counted(len(shared), 'queue')} with several members: "
               f"{_some([queue_text(each.key) for each in shared])}. Messages are consumed twice if that lasts")


def _by_expression(topic: str, members: Sequence[GroupMember]) -> str:
    found: dict[str, list[str]] = {}
    for member in members:
        if not member.error:
            found.setdefault(dict(member.subscriptions).get(topic, "no subscription"), []).append(member.client_id)
    return "; ".join(f"{text}: {_some(names)}" for text, names in sorted(found.items()))


def _some(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
