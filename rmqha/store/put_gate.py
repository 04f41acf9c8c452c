"""The checks that a put must pass before it reaches the commit log.

A put that fails under the put lock delays all others, which wait for that lock. So everything that can be known
beforehand is checked here, without the lock: that the store is running, is not a slave's and is
writeable; that the topic, the queue id, the properties and the body can be stored; and that no earlier put is stuck
under the lock, where this one would only join the queue (`is_os_page_cache_busy`).

Passing the gate is necessary and not sufficient. Between the check and the lock the role may change, the topic may be
deleted, or the store may shut down; `CommitLog.put` therefore checks these again under the put lock. The gate only
makes the usual refusal cheap and gives it the status that RocketMQ gives.
"""
from __future__ import annotations

import logging

from rmqha.common.futures import AtomicInteger
from rmqha.common.message.message import MessageExt, MessageExtBatch
from rmqha.common.message.message_layout import MAX_PROPERTIES_LENGTH, MAX_TOPIC_LENGTH
from rmqha.common.util_all import current_time_millis
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.commit_log import CommitLog
from rmqha.store.consume_queue_layout import is_safe_topic
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.results import PutMessageStatus
from rmqha.store.store_state import StoreState

log = logging.getLogger("RocketmqStore")

_ENDLESS_BUSY_MS = 10_000_000
_REFUSALS_PER_LINE = 50_000
_PUT_OK = PutMessageStatus.PUT_OK
_MESSAGE_ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL
# Reasons for a refusal, as they are logged.
_SHUT_DOWN = "message store has shutdown, so putMessage is forbidden"
_IS_SLAVE = "broke role is slave, so putMessage is forbidden"
_NOT_WRITEABLE = ("the message store is not writable. It may be caused by one of the following reasons: the broker's "
                  "disk is full, write to logic queue error, write to index file error, etc")
_BUSY = "the put lock has been held for too long"  # not logged


class PutGate:
    """The checks of DefaultMessageStore's puts: its `checkStoreStatus`, `checkMessage(s)` and `checkLmqMessage`."""

    def __init__(self, state: StoreState, commit_log: CommitLog, table: ConsumeQueueTable) -> None:
        self._state = state
        self._config = state.config
        self._role = state.role
        self._commit_log = commit_log
        self._table = table
        # since the last accepted put; limits the log lines
        self._refused_puts = AtomicInteger()

    def check(self, msg: MessageExtBrokerInner) -> PutMessageStatus:
        """Return PUT_OK for a message that may be put now, else the reason for the refusal."""
        status = self._check_store_status()
        if status is _PUT_OK:
            status = self._check_message(msg)
        properties_length = len(msg.properties_string or "")
        if status is _PUT_OK and properties_length > MAX_PROPERTIES_LENGTH:
            log.warning("putMessage message properties length too long %s", properties_length)
            return _MESSAGE_ILLEGAL
        if status is _PUT_OK and self._config.enableLmq:
            status = self._check_lmq_message(msg)
        return status

    def check_batch(self, batch: MessageExtBatch) -> PutMessageStatus:
        """Return PUT_OK for a batch that may be put now, else the reason for the refusal."""
        status = self._check_store_status()
        if status is _PUT_OK:
            status = self._check_message(batch)
        body_length = len(batch.body or b"")
        if status is _PUT_OK and body_length > self._config.maxMessageSize:
            log.warning("PutMessages body length too long %s", body_length)
            return _MESSAGE_ILLEGAL
        return status

    def is_os_page_cache_busy(self) -> bool:
        """Return whether the put lock has been held for longer than osPageCacheBusyTimeOutMills."""
        begin = self._commit_log.begin_time_in_lock
        if begin == 0:
            return False
        held = current_time_millis() - begin
        return self._config.osPageCacheBusyTimeOutMills < held < _ENDLESS_BUSY_MS

    def _check_store_status(self) -> PutMessageStatus:
        refusal = self._why_refused()
        if refusal is None or refusal is _BUSY:
            if self._refused_puts.get():
                self._refused_puts.set(0)
            return _PUT_OK if refusal is None else PutMessageStatus.OS_PAGECACHE_BUSY
        if refusal is _SHUT_DOWN or self._refused_puts.get_and_increment() % _REFUSALS_PER_LINE == 0:
            log.warning(refusal)
        return PutMessageStatus.SERVICE_NOT_AVAILABLE

    def _why_refused(self) -> str | None:
        """Return the reason why the store accepts no puts at all at present; None when it accepts them."""
        state = self._state
        if state.is_shutdown:
            return _SHUT_DOWN
        if self._role.is_slave:
            return _IS_SLAVE
        if not state.running_flags.is_writeable:
            return _NOT_WRITEABLE
        return _BUSY if self._commit_log.begin_time_in_lock and self.is_os_page_cache_busy() else None

    def _check_message(self, msg: MessageExt) -> PutMessageStatus:
        topic = msg.topic or ""
        if len(topic) > MAX_TOPIC_LENGTH:
            log.warning("putMessage message topic length too long %s", len(topic))
            return _MESSAGE_ILLEGAL
        if msg.queue_id < 0 or topic not in self._table and not is_safe_topic(topic):
            # Differs: a message with a negative queue id or an unsafe topic name is refused. The original stores both,
            # and their consume queues end up outside the consume queue folder.
            log.warning("putMessage with topic %r and queue %s refused", topic, msg.queue_id)
            return _MESSAGE_ILLEGAL
        return _PUT_OK

    def _check_lmq_message(self, msg: MessageExtBrokerInner) -> PutMessageStatus:
        """Refuse a message for light message queues (LMQ) when the limit on their number is exceeded.

        Differs: a message for light queues is refused when there are too many of them; the original checks the wrong
        status, and stores messages that no consumer can read.
        """
        if self._table.is_lmq_num_exceeded() and self._commit_log.multi_dispatch.is_multi_dispatch_msg(msg):
            return PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
        return _PUT_OK
