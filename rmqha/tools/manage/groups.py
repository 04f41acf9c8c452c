"""Operations on consumer groups: list them, and create, change, pause, resume and delete them on all masters.

    list_groups --each master: settings, progress, members--> GroupListing
    create_group, change_group --each master: write, read back--> Outcomes[Change]
    delete_group --each master: group, offsets, topics--> Outcomes[Deleted]

A group's details are in `group_detail`, its offsets in `group_seek`.
"""
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, TypeVar

from rmqha.client.exception import MQClientException, check_consumer_group
from rmqha.common import mix_all
from rmqha.common.configuration import nearest_key
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import (
    GetConsumerConnectionListRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
)
from rmqha.common.protocol.client_bodies import ConsumerConnection, QueryConsumeTimeSpanBody, QueueTimeSpan
from rmqha.common.protocol.table_bodies import TopicStatsTable
from rmqha.common.subscriptions import ConsumeType, MessageModel
from rmqha.common.topics import SubscriptionGroupConfig
from rmqha.remoting.exception import RemotingTimeoutException
from rmqha.remoting.interfaces import ResponseFuture
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin, RefusedError
from rmqha.tools.manage.masters import Outcomes, on_each
from rmqha.tools.terminal import CannotAnswerError, counted
from rmqha.tools.view.progress import GroupState, Progress, QueuePlace, ask_progress, is_system_group, merged

# The answer about all groups may take a busy broker seconds.
LONG = 10
# Requests that wait for their answers at a time, per broker.
_IN_FLIGHT = 128
# Of these topics of groups with unread messages, the oldest unread message is asked for, per broker.
_MAX_SPANS = 500
# Of these topics without any offset of a group that subscribes to them, the messages are counted, per broker.
_MAX_UNSTORED = 500
# Beyond this a delay is the broker's time of day: it found no message at the group's offset.
_NO_DELAY_MS = 10**12

RUNNING, STOPPED, PAUSED, PARTLY_PAUSED = "running", "stopped", "paused", "partly paused"
SETTINGS = tuple(each.name for each in fields(SubscriptionGroupConfig) if each.name != "groupName")

Configs = dict[str, SubscriptionGroupConfig]
T = TypeVar("T")


def long_ms(admin: ClusterAdmin) -> float:
    """Return the time-out in ms of answers about all groups, and of many requests together."""
    return admin.timeout_millis * LONG


# ---- settings


def groups_of(admin: ClusterAdmin, broker: Broker) -> Configs:
    """Return the settings of all groups of a broker."""
    table = admin.ask_broker(broker.address, admin.api.get_all_subscription_group, long_ms(admin))
    return dict(table.subscriptionGroupTable or {})


def needed_group(group: str, tables: Iterable[Iterable[str]]) -> None:
    """Check that a broker has the group; CannotAnswerError with a similar name when none of them has it."""
    known = {name for table in tables for name in table}
    if group in known:
        return
    near = nearest_key(group, (name for name in known if not is_system_group(name)))
    raise CannotAnswerError(f"no group {group!r} in this cluster" + (f"; did you mean {near}?" if near else
                                                                    "; `rmqha group list` shows the groups"))


def differing(configs: Mapping[Any, SubscriptionGroupConfig]) -> tuple[str, ...]:
    """Return the names of the settings that are not the same on all brokers."""
    return tuple(name for name in SETTINGS if len({getattr(each, name) for each in configs.values()}) > 1)


@dataclass(frozen=True)
class Change:
    """A group's settings on one broker, before (None: the group did not exist) and now."""

    before: SubscriptionGroupConfig | None
    after: SubscriptionGroupConfig

    @property
    def changed(self) -> tuple[str, ...]:
        """The names of the settings that have new values; all of a new group."""
        if self.before is None:
            return SETTINGS
        return differing({"before": self.before, "after": self.after})


