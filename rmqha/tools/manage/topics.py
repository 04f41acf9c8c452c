"""Operations on topics over all masters of a cluster: list, create, describe, change, delete, rates.

    command or console --brokers, values--> operation --one request per broker, in parallel--> Outcomes by broker

- `list_topics`, `TopicRow`: all topics, merged over the brokers. `count_messages`: their messages, asked one by one.
- `create_topic`, `alter_topic`, `delete_topic`: changes on all masters, with the order conf of the name servers.
- `wait_for_route`: until all name servers list a topic on its brokers, and producers can send.
- `describe_topic`, `topic_rates`: one topic's settings, queues and groups, and its messages in and out.

A broker that fails does not stop the others: it is among the `errors` of the Outcomes.
"""
import fnmatch
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rmqha.common import mix_all, stats, sys_flags, topics
from rmqha.common.configuration import nearest_key
from rmqha.common.lazy_dataclasses import replace
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import response_code
from rmqha.common.protocol.namespace_util import NAMESPACE_ORDER_TOPIC_CONFIG
from rmqha.common.protocol.table_bodies import BrokerStatsItem
from rmqha.common.texts import real
from rmqha.common.topics import TopicConfig
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin, RefusedError
from rmqha.tools.admin.topic_tables import Settings, Topics, ask_topics
from rmqha.tools.manage.masters import Outcomes, masters, on_each
from rmqha.tools.terminal import CannotAnswerError

T = TypeVar("T")

USER, SYSTEM, RETRY, DEAD_LETTER = "user", "system", "retry", "dead letter"
DEFAULT_QUEUES = 8  # of each broker, as in mqadmin
MAX_QUEUES = 65_536  # of an rmqha broker
# Queues that are read but no longer written, and so asked for one by one.
_MOST_UNWRITTEN = 1000
ALL_MS = 3_600_000  # see on_all
_ROUTE_STEP_S = 0.1
_NO_STATS = "not exist"  # in a broker's error about a counter that has counted nothing yet


# ---- listing


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic over all brokers; `kind` is user, system, retry or dead letter. Queues are of all brokers together."""

    name: str
    kind: str
    brokers: tuple[str, ...]
    read_queues: int
    write_queues: int
    perm: str
    order: bool


class RowMaker:
    """Makes rows. There may be 100,000, of which most have the same settings: these are merged only once.

    `own`: the names of brokers and clusters, which have topics of the same name.
    """

    def __init__(self, own: set[str]) -> None:
        self._own = own | {f"{each}_{mix_all.REPLY_TOPIC_POSTFIX}" for each in own}
        self._merged: dict[tuple[tuple[str, Settings], ...], tuple[tuple[str, ...], int, int, str, bool]] = {}

    def kind(self, name: str) -> str:
        """Return the kind of a topic."""
        if name.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX):
            return RETRY
        if name.startswith(mix_all.DLQ_GROUP_TOPIC_PREFIX):
            return DEAD_LETTER
        return SYSTEM if name in self._own or topics.is_system_topic(name) else USER

    def row(self, name: str, tables: Iterable[tuple[str, Mapping[str, Settings]]]) -> TopicRow:
        """Return the row of a topic, from the topics of each broker by its name."""
        settings = tuple((broker, table[name]) for broker, table in tables if name in table)
        merged = self._merged.get(settings)
        if merged is None:
            merged = self._merged[settings] = _merged(settings)
        return TopicRow(name, self.kind(name), *merged)


def _merged(settings: Iterable[tuple[str, Settings]]) -> tuple[tuple[str, ...], int, int, str, bool]:
    brokers, configs = zip(*settings)
    return (tuple(sorted(set(brokers))), sum(config.read_queues for config in configs),
            sum(config.write_queues for config in configs),
            " ".join(sorted({perm_text(config.perm) for config in configs})), any(config.order for config in configs))


def topic_kind(name: str, own: set[str]) -> str:
    """Return the kind of a topic; `own` as in `RowMaker`."""
    return RowMaker(own).kind(name)


def perm_text(perm: int) -> str:
    """Return a permission as `RW`, `R-` or `-W`."""
    return sys_flags.perm2_string(perm)[:2]


def own_names(brokers: Iterable[Broker]) -> set[str]:
    """Return the names of brokers and clusters, for `RowMaker`."""
    return {name for broker in brokers for name in (broker.name, broker.cluster)}


def matcher(pattern: str | None) -> Callable[[str], bool]:
    """Return whether a name matches a glob: `*`, `?` and `[a-z]`; any name without a pattern."""
    if pattern is None:
        return lambda name: True
    match = re.compile(fnmatch.translate(pattern)).match
    return lambda name: match(name) is not None


@dataclass(frozen=True)
class Listing:
    """Topics by name, and the brokers' tables that they are from."""

    rows: list[TopicRow]
    outcomes: Outcomes[Topics]


