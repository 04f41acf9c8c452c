"""The dispatcher that sends traces to the trace topic.

    sending and consuming threads --append--> queue of 1024 (events are discarded when it is full) -->
        AsyncTraceDispatcher: encodes, gathers by topic up to 118,000 characters or 500 ms --asynchronous send--> broker

The first event wakes the dispatcher. Later events wait until it polls the queue again 100 ms later, or until 256 events
are waiting.
"""
import logging
import os
import threading
import time
from collections import deque
from typing import Protocol

from rmqha.client import trace
from rmqha.client.client_config import AccessChannel, ClientConfig
from rmqha.client.exception import MQClientException
from rmqha.client.results import SendCallback, SendResult
from rmqha.client.trace import (
    TraceContext,
    TraceDispatcher,
    TraceDispatcherType,
    TraceTransferBean,
    encoder_from_context_bean,
)
from rmqha.common import topics
from rmqha.common.java import hash_map_order
from rmqha.common.message.message import Message
from rmqha.common.service_thread import ServiceThread
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.tls_system_config import TlsSystemConfig

log = logging.getLogger("RocketmqClient")

QUEUE_CAPACITY = 1024
MAX_MSG_SIZE = 128_000
SEND_AT_SIZE = MAX_MSG_SIZE - 10_000
WAKE_AT = 256  # waiting events
POLLING_TIME_MIL = 100
IDLE_TIME_MIL = 5_000
WAIT_TIME_THRESHOLD_MIL = 500
SEND_TIMEOUT_MS = 5_000


class TraceProducer(Protocol):
    """The part of a producer that traces need: settings that are set before its start, and asynchronous sends."""

    producer_group: str
    send_msg_timeout: int
    vip_channel_enabled: bool
    max_message_size: int
    namesrv_addr: str | None
    instance_name: str
    use_tls: bool
    tls: TlsSystemConfig | None

    def start(self) -> None:
        """Connect."""

    def send_async(self, msg: Message, send_callback: SendCallback, timeout_ms: float | None = None) -> None:
        """Send, and pass the result to the callback."""

    def shutdown(self) -> None:
        """Disconnect. Idempotent."""