def create_group(admin: ClusterAdmin, brokers: Sequence[Broker], group: str,
                 settings: Mapping[str, Any]) -> Outcomes[Change]:
    """Create a group on the brokers that lack it; CannotAnswerError when all have it already.

    `settings`: fields of SubscriptionGroupConfig, the others get their defaults.
    """
    try:
        check_consumer_group(group)
    except MQClientException as error:
        raise CannotAnswerError(str(error.error_message)) from None
    if is_system_group(group):
        raise CannotAnswerError(f"the name {group!r} belongs to RocketMQ itself")
    tables = on_each(admin, brokers, partial(groups_of, admin), long_ms(admin))
    lacking = [broker for broker, table in tables.needed().items() if group not in table]
    if not lacking:
        raise CannotAnswerError(f"group {group!r} exists already; `rmqha group alter` changes its settings")
    config = replace(SubscriptionGroupConfig(groupName=group), **settings)
    return _merged(tables, on_each(admin, lacking, lambda broker: _write(admin, broker, None, config), long_ms(admin)))


def change_group(admin: ClusterAdmin, brokers: Sequence[Broker], group: str, settings: Mapping[str, Any],
                 add_missing: bool = False) -> Outcomes[Change]:
    """Change some settings of a group on all brokers, and read them back; the other settings stay.

    A broker that lacks the group is an error, or with `add_missing` gets it with another broker's settings.
    """
    tables = on_each(admin, brokers, partial(groups_of, admin), long_ms(admin))
    needed_group(group, tables.needed().values())
    model = next(table[group] for _broker, table in sorted(tables.values.items()) if group in table)

    def change(broker: Broker) -> Change:
        before = tables.values[broker].get(group)
        if before is None and not add_missing:
            raise CannotAnswerError(f"it has no group {group!r}; `rmqha group create {group}` adds it there")
        return _write(admin, broker, before, replace(before or model, **settings))
    return _merged(tables, on_each(admin, tables.values, change, long_ms(admin)))


def set_consuming(admin: ClusterAdmin, brokers: Sequence[Broker], group: str, enabled: bool) -> Outcomes[Change]:
    """Pause (False) or resume (True) a group on all brokers. A broker that lacks the group gets it when it is paused.

    Otherwise that broker would create it, enabled, at the first request of a member.
    """
    return change_group(admin, brokers, group, {"consumeEnable": enabled}, add_missing=not enabled)


def _write(admin: ClusterAdmin, broker: Broker, before: SubscriptionGroupConfig | None,
           config: SubscriptionGroupConfig) -> Change:
    if config != before:
        admin.ask_broker(broker.address, admin.create_and_update_subscription_group_config, config)
    now = groups_of(admin, broker).get(config.groupName)
    if now is None or differing({"wanted": config, "now": now}):
        raise CannotAnswerError("it accepted the settings, but does not return them. Did another command change them "
                                "at the same time?")
    return Change(before, now)


def _merged(first: Outcomes[Any], second: Outcomes[T]) -> Outcomes[T]:
    """Return the values of the second outcomes with the errors of both."""
    return Outcomes(second.values, {**first.errors, **second.errors})


# ---- members


@dataclass(frozen=True)
class Member:
    """A connected client of a group."""

    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True)
class Membership:
    """The members of a group, by client id, and what they have in common; empty without members.

    `subscriptions`: expressions by topic, as the brokers know them. `via`: a broker that each member is connected to.
    """

    members: Mapping[str, Member] = field(default_factory=dict)
    via: Mapping[str, Broker] = field(default_factory=dict)
    subscriptions: Mapping[str, str] = field(default_factory=dict)
    is_push: bool = True
    model: str = ""
    consume_from: str = ""

    @property
    def kind(self) -> str:
        """`push` or `pull`; "" without members."""
        return "" if not self.members else "push" if self.is_push else "pull"


def members_on(admin: ClusterAdmin, broker: Broker, group: str) -> ConsumerConnection | None:
    """Return the members of a group that are connected to a broker; None without any."""
    try:
        found = admin.ask_broker(broker.address, admin.api.get_consumer_connection_list, group, admin.timeout_millis)
    except RefusedError as error:
        if error.code == response_code.CONSUMER_NOT_ONLINE:
            return None
        raise
    return found if found.connectionSet else None