def on_all(admin: ClusterAdmin, brokers: Iterable[Broker], ask: Callable[[Broker], T]) -> Outcomes[T]:
    """Call `ask` for all brokers in parallel, as `on_each`, but for as many requests as it makes.

    Each request has its own time-out, and the first that fails ends the work for its broker.
    """
    return on_each(admin, brokers, ask, ALL_MS)


def list_topics(admin: ClusterAdmin, brokers: list[Broker], pattern: str | None = None,
                kinds: Iterable[str] = (USER,)) -> Listing:
    """Return the topics of some kinds whose names match a glob. An error of the first broker when none answers."""
    outcomes = on_all(admin, brokers, lambda broker: settings_on(admin, broker))
    maker, wanted, matches = RowMaker(own_names(brokers)), set(kinds), matcher(pattern)
    tables = [(broker.name, table) for broker, table in outcomes.needed().items()]
    ordered = ordered_topics(admin)
    rows = [maker.row(name, tables) for name in sorted(set().union(*(table for _broker, table in tables)))
            if matches(name)]
    return Listing([replace(row, order=True) if row.name in ordered else row for row in rows if row.kind in wanted],
                   outcomes)


def settings_on(admin: ClusterAdmin, broker: Broker) -> Topics:
    """Return the settings of all topics of a broker by name."""
    answer = admin.asked(f"broker {broker.address}", ask_topics, admin, broker.address, admin.timeout_millis)
    return answer.topics or {}


def configs_on(admin: ClusterAdmin, broker: Broker) -> dict[str, TopicConfig]:
    """Return all topics of a broker by name."""
    return {name: settings.config(name) for name, settings in settings_on(admin, broker).items()}


# ---- queues


@dataclass(frozen=True)
class QueueBounds:
    """A queue of a broker: its first and its next offset, and the store time (ms) of its last message, 0 if unknown."""

    broker: str
    queue_id: int
    begin: int
    end: int
    last_ms: int

    @property
    def count(self) -> int:
        """The number of messages in the queue."""
        return max(0, self.end - self.begin)


@dataclass(frozen=True)
class Messages:
    """The messages of a topic over all brokers that answered, and the store time (ms) of the last one, 0 if none."""

    count: int = 0
    last_ms: int = 0

    @classmethod
    def of(cls, queues: Iterable[QueueBounds]) -> "Messages":
        """Return the messages of these queues."""
        queues = list(queues)
        return cls(sum(queue.count for queue in queues), max((queue.last_ms for queue in queues), default=0))


def queues_on(admin: ClusterAdmin, broker: Broker, topic: str, config: TopicConfig | None = None
              ) -> list[QueueBounds] | None:
    """Return a topic's queues on a broker; None when it does not have the topic.

    A broker reports the queues that can be written. With `config`, those that can only be read are asked one by one.
    """
    who, api = f"broker {broker.address}", admin.api
    try:
        table = admin.asked(who, api.get_topic_stats_info, broker.address, topic, admin.timeout_millis).offsetTable
    except RefusedError as refusal:
        if refusal.code == response_code.TOPIC_NOT_EXIST:
            return None
        raise
    found = {queue.queueId: QueueBounds(broker.name, queue.queueId, place.minOffset, place.maxOffset,
                                        max(0, place.lastUpdateTimestamp)) for queue, place in table.items()}
    if config is not None:
        most = min(config.readQueueNums, config.writeQueueNums + _MOST_UNWRITTEN)
        for number in range(max(config.writeQueueNums, 0), most):
            if number not in found:
                queue = MessageQueue(topic, broker.name, number)
                begin = admin.asked(who, api.get_min_offset, broker.address, queue, admin.timeout_millis)
                end = admin.asked(who, api.get_max_offset, broker.address, queue, admin.timeout_millis)
                found[number] = QueueBounds(broker.name, number, max(0, begin), max(0, end), 0)
    return [found[number] for number in sorted(found)]


