"""Moves the offsets of a consumer group: a plan that changes nothing, then the move, then a check of each queue.

    plan_seek --route, bounds, offsets, members--> SeekPlan --seek--> [Moved]

- A topic without members in the group: the offsets are stored at the brokers, and read back.
- With members (push consumers, not broadcasting): they hold their offsets in memory and would overwrite a stored one.
  So the brokers are asked to reset the group, which RocketMQ 4.9 does for a time, the beginning or the end, for all
  queues of a topic. Each member drops its queues and stores the new offsets; Java's do that after 10 s. The offsets of
  the brokers are read until all queues have moved. While offsets go back, the group is paused: otherwise a fast member
  could read everything again between two of these reads, and a queue that has moved would look like one that has not.

A time means the message that the broker's search finds for the ms before it: no message of that time or later is
skipped, and a few messages stored just before it may be read again.
"""
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

from rmqha.common import mix_all
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import response_code
from rmqha.common.protocol.client_bodies import ConsumerConnection
from rmqha.remoting.protocol.header_codec import LanguageCode
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin, RefusedError
from rmqha.tools.manage.group_detail import committed_on
from rmqha.tools.manage.groups import (
    Change,
    Membership,
    change_group,
    groups_of,
    long_ms,
    members_on,
    membership,
    needed_group,
    queue_bounds,
)
from rmqha.tools.manage.masters import Outcomes, on_each
from rmqha.tools.manage.topics import similar_topic
from rmqha.tools.terminal import CannotAnswerError, counted

EARLIEST, LATEST = "earliest", "latest"
# A Java member waits 10 s before it stores the new offsets, one topic of one broker after the other.
_WAIT_S, _WAIT_EACH_S = 45.0, 15.0
# Members store their offsets every 5 s; the moment between a reset and the next store must be seen.
_POLL_S = 0.1
_THE_END = -1  # instead of a time
_BROADCASTING = "BROADCASTING"


@dataclass(frozen=True)
class SeekTarget:
    """The target of a seek: `word` (EARLIEST, LATEST), a time in ms since 1970, the offset of one queue, or the offsets
    of another group."""

    word: str | None = None
    time_ms: int | None = None
    offset: int | None = None
    group: str | None = None

    @property
    def searched_ms(self) -> int:
        """The time in ms that the broker is asked for; `_THE_END` for the end."""
        if self.word == LATEST:
            return _THE_END
        return 0 if self.time_ms is None else max(0, self.time_ms - 1)


# ---- the plan of one queue: pure functions


@dataclass(frozen=True)
class GroupQueue:
    """A queue: its first offset and its end, the group's offset (None: none), and the store time of its last message.
    """

    committed: int | None
    first: int
    end: int
    last_ms: int = 0


def target_offset(bounds: GroupQueue, target: SeekTarget, found: int | None, is_online: bool) -> int:
    """Return the offset to which a queue is to go, from its first offset to its end. ValueError for an offset outside.

    `found`: the result of the broker's search for `searched_ms`, if the target is a time, or the other group's offset.
    The broker finds a message even if all are older; offline the end is used then.
    """
    if target.offset is not None:
        if not bounds.first <= target.offset <= bounds.end:
            raise ValueError(f"offset {target.offset} is not in the queue: it has {bounds.first} to {bounds.end}")
        return target.offset
    if target.word is not None:
        return bounds.first if target.word == EARLIEST else bounds.end
    if target.time_ms is not None and not is_online and 0 < bounds.last_ms < target.time_ms:
        return bounds.end
    return min(max(found or 0, bounds.first), bounds.end)