def membership(connections: Mapping[Broker, ConsumerConnection | None]) -> Membership:
    """Merge the answers of several brokers about the members of one group."""
    online = {broker: each for broker, each in sorted(connections.items()) if each is not None and each.connectionSet}
    if not online:
        return Membership()
    members: dict[str, Member] = {}
    via: dict[str, Broker] = {}
    subscriptions: dict[str, str] = {}
    for broker, found in online.items():
        for client in found.connectionSet:
            members.setdefault(client.clientId, Member(client.clientId, client.clientAddr or "",
                                                       client.language or "", client.version))
            via.setdefault(client.clientId, broker)
        for topic, data in found.subscriptionTable.items():
            subscriptions.setdefault(topic, data.subString or "*")
    first = next(iter(online.values()))
    return Membership(
        dict(sorted(members.items())), via, dict(sorted(subscriptions.items())),
        first.consumeType is not ConsumeType.CONSUME_ACTIVELY, first.messageModel.name if first.messageModel else "",
        first.consumeFromWhere.name if first.consumeFromWhere else "")


def state_of(configs: Iterable[SubscriptionGroupConfig], has_members: bool) -> str:
    """Return a group's state: paused (everywhere or on some brokers), running or stopped."""
    enabled = {config.consumeEnable for config in configs}
    if enabled == {False}:
        return PAUSED
    if False in enabled:
        return PARTLY_PAUSED
    return RUNNING if has_members else STOPPED


# ---- the list


@dataclass(frozen=True)
class GroupRow:
    """A group over all masters. Messages that its members sent back are in `retries`, not in `unread`.

    `unread`: None where it is not counted: the offsets of broadcasting members are at the members, and only some
    hundred topics are asked for that have no offset yet. `rate`: messages per second, as the brokers counted them in
    the last minute. `oldest_ms`: the age of the oldest unread message; 0 if nothing is unread, None if unknown; if not
    `oldest_is_exact`, it is at most that old.
    """

    name: str
    state: str
    members: int
    model: str
    kind: str
    topics: tuple[str, ...]
    unread: int | None
    retries: int
    rate: float
    oldest_ms: int | None
    oldest_is_exact: bool


@dataclass(frozen=True)
class GroupListing:
    """The groups by name; `asked` has the brokers' errors."""

    rows: tuple[GroupRow, ...]
    asked: Outcomes[Any]


@dataclass
class _OnBroker:
    """One broker's answers about the wanted groups. `spans`: by group and topic. `uncounted`: see GroupRow.unread."""

    configs: Configs
    progress: dict[str, Progress]
    connections: dict[str, ConsumerConnection]
    spans: dict[tuple[str, str], list[QueueTimeSpan]]
    uncounted: set[str] = field(default_factory=set)


def list_groups(admin: ClusterAdmin, brokers: Sequence[Broker], pattern: str = "*",
                with_system: bool = False) -> GroupListing:
    """Return the groups whose names match a pattern (`*`, `?`, `[a-z]`), without RocketMQ's own groups by default.

    Each master gets one request about all settings, one about all progress, and small ones about each wanted group,
    many at a time. Topics that running groups subscribe to, and have no offset of yet, cost one request each.
    """
    def wanted(name: str) -> bool:
        return fnmatchcase(name, pattern) and (with_system or not is_system_group(name))
    asked = on_each(admin, brokers, lambda broker: _groups_on(admin, broker, wanted), 3 * long_ms(admin))
    return GroupListing(_rows(asked.needed()), asked)


def _groups_on(admin: ClusterAdmin, broker: Broker, wanted: Callable[[str], bool]) -> _OnBroker:
    deadline = time.monotonic() + 2 * long_ms(admin) / 1000
    configs = {name: config for name, config in groups_of(admin, broker).items() if wanted(name)}
    if not configs:
        return _OnBroker({}, {}, {}, {})
    answers = admin.asked(f"broker {broker.address}", ask_progress, admin, broker.address, long_ms(admin))
    progress = {name: each for name, each in answers.items() if name in configs}
    names = sorted(configs)
    connections = {name: found for name, found in zip(names, _asked_all(
        admin, broker, ConsumerConnection, request_code.GET_CONSUMER_CONNECTION_LIST,
        [GetConsumerConnectionListRequestHeader(consumerGroup=name) for name in names], deadline))
        if found is not None and found.connectionSet}
    uncounted = _add_unstored(admin, broker, progress, connections, deadline)
    late = _late_topics(merged([progress]))[:_MAX_SPANS]
    spans = dict(zip(late, (list(body.consumeTimeSpanSet or ()) if body is not None else [] for body in _asked_all(
        admin, broker, QueryConsumeTimeSpanBody, request_code.QUERY_CONSUME_TIME_SPAN,
        [QueryConsumeTimeSpanRequestHeader(topic=topic, group=name) for name, topic in late], deadline))))
    return _OnBroker(configs, progress, connections, spans, uncounted)


