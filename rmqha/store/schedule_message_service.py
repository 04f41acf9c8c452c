"""The delivery of delayed messages.

    producer -- DELAY=n --> CommitLog --> SCHEDULE_TOPIC_XXXX, queue n-1; the tags code of its unit = delivery time
    ScheduleMessageTimerThread_1: for each level, every 100 ms: due messages --> put again, to their original topic
                                  every flushDelayOffsetInterval: the levels' progress --> config/delayOffset.json
    with enableScheduleAsyncDeliver the timer does not wait for puts:
    timer thread --put--> [pending, by level] <--every 10 ms-- ScheduleMessageExecutorHandleThread_1: progress, resends
"""
from __future__ import annotations

import logging
import threading
import time
from collections import deque
from enum import Enum
from typing import Protocol

from rmqha.common import mix_all, topics
from rmqha.common.config_manager import ConfigManager
from rmqha.common.futures import Completable
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.message import message_const
from rmqha.common.message.message import MessageExt, parse_int
from rmqha.common.message.message_decoder import message_properties2string
from rmqha.common.texts import LATER
from rmqha.common.threads import ScheduledService
from rmqha.common.util_all import current_time_millis
from rmqha.remoting.protocol import remoting_serializable
from rmqha.store import store_path_config_helper
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.broker_stats_manager import BrokerStatsManager
from rmqha.store.commit_log import CommitLog
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_layout import CQ_UNIT
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.deleted_topics import DeletedTopics
from rmqha.store.message_reader import MessageReader
from rmqha.store.results import PutMessageResult, PutMessageStatus, SelectMappedBufferResult
from rmqha.store.store_state import StoreState

log = logging.getLogger("RocketmqStore")

FIRST_DELAY_TIME_MS = 1000
DELAY_FOR_A_WHILE_MS = 100
DELAY_FOR_A_PERIOD_MS = 10_000
DELAY_FOR_A_SLEEP_MS = 10
_RESEND_STEP_MS = 100
_MAX_RESEND_WAIT_MS = 60_000
_FIRST_PERSIST_MS = 10_000
_PUT_TIMEOUT_MS = 10_000
# One thread serves all levels. After this time a level with a long backlog gives way to the others.
_MAX_TURN_MS = 100
# After these statuses a retry can't succeed.
_NEVER_PUT = (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
              PutMessageStatus.TOPIC_NOT_EXIST)


@dataclass(slots=True)
class DelayOffsetSerializeWrapper:
    """The progress of each delay level: the index of the next message to deliver. The field's name is the JSON key.

    Java: org.apache.rocketmq.store.schedule.DelayOffsetSerializeWrapper (4.9.8)
    """

    offsetTable: dict[int, int] = field(default_factory=dict)


class WriteMessageStore(Protocol):
    """The store to which due messages are put, or a plug-in in front of it."""

    def async_put_message(self, msg: MessageExtBrokerInner) -> Completable[PutMessageResult]:
        """Store one message. The future completes when the message is as safe as the configuration and its WAIT
        property ask."""