def count_messages(admin: ClusterAdmin, listing: Listing) -> tuple[dict[str, Messages], Outcomes[Any]]:
    """Return the messages of each listed topic by name. Each broker is asked once per topic, until it fails once."""
    def ask(broker: Broker) -> dict[str, list[QueueBounds]]:
        table = listing.outcomes.values[broker]
        return {row.name: queues_on(admin, broker, row.name, table[row.name].config(row.name)) or []
                for row in listing.rows if row.name in table}
    outcomes = on_all(admin, listing.outcomes.values, ask)
    queues: dict[str, list[QueueBounds]] = {row.name: [] for row in listing.rows}
    for answer in outcomes.values.values():
        for name, found in answer.items():
            queues[name] += found
    return {name: Messages.of(found) for name, found in queues.items()}, outcomes


# ---- settings


def masters_and_crashed(admin: ClusterAdmin, cluster: str | None = None, broker: str | None = None) -> list[Broker]:
    """Return the masters as `masters` does, and those that crashed, so that work on them counts as failed.

    Only rmqha's name server knows the latter. RocketMQ's lists a crashed broker for two minutes.
    """
    found = masters(admin, cluster, broker)
    names = {each.name for each in found}
    return sorted([*found, *(
        Broker(gone.cluster, gone.name, gone.broker_id, gone.address) for gone in admin.fetch_departed_brokers()
        if gone.cluster == found[0].cluster and gone.broker_id == mix_all.MASTER_ID and gone.since_ms >= 0
        and gone.name not in names and broker in (None, gone.name, gone.address))])


@dataclass(frozen=True)
class TopicSettings:
    """Settings of a topic on each broker; None keeps what a broker has. `perm` has the bits of sys_flags.PERM_*."""

    read_queues: int | None = None
    write_queues: int | None = None
    perm: int | None = None
    order: bool | None = None

    def applied(self, config: TopicConfig) -> TopicConfig:
        """Return a broker's settings with these in place. CannotAnswerError when messages would never be read."""
        made = replace(config, readQueueNums=_first(self.read_queues, config.readQueueNums),
                       writeQueueNums=_first(self.write_queues, config.writeQueueNums),
                       perm=_first(self.perm, config.perm), order=_first(self.order, config.order))
        if made.readQueueNums < made.writeQueueNums:
            raise CannotAnswerError(
                f"{made.readQueueNums} read queues for {made.writeQueueNums} write queues: messages in the others "
                "would never be consumed. Give at least as many --read-queues as --write-queues")
        return made


def _first(value: T | None, other: T) -> T:
    return other if value is None else value


NEW_TOPIC = TopicConfig(readQueueNums=DEFAULT_QUEUES, writeQueueNums=DEFAULT_QUEUES)


def check_name(name: str, own: set[str]) -> None:
    """Raise CannotAnswerError for a name that no topic of a user can have; `own` as in `RowMaker`."""
    if topics.check_topic(name) is not None:
        raise CannotAnswerError(f"{name[:200]!r} is not a valid topic name: use 1 to {topics.TOPIC_MAX_LENGTH} of the "
                                "characters a-z A-Z 0-9 - _ % |")
    if topic_kind(name, own) == SYSTEM:
        raise CannotAnswerError(f"{name} is a topic of the system, which only the brokers may create, change and "
                                "delete")


@dataclass(frozen=True)
class Creation:
    """The settings by broker of a topic that was created; `existing` are the brokers that had it before."""

    outcomes: Outcomes[TopicConfig]
    existing: list[Broker] = field(default_factory=list)

    @property
    def brokers(self) -> list[Broker]:
        """All brokers that have the topic now."""
        return sorted([*self.existing, *self.outcomes.values])


class TopicExistsError(CannotAnswerError):
    """A topic that is to be created exists already."""