def _add_unstored(admin: ClusterAdmin, broker: Broker, progress: dict[str, Progress],
                  connections: Mapping[str, ConsumerConnection], deadline: float) -> set[str]:
    """Add the queues of topics that running groups subscribe to, and have no offset of: all messages are unread.

    A broker reports a group's progress in all queues of the topics for which it has an offset of any queue. A member
    stores its first offset when it has consumed a message. Return the groups that are not counted.
    """
    uncounted = {name for name, found in connections.items() if found.messageModel is MessageModel.BROADCASTING}
    unstored: dict[str, list[str]] = {}
    for name in sorted(connections.keys() - uncounted):
        known = {place.topic for place in progress[name].places} if name in progress else set()
        for topic in sorted(connections[name].subscriptionTable.keys() - known):
            unstored.setdefault(topic, []).append(name)
    topics = list(unstored)[:_MAX_UNSTORED]
    tables = _asked_all(admin, broker, TopicStatsTable, request_code.GET_TOPIC_STATS_INFO,
                        [GetTopicStatsInfoRequestHeader(topic=topic) for topic in topics], deadline)
    for topic, table in zip(topics, tables):
        bounds = {} if table is None else _bounds_of(table, broker, topic)
        for name in unstored[topic]:
            progress.setdefault(name, Progress()).places += [
                QueuePlace(topic, broker.name, queue_id, end, first, 0) for queue_id, (first, end, _) in bounds.items()]
    return uncounted.union(*(unstored[topic] for topic in list(unstored)[_MAX_UNSTORED:]))


def _late_topics(groups: Iterable[GroupState]) -> list[tuple[str, str]]:
    """Return (group, topic) with unread messages, first those whose progress is the oldest."""
    since: dict[tuple[str, str], int] = {}
    for group in groups:
        for place in group.places:
            if place.behind:
                key = group.name, place.topic
                since[key] = min(since.get(key, place.consumed_ms), place.consumed_ms)
    return sorted(since, key=lambda key: (since[key], key))


def _asked_all(admin: ClusterAdmin, broker: Broker, kind: type[T], code: int, headers: Sequence[Any],
               deadline: float) -> list[T | None]:
    """Send many requests of one kind to a broker; return the answers in order, None for a refused request."""
    requests = [RemotingCommand.create_request_command(code, header) for header in headers]
    answers = admin.asked(f"broker {broker.address}", _pipelined, admin, broker.address, requests, deadline)

    def parsed() -> list[T | None]:
        return [remoting_serializable.from_json(kind, bytes(each.body))
                if each.code == response_code.SUCCESS and each.body else None for each in answers]
    return admin.asked(f"broker {broker.address}", parsed)


def _pipelined(admin: ClusterAdmin, address: str, requests: Sequence[RemotingCommand],
               deadline: float) -> list[RemotingCommand]:
    """Send requests without waiting for each answer; RemotingTimeoutException when one is missing at the end."""
    answers: dict[int, RemotingCommand] = {}
    window = threading.Semaphore(_IN_FLIGHT)
    is_failed = threading.Event()

    def answered(number: int, future: ResponseFuture) -> None:
        if future.response_command is None:
            is_failed.set()
        else:
            answers[number] = future.response_command
        window.release()
    for number, request in enumerate(requests):
        window.acquire()  # at the latest, a call ends with its time-out
        if is_failed.is_set() or time.monotonic() > deadline:
            window.release()
            break
        admin.api.remoting_client.invoke_async(address, request, admin.timeout_millis, partial(answered, number))
    for _ in range(_IN_FLIGHT):
        window.acquire()
    if len(answers) < len(requests):
        raise RemotingTimeoutException(f"{len(answers)} of {counted(len(requests), 'request')} were answered")
    return [answers[number] for number in range(len(requests))]