class AsyncTraceDispatcher(TraceDispatcher, ServiceThread):
    """A thread that gathers events and sends them with its own producer, `trace_producer`.

    Java: org.apache.rocketmq.client.trace.AsyncTraceDispatcher (4.9.8)
    """

    # Differs: one thread encodes and sends traces asynchronously, where Java uses 10 to 20 more threads; the producer
    # group ends with a random id instead of a process-wide count; nothing is sent at the interpreter's exit unless
    # shutdown was called
    def __init__(
        self, group: str, kind: TraceDispatcherType, trace_topic_name: str | None, trace_producer: TraceProducer
    ) -> None:
        ServiceThread.__init__(self)
        self.daemon = True
        self.dispatcher_id = os.urandom(6).hex()
        self.trace_topic_name = trace_topic_name if trace_topic_name and trace_topic_name.strip() \
            else topics.RMQ_SYS_TRACE_TOPIC
        self.access_channel = AccessChannel.LOCAL
        self.discard_count = 0  # discarded events; guarded by _lock
        self.trace_producer = trace_producer
        trace_producer.producer_group = \
            f"{trace.GROUP_NAME_PREFIX}-{group}-{kind.name}-{self.dispatcher_id}"
        trace_producer.send_msg_timeout = SEND_TIMEOUT_MS
        trace_producer.vip_channel_enabled = False
        trace_producer.max_message_size = MAX_MSG_SIZE
        # Notified when events were answered; flush waits for it
        self._lock = threading.Condition()
        self._trace_context_queue: deque[TraceContext] = deque()  # guarded by _lock
        # Accepted events that are not answered yet; guarded by _lock
        self._on_their_way = 0
        # True while the worker waits to be woken; guarded by _lock
        self._is_idle = True
        self._segments: dict[str, TraceDataSegment] = {}  # by trace topic; owned by the worker
        # Set by flush; the worker then sends without gathering
        self._is_flushing = False

    def get_service_name(self) -> str:
        return f"MQ-AsyncTraceDispatcher-Thread-{self.dispatcher_id}"

    # The override differs from the thread's start, because in Java it is another method
    def start(  # type: ignore[override]
        self, name_srv_addr: str, access_channel: AccessChannel
    ) -> None:
        if self.is_alive():
            return
        self.access_channel = access_channel
        self.trace_producer.namesrv_addr = name_srv_addr
        self.trace_producer.instance_name = f"{trace.TRACE_INSTANCE_NAME}_{name_srv_addr}"
        self.trace_producer.start()
        ServiceThread.start(self)

    def append(self, context: TraceContext) -> bool:
        with self._lock:
            waiting = len(self._trace_context_queue)
            is_kept = waiting < QUEUE_CAPACITY
            if is_kept:
                self._trace_context_queue.append(context)
                self._on_their_way += 1
            else:
                self.discard_count += 1
            is_wake_up_due = self._is_idle or waiting >= WAKE_AT
        if is_wake_up_due:
            self.wakeup()
        if not is_kept:
            log.info("buffer full%d ,context is %s", self.discard_count, context)
        return is_kept

    def flush(self) -> None:
        """Send all waiting events, and wait up to 5 s for the brokers' answers."""
        self._is_flushing = True
        self.wakeup()
        with self._lock:
            self._lock.wait_for(lambda: self._on_their_way == 0, SEND_TIMEOUT_MS / 1000)
            log.info("------end trace send %d   %d", len(self._trace_context_queue), self._on_their_way)
        self._is_flushing = False

    def shutdown(self, interrupt: bool = False) -> None:
        if self.is_alive():
            self.flush()
        ServiceThread.shutdown(self, interrupt)
        self.trace_producer.shutdown()

    def run(self) -> None:
        while not self.stopped:
            with self._lock:
                self._is_idle = self._on_their_way == 0
            self.wait_for_running(IDLE_TIME_MIL if self._is_idle else POLLING_TIME_MIL)
            with self._lock:
                contexts = list(self._trace_context_queue)
                self._trace_context_queue.clear()
            for context in contexts:
                self._take(context)
            self._send_data_by_time_threshold()

    def _take(self, context: TraceContext) -> None:
        topic = self._trace_topic_of(context.region_id)
        segment = self._segments.setdefault(topic, TraceDataSegment(topic))
        try:
            segment.add(encoder_from_context_bean(context))
        except BaseException:
            # For example, a hook of the user appended an incomplete event
            log.exception("failed to encode trace: %s", context)
            self._arrived(1)
        if segment.size >= SEND_AT_SIZE:
            self._send_all_data(segment)

    def _send_data_by_time_threshold(self) -> None:
        now_ns = time.monotonic_ns()
        for segment in self._segments.values():
            waits_ms = (now_ns - segment.first_bean_add_ns) / 1e6
            if segment.beans and (waits_ms >= WAIT_TIME_THRESHOLD_MIL or self._is_flushing or self.stopped):
                self._send_all_data(segment)

    def _trace_topic_of(self, region_id: str | None) -> str:
        if self.access_channel is AccessChannel.CLOUD:
            return f"{trace.TRACE_TOPIC_PREFIX}{region_id}"
        return self.trace_topic_name

    def _send_all_data(self, segment: "TraceDataSegment") -> None:
        count = len(segment.beans)
        data, keys = segment.take()
        message = Message(segment.trace_topic_name, data.encode())
        message.keys = keys

        def on_success(_result: SendResult) -> None:
            self._arrived(count)

        def on_exception(error: Exception) -> None:
            log.error("send trace data failed, the traceData is %s: %s", data, error)
            self._arrived(count)

        try:
            self.trace_producer.send_async(message, SendCallback(on_success, on_exception), SEND_TIMEOUT_MS)
        except Exception as error:
            on_exception(error)

    def _arrived(self, count: int) -> None:
        with self._lock:
            self._on_their_way -= count
            self._lock.notify_all()


class TraceDataSegment:
    """Gathered events for one topic. Owned by the dispatcher's thread.

    Java: org.apache.rocketmq.client.trace.AsyncTraceDispatcher$TraceDataSegment (4.9.8)
    """

    def __init__(self, trace_topic_name: str) -> None:
        self.trace_topic_name = trace_topic_name
        self.beans: list[TraceTransferBean] = []
        self.size = 0  # characters
        self.first_bean_add_ns = 0

    def add(self, bean: TraceTransferBean) -> None:
        """Add an event."""
        if not self.beans:
            self.first_bean_add_ns = time.monotonic_ns()
        self.beans.append(bean)
        self.size += len(bean.trans_data)

    def take(self) -> tuple[str, list[str]]:
        """Remove all events; return their text and their keys."""
        beans, self.beans, self.size = self.beans, [], 0
        keys = {key for bean in beans for key in bean.trans_key if key is not None}
        return "".join(bean.trans_data for bean in beans), hash_map_order(sorted(keys))


def start_trace_dispatcher(dispatcher: AsyncTraceDispatcher, config: "ClientConfig") -> None:
    """Start tracing. A failure is only logged, because the client works without traces."""
    dispatcher.trace_producer.use_tls = config.use_tls
    dispatcher.trace_producer.tls = config.tls
    try:
        dispatcher.start(config.get_namesrv_addr() or "", config.access_channel)
    except (MQClientException, RemotingException):
        log.warning("trace dispatcher start failed ", exc_info=True)