def create_topic(admin: ClusterAdmin, brokers: list[Broker], name: str, wanted: TopicSettings,
                 if_not_exists: bool = False) -> Creation:
    """Create a topic on these masters.

    TopicExistsError when one of them has it. With `if_not_exists` it is created on the others only; settings that are
    not given are then those of a broker that has it.
    """
    check_name(name, own_names(brokers))
    wanted.applied(NEW_TOPIC)
    there = on_each(admin, brokers, lambda broker: queues_on(admin, broker, name) is not None)
    existing = [broker for broker, is_there in there.needed().items() if is_there]
    missing = [broker for broker, is_there in there.values.items() if not is_there]
    if existing and not if_not_exists:
        hint = (f"; it is missing on {', '.join(broker.name for broker in missing)}, and --if-not-exists creates it "
                "there" if missing else "; `rmqha topic alter` changes it")
        raise TopicExistsError(f"topic {name} exists on {', '.join(broker.name for broker in existing)}{hint}")
    base = configs_on(admin, existing[0]).get(name, NEW_TOPIC) if existing and missing else NEW_TOPIC
    config = wanted.applied(replace(base, topicName=name))
    outcomes = on_each(admin, missing, lambda broker: _put(admin, broker, config))
    outcomes.errors.update(there.errors)
    if outcomes.values and (config.order or existing):
        queues = {broker.name: config.writeQueueNums for broker in outcomes.values}
        set_order(admin, name, queues, make=bool(wanted.order), add=True)
    return Creation(outcomes, existing)


def _put(admin: ClusterAdmin, broker: Broker, config: TopicConfig) -> TopicConfig:
    admin.ask_broker(broker.address, admin.create_and_update_topic_config, config)
    return config


@dataclass(frozen=True)
class Change:
    """A broker's settings of a topic before and after a change; `unread`: messages in queues that are no longer read.
    """

    before: TopicConfig
    after: TopicConfig
    unread: int = 0

    @property
    def is_one(self) -> bool:
        """True if the broker was asked to change anything."""
        return _of_broker(self.before) != _of_broker(self.after)


def _of_broker(config: TopicConfig) -> tuple[int, int, int]:
    """Return what a broker takes from a request; the order is at the name servers."""
    return config.readQueueNums, config.writeQueueNums, config.perm


@dataclass(frozen=True)
class Alteration:
    """The changes by broker; `missing` are the masters that do not have the topic, and `order` the new order conf,
    None when it was not changed."""

    outcomes: Outcomes[Change]
    missing: list[Broker]
    order: str | None = None


def alter_topic(admin: ClusterAdmin, brokers: list[Broker], name: str, wanted: TopicSettings) -> Alteration:
    """Change only the given settings of a topic on these masters. CannotAnswerError when none has it.

    The queues of an ordered topic are changed at the name servers too: before the brokers if there are fewer.
    """
    check_name(name, own_names(brokers))
    tables = on_all(admin, brokers, lambda broker: configs_on(admin, broker).get(name))
    before = {broker: config for broker, config in tables.needed().items() if config is not None}
    missing = [broker for broker, config in tables.values.items() if config is None]
    if not before:
        raise unknown_topic(admin, name, tables.errors)
    changes = {broker: Change(config, wanted.applied(config)) for broker, config in before.items()}
    queues = {broker.name: change.after.writeQueueNums for broker, change in changes.items()}
    fewer = any(change.after.writeQueueNums < change.before.writeQueueNums for change in changes.values())
    order = _alter_order(admin, name, queues, wanted.order) if fewer else None

    def put(broker: Broker) -> Change:
        change = changes[broker]
        if change.is_one:
            _put(admin, broker, change.after)
        if change.after.readQueueNums >= change.before.readQueueNums:
            return change
        left = queues_on(admin, broker, name, change.before) or []
        return replace(change, unread=sum(
            queue.count for queue in left if queue.queue_id >= change.after.readQueueNums))
    outcomes = on_all(admin, changes, put)
    if not fewer and outcomes.values:
        done = {broker.name: queues[broker.name] for broker in outcomes.values}
        order = _alter_order(admin, name, done, wanted.order)
    outcomes.errors.update(tables.errors)
    return Alteration(outcomes, missing, order)