@dataclass(frozen=True)
class QueueMove:
    """The planned move of one queue. `committed`: None without an offset of the group."""

    topic: str
    broker: Broker
    queue_id: int
    committed: int | None
    first: int
    end: int
    target: int
    is_online: bool

    @property
    def change(self) -> int | None:
        """Messages that will be skipped, or below 0 those that will be read again; None without an offset.

        Deleted messages do not count.
        """
        if self.committed is None:
            return None
        return self.target - min(max(self.committed, self.first), self.end)

    @property
    def text(self) -> str:
        """The change for people."""
        if self.change is None:
            return "no offset yet"
        if not self.change:
            return "nothing to do" if self.committed == self.target else "only deleted messages between"
        return f"{abs(self.change):,} {'skipped' if self.change > 0 else 'read again'}"


def move_of(topic: str, broker: Broker, queue_id: int, bounds: GroupQueue, target: SeekTarget, found: int | None,
            is_online: bool) -> QueueMove:
    """Return the plan of one queue. ValueError for an offset that it does not have."""
    return QueueMove(topic, broker, queue_id, bounds.committed, bounds.first, bounds.end,
                     target_offset(bounds, target, found, is_online), is_online)


# ---- the plan


@dataclass(frozen=True)
class SeekPlan:
    """The moves of all queues, in order. `asked` has the brokers' errors; their queues are not in the plan.

    `is_cpp`: the members are C++ clients, which get the offsets in another form.
    """

    group: str
    target: SeekTarget
    moves: tuple[QueueMove, ...]
    online_topics: frozenset[str]
    members: int
    is_cpp: bool
    asked: Outcomes[object]

    @property
    def new_topics(self) -> tuple[str, ...]:
        """The topics for which the group has no offset of any queue. Unknown, so empty, when a broker failed."""
        if self.asked.errors:
            return ()
        known = {move.topic for move in self.moves if move.committed is not None}
        return tuple(sorted({move.topic for move in self.moves} - known))

    @property
    def is_online(self) -> bool:
        """True if members have to take part."""
        return any(move.is_online for move in self.moves)

    @property
    def needs_pause(self) -> bool:
        """True if the group is paused for the move: members have to go back."""
        return any(move.is_online and move.target < (move.committed or 0) for move in self.moves)

    @property
    def wait_s(self) -> float:
        """The seconds that the members may take."""
        return _WAIT_S + _WAIT_EACH_S * len({(move.topic, move.broker) for move in self.moves if move.is_online})


@dataclass(frozen=True)
class _About:
    """A broker's answer: the names of all groups, and of one or two groups the members and the topics of offsets."""

    known: tuple[str, ...]
    connections: Mapping[str, ConsumerConnection | None]
    topics: Mapping[str, Set[str]]

    def may_have_offsets(self, group: str, topic: str) -> bool:
        """Return whether the group may have offsets of the topic.

        A broker that is asked for an offset answers 0 for a young queue, also without one. It reports the topics of a
        group's offsets, but of a running group only those that its members subscribe to.
        """
        return topic in self.topics[group] or self.connections[group] is not None


