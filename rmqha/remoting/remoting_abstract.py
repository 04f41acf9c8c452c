"""The common part of the server and the client: serving requests, matching responses, making calls.

    IO thread --request--> [relay] --> processor inline, or RequestTask --> executor --> processor --> channel.write
    IO thread --response--> [response_table] --> ResponseFuture: the waiting caller, or its callback in the pool
    IO thread --events--> NettyEventExecutor --> ChannelEventListener

Each call is completed exactly once. Several events can end it: the response, a failed write, the end of the
connection, the scan for time-outs, a caller that gives up waiting. The code that removes the future from
`response_table`, in one atomic operation, handles the call; the others find nothing and do nothing.
"""
import functools
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.common.futures import Completable
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.protocol.table_bodies import BodyLimit
from rmqha.common.service_thread import ServiceThread
from rmqha.common.threads import NamedThreadPool, RejectedExecutionError
from rmqha.common.util_all import LONG_AGO
from rmqha.remoting.addresses import exception_simple_desc, parse_channel_remote_addr
from rmqha.remoting.channel import Channel
from rmqha.remoting.exception import (
    RemotingCommandException,
    RemotingException,
    RemotingSendRequestException,
    RemotingTimeoutException,
    RemotingTooMuchRequestException,
    RequestDeniedException,
)
from rmqha.remoting.interfaces import (
    ChannelEventListener,
    RequestProcessor,
    RequestRelay,
    RequestTask,
    ResponseFuture,
    RPCHook,
    SemaphoreReleaseOnlyOnce,
)
from rmqha.remoting.io_thread import IoThread
from rmqha.remoting.large_requests import ALONE, LARGE_BODY, LARGE_HEADER, LargeRequests, has_large_header, too_busy
from rmqha.remoting.protocol.header_codec import REQUEST_CODE_NOT_SUPPORTED, SYSTEM_BUSY, SYSTEM_ERROR
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.request_lines import RequestLines

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("RocketmqRemoting")

# The scan ends a call this long after its time-out.
SCAN_GRACE_MS = 1000
OVERLOAD_LOG_INTERVAL_NS = 10_000_000_000

InvokeCallback = Callable[[ResponseFuture], None]


class ProcessorPair(NamedTuple):
    """A processor and the pool that it runs in. Pool None: it runs inline, on the IO thread."""

    processor: RequestProcessor
    executor: NamedThreadPool | None