def _alter_order(admin: ClusterAdmin, name: str, queues: dict[str, int], order: bool | None) -> str | None:
    if order is False:
        return remove_order(admin, name, queues)
    return set_order(admin, name, queues, make=bool(order), add=bool(order))


def unknown_topic(admin: ClusterAdmin, name: str, errors: Mapping[Broker, CannotAnswerError]) -> CannotAnswerError:
    """Return the error about a topic that no broker has that answered, with a similar name."""
    unknown = f"; {', '.join(broker.name for broker in errors)} did not answer" if errors else ""
    return CannotAnswerError(f"no topic {name!r} on the masters of this cluster{unknown}" + (
        similar_topic(admin, name) or ". `rmqha topic list` shows those that exist"))


def similar_topic(admin: ClusterAdmin, name: str) -> str:
    """Return the end of an error: whether a topic of the name server was meant. "" for none, or without an answer."""
    try:
        known = admin.asked(f"name server {admin.namesrv_addr}", admin.fetch_all_topic_list).topicList
        maker = RowMaker(own_names(admin.brokers()))
    except CannotAnswerError:
        return ""
    near = nearest_key(name, (each for each in known if maker.kind(each) == maker.kind(name) != SYSTEM))
    return f"; did you mean {near}?" if near else ""


# ---- the order conf, `broker-a:8;broker-b:8`, at the name servers


def order_conf(admin: ClusterAdmin, topic: str) -> str | None:
    """Return a topic's order conf; None without one."""
    try:
        return admin.asked(f"name server {admin.namesrv_addr}", admin.get_kv_config, NAMESPACE_ORDER_TOPIC_CONFIG,
                           topic) or None
    except RefusedError as refusal:
        if refusal.code == response_code.QUERY_NOT_FOUND:
            return None
        raise


def ordered_topics(admin: ClusterAdmin) -> set[str]:
    """Return the topics with an order conf. Brokers learn of it only when they register the next time."""
    try:
        return set(admin.asked(f"name server {admin.namesrv_addr}", admin.get_kv_list_by_namespace,
                               NAMESPACE_ORDER_TOPIC_CONFIG).table)
    except RefusedError as refusal:
        if refusal.code == response_code.QUERY_NOT_FOUND:
            return set()
        raise


def set_order(admin: ClusterAdmin, topic: str, queues: Mapping[str, int], make: bool, add: bool) -> str | None:
    """Set the write queues of some brokers in a topic's order conf; the other brokers keep their places.

    `make`: make a conf if the topic has no conf. `add`: add brokers that it lacks. Return the conf if it was changed.
    """
    old = order_conf(admin, topic)
    if old is None and not make:
        return None
    entries = _entries(old)
    entries |= {name: f"{name}:{queues[name]}" for name in sorted(queues) if add or name in entries}
    return _store_order(admin, topic, old, entries)


def remove_order(admin: ClusterAdmin, topic: str, brokers: Iterable[str]) -> str | None:
    """Remove some brokers from a topic's order conf, and the conf with the last one. Return it if it was changed."""
    old = order_conf(admin, topic)
    left = {name: entry for name, entry in _entries(old).items() if name not in set(brokers)}
    return _store_order(admin, topic, old, left)


def _entries(conf: str | None) -> dict[str, str]:
    return {entry.partition(":")[0]: entry for entry in (conf or "").split(";") if entry.strip()}


def _store_order(admin: ClusterAdmin, topic: str, old: str | None, entries: dict[str, str]) -> str | None:
    new, who = ";".join(entries.values()), f"name server {admin.namesrv_addr}"
    if new == (old or ""):
        return None
    if new:
        admin.asked(who, admin.create_or_update_order_conf, topic, new, True)
    else:
        admin.asked(who, admin.delete_kv_config, NAMESPACE_ORDER_TOPIC_CONFIG, topic)
    return new


# ---- routes


@dataclass(frozen=True)
class Routed:
    """The brokers of a topic that name servers do not list yet (`missing`), and the errors of those that failed.

    Both by the name server's address.
    """

    missing: dict[str, list[str]] = field(default_factory=dict)
    errors: dict[str, CannotAnswerError] = field(default_factory=dict)


