"""Transactional messages under the control of a test: outcomes, the brokers' checks, and what consumers get.

    test --send, outcome--> TransactionProducer --half message--> broker
    test --check--> broker --"what is the outcome?"--> ScriptedListener, or the test's own listener
    test --open, visible, consume--> broker

A half message is open until its broker has stored that it was committed or rolled back. A broker checks an open
transaction again and again: it appends the half message once more, counts the check in a property of the copy, and
asks a producer of the group. So the last copy of a message says how often its outcome was asked for.
"""
from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from rmqha import ConsumeFromWhere, PushConsumer
from rmqha.client.hooks import LocalTransactionState, TransactionListener, TransactionSendResult
from rmqha.client.producer.transaction_mq_producer import TransactionMQProducer
from rmqha.common import topics
from rmqha.common.message import message_const
from rmqha.common.message.message import Message, MessageExt, MessageQueue
from rmqha.testing.cluster_parts import EmbeddedError, wait_until
from rmqha.testing.isolated_topic import readable_name
from rmqha.testing.process import refuse_unsupported

if TYPE_CHECKING:
    from rmqha.testing.cluster_admin import Cluster

COMMIT, ROLLBACK, UNKNOWN = (LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE,
                             LocalTransactionState.UNKNOW)
_HALVES = MessageQueue(topics.RMQ_SYS_TRANS_HALF_TOPIC, "", 0)
_OPERATIONS = MessageQueue(topics.RMQ_SYS_TRANS_OP_HALF_TOPIC, "", 0)
_CHECKER = "CID_RMQ_SYS_TRANS"  # the group by whose offset a broker remembers which half messages are settled
_WAIT_S = 60
# A round of checks may begin before a message is old enough, or in its queue. Another one is started then
_ROUND_S = 2.0
Outcome = LocalTransactionState | Exception
"""The answer of a listener; an exception is raised, which counts as unknown."""


class Script(NamedTuple):
    """The answers of a ScriptedListener for one message: to the local transaction, and to checks."""

    outcome: Outcome
    on_check: Outcome


class ScriptedListener(TransactionListener):
    """A listener whose answers the test sets, for all messages (`outcome`, `on_check`) or for one (`answer`).

    `executed` and `checked` are the messages of its calls so far. Thread-safe.
    """

    def __init__(self, outcome: Outcome = COMMIT, on_check: Outcome = UNKNOWN) -> None:
        self.outcome = outcome
        self.on_check = on_check
        self.executed: list[Message] = []
        self.checked: list[MessageExt] = []
        self._on_check: dict[str, Outcome] = {}  # by transaction id; guarded by _lock
        self._lock = threading.Lock()

    def answer(self, transaction: TransactionSendResult | Message | str, on_check: Outcome) -> None:
        """Set the answer to checks of one transaction: a result of its send, its message, or its id."""
        if isinstance(transaction, Message):
            key = transaction.transaction_id
        else:
            key = transaction if isinstance(transaction, str) else transaction.msg_id
        if key is None:
            raise EmbeddedError(f"{transaction} has no transaction id: it was not sent in a transaction")
        with self._lock:
            self._on_check[key] = on_check

    def execute_local_transaction(self, msg: Message, arg: Any) -> LocalTransactionState:
        script = arg if isinstance(arg, Script) else Script(self.outcome, self.on_check)
        with self._lock:
            self.executed.append(msg)
            if isinstance(arg, Script) and msg.transaction_id is not None:
                self._on_check[msg.transaction_id] = script.on_check
        return _given(script.outcome)

    def check_local_transaction(self, msg: MessageExt) -> LocalTransactionState:
        with self._lock:
            self.checked.append(msg)
            found = self._on_check.get(msg.transaction_id or "", self.on_check)
        return _given(found)


def _given(outcome: Outcome) -> LocalTransactionState:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


class OpenTransaction(NamedTuple):
    """A half message that is neither committed nor rolled back."""

    id: str
    topic: str
    group: str
    body: bytes
    checks: int
    broker: str  # the address of its broker
    is_immune: bool