class ScheduleMessageService(ConfigManager):
    """The service that delivers due messages on a master, and saves the progress of each level.

    `levels` are set by `load`. Once started, only the delivering thread changes `offset_table` (with asynchronous
    delivery, only the thread that handles results); other threads copy it.

    Java: org.apache.rocketmq.store.schedule.ScheduleMessageService (4.9.8)
    """

    def __init__(self, state: StoreState, commit_log: CommitLog, table: ConsumeQueueTable, reader: MessageReader,
                 deleted_topics: DeletedTopics, broker_stats_manager: BrokerStatsManager | None,
                 write_message_store: WriteMessageStore) -> None:
        self.config = state.config
        self.levels = state.delay_levels
        self.commit_log = commit_log
        self._table = table
        self.reader = reader
        self.deleted_topics = deleted_topics
        self.broker_stats_manager = broker_stats_manager
        self.write_message_store = write_message_store
        # Level -> index of the next unit in its queue.
        self.offset_table: dict[int, int] = {}
        # Held by a start or a shutdown.
        self._life = threading.Lock()
        # Written under _life.
        self._started = False
        # Guarded by _life.
        self._deliver_executor_service: ScheduledService | None = None
        self.enable_async_deliver = state.config.enableScheduleAsyncDeliver
        # Guarded by _life.
        self._handle_executor_service: ScheduledService | None = None
        # Puts whose result was not handled yet, in the order of their level's queue. Appended by the timer thread,
        # removed by the handling thread.
        self.deliver_pending_table: dict[int, deque[PutResultProcess]] = {}

    @staticmethod
    def delay_level2queue_id(delay_level: int) -> int:
        """Return the id of the queue in which messages of `delay_level` wait."""
        return delay_level - 1

    def build_running_stats(self, stats: dict[str, str]) -> None:
        """Add "next,max" of each level's queue."""
        for level, delay_offset in list(self.offset_table.items()):
            stats[f"scheduleMessageOffset_{level}"] = f"{delay_offset},{self._max_offset(level)}"

    def behind_by_level(self) -> dict[int, int]:
        """Return the number of undelivered messages of each level that has ever delivered a message."""
        return {level: max(0, self._max_offset(level) - delay_offset)
                for level, delay_offset in list(self.offset_table.items())}

    def _max_offset(self, level: int) -> int:
        queue = self._table.get_queue(topics.RMQ_SYS_SCHEDULE_TOPIC, self.delay_level2queue_id(level))
        return queue.get_max_offset_in_queue() if queue is not None else 0

    def update_offset(self, delay_level: int, offset: int) -> None:
        """Set the progress of a level: everything below `offset` has been delivered."""
        self.offset_table[delay_level] = offset

    def queue_of(self, level: int) -> ConsumeQueue | None:
        """Return the queue in which messages of a level wait."""
        return self._table.find_queue(topics.RMQ_SYS_SCHEDULE_TOPIC, self.delay_level2queue_id(level))

    @property
    def is_started(self) -> bool:
        """True while the service delivers messages, on a master."""
        return self._started

    def start(self) -> None:
        """Read the progress file, which a slave gets from its master, and start delivering. Idempotent."""
        with self._life:
            if self._started:
                return
            self._started = True
            self.load()
            if self.enable_async_deliver:
                self._start_handling()
            service = self._deliver_executor_service = ScheduledService("ScheduleMessageTimerThread_1")
            # A shutdown waits for a running put, so that its message counts as delivered.
            service.join_time_ms = _PUT_TIMEOUT_MS + _RESEND_STEP_MS
            # Differs: one thread serves all levels; Java has one per level.
            for level in self.levels.table:
                task = DeliverDelayedMessageTimerTask(self, service, level, self.offset_table.get(level, 0))
                service.schedule(task.run, FIRST_DELAY_TIME_MS)
            service.schedule_at_fixed_rate(self._persist_while_started, _FIRST_PERSIST_MS,
                                           self.config.flushDelayOffsetInterval)

    def shutdown(self) -> None:
        """Stop delivering, and save the progress if the service was started. Idempotent."""
        with self._life:
            if not self._started:
                return
            self._started = False
            service, self._deliver_executor_service = self._deliver_executor_service, None
            handler, self._handle_executor_service = self._handle_executor_service, None
        if service is not None:
            service.shutdown()
        if handler is not None:
            handler.shutdown()
            for level, pending in self.deliver_pending_table.items():
                HandlePutResultTask(self, handler, level).handle()
                if pending:
                    log.warning("deliverPendingTable level: %s, size: %s", level, len(pending))
        self.persist()

    def load(self) -> bool:
        """Read the progress and the levels, and move the progress into the range of the queues."""
        return super().load() and self.levels.parse() and self.correct_delay_offset()

    def correct_delay_offset(self) -> bool:
        """Move each level's progress into its queue's range; return False if a queue can't be read."""
        try:
            for level in list(self.levels.table):
                self._correct_level(level)
        except Exception:
            log.exception("correctDelayOffset exception")
            return False
        return True

    def config_file_path(self) -> str:
        """Return the path of delayOffset.json."""
        return store_path_config_helper.get_delay_offset_store_path(self.config.storePathRootDir)

    def encode(self, pretty_format: bool = False) -> str:
        """Return the progress as JSON."""
        return remoting_serializable.to_json(DelayOffsetSerializeWrapper(dict(self.offset_table)), pretty_format)

    def decode(self, json_string: str) -> None:
        """Take over the progress of the levels in the JSON."""
        wrapper = remoting_serializable.from_json(DelayOffsetSerializeWrapper, json_string)
        self.offset_table.update(wrapper.offsetTable or {})

    def message_timeup(self, msg_ext: MessageExt) -> MessageExtBrokerInner:
        """Return the message to put when `msg_ext` is due. Raise ValueError if it lacks its original topic or queue.

        The stored properties are built before DELAY is cleared, so a delivered record still has it, as in Java.
        """
        msg_inner = MessageExtBrokerInner(body=msg_ext.body)
        msg_inner.flag = msg_ext.flag
        msg_inner.properties = properties = msg_ext.properties
        topic_filter_type = MessageExt.parse_topic_filter_type(msg_inner.sys_flag)
        msg_inner.tags_code = MessageExtBrokerInner.tags_string2tags_code(topic_filter_type, msg_inner.tags)
        msg_inner.properties_string = message_properties2string(properties)
        msg_inner.sys_flag = msg_ext.sys_flag
        msg_inner.born_timestamp = msg_ext.born_timestamp
        msg_inner.born_host = msg_ext.born_host
        msg_inner.store_host = msg_ext.store_host
        msg_inner.reconsume_times = msg_ext.reconsume_times
        msg_inner.wait_store_msg_ok = False
        msg_inner.clear_property(message_const.PROPERTY_DELAY_TIME_LEVEL)
        topic = properties.get(message_const.PROPERTY_REAL_TOPIC)
        queue_id = properties.get(message_const.PROPERTY_REAL_QUEUE_ID)
        if not topic or queue_id is None:
            raise ValueError("it has no REAL_TOPIC or no REAL_QID")
        msg_inner.topic = topic
        msg_inner.queue_id = parse_int(queue_id)
        return msg_inner

    def _correct_level(self, level: int) -> None:
        offset = self.offset_table.get(level)
        consume_queue = self.queue_of(level)
        if offset is None or consume_queue is None:
            return
        lowest, highest = consume_queue.get_min_offset_in_queue(), consume_queue.get_max_offset_in_queue()
        correct = min(max(offset, lowest), highest)
        if correct != offset:
            log.error("schedule CQ offset invalid. offset=%d, cqMinOffset=%d, cqMaxOffset=%d, queueId=%d",
                      offset, lowest, highest, self.delay_level2queue_id(level))
            log.error("correct delay offset [ delayLevel %d ] from %d to %d", level, offset, correct)
            self.update_offset(level, correct)

    def _start_handling(self) -> None:
        """Start handling the results of asynchronous puts.

        Differs: one thread serves all levels; Java has one per level.
        """
        self.deliver_pending_table = {level: deque() for level in self.levels.table}
        handler = self._handle_executor_service = ScheduledService("ScheduleMessageExecutorHandleThread_1")
        for level in self.levels.table:
            handler.schedule(HandlePutResultTask(self, handler, level).run, FIRST_DELAY_TIME_MS)

    def _persist_while_started(self) -> None:
        if self._started:
            self.persist()