def _rows(answers: Mapping[Broker, _OnBroker]) -> tuple[GroupRow, ...]:
    now_ms = round(time.time() * 1000)
    states = {each.name: each for each in merged(one.progress for one in answers.values())}
    names = sorted({name for one in answers.values() for name in one.configs})
    spans: dict[str, list[QueueTimeSpan]] = {}
    for one in answers.values():
        for (name, _topic), found in one.spans.items():
            spans.setdefault(name, []).extend(found)
    return tuple(_row(name, states.get(name, GroupState(name)), answers, spans.get(name, []), now_ms) for name in names)


def _row(name: str, state: GroupState, answers: Mapping[Broker, _OnBroker], spans: Iterable[QueueTimeSpan],
         now_ms: int) -> GroupRow:
    members = membership({broker: one.connections.get(name) for broker, one in answers.items()})
    configs = [one.configs[name] for one in answers.values() if name in one.configs]
    retry = mix_all.get_retry_topic(name)
    is_counted = not any(name in one.uncounted for one in answers.values())
    oldest_ms, is_exact = oldest_unread(state, spans, now_ms) if is_counted else (None, False)
    return GroupRow(
        name, state_of(configs, bool(members.members)), len(members.members), members.model, members.kind,
        tuple(topic for topic in sorted({*state.topics, *members.subscriptions}) if topic != retry),
        sum(place.behind for place in state.places if place.topic != retry) if is_counted else None,
        sum(place.behind for place in state.places if place.topic == retry), state.tps, oldest_ms, is_exact)


def oldest_unread(state: GroupState, spans: Iterable[QueueTimeSpan], now_ms: int) -> tuple[int | None, bool]:
    """Return the age in ms of the oldest unread message, and whether that is exact.

    Otherwise it is the age of the last consumed message of the latest queue, so the unread ones are younger. (None,
    False) when even that is unknown.
    """
    ages = {(span.messageQueue.topic, span.messageQueue.brokerName, span.messageQueue.queueId): age
            for span in spans if span.messageQueue is not None and (age := span_age(span, now_ms)[0]) is not None}
    late = [place for place in state.places if place.behind]
    known = [ages.get((place.topic, place.broker, place.queue_id)) for place in late]
    if None not in known:
        return max((age for age in known if age is not None), default=0), True
    return (_at_most(late, ages, now_ms), False)


def _at_most(late: Iterable[QueuePlace], ages: Mapping[tuple[str, str, int], int], now_ms: int) -> int | None:
    found = []
    for place in late:
        age = ages.get((place.topic, place.broker, place.queue_id))
        if age is None:
            if place.consumed_ms <= 0:
                return None
            age = max(0, now_ms - place.consumed_ms)
        found.append(age)
    return max(found, default=0)


def span_age(span: QueueTimeSpan, now_ms: int) -> tuple[int | None, bool]:
    """Return the age in ms of a queue's oldest unread message, and whether it is at the group's offset.

    It is not when the broker no longer has that message, or the group has no offset: then the queue's first message is
    the oldest. (None, False) when the queue has no message.
    """
    if 0 <= span.delayTime < _NO_DELAY_MS:
        return span.delayTime, True
    return (max(0, now_ms - span.minTimeStamp), False) if span.minTimeStamp > 0 else (None, False)


# ---- deletion


@dataclass(frozen=True)
class Deleted:
    """The result on one broker: whether it had the group, whether the offsets were deleted, and the deleted topics."""

    group: bool
    offsets: bool
    topics: tuple[str, ...]


def members_of(admin: ClusterAdmin, brokers: Sequence[Broker], group: str) -> Membership:
    """Return the members of a group over all brokers that answer. CannotAnswerError when none does."""
    return membership(on_each(admin, brokers, lambda broker: members_on(admin, broker, group)).needed())


@dataclass(frozen=True)
class DeletionPlan:
    """The consequences of deleting a group: the brokers that have it, its members and its dead letters."""

    group: str
    brokers: tuple[Broker, ...]
    members: int
    dead_letters: int


def plan_deletion(admin: ClusterAdmin, brokers: Sequence[Broker], group: str, force: bool = False) -> DeletionPlan:
    """Return what `delete_group` concerns; CannotAnswerError when it would refuse."""
    tables, members = _deletable(admin, brokers, group, force)
    having = tuple(sorted(broker for broker, table in tables.values.items() if group in table))
    letters = on_each(admin, having, lambda broker: dead_letters_on(admin, broker, group), long_ms(admin))
    return DeletionPlan(group, having, len(members), sum(letters.needed().values()))