def plan_seek(admin: ClusterAdmin, brokers: Sequence[Broker], group: str, topics: Sequence[str] | None,
              target: SeekTarget, only: Sequence[tuple[str, int]] = ()) -> SeekPlan:
    """Return what a seek would do; nothing is changed.

    `topics`: None for all topics for which the group has offsets, or the group whose offsets it takes, except their
    retry topic. `only`: (broker name, queue id) of the queues to move, all without any. CannotAnswerError when it is
    impossible as wanted.
    """
    source = target.group or group
    asked = on_each(admin, brokers, lambda broker: _about(admin, broker, {group, source}), long_ms(admin))
    about = asked.needed()
    for name in (group, source):
        needed_group(name, [one.known for one in about.values()])
    joined = membership({broker: one.connections[group] for broker, one in about.items()})
    if topics is None:
        retry = mix_all.get_retry_topic(source)
        topics = sorted({topic for one in about.values() for topic in one.topics[source]} - {retry})
        if not topics:
            raise CannotAnswerError(f"group {source!r} has no offsets of any topic: name the topic with -t")
    online = frozenset(topics) & set(joined.subscriptions)
    is_cpp = _check_members(group, joined, online, target, only) if online else False
    errors = dict(asked.errors)
    wanted: dict[Broker, list[tuple[str, int]]] = {broker: [] for broker in about}
    clusters = {broker.cluster for broker in brokers}
    for topic in topics:
        for name, queues in _queues_of(admin, topic, topic in online, clusters).items():
            broker = next((each for each in brokers if each.name == name), None)
            if broker is None:
                errors[Broker("", name, 0, "-")] = CannotAnswerError(
                    f"topic {topic!r} has queues there, but the name server lists no master of it here")
            elif broker in wanted:
                wanted[broker] += [(topic, queue_id) for queue_id in range(queues)]
    _choose(wanted, only)
    moves = on_each(admin, [broker for broker in wanted if wanted[broker]], lambda broker: _planned_on(
        admin, broker, group, target, online, about[broker], _bounded(admin, broker, wanted[broker])), long_ms(admin))
    errors.update(moves.errors)
    found = [move for each in moves.values.values() for move in each]
    if not found and errors:
        raise next(iter(errors.values()))
    if not found:
        raise CannotAnswerError(f"{', '.join(topics)}: no queue to read there" if target.group is None else
                                f"group {target.group!r} has no offsets for {', '.join(topics)}")
    return SeekPlan(group, target, tuple(sorted(found, key=lambda move: (move.topic, move.broker, move.queue_id))),
                    online, len(joined.members), is_cpp, Outcomes({**moves.values}, errors))


def _about(admin: ClusterAdmin, broker: Broker, groups: Iterable[str]) -> _About:
    connections, topics = {}, {}
    known = tuple(groups_of(admin, broker))
    for group in groups:
        connections[group] = members_on(admin, broker, group)
        stats = admin.ask_broker(broker.address, admin.api.get_consume_stats, group, long_ms(admin))
        topics[group] = {queue.topic for queue in stats.offsetTable}
    return _About(known, connections, topics)


def _check_members(group: str, joined: Membership, online: Iterable[str], target: SeekTarget,
                   only: Sequence[tuple[str, int]]) -> bool:
    """Return whether the members are C++ clients; CannotAnswerError when they can't follow this seek."""
    who = f"{counted(len(joined.members), 'member')} of group {group!r} read {', '.join(sorted(online))}"
    who = who.replace(" read ", " reads ") if len(joined.members) == 1 else who
    how = "Stop all members (`rmqha group describe` lists them), and seek again"
    if joined.model == _BROADCASTING:
        raise CannotAnswerError(f"{who}, broadcasting: a member keeps its offsets in a file of its own host, which no "
                                "broker can change")
    if not joined.is_push:
        raise CannotAnswerError(f"{who}. Pull consumers ignore a reset. {how}, or let the program itself seek")
    if target.offset is not None or target.group is not None or only:
        raise CannotAnswerError(f"{who}. While members run, RocketMQ can only move all queues of a topic, to earliest, "
                                f"latest or a time. {how}, or use --to earliest, latest or a time without --queue")
    languages = {member.language for member in joined.members.values()}
    if LanguageCode.CPP.name in languages and len(languages) > 1:
        raise CannotAnswerError(f"{who}, some in C++ and some in {', '.join(sorted(languages - {'CPP'}))}: these need "
                                f"different requests. {how}")
    return languages == {LanguageCode.CPP.name}


def _queues_of(admin: ClusterAdmin, topic: str, is_online: bool, clusters: Set[str]) -> dict[str, int]:
    """Return the number of queues that consumers read, by names of the clusters' brokers; CannotAnswerError for an
    unknown topic."""
    try:
        route = admin.asked(f"name server {admin.namesrv_addr}", admin.examine_topic_route_info, topic)
    except RefusedError as error:
        if error.code == response_code.TOPIC_NOT_EXIST:
            raise CannotAnswerError(f"no topic {topic!r} in this cluster{similar_topic(admin, topic)}") from None
        raise
    names = {data.brokerName for data in route.brokerDatas if data.cluster in clusters}
    for data in route.queueDatas:
        if is_online and data.readQueueNums > data.writeQueueNums:
            raise CannotAnswerError(f"topic {topic!r} has {data.readQueueNums} queues to read and "
                                    f"{data.writeQueueNums} to write on {data.brokerName}: while members run, a broker "
                                    "only moves those to write. Stop all members, and seek again")
    return {data.brokerName: data.readQueueNums for data in route.queueDatas if data.brokerName in names}