class DeliverDelayedMessageTimerTask:
    """The task that delivers the due messages of one level, from `offset` on, and schedules its next run.

    Java: org.apache.rocketmq.store.schedule.ScheduleMessageService$DeliverDelayedMessageTimerTask (4.9.8)
    """

    __slots__ = ("service", "timer", "delay_level", "offset")

    def __init__(self, service: ScheduleMessageService, timer: ScheduledService, delay_level: int, offset: int) -> None:
        self.service = service
        self.timer = timer
        self.delay_level = delay_level
        self.offset = offset  # index of the next unit to check

    def run(self) -> None:
        """Check the queue once, on the timer thread."""
        if not self.service.is_started:
            return
        delay_ms = DELAY_FOR_A_PERIOD_MS
        try:
            delay_ms = self._execute_on_timeup()
        except Exception:
            log.exception("ScheduleMessageService, executeOnTimeup exception")
        finally:
            self.timer.schedule(self.run, delay_ms)

    def _execute_on_timeup(self) -> int:
        """Deliver the due messages; return the ms until the next check."""
        consume_queue = self.service.queue_of(self.delay_level)
        if consume_queue is None:
            return DELAY_FOR_A_WHILE_MS
        buffer_cq = consume_queue.get_index_buffer(self.offset)
        if buffer_cq is None:
            self._reset_offset(consume_queue)
            return DELAY_FOR_A_WHILE_MS
        with buffer_cq:
            return self._deliver_due(consume_queue, buffer_cq)

    def _reset_offset(self, consume_queue: ConsumeQueue) -> None:
        lowest, highest = consume_queue.get_min_offset_in_queue(), consume_queue.get_max_offset_in_queue()
        if not lowest <= self.offset <= highest:
            log.error("schedule CQ offset invalid. offset=%d, cqMinOffset=%d, cqMaxOffset=%d, queueId=%d",
                      self.offset, lowest, highest, consume_queue.queue_id)
            self.offset = min(max(self.offset, lowest), highest)

    def _deliver_due(self, consume_queue: ConsumeQueue, buffer_cq: SelectMappedBufferResult) -> int:
        turn_ends_ns = time.monotonic_ns() + _MAX_TURN_MS * 1_000_000
        for position in range(0, buffer_cq.size - CQ_UNIT.size + 1, CQ_UNIT.size):
            offset_py, size_py, tags_code = CQ_UNIT.unpack_from(buffer_cq.buffer, position)
            now = current_time_millis()
            due = self._correct_deliver_timestamp(now, self._deliver_timestamp(consume_queue, offset_py, size_py,
                                                                               tags_code))
            if due > now or not self.service.is_started or not self._deliver(offset_py, size_py):
                return DELAY_FOR_A_WHILE_MS
            self.offset += 1
            if time.monotonic_ns() > turn_ends_ns:
                return 0
        return DELAY_FOR_A_WHILE_MS

    def _deliver_timestamp(self, consume_queue: ConsumeQueue, offset_py: int, size_py: int, tags_code: int) -> int:
        """Return the delivery time in a unit. With extended consume queues the tags code is an address."""
        extension = consume_queue.consume_queue_ext
        if extension is None or not extension.is_ext_addr(tags_code):
            return tags_code
        unit = consume_queue.get_ext(tags_code)
        if unit is not None:
            return unit.tags_code
        log.error("[BUG] can't find consume queue extend file content!addr=%d, offsetPy=%d, sizePy=%d",
                  tags_code, offset_py, size_py)
        store_time = self.service.commit_log.pickup_store_timestamp(offset_py, size_py)
        return self.service.levels.deliver_timestamp(self.delay_level, store_time)

    def _correct_deliver_timestamp(self, now: int, deliver_timestamp: int) -> int:
        """Return the delivery time, or `now` if it is later than the level's whole delay: the clock was set back."""
        if deliver_timestamp > now + self.service.levels.table[self.delay_level]:
            return now
        return deliver_timestamp

    def _deliver(self, offset_py: int, size_py: int) -> bool:
        """Put the message of one unit; return False if it has to be retried later."""
        msg_ext = self.service.reader.look_message_by_offset(offset_py, size_py)
        if msg_ext is None:
            return True
        if self.service.deleted_topics.is_message_dead(msg_ext):
            # Differs: a delayed message is deleted with its topic. The original delivers it, even to a new topic with
            # the same name.
            log.info("the topic of the delayed message at %d has been deleted; skipping the message", offset_py)
            return True
        try:
            msg_inner = self.service.message_timeup(msg_ext)
        except ValueError as error:
            # Differs: a delayed message that can't be delivered, because it is malformed, is skipped. Java retries it
            # forever, and delivers no later message of the level.
            log.error("can't deliver the delayed message at %d; skipping it: %s", offset_py, error)
            return True
        if msg_inner.topic == topics.RMQ_SYS_TRANS_HALF_TOPIC:
            log.error("[BUG] the real topic of schedule msg is %s, discard the msg. msg=%s", msg_inner.topic, msg_inner)
            return True
        if self.service.enable_async_deliver:
            return self._async_deliver(msg_inner, offset_py, size_py)
        return self._sync_deliver(msg_inner, offset_py, size_py)

    def _sync_deliver(self, msg_inner: MessageExtBrokerInner, offset_py: int, size_py: int) -> bool:
        process = self._deliver_message(msg_inner, offset_py, size_py, auto_resend=False)
        process.wait(_PUT_TIMEOUT_MS)
        if process.status is ProcessStatus.SUCCESS:
            self.service.update_offset(self.delay_level, process.next_offset)
        # Differs: as above
        return process.status is ProcessStatus.SUCCESS or process.is_hopeless

    def _async_deliver(self, msg_inner: MessageExtBrokerInner, offset_py: int, size_py: int) -> bool:
        """Put without waiting; return False if too many puts are pending, or if the oldest one keeps failing."""
        pending = self.service.deliver_pending_table[self.delay_level]
        limit = self.service.config.scheduleAsyncDeliverMaxPendingLimit
        if len(pending) > limit:
            log.warning("Asynchronous deliver triggers flow control, currentPendingNum=%s, maxPendingLimit=%s",
                        len(pending), limit)
            return False
        first = _first(pending)
        if first is not None and first.need2_blocked():
            log.warning("Asynchronous deliver block. info=%s", first)
            return False
        pending.append(self._deliver_message(msg_inner, offset_py, size_py, auto_resend=True))
        return True

    def _deliver_message(self, msg_inner: MessageExtBrokerInner, offset_py: int, size_py: int,
                         auto_resend: bool) -> PutResultProcess:
        process = PutResultProcess(self.service, self.delay_level, self.offset, offset_py, size_py, auto_resend)
        process.put(msg_inner)
        return process