class RemotingAbstract:
    """The core of requests and responses. `io` is the IO thread of the concrete class.

    Java: org.apache.rocketmq.remoting.netty.NettyRemotingAbstract (4.9.8)
    """

    io: IoThread

    def __init__(self, permits_oneway: int, permits_async: int,
                 channel_event_listener: ChannelEventListener | None) -> None:
        self.semaphore_oneway = threading.Semaphore(permits_oneway)
        self.semaphore_async = threading.Semaphore(permits_async)
        # By opaque. Any thread; single dict operations only.
        self.response_table: dict[int, ResponseFuture] = {}
        # Written at start-up, read by the IO thread.
        self.processor_table: dict[int, ProcessorPair] = {}
        self.default_request_processor: ProcessorPair | None = None
        self.rpc_hooks: list[RPCHook] = []
        self.channel_event_listener = channel_event_listener
        self.event_executor = EventExecutor(channel_event_listener)
        # None: callbacks run on the thread that reads the response.
        self.callback_executor: NamedThreadPool | None = None
        # None: all requests are served here. Written at start-up.
        self.relay: RequestRelay | None = None
        # None: large requests are served like small ones.
        self.large_requests: LargeRequests | None = None
        self._request_lines = RequestLines(self._refuse_task)
        # Any thread, without a lock: at worst a line is logged twice.
        self._overload_logged_ns = LONG_AGO

    def register_rpc_hook(self, rpc_hook: RPCHook | None) -> None:
        """Call the hook around every request from now on."""
        if rpc_hook is not None and rpc_hook not in self.rpc_hooks:
            self.rpc_hooks.append(rpc_hook)

    def on_command(self, channel: Channel, command: RemotingCommand) -> None:
        """Serve a request, or complete the call that a response belongs to."""
        if command.is_response_type:
            self.process_response_command(channel, command)
        else:
            self.process_request_command(channel, command)

    process_message_received = on_command

    def do_before_rpc_hooks(self, addr: str, request: RemotingCommand) -> None:
        """Call all hooks before a request."""
        for hook in self.rpc_hooks:
            hook.do_before_request(addr, request)

    def do_after_rpc_hooks(self, addr: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """Call all hooks after a response."""
        for hook in self.rpc_hooks:
            hook.do_after_response(addr, request, response)

    def process_request_command(self, channel: Channel, command: RemotingCommand) -> None:
        """Serve a request here, unless it is relayed."""
        if self.relay is None or not self.relay.take(channel, command):
            self.process_here(channel, command)

    def process_here(self, channel: Channel, command: RemotingCommand) -> None:
        """Serve a request inline or in its pool. Refuse it if its code has no processor, or under overload."""
        pair = self.processor_table.get(command.code) or self.default_request_processor
        if pair is None:
            error = f" request type {command.code} not supported"
            self._refuse(channel, command, REQUEST_CODE_NOT_SUPPORTED, error)
            log.error("%s%s", parse_channel_remote_addr(channel), error)
            return
        processor, executor = pair
        try:
            rejected = processor.reject_request()
        except Exception as error:
            self._process_failed(channel, command, error)
            return
        if rejected:
            self._refuse(channel, command, SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while")
        elif ((command.header_length > LARGE_HEADER or command.body is not None and len(command.body) > LARGE_BODY)
                and self.large_requests is not None):
            self._process_large(channel, command, pair, self.large_requests)
        elif executor is None:
            self._serve(channel, command, processor)
        else:
            self._submit(channel, command, processor, executor)

    def _process_large(self, channel: Channel, command: RemotingCommand, pair: ProcessorPair,
                       large: LargeRequests) -> None:
        """Serve a request that takes long to decode off this thread. Refuse a body above the limit of its code."""
        processor, executor = pair
        body: bytes = command.body if command.body is not None else b""  # type: ignore[assignment]  # bytes: received
        limit = large.limits.get(command.code) if len(body) > LARGE_BODY else None
        alone = limit is not None and len(body) > ALONE
        if limit is not None and self._is_refused(channel, command, limit.bytes_excess(command.code, body)):
            return
        if not alone and executor is not None:
            if limit is None or not self._is_refused(channel, command, limit.elements_excess(command.code, body)):
                self._submit(channel, command, processor, executor)
        elif limit is None and not has_large_header(command):
            self._serve(channel, command, processor)
        else:
            no_room = large.take(channel, command, functools.partial(self._serve_large, channel, command, processor,
                                                                     limit))
            if no_room is not None:
                self._is_refused(channel, command, too_busy(command, no_room), SYSTEM_BUSY)

    def _serve_large(self, channel: Channel, command: RemotingCommand, processor: RequestProcessor,
                     limit: BodyLimit | None) -> None:
        """Serve a large request whose turn it is: check its number of elements, then call hooks and processor."""
        body: bytes = command.body  # type: ignore[assignment]  # bytes: received, and large
        if limit is None or not self._is_refused(channel, command, limit.elements_excess(command.code, body)):
            self._serve(channel, command, processor)

    def _is_refused(self, channel: Channel, command: RemotingCommand, reason: str | None,
                    code: int = SYSTEM_ERROR) -> bool:
        """Answer with the reason if there is one, and return whether there is."""
        if reason is not None:
            self._log_overload("%s, %s", parse_channel_remote_addr(channel), reason)
            self._refuse(channel, command, code, reason)
        return reason is not None

    def _log_overload(self, text: str, *arguments: object) -> None:
        now = time.monotonic_ns()
        if now - self._overload_logged_ns > OVERLOAD_LOG_INTERVAL_NS:
            self._overload_logged_ns = now
            log.warning(text, *arguments)

    def _submit(self, channel: Channel, command: RemotingCommand, processor: RequestProcessor,
                executor: NamedThreadPool) -> None:
        run = functools.partial(self._serve, channel, command, processor)
        self._request_lines.submit(RequestTask(run, channel, command), executor)

    def _refuse_task(self, task: RequestTask, executor: NamedThreadPool) -> None:
        """Refuse a request because the queue of its pool is full."""
        self._log_overload("%s, too many requests and system thread pool busy, RejectedExecutionException %s "
                           "request code: %d", parse_channel_remote_addr(task.channel), executor.name_prefix,
                           task.request.code)
        self._refuse(task.channel, task.request, SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while")

    def _serve(self, channel: Channel, command: RemotingCommand, processor: RequestProcessor) -> None:
        """Call the hooks and the processor. Write the answer now, or when its future completes."""
        try:
            if self.rpc_hooks:
                self.do_before_rpc_hooks(parse_channel_remote_addr(channel), command)
            answer = processor.process_request(channel, command)
        except BaseException as error:
            # Even SystemExit must not end this thread: the peer waits for an answer, and other requests for the thread.
            self._process_failed(channel, command, error)
            return
        if isinstance(answer, Completable):
            answer.then(functools.partial(self._respond, channel, command))
        else:
            self._respond(channel, command, answer)

    def _process_failed(self, channel: Channel, command: RemotingCommand, error: BaseException) -> None:
        if isinstance(error, (RemotingCommandException, RequestDeniedException)):  # the peer's fault: log no stack
            log.error("process request exception, %s: %s", parse_channel_remote_addr(channel), error)
        else:
            log.error("process request exception", exc_info=error)
        log.error("%s", command)
        self._refuse(channel, command, SYSTEM_ERROR, exception_simple_desc(error))

    def _respond(self, channel: Channel, command: RemotingCommand, response: RemotingCommand | None) -> None:
        """Call the hooks, then write the response, with the request's opaque and serialize type, if one is expected."""
        try:
            if self.rpc_hooks:
                self.do_after_rpc_hooks(parse_channel_remote_addr(channel), command, response)
        except Exception as error:
            _drop(response)
            self._process_failed(channel, command, error)
            return
        if response is not None and self.relay is not None and self.relay.take_refused(channel, command, response):
            return
        if response is None or command.is_oneway_rpc:
            _drop(response)
            return
        response.opaque = command.opaque
        response.mark_response_type()
        response.serialize_type = command.serialize_type
        try:
            channel.write(response)
        except Exception as error:
            # Differs: when a response can't be sent, the peer gets an error instead; 4.9 logs the failure and leaves
            # the peer waiting.
            log.exception("process request over, but response failed\n%s\n%s", command, response)
            self._refuse(channel, command, SYSTEM_ERROR, exception_simple_desc(error))

    @staticmethod
    def _refuse(channel: Channel, command: RemotingCommand, code: int, remark: str) -> None:
        """Answer with an error, in the server's own serialize type."""
        # Differs: a one-way request is never answered; 4.9 answers unknown codes and rejected requests even when they
        # are one-way.
        if not command.is_oneway_rpc:
            response = RemotingCommand.create_response_command(code, remark)
            response.opaque = command.opaque
            channel.write(response)

    def process_response_command(self, channel: Channel, command: RemotingCommand) -> None:
        """Complete the call that this responds to. A response on another channel than the call's is ignored."""
        future = self.response_table.get(command.opaque)
        # Differs: a response counts only on the connection of its request; 4.9 takes a response with the right opaque
        # from any connection.
        if future is None or future.process_channel is not channel or not self._take(future):
            log.warning("receive response, but not matched any request, %s", parse_channel_remote_addr(channel))
            log.warning("%s", command)
            return
        future.response_command = command
        self._complete(future)

    def _take(self, future: ResponseFuture) -> bool:
        """Remove a future from the table. Return False if another thread has removed it, and so completes it."""
        return self.response_table.pop(future.opaque, None) is not None

    def _complete(self, future: ResponseFuture) -> None:
        """End a call: wake the caller, or call back."""
        if future.invoke_callback is None:
            future.put_response(future.response_command)
            future.release()
        else:
            self.execute_invoke_callback(future)

    def execute_invoke_callback(self, future: ResponseFuture) -> None:
        """Call back in the pool, or on this thread if the pool is missing or full."""
        executor = self.callback_executor
        if executor is not None:
            try:
                executor.submit(self._call_back, future)
                return
            except RejectedExecutionError as error:
                log.warning("execute callback in executor exception, maybe executor busy: %s", error)
        self._call_back(future)

    @staticmethod
    def _call_back(future: ResponseFuture) -> None:
        try:
            future.execute_invoke_callback()
        except BaseException as error:
            log.warning("executeInvokeCallback Exception", exc_info=error)
        finally:
            future.release()

    def scan_response_table(self) -> None:
        """End the calls that have timed out. Called once a second on the IO thread."""
        now = time.monotonic_ns()
        for future in list(self.response_table.values()):
            if future.begin_ns + (future.timeout_ms + SCAN_GRACE_MS) * 1_000_000 <= now and self._take(future):
                log.warning("remove timeout request, %s", future)
                self._complete(future)

    def fail_fast(self, channel: Channel) -> None:
        """End the calls of a channel that was closed."""
        for future in list(self.response_table.values()):
            if future.process_channel is channel:
                self._request_fail(future)

    def _request_fail(self, future: ResponseFuture) -> None:
        if self._take(future):
            future.send_request_ok = False
            self._complete(future)

    def _call_is_possible(self) -> None:
        if self.io.is_current_thread():
            raise RuntimeError("blocking call on the thread that would have to read its response")

    def invoke_sync_impl(self, channel: Channel, request: RemotingCommand, timeout_ms: float) -> RemotingCommand:
        """Send and wait for the response. Raises RemotingTimeoutException or RemotingSendRequestException."""
        self._call_is_possible()
        addr = parse_channel_remote_addr(channel)
        future = ResponseFuture(channel, request.opaque, timeout_ms)
        self.response_table[request.opaque] = future
        try:
            self._send(channel, request, future)
            response = future.wait_response(timeout_ms)
        finally:
            self.response_table.pop(request.opaque, None)
        if response is not None:
            return response
        if future.send_request_ok:
            raise RemotingTimeoutException(addr, timeout_ms)
        raise RemotingSendRequestException(addr)

    def invoke_async_impl(self, channel: Channel, request: RemotingCommand, timeout_ms: float,
                          invoke_callback: InvokeCallback) -> None:
        """Send. `invoke_callback(future)` is called once. Raises RemotingException if nothing was sent."""
        begin_ns = time.monotonic_ns()
        self._acquire(self.semaphore_async, timeout_ms, "invokeAsyncImpl")
        once = SemaphoreReleaseOnlyOnce(self.semaphore_async)
        left_ms = timeout_ms - (time.monotonic_ns() - begin_ns) / 1_000_000
        if left_ms < 0:
            once.release()
            raise RemotingTimeoutException("invokeAsyncImpl call timeout")
        future = ResponseFuture(channel, request.opaque, left_ms, invoke_callback, once)
        self.response_table[request.opaque] = future
        try:
            self._send(channel, request, future)
        except RemotingException:
            self.response_table.pop(request.opaque, None)
            once.release()
            raise

    def invoke_oneway_impl(self, channel: Channel, request: RemotingCommand, timeout_ms: float) -> None:
        """Send without waiting for a response. Raises RemotingException if nothing was sent."""
        request.mark_oneway_rpc()
        self._acquire(self.semaphore_oneway, timeout_ms, "invokeOnewayImpl")
        once = SemaphoreReleaseOnlyOnce(self.semaphore_oneway)
        addr = parse_channel_remote_addr(channel)

        def sent(ok: bool) -> None:
            once.release()
            if not ok:
                log.warning("send a request command to channel <%s> failed.", addr)

        try:
            channel.write(request, sent)
        except Exception as error:
            once.release()
            log.warning("write send a request command to channel <%s> failed.", addr)
            raise RemotingSendRequestException(addr) from error

    def _send(self, channel: Channel, request: RemotingCommand, future: ResponseFuture) -> None:
        """Write the request. If the caller waits for the response, flush at once, even inside a round."""
        addr = parse_channel_remote_addr(channel)

        def sent(ok: bool) -> None:
            if not ok:
                log.warning("send a request command to channel <%s> failed.", addr)
                self._request_fail(future)

        try:
            channel.write(request, sent)
        except Exception as error:
            log.warning("send a request command to channel <%s> Exception", addr, exc_info=True)
            raise RemotingSendRequestException(addr) from error
        if future.invoke_callback is None:
            channel.send_queued()

    def _acquire(self, semaphore: threading.Semaphore, timeout_ms: float, what: str) -> None:
        wait = timeout_ms > 0 and not self.io.is_current_thread()
        if semaphore.acquire(blocking=wait, timeout=timeout_ms / 1000 if wait else None):
            return
        if timeout_ms <= 0:
            raise RemotingTooMuchRequestException(f"{what} invoke too fast")
        info = f"{what} tryAcquire semaphore timeout, {timeout_ms:.0f}ms"
        log.warning(info)
        raise RemotingTimeoutException(info)

    def on_accept(self, connected: socket.socket, address: tuple[str, int]) -> None:
        """Not supported: only servers listen."""
        raise NotImplementedError

    def on_first_byte(self, channel: Channel, first: int) -> "ssl.SSLContext | None":
        """Return None: a client decides about TLS when it connects, before the server's first byte."""
        return None

    def on_closed(self, channel: Channel) -> None:
        """End the calls and the waiting requests of a closed channel, and notify the listener."""
        self._request_lines.closed(channel)
        self.event_executor.put_event("CLOSE", channel)
        self.fail_fast(channel)

    def on_idle(self, channel: Channel) -> None:
        """Notify the listener of an idle channel, which is being closed."""
        self.event_executor.put_event("IDLE", channel)

    def on_exception(self, channel: Channel, error: BaseException) -> None:
        """Notify the listener of a failed channel, which is being closed."""
        self.event_executor.put_event("EXCEPTION", channel)

    def on_tick(self) -> None:
        """Scan for timed-out calls, once a second."""
        self.scan_response_table()


def _drop(response: RemotingCommand | None) -> None:
    """Release the file region of a response that is not written."""
    if response is not None and response.release_region is not None:
        response.release_region()


class EventExecutor(ServiceThread):
    """A thread that passes connection events to the listener, in order.

    Java: org.apache.rocketmq.remoting.netty.NettyRemotingAbstract$NettyEventExecutor (4.9.8)
    """

    MAX_SIZE = 10000
    POLL_MS = 3000

    def __init__(self, listener: ChannelEventListener | None) -> None:
        super().__init__()
        self.listener = listener
        self._events: deque[tuple[str, Channel]] = deque()  # appended to by any thread, taken by this one

    def get_service_name(self) -> str:
        """Return the thread's name."""
        return "NettyEventExecutor"

    def put_event(self, kind: str, channel: Channel) -> None:
        """Queue CONNECT, CLOSE, IDLE or EXCEPTION. It is dropped without a listener, or if too many are waiting."""
        if self.listener is None:
            return
        if len(self._events) > self.MAX_SIZE:
            log.warning("event queue size [%d] over the limit [%d], so drop this event %s %s", len(self._events),
                        self.MAX_SIZE, kind, channel)
            return
        self._events.append((kind, channel))
        self.wakeup()

    def run(self) -> None:
        """Deliver events until stopped, then the remaining ones."""
        log.info("%s service started", self.get_service_name())
        while not self.stopped:
            self._deliver()
            self.wait_for_running(self.POLL_MS)
        self._deliver()
        log.info("%s service end", self.get_service_name())

    def _deliver(self) -> None:
        while self._events:
            kind, channel = self._events.popleft()
            try:
                getattr(self.listener, f"on_channel_{kind.lower()}")(parse_channel_remote_addr(channel), channel)
            except BaseException as error:
                log.warning("%s service has exception. ", self.get_service_name(), exc_info=error)