def _choose(wanted: dict[Broker, list[tuple[str, int]]], only: Sequence[tuple[str, int]]) -> None:
    """Keep the queues that `only` names; CannotAnswerError when one of them is not there."""
    if not only:
        return
    for name, queue_id in only:
        if not any(broker.name == name and queue_id == each for broker in wanted for _topic, each in wanted[broker]):
            raise CannotAnswerError(f"no queue {name}:{queue_id} in this topic; `rmqha group describe` lists the "
                                    "queues of a group")
    for broker, queues in wanted.items():
        wanted[broker] = [(topic, queue_id) for topic, queue_id in queues if (broker.name, queue_id) in only]


def _bounded(admin: ClusterAdmin, broker: Broker, queues: Iterable[tuple[str, int]]
             ) -> Iterable[tuple[str, int, tuple[int, int, int]]]:
    """Yield the queues with (first offset, end, store time of the last message)."""
    known: dict[str, dict[int, tuple[int, int, int]]] = {}
    for topic, queue_id in queues:
        if topic not in known:
            known[topic] = queue_bounds(admin, broker, topic) or {}
        bounds = known[topic].get(queue_id)
        if bounds is None:  # it can only be read
            queue = MessageQueue(topic, broker.name, queue_id)
            first = admin.ask_broker(broker.address, admin.api.get_min_offset, queue, admin.timeout_millis)
            end = admin.ask_broker(broker.address, admin.api.get_max_offset, queue, admin.timeout_millis)
            bounds = min(max(first, 0), max(end, 0)), max(end, 0), 0
        yield topic, queue_id, bounds


def _planned_on(admin: ClusterAdmin, broker: Broker, group: str, target: SeekTarget, online: Set[str], about: _About,
                queues: Iterable[tuple[str, int, tuple[int, int, int]]]) -> list[QueueMove]:
    """Return the plans of a broker's queues, without those for which the group to follow has no offset."""
    def offset_of(name: str, topic: str, queue_id: int) -> int | None:
        is_there = about.may_have_offsets(name, topic) or name == group and topic in online
        return committed_on(admin, broker, name, topic, queue_id) if is_there else None
    moves = []
    for topic, queue_id, bounds in queues:
        found = None
        if target.group is not None:
            found = offset_of(target.group, topic, queue_id)
            if found is None:
                continue
        elif target.time_ms is not None:
            found = admin.ask_broker(broker.address, admin.api.search_offset, MessageQueue(
                topic, broker.name, queue_id), target.searched_ms, admin.timeout_millis)
        moves.append(_planned(broker, topic, queue_id, offset_of(group, topic, queue_id), target, found,
                              topic in online, bounds))
    return moves


def _planned(broker: Broker, topic: str, queue_id: int, committed: int | None, target: SeekTarget, found: int | None,
             is_online: bool, bounds: tuple[int, int, int]) -> QueueMove:
    try:
        return move_of(topic, broker, queue_id, GroupQueue(committed, *bounds), target, found, is_online)
    except ValueError as error:
        raise CannotAnswerError(f"{topic} {broker.name}:{queue_id}: {error}") from None


# ---- the move


@dataclass(frozen=True)
class Moved:
    """The result of one queue. `seen`: the last offset that the broker returned after the move, None for none.

    `target` may differ from the plan's: the end has moved meanwhile. `error`: why the queue is not there.
    """

    move: QueueMove
    target: int
    seen: int | None = None
    error: str = ""


