"""What is asked only when somebody looks at it: a broker's topics, a topic's queues, a group's clients.

Each answer is kept for a moment, so that ten people who look at one topic cost the brokers what one does.
"""
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.common import java, mix_all, sys_flags
from rmqha.common import topics as topic_validator
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import namespace_util, response_code
from rmqha.common.protocol.client_bodies import ConsumerConnection
from rmqha.remoting.exception import RemotingException
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.admin.message_questions import ASK_ERRORS
from rmqha.tools.view.change import rate
from rmqha.tools.view.snapshot import Snapshot

log = logging.getLogger("RocketmqTools")

T = TypeVar("T")

TOPICS_TTL_S = 5.0
QUEUES_TTL_S = 1.0
CLIENTS_TTL_S = 3.0
_MAX_ANSWERS = 200
_NOT_THERE = (response_code.TOPIC_NOT_EXIST, response_code.NO_MESSAGE, response_code.SUBSCRIPTION_GROUP_NOT_EXIST)


class QuestionError(Exception):
    """What can't be answered, for people; `not_there`: because there is no such thing."""

    def __init__(self, message: str, not_there: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.not_there = not_there


class UnreadableAnswerError(QuestionError):
    """What a broker or name server answered is not what its answer has to be."""


@dataclass(frozen=True)
class TopicRow:
    """A topic over all brokers; `kind` is user, system, retry or dead letter. Queues are of all brokers together."""

    name: str
    kind: str
    brokers: tuple[str, ...]
    read_queues: int
    write_queues: int
    perm: str
    order: bool


@dataclass(frozen=True)
class QueueRow:
    """A queue: first and next offset, store time (ms) of its last message, messages per second since the last look."""

    broker: str
    queue_id: int
    begin: int
    end: int
    last_ms: int
    per_s: float | None = None


@dataclass(frozen=True)
class TopicDetail:
    """A topic's queues, and the groups that consume it."""

    name: str
    queues: tuple[QueueRow, ...]
    groups: tuple[str, ...]


@dataclass(frozen=True)
class ClientRow:
    """A client of a group."""

    client_id: str
    address: str
    language: str
    version: str


@dataclass(frozen=True)
class GroupClients:
    """Who consumes as a group, and how; `subscriptions` are (topic, expression). Nobody: no clients."""

    clients: tuple[ClientRow, ...] = ()
    consume_type: str = ""
    model: str = ""
    consume_from: str = ""
    subscriptions: tuple[tuple[str, str], ...] = ()


class Answers:
    """Answers of the last moments by question; at most `_MAX_ANSWERS`. Safe for several threads."""

    def __init__(self) -> None:
        self._kept: dict[object, tuple[float, object]] = {}  # (until, monotonic; answer); guarded by _lock
        self._lock = threading.Lock()

    def get(self, question: object, ttl_s: float, ask: Callable[[], T]) -> T:
        """The answer that is kept, or what `ask` gives; while one thread asks, others may, too."""
        with self._lock:
            until, answer = self._kept.get(question, (0.0, None))
            if time.monotonic() < until:
                return cast(T, answer)
        new = ask()
        with self._lock:
            self._kept.pop(question, None)
            self._kept[question] = (time.monotonic() + ttl_s, new)
            while len(self._kept) > _MAX_ANSWERS:
                del self._kept[next(iter(self._kept))]
        return new

    def forget(self) -> None:
        """After a change."""
        with self._lock:
            self._kept.clear()


class Questions:
    """Questions to the brokers of a snapshot; QuestionError for what they can't answer."""

    def __init__(self, admin: DefaultMQAdminExt) -> None:
        self.admin = admin
        self.answers = Answers()
        self._ends: dict[str, tuple[float, dict[MessageQueue, int]]] = {}  # by topic: monotonic, ends; see _queue_rows

    def topics(self, now: Snapshot, address: str | None = None) -> list[TopicRow]:
        """All topics of the masters that answer, or those of one broker; sorted by name."""
        return self.answers.get(("topics", address), TOPICS_TTL_S, lambda: asked(lambda: self._topics(now, address)))

    def topic(self, name: str) -> TopicDetail:
        """One topic's queues."""
        return self.answers.get(("topic", name), QUEUES_TTL_S, lambda: asked(lambda: self._topic(name)))

    def clients(self, now: Snapshot, group: str) -> GroupClients:
        """Who consumes as a group, by all masters that answer."""
        return self.answers.get(("clients", group), CLIENTS_TTL_S, lambda: asked(lambda: self._clients(now, group)))

    def _topics(self, now: Snapshot, address: str | None) -> list[TopicRow]:
        found: dict[str, list[Any]] = {}
        own = {broker.name for broker in now.brokers} | {broker.cluster for broker in now.brokers}
        for broker in now.brokers:
            if not broker.error and (broker.address == address if address else broker.is_master):
                table = self.admin.api.get_all_topic_config(broker.address, self.admin.timeout_millis)
                for name, config in (table.topicConfigTable or {}).items():
                    found.setdefault(name, []).append((broker.name, config))
        return [_topic_row(name, configs, own) for name, configs in sorted(found.items())]

    def _topic(self, name: str) -> TopicDetail:
        stats = self.admin.examine_topic_stats(name).offsetTable
        ends = {queue: place.maxOffset for queue, place in stats.items()}
        at_s, before = self._ends.get(name, (0.0, {}))
        now_s = time.monotonic()
        self._ends.pop(name, None)
        self._ends[name] = (now_s, ends)
        if len(self._ends) > _MAX_ANSWERS:
            self._ends.pop(next(iter(self._ends)), None)
        rows = [QueueRow(queue.brokerName, queue.queueId, place.minOffset, place.maxOffset, place.lastUpdateTimestamp,
                         rate(before[queue], place.maxOffset, now_s - at_s) if queue in before else None)
                for queue, place in stats.items()]
        groups = self.admin.query_topic_consume_by_who(name)
        return TopicDetail(name, tuple(sorted(rows, key=lambda row: (row.broker, row.queue_id))),
                           tuple(sorted(groups.groupList)) if groups is not None else ())

    def _clients(self, now: Snapshot, group: str) -> GroupClients:
        found: dict[str, ClientRow] = {}
        told = ConsumerConnection()
        for broker in now.brokers:
            if broker.error or not broker.is_master:
                continue
            try:
                told_now = self.admin.api.get_consumer_connection_list(
                    broker.address, group, self.admin.timeout_millis)
            except MQBrokerException as error:
                if error.response_code != response_code.CONSUMER_NOT_ONLINE:
                    raise
                continue
            told = told_now if told_now.connectionSet else told
            for each in told_now.connectionSet:
                found[each.clientId] = ClientRow(each.clientId, each.clientAddr or "", each.language or "",
                                                 java.get_version_desc(each.version))
        return GroupClients(
            tuple(found[name] for name in sorted(found)),
            told.consumeType.name if told.consumeType else "", told.messageModel.name if told.messageModel else "",
            told.consumeFromWhere.name if told.consumeFromWhere else "",
            tuple(sorted((topic, data.subString or "*") for topic, data in told.subscriptionTable.items())))


def asked(ask: Callable[[], T]) -> T:
    """What `ask` gives; what the client raises as QuestionError."""
    try:
        return ask()
    except ASK_ERRORS as error:
        raise question_error(error) from error
    except ValueError as error:  # FastjsonError, MessageDecodeError, UnicodeDecodeError
        log.warning("an answer that can't be read", exc_info=True)
        raise UnreadableAnswerError(f"an answer that can't be read: {error}") from error


def question_error(error: Exception) -> QuestionError:
    """An error of the client for people, without the address of a page that explains it."""
    if isinstance(error, (MQClientException, MQBrokerException)):
        text = (error.error_message or str(error)).split(namespace_util.TIP_STRING_BEGIN)[0].strip()
        where = f" ({error.broker_addr})" if isinstance(error, MQBrokerException) and error.broker_addr else ""
        return QuestionError(f"{text}{where}", error.response_code in _NOT_THERE)
    assert isinstance(error, RemotingException)
    return QuestionError(f"no answer: {error}")


def _topic_row(name: str, configs: list[Any], own: set[str]) -> TopicRow:
    perms = {sys_flags.perm2_string(config.perm)[:2] for _broker, config in configs}
    return TopicRow(name, topic_kind(name, own), tuple(sorted({broker for broker, _config in configs})),
                    sum(config.readQueueNums for _broker, config in configs),
                    sum(config.writeQueueNums for _broker, config in configs), " ".join(sorted(perms)),
                    any(config.order for _broker, config in configs))


def topic_kind(name: str, own: set[str]) -> str:
    """What a topic is for; `own` are the names of brokers and clusters, which have topics of their names."""
    if name.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX):
        return "retry"
    if name.startswith(mix_all.DLQ_GROUP_TOPIC_PREFIX):
        return "dead letter"
    is_own = name in own or any(name == f"{each}_{mix_all.REPLY_TOPIC_POSTFIX}" for each in own)
    return "system" if is_own or topic_validator.is_system_topic(name) else "user"