def wait_for_route(admin: ClusterAdmin, topic: str, brokers: Iterable[Broker], timeout_s: float) -> Routed:
    """Wait until each name server lists the topic on all these brokers, so that producers can send there."""
    routed, deadline = Routed(), time.monotonic() + timeout_s
    names = {broker.name for broker in brokers}
    for address in admin.api.get_name_server_address_list():
        with admin.another(address) as one:
            try:
                missing = _missing(one, topic, names)
                while missing and time.monotonic() < deadline:
                    time.sleep(_ROUTE_STEP_S)
                    missing = _missing(one, topic, names)
            except CannotAnswerError as error:
                routed.errors[address] = error
            else:
                if missing:
                    routed.missing[address] = sorted(missing)
    return routed


def _missing(admin: ClusterAdmin, topic: str, names: set[str]) -> set[str]:
    return names - routed_brokers(admin, topic)


def routed_brokers(admin: ClusterAdmin, topic: str) -> set[str]:
    """Return the names of the brokers with queues of a topic, as the name server lists them."""
    try:
        route = admin.asked(f"name server {admin.namesrv_addr}", admin.examine_topic_route_info, topic)
    except RefusedError as refusal:
        if refusal.code == response_code.TOPIC_NOT_EXIST:
            return set()
        raise
    addressed = {data.brokerName for data in route.brokerDatas if data.brokerAddrs}
    return addressed & {data.brokerName for data in route.queueDatas}


# ---- deleting


@dataclass(frozen=True)
class Deletion:
    """The brokers that deleted a topic, and the errors of name servers by address. `is_complete`: nothing is left."""

    outcomes: Outcomes[bool]
    name_servers: dict[str, CannotAnswerError] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """True if the topic is deleted on all masters and name servers."""
        return not self.outcomes.errors and not self.name_servers


def messages_by_broker(admin: ClusterAdmin, brokers: list[Broker], topic: str) -> Outcomes[Messages | None]:
    """Return the messages of one topic on each broker; None where it does not exist."""
    def ask(broker: Broker) -> Messages | None:
        queues = queues_on(admin, broker, topic)
        return None if queues is None else Messages.of(queues)
    return on_each(admin, brokers, ask)


def delete_topic(admin: ClusterAdmin, brokers: list[Broker], name: str) -> Deletion:
    """Delete a topic on all masters of a cluster, then at the name servers with its order conf; slaves follow.

    While a master fails, the name servers keep the route. CannotAnswerError for a topic of the system.
    """
    check_name(name, own_names(brokers))

    def delete(broker: Broker) -> bool:
        admin.asked(f"broker {broker.address}", admin.delete_topic_in_broker, [broker.address], name)
        return True
    outcomes = on_each(admin, brokers, delete)
    outcomes.needed()
    errors: dict[str, CannotAnswerError] = {}
    if not outcomes.errors:
        cluster = brokers[0].cluster
        for address in admin.api.get_name_server_address_list():
            try:
                admin.asked(f"name server {address}", admin.delete_topic_in_name_server, [address], name, cluster)
            except CannotAnswerError as error:
                errors[address] = error
        remove_order(admin, name, [broker.name for broker in brokers])
    return Deletion(outcomes, errors)


# ---- one topic


@dataclass(frozen=True)
class TopicPart:
    """A topic on one broker: its settings, its queues, and each group's messages that are not consumed yet."""

    config: TopicConfig
    queues: list[QueueBounds]
    lags: dict[str, int]


@dataclass(frozen=True)
class Description:
    """A topic over all masters; None for those that do not have it."""

    name: str
    kind: str
    order_conf: str | None
    outcomes: Outcomes[TopicPart | None]

    @property
    def parts(self) -> dict[Broker, TopicPart]:
        """The parts of the brokers that have the topic."""
        return {broker: part for broker, part in self.outcomes.values.items() if part is not None}

    @property
    def missing(self) -> list[Broker]:
        """The masters that do not have the topic."""
        return [broker for broker, part in self.outcomes.values.items() if part is None]

    @property
    def lags(self) -> dict[str, int]:
        """The messages that each group has not consumed, over all brokers."""
        found: dict[str, int] = {}
        for part in self.parts.values():
            for group, lag in part.lags.items():
                found[group] = found.get(group, 0) + lag
        return dict(sorted(found.items()))

    @property
    def differences(self) -> list[str]:
        """The settings that differ between brokers."""
        configs = [part.config for part in self.parts.values()]
        return [key for key, read in SETTINGS.items() if len({read(config) for config in configs}) > 1]