@dataclass(frozen=True)
class SeekResult:
    """The results of all queues, in order. `still_paused`: the brokers on which the pause for the move could not be
    ended, with the reason."""

    moved: tuple[Moved, ...]
    still_paused: Mapping[Broker, CannotAnswerError] = field(default_factory=dict)


def seek(admin: ClusterAdmin, plan: SeekPlan, wait_s: float | None = None) -> SeekResult:
    """Do what a plan says, and check each queue; `wait_s`: how long the members may take, by default the plan's.

    CannotAnswerError, before anything is changed, when members have started or ended since the plan.
    """
    moves: dict[Broker, list[QueueMove]] = {}
    for move in plan.moves:
        moves.setdefault(move.broker, []).append(move)
    _check_again(admin, plan, list(moves))
    limit_s = plan.wait_s if wait_s is None else wait_s
    tables = on_each(admin, moves if plan.needs_pause else (), partial(groups_of, admin), long_ms(admin))
    paused = [broker for broker, table in tables.values.items()
              if plan.group in table and table[plan.group].consumeEnable]
    errors = dict(tables.errors)
    ended: Outcomes[Change] = Outcomes()
    try:
        errors.update(_set_consuming(admin, paused, plan.group, False).errors)
        done = on_each(admin, [broker for broker in moves if broker not in errors],
                       lambda broker: _move_on(admin, broker, plan, moves[broker], limit_s),
                       long_ms(admin) + limit_s * 1000)
    finally:
        ended = _set_consuming(admin, paused, plan.group, True)
    results = [moved for each in done.values.values() for moved in each]
    results += [Moved(move, move.target, None, error.message)
                for broker, error in {**errors, **done.errors}.items() for move in moves[broker]]
    return SeekResult(tuple(sorted(results, key=lambda each: (each.move.topic, each.move.broker, each.move.queue_id))),
                      ended.errors)


def _set_consuming(admin: ClusterAdmin, brokers: Sequence[Broker], group: str, enabled: bool) -> Outcomes[Change]:
    return change_group(admin, brokers, group, {"consumeEnable": enabled}) if brokers else Outcomes()


def _check_again(admin: ClusterAdmin, plan: SeekPlan, brokers: Sequence[Broker]) -> None:
    joined = membership(on_each(admin, brokers, lambda broker: members_on(admin, broker, plan.group)).needed())
    topics = {move.topic for move in plan.moves}
    if topics & set(joined.subscriptions) != plan.online_topics & topics:
        raise CannotAnswerError(f"members of group {plan.group!r} have started or ended since the plan was made; "
                                "nothing was changed. Seek again")


def _move_on(admin: ClusterAdmin, broker: Broker, plan: SeekPlan, moves: Sequence[QueueMove],
             wait_s: float) -> list[Moved]:
    results = [_store(admin, broker, plan.group, move) for move in moves if not move.is_online]
    online: dict[str, list[QueueMove]] = {}
    for move in moves:
        if move.is_online:
            online.setdefault(move.topic, []).append(move)
    watched = [each for topic, of_topic in online.items() for each in _reset(admin, broker, plan, topic, of_topic)]
    return results + _watch(admin, broker, plan.group, watched, wait_s)


def _store(admin: ClusterAdmin, broker: Broker, group: str, move: QueueMove) -> Moved:
    """Store an offset at the broker, and read it back."""
    queue = MessageQueue(move.topic, broker.name, move.queue_id)
    try:
        admin.ask_broker(broker.address, admin.update_consume_offset, group, queue, move.target)
        seen = committed_on(admin, broker, group, move.topic, move.queue_id)
    except CannotAnswerError as error:
        return Moved(move, move.target, None, error.message)
    return Moved(move, move.target, seen, "" if seen == move.target else
                 "the broker accepted the offset, but returns another one. Has a member started meanwhile?")