class HandlePutResultTask:
    """The task that handles the results of one level's puts in order, and resends failed messages.

    Java: org.apache.rocketmq.store.schedule.ScheduleMessageService$HandlePutResultTask (4.9.8)
    """

    __slots__ = ("service", "timer", "delay_level")

    def __init__(self, service: ScheduleMessageService, timer: ScheduledService, delay_level: int) -> None:
        self.service = service
        self.timer = timer
        self.delay_level = delay_level

    def run(self) -> None:
        """Handle the results once, on the handling thread."""
        try:
            self.handle()
        except Exception:
            log.exception("HandlePutResultTask exception. level=%s", self.delay_level)
        finally:
            if self.service.is_started:
                self.timer.schedule(self.run, DELAY_FOR_A_SLEEP_MS)

    def handle(self) -> None:
        """Handle the results up to the first put that is still running.

        Differs: the delivery of delayed messages checks a running put, and resends, without a busy loop; the original
        polls a running put without a pause, and sleeps before each resend.
        """
        pending = self.service.deliver_pending_table[self.delay_level]
        while pending:
            process = pending[0]
            if process.status is ProcessStatus.SUCCESS:
                self.service.update_offset(self.delay_level, process.next_offset)
            elif process.status is ProcessStatus.SKIP:
                log.warning("putResultProcess skip, info=%s", process)
            else:
                if process.status is ProcessStatus.EXCEPTION and self.service.is_started:
                    process.do_resend()
                return
            pending.popleft()