SETTINGS: dict[str, Callable[[TopicConfig], Any]] = {
    "read_queues": lambda config: config.readQueueNums,
    "write_queues": lambda config: config.writeQueueNums,
    "perm": lambda config: perm_text(config.perm),
    "order": lambda config: config.order,
    "filter_type": lambda config: config.topicFilterType.name,
    "system_flag": lambda config: config.topicSysFlag,
}


def describe_topic(admin: ClusterAdmin, brokers: list[Broker], name: str) -> Description:
    """Return all that brokers and name servers know of a topic. CannotAnswerError when no master has it."""
    def ask(broker: Broker) -> TopicPart | None:
        config = configs_on(admin, broker).get(name)
        queues = None if config is None else queues_on(admin, broker, name, config)
        if config is None or queues is None:
            return None
        return TopicPart(config, queues, {group: lag_on(admin, broker, name, group)
                                          for group in sorted(groups_on(admin, broker, name))})
    outcomes = on_all(admin, brokers, ask)
    if not any(part is not None for part in outcomes.needed().values()):
        raise unknown_topic(admin, name, outcomes.errors)
    return Description(name, topic_kind(name, own_names(brokers)), order_conf(admin, name), outcomes)


def groups_on(admin: ClusterAdmin, broker: Broker, topic: str) -> set[str]:
    """Return the groups that consume a topic on a broker, or have offsets there."""
    return admin.ask_broker(broker.address, admin.api.query_topic_consume_by_who, topic, admin.timeout_millis).groupList


def lag_on(admin: ClusterAdmin, broker: Broker, topic: str, group: str) -> int:
    """Return how many messages of a topic on a broker a group has not consumed."""
    places = admin.ask_broker(broker.address, admin.api.get_consume_stats, group, admin.timeout_millis,
                              topic).offsetTable.values()
    return sum(max(0, place.brokerOffset - place.consumerOffset) for place in places)


# ---- rates


@dataclass(frozen=True)
class Window:
    """A counter over a time: its sum, and its sum per second."""

    sum: int = 0
    per_s: float = 0.0


@dataclass(frozen=True)
class Flow:
    """Messages and bytes of a topic on a broker, by window (minute, hour, day): in, or out to `group`."""

    group: str | None
    messages: dict[str, Window]
    bytes: dict[str, Window]


def topic_rates(admin: ClusterAdmin, brokers: list[Broker], name: str) -> Outcomes[list[Flow] | None]:
    """Return the flows of a topic on each broker, the one in first; None where it does not exist."""
    def ask(broker: Broker) -> list[Flow] | None:
        if queues_on(admin, broker, name) is None:
            return None
        flows = [Flow(None, _windows(admin, broker, stats.TOPIC_PUT_NUMS, name),
                      _windows(admin, broker, stats.TOPIC_PUT_SIZE, name))]
        for group in sorted(groups_on(admin, broker, name)):
            key = f"{name}@{group}"
            flows.append(Flow(group, _windows(admin, broker, stats.GROUP_GET_NUMS, key),
                              _windows(admin, broker, stats.GROUP_GET_SIZE, key)))
        return flows
    outcomes = on_all(admin, brokers, ask)
    if not any(flows is not None for flows in outcomes.needed().values()):
        raise unknown_topic(admin, name, outcomes.errors)
    return outcomes


def _windows(admin: ClusterAdmin, broker: Broker, counter: str, key: str) -> dict[str, Window]:
    """Return the windows of a counter; zeros for one that has counted nothing since the broker's start."""
    try:
        data = admin.ask_broker(broker.address, admin.view_broker_stats_data, counter, key)
    except RefusedError as refusal:
        if _NO_STATS not in refusal.message:
            raise
        return {"minute": Window(), "hour": Window(), "day": Window()}
    return {"minute": _window(data.statsMinute), "hour": _window(data.statsHour), "day": _window(data.statsDay)}


def _window(item: BrokerStatsItem | None) -> Window:
    return Window() if item is None else Window(item.sum, real(item.tps) or 0.0)