@dataclass
class _Watched:
    """A queue that members move: `highest` of the offsets that were seen, with the plan's, until it is there."""

    move: QueueMove
    target: int
    highest: int
    seen: int | None = None
    is_there: bool = False
    error: str = ""

    def see(self, offset: int) -> None:
        """Note the broker's offset. Members that consume meanwhile may be past the target when it is first seen."""
        self.seen = offset
        is_back = self.target < (self.move.committed or 0)
        # Only a reset lets an offset fall.
        self.is_there |= offset >= self.target and (not is_back or offset < self.highest)
        self.highest = max(self.highest, offset)


def _reset(admin: ClusterAdmin, broker: Broker, plan: SeekPlan, topic: str, moves: Sequence[QueueMove]
           ) -> list[_Watched]:
    """Ask a broker to make the members move; return the queues with the offsets that it sent to them."""
    try:
        before = _offsets(admin, broker, plan.group, topic)
        sent = _resetting(admin, broker, plan, topic, moves)
    except CannotAnswerError as error:
        return [_Watched(move, move.target, 0, error=error.message) for move in moves]
    watched = []
    for move in moves:
        target = sent.get(MessageQueue(topic, broker.name, move.queue_id))
        highest = max(before.get(move.queue_id, 0), move.committed or 0)
        watched.append(_Watched(move, move.target if target is None else target, highest,
                                error="" if target is not None else "the broker left this queue out"))
    return watched


def _resetting(admin: ClusterAdmin, broker: Broker, plan: SeekPlan, topic: str, moves: Sequence[QueueMove]
               ) -> Mapping[MessageQueue, int]:
    def reset() -> Mapping[MessageQueue, int]:
        return admin.ask_broker(broker.address, admin.api.invoke_broker_to_reset_offset, topic, plan.group,
                                plan.target.searched_ms, True, admin.timeout_millis, plan.is_cpp)
    try:
        return reset()
    except RefusedError as error:
        if error.code == response_code.CONSUMER_NOT_ONLINE:
            raise CannotAnswerError(f"no member is connected to broker {broker.address}; those connected to other "
                                    "brokers connect within 30 s") from None
        if error.code != response_code.SYSTEM_ERROR or "not exist" not in error.message:
            raise
    # A broker refuses when the group lacks the offset of a queue.
    for move in moves:
        if not move.committed:
            queue = MessageQueue(topic, broker.name, move.queue_id)
            admin.ask_broker(broker.address, admin.update_consume_offset, plan.group, queue,
                             move.target if move.committed is None else 0)
    return reset()


def _offsets(admin: ClusterAdmin, broker: Broker, group: str, topic: str) -> dict[int, int]:
    """Return the group's offsets by queue id."""
    stats = admin.ask_broker(broker.address, admin.api.get_consume_stats, group, admin.timeout_millis, topic)
    return {queue.queueId: place.consumerOffset for queue, place in stats.offsetTable.items()
            if queue.topic == topic}


def _watch(admin: ClusterAdmin, broker: Broker, group: str, watched: Sequence[_Watched], wait_s: float) -> list[Moved]:
    """Read the offsets until all queues are there, at most `wait_s`."""
    deadline = time.monotonic() + wait_s
    while True:
        waiting = [each for each in watched if not each.is_there and not each.error]
        for topic in sorted({each.move.topic for each in waiting}):
            try:
                offsets = _offsets(admin, broker, group, topic)
            except CannotAnswerError as error:
                for each in waiting:
                    each.error = error.message
                break
            for each in waiting:
                if each.move.topic == topic and each.move.queue_id in offsets:
                    each.see(offsets[each.move.queue_id])
        if not any(not each.is_there and not each.error for each in watched) or time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)
    return [Moved(each.move, each.target, each.seen, each.error or ("" if each.is_there else _not_there(each, wait_s)))
            for each in watched]


def _not_there(each: _Watched, wait_s: float) -> str:
    return (f"no member has stored the new offset within {wait_s:g} s; the broker has {each.seen}. Does a member own "
            "this queue (`rmqha group describe`)?")