class ProcessStatus(Enum):
    """The status of a put.

    Java: org.apache.rocketmq.store.schedule.ScheduleMessageService$ProcessStatus (4.9.8)
    """

    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    EXCEPTION = "EXCEPTION"  # failed, to be resent
    SKIP = "SKIP"  # failed, not resent


class PutResultProcess:
    """One delivery: of the unit at `offset` of a level's queue, whose record lies at `physic_offset`.

    The thread that completes the put writes `status`, and the thread that waits for it reads it.

    Java: org.apache.rocketmq.store.schedule.ScheduleMessageService$PutResultProcess (4.9.8)
    """

    def __init__(self, service: ScheduleMessageService, delay_level: int, offset: int, physic_offset: int,
                 physic_size: int, auto_resend: bool) -> None:
        self.service = service
        self.delay_level = delay_level
        self.offset = offset
        self.physic_offset = physic_offset
        self.physic_size = physic_size
        self.auto_resend = auto_resend
        self.topic: str = LATER  # set by put
        self.resend_count = 0
        self.is_hopeless = False  # the store will never accept the message
        self.status = ProcessStatus.RUNNING
        self._done = threading.Event()
        self._resend_at_ns = 0  # monotonic

    @property
    def next_offset(self) -> int:
        """The level's progress after this delivery."""
        return self.offset + 1

    def put(self, msg_inner: MessageExtBrokerInner) -> None:
        """Put the message. The result is handled when it arrives."""
        self.topic = msg_inner.topic
        self.status = ProcessStatus.RUNNING
        self._done.clear()
        self.service.write_message_store.async_put_message(msg_inner).then(self._handle_result)

    def wait(self, timeout_ms: int) -> None:
        """Wait for the result. Raise TimeoutError if it does not arrive."""
        if not self._done.wait(timeout_ms / 1000):
            raise TimeoutError(f"no result of a put after {timeout_ms} ms: {self}")

    def _handle_result(self, result: PutMessageResult) -> None:
        if result.put_message_status is PutMessageStatus.PUT_OK:
            self.on_success(result)
        else:
            log.warning("ScheduleMessageService put message failed. info: %s.", result)
            self.is_hopeless = result.put_message_status in _NEVER_PUT
            if self.is_hopeless:
                # Differs: a delayed message that the store will never accept is skipped. The original retries it
                # forever.
                log.error("can't deliver the delayed message at %d; skipping it: %s", self.physic_offset, result)
            self.on_exception()
        self._done.set()

    def on_success(self, result: PutMessageResult) -> None:
        """Count a stored message."""
        self.status = ProcessStatus.SUCCESS
        stats, appended = self.service.broker_stats_manager, result.append_message_result
        if stats is None or appended is None or not self.service.config.enableScheduleMessageStats:
            return
        group, schedule_topic = mix_all.SCHEDULE_CONSUMER_GROUP, topics.RMQ_SYS_SCHEDULE_TOPIC
        queue_id = self.service.delay_level2queue_id(self.delay_level)
        stats.inc_queue_get_nums(group, schedule_topic, queue_id, appended.msg_num)
        stats.inc_queue_get_size(group, schedule_topic, queue_id, appended.wrote_bytes)
        stats.inc_group_get_nums(group, schedule_topic, appended.msg_num)
        stats.inc_group_get_size(group, schedule_topic, appended.wrote_bytes)
        stats.inc_topic_put_nums(self.topic, appended.msg_num, 1)
        stats.inc_topic_put_size(self.topic, appended.wrote_bytes)
        stats.inc_broker_put_nums(appended.msg_num)

    def on_exception(self) -> None:
        """Schedule a resend of a failed message, or skip it."""
        if self.auto_resend and not self.is_hopeless:
            wait_ms = min(self.resend_count * _RESEND_STEP_MS, _MAX_RESEND_WAIT_MS)
            self._resend_at_ns = time.monotonic_ns() + wait_ms * 1_000_000
            self.status = ProcessStatus.EXCEPTION
        else:
            self.status = ProcessStatus.SKIP

    def do_resend(self) -> None:
        """Put the message again if its time has come. The interval grows with each resend."""
        if time.monotonic_ns() < self._resend_at_ns:
            return
        self.resend_count += 1
        log.info("Resend message, info: %s", self)
        msg_ext = self.service.reader.look_message_by_offset(self.physic_offset, self.physic_size)
        if msg_ext is None:
            log.warning("ScheduleMessageService resend not found message. info: %s", self)
            self.on_exception()
            if self.need2_skip():
                self.status = ProcessStatus.SKIP
            return
        try:
            self.put(self.service.message_timeup(msg_ext))
        except Exception:
            log.exception("Resend message error, info: %s", self)
            self.on_exception()

    def need2_blocked(self) -> bool:
        """Return whether it has failed so often that its level has to wait for it."""
        config = self.service.config
        return self.resend_count > config.scheduleAsyncDeliverMaxResendNum2Blocked

    def need2_skip(self) -> bool:
        """Return whether it has failed so often that it is skipped if its record is gone."""
        config = self.service.config
        return self.resend_count > config.scheduleAsyncDeliverMaxResendNum2Blocked * 2

    def __repr__(self) -> str:
        return (f"PutResultProcess(topic={self.topic!r}, offset={self.offset}, physic_offset={self.physic_offset}, "
                f"physic_size={self.physic_size}, delay_level={self.delay_level}, auto_resend={self.auto_resend}, "
                f"resend_count={self.resend_count}, status={self.status.name})")


def _first(pending: deque[PutResultProcess]) -> PutResultProcess | None:
    """Return the oldest put, or None. The handling thread may remove the last one at any moment."""
    try:
        return pending[0]
    except IndexError:
        return None