class Transactions:
    """Transactions of a test. `mq` is the cluster; `listener` is the ScriptedListener of `producer` and `send`.

    The test's own producers and listeners can be used beside it: `check`, `open`, `settle`, `visible` and `consume`
    apply to all transactions of the cluster.
    """

    def __init__(self, mq: Cluster, test: str, unsupported: Callable[[str], NoReturn] = refuse_unsupported) -> None:
        self.mq = mq
        self.listener = ScriptedListener()
        self._test = readable_name(test)
        self._unsupported = unsupported
        self._producers: list[TransactionMQProducer] = []
        self._own: TransactionMQProducer | None = None  # the one of `send`, from its first use on
        self._groups: list[str] = []  # those to delete

    @property
    def namesrv_addr(self) -> str:
        """The address ("host:port") of the name server."""
        return self.mq.namesrv_addr

    def close(self) -> None:
        """Shut down the producers, and delete the groups whose names were left out."""
        while self._producers:
            self._producers.pop().shutdown()
        self._own = None
        while self._groups:
            self.mq.delete_group(self._groups.pop())

    # Sending.

    def producer(self, group: str | None = None, listener: TransactionListener | None = None,
                 **settings: Any) -> TransactionMQProducer:
        """Return a started producer, which is shut down at the end. Without `listener`, it has `self.listener`."""
        producer = TransactionMQProducer(group or self._new_group(), self.namesrv_addr, listener or self.listener,
                                         **settings)
        producer.start()
        self._producers.append(producer)
        return producer

    def send(self, message: Message, outcome: Outcome = COMMIT, on_check: Outcome = UNKNOWN) -> TransactionSendResult:
        """Send a message in a transaction with this outcome. `on_check`: the answer to the brokers' checks; `answer`
        changes it later."""
        if self._own is None:
            self._own = self.producer()
        return self._own.send_message_in_transaction(message, Script(outcome, on_check))

    def answer(self, transaction: TransactionSendResult | Message | str, on_check: Outcome) -> None:
        """Set the answer of `self.listener` to checks of one transaction."""
        self.listener.answer(transaction, on_check)

    def _new_group(self) -> str:
        self._groups.append(f"{self._test}-{os.urandom(4).hex()}")
        return self._groups[-1]

    # Checks.

    def open(self, topic: str | None = None) -> list[OpenTransaction]:
        """Return the open transactions, of one topic or of all, in the order of their last copies."""
        return [one for address in self._masters().values() for one in self._open_at(address)
                if topic is None or one.topic == topic]

    def check(self, timeout_s: float = _WAIT_S) -> int:
        """Have the brokers ask now for the outcome of each open transaction, at least once; return their number.

        `listener` has been asked when this returns. The answers take effect soon after; `settle` waits for that.
        Messages with CHECK_IMMUNITY_TIME_IN_SECONDS are left out until this time is over.
        """
        hurry = getattr(self.mq, "hurry_transaction_checks", None)
        if hurry is None:
            self._unsupported(f"the cluster at {self.namesrv_addr} was not started by this test, so it checks open "
                              "transactions at the times of its own config")
        due = {one.id: one for one in self.open() if not one.is_immune}
        self._wait_for_producers(due.values(), timeout_s)
        own = {producer.producer_group for producer in self._producers
               if producer.transaction_listener is self.listener}
        seen = len(self.listener.checked)

        def are_asked() -> bool:
            now = {one.id: one for one in self.open()}
            asked = {one.transaction_id for one in self.listener.checked[seen:]}
            # One that is not open any more has been asked, or it was given up
            return all(key not in now or now[key].checks > one.checks and (one.group not in own or key in asked)
                       for key, one in due.items())

        deadline = time.monotonic() + timeout_s
        try:
            while due:
                hurry(True)
                try:
                    wait_until(are_asked, min(_ROUND_S, max(deadline - time.monotonic(), 0)), "all are asked")
                    break
                except EmbeddedError:
                    if time.monotonic() > deadline:
                        raise EmbeddedError(f"the brokers did not check all of {len(due)} open transactions within "
                                            f"{timeout_s:g} s") from None
        finally:
            hurry(False)
        return len(due)

    def settle(self, topic: str | None = None, timeout_s: float = _WAIT_S) -> None:
        """Wait until no transaction is open, of one topic or of all. Then `visible` does not change any more."""
        def is_settled() -> bool:
            left[:] = self.open(topic)
            return not left

        left: list[OpenTransaction] = []
        try:
            wait_until(is_settled, timeout_s, "")
        except EmbeddedError:
            raise EmbeddedError(f"after {timeout_s:g} s there are open transactions: "
                                + "; ".join(f"{one.body!r} of {one.topic}, checked {one.checks} times" for one in left)
                                ) from None

    def _wait_for_producers(self, transactions: Iterable[OpenTransaction], timeout_s: float) -> None:
        """Wait until each broker knows a producer to ask."""
        for broker, group in sorted({(one.broker, one.group) for one in transactions}):
            try:
                wait_until(partial(self._is_known, broker, group), timeout_s, "")
            except EmbeddedError:
                raise EmbeddedError(f"{broker} can't ask for the outcome: after {timeout_s:g} s it knows no producer "
                                    f"of the group {group}; start one (it reports its group every "
                                    "heartbeat_broker_interval, by default 30 s)") from None

    def _is_known(self, broker: str, group: str) -> bool:
        """Return True if a broker knows a producer of a group. If not, the producers that this object has started
        report their groups now, which they otherwise do with their next heartbeat."""
        if self.mq.admin.has_producer(broker, group):
            return True
        for producer in self._producers:
            producer.default_mq_producer_impl.mq_client_factory.send_heartbeat_to_all_broker_with_lock(wait=True)
        return False

    def _masters(self) -> dict[str, str]:
        return self.mq.admin.masters()

    def _open_at(self, address: str) -> list[OpenTransaction]:
        admin = self.mq.admin
        # A broker moves the offset of half messages first, then that of operations. It appends a copy of a half message
        # before the operation that ends the old one
        after = admin.consumer_offset(address, _CHECKER, _OPERATIONS)
        halves = admin.queue_messages(_HALVES, address, admin.consumer_offset(address, _CHECKER, _HALVES))
        ended = _ended(admin.queue_messages(_OPERATIONS, address, after))
        last = {str(half.get_property(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)): half for half in halves}
        return [_open(key, half, address) for key, half in last.items() if half.queue_offset not in ended]

    # Consumers.

    def visible(self, topic: str) -> list[MessageExt]:
        """Return all messages that consumers of a topic can get now, by broker, queue and offset."""
        return self.mq.messages(topic)

    def consume(self, topic: str, timeout_s: float = _WAIT_S) -> list[MessageExt]:
        """Return the messages that a consumer of a new group gets of a topic, in the order of their arrival.

        Returns when it has all messages that are visible at the call.
        """
        wanted = {(one.broker_name, one.queue_id, one.queue_offset) for one in self.visible(topic)}
        got: dict[tuple[str | None, int, int], MessageExt] = {}

        def take(messages: list[MessageExt]) -> None:
            got.update(((one.broker_name, one.queue_id, one.queue_offset), one) for one in messages)

        consumer = PushConsumer(self._new_group(), self.namesrv_addr, take,
                                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        consumer.subscribe(topic)
        with consumer:
            wait_until(lambda: wanted <= got.keys(), timeout_s, f"a consumer of {topic} has got {len(wanted)} messages")
        return list(got.values())


def _ended(operations: Iterable[MessageExt]) -> set[int]:
    """Return the offsets of the half messages that were committed or rolled back.

    The body of an operation is the offset of its half message; 5.x writes several, separated by commas.
    """
    return {int(offset) for one in operations for offset in bytes(one.body).decode().split(",")
            if offset.strip().isdigit()}


def _open(key: str, half: MessageExt, broker: str) -> OpenTransaction:
    checks = half.get_property(message_const.PROPERTY_TRANSACTION_CHECK_TIMES) or "0"
    immunity = half.get_property(message_const.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS) or "0"
    is_immune = immunity.isdigit() and time.time() * 1000 < half.born_timestamp + int(immunity) * 1000
    return OpenTransaction(
        key, half.get_property(message_const.PROPERTY_REAL_TOPIC) or half.topic,
        half.get_property(message_const.PROPERTY_PRODUCER_GROUP) or "", bytes(half.body), int(checks), broker,
        is_immune)