def delete_group(admin: ClusterAdmin, brokers: Sequence[Broker], group: str, offsets: bool = False,
                 topics: bool = False, force: bool = False) -> Outcomes[Deleted]:
    """Delete a group on all brokers, also its offsets and its retry and dead letter topics if wanted.

    CannotAnswerError without `force` when it has members: a broker would create it again at their next request.
    """
    tables, _members = _deletable(admin, brokers, group, force)
    done = on_each(admin, tables.values, lambda broker: _delete(
        admin, broker, group, group in tables.values[broker], offsets, topics), long_ms(admin))
    for topic in sorted({topic for each in done.values.values() for topic in each.topics}):
        for cluster in sorted({broker.cluster for broker in done.values}):
            try:
                admin.asked(f"name server {admin.namesrv_addr}", admin.delete_topic_in_name_server, None, topic,
                            cluster)
            except CannotAnswerError as error:
                done.errors[Broker(cluster, "name server", 0, str(admin.namesrv_addr))] = error
    return _merged(tables, done)


def _deletable(admin: ClusterAdmin, brokers: Sequence[Broker], group: str,
               force: bool) -> tuple[Outcomes[Configs], Mapping[str, Member]]:
    """Return the brokers' groups, and the members; CannotAnswerError when there are some and `force` is not set."""
    tables = on_each(admin, brokers, partial(groups_of, admin), long_ms(admin))
    needed_group(group, tables.needed().values())
    members = members_of(admin, brokers, group).members
    if members and not force:
        raise CannotAnswerError(f"group {group!r} has {counted(len(members), 'member')}: {', '.join(list(members)[:5])}"
                                ". Stop them first; with --force it is deleted although they run, and brokers with "
                                "autoCreateSubscriptionGroup=true create it again")
    return tables, members


def _delete(admin: ClusterAdmin, broker: Broker, group: str, is_there: bool, offsets: bool, topics: bool) -> Deleted:
    deleted = []
    for topic in (mix_all.get_retry_topic(group), mix_all.get_dlq_topic(group)) if topics else ():
        if queue_bounds(admin, broker, topic) is not None:
            admin.asked(f"broker {broker.address}", admin.delete_topic_in_broker, [broker.address], topic)
            deleted.append(topic)
    if is_there or offsets:
        admin.ask_broker(broker.address, admin.delete_subscription_group, group, offsets)
    return Deleted(is_there, offsets, tuple(deleted))


def queue_bounds(admin: ClusterAdmin, broker: Broker, topic: str) -> dict[int, tuple[int, int, int]] | None:
    """Return (first offset, end, store time in ms of the last message) of a topic's queues on a broker, by queue id.

    None when the broker has no such topic.
    """
    try:
        table = admin.ask_broker(broker.address, admin.api.get_topic_stats_info, topic, admin.timeout_millis)
    except RefusedError as error:
        if error.code == response_code.TOPIC_NOT_EXIST:
            return None
        raise
    return _bounds_of(table, broker, topic)


def _bounds_of(table: TopicStatsTable, broker: Broker, topic: str) -> dict[int, tuple[int, int, int]]:
    bounds = {}
    for queue, place in table.offsetTable.items():
        if place.minOffset < 0 or place.maxOffset < 0 or queue.queueId < 0:
            raise CannotAnswerError(f"the broker {broker.address} reports impossible offsets of queue {queue.queueId} "
                                    f"of {topic!r}: {place.minOffset} to {place.maxOffset}")
        # An emptied queue may report its first offset beyond its end.
        bounds[queue.queueId] = min(place.minOffset, place.maxOffset), place.maxOffset, place.lastUpdateTimestamp
    return bounds


def dead_letters_on(admin: ClusterAdmin, broker: Broker, group: str) -> int:
    """Return the number of a group's dead letters that a broker has."""
    bounds = queue_bounds(admin, broker, mix_all.get_dlq_topic(group)) or {}
    return sum(end - first for first, end, _last_ms in bounds.values())
