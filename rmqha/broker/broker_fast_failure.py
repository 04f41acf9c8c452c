"""Requests that may block run in a thread pool instead of the IO thread, or are refused if they wait for too long.

    IO thread --run_in--> pool's queue --> pool thread: too old? SYSTEM_BUSY, else the work --> Completable --> IO
"""
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.futures import Completable
from rmqha.common.protocol import response_code
from rmqha.common.threads import NamedThreadPool, RejectedExecutionError
from rmqha.remoting.addresses import exception_simple_desc
from rmqha.remoting.exception import RemotingCommandException, RequestDeniedException
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.remoting.interfaces import Answer


log = logging.getLogger("RocketmqBroker")

# Submits the work of a request to a pool and returns the future response.
HandOver = Callable[["Callable[[], Answer]"], Completable[RemotingCommand | None]]

# These failures are the client's fault, so they are logged without our stack trace.
_PEERS_FAULTS = (RemotingCommandException, RequestDeniedException)

# Differs: the queue of admin requests is limited; the original's is unbounded
_ADMIN_QUEUE_CAPACITY = 10_000


class BrokerPools:
    """The thread pools for requests that may block."""

    def __init__(self, config: BrokerConfig) -> None:
        self.send_message_executor = NamedThreadPool(
            "SendMessageThread_", config.sendMessageThreadPoolNums, config.sendThreadPoolQueueCapacity)
        self.pull_message_executor = NamedThreadPool(
            "PullMessageThread_", config.pullMessageThreadPoolNums, config.pullThreadPoolQueueCapacity)
        self.query_message_executor = NamedThreadPool(
            "QueryMessageThread_", config.queryMessageThreadPoolNums, config.queryThreadPoolQueueCapacity)
        self.admin_broker_executor = NamedThreadPool("AdminBrokerThread_", config.adminBrokerThreadPoolNums,
                                                     _ADMIN_QUEUE_CAPACITY)
        # Differs: the pool for client management has at most four threads: their work is bound by the interpreter lock,
        # so more threads would not help
        self.client_manage_executor = NamedThreadPool(
            "ClientManageThread_", min(config.clientManageThreadPoolNums, 4),
            config.clientManagerThreadPoolQueueCapacity)
        self.heartbeat_executor = NamedThreadPool(
            "HeartbeatThread_", config.heartbeatThreadPoolNums, config.heartbeatThreadPoolQueueCapacity)


class BrokerFastFailure:
    """Runs requests in pools, and answers SYSTEM_BUSY for a request that waited longer than its limit.

    Java: org.apache.rocketmq.broker.latency.BrokerFastFailure (4.9.8)
    """

    # Differs: most requests are served by the thread that read them and never wait in a queue; the age of the others is
    # checked when a pool thread takes them, while the original scans its queues every 10 ms.
    def __init__(self, is_enabled: Callable[[], bool]) -> None:
        self._is_enabled = is_enabled

    def hand_over_to(self, pool: NamedThreadPool, max_wait_ms: Callable[[], int]) -> HandOver:
        """Return a function that runs work in the pool; `max_wait_ms` is called for each request."""
        return lambda work: self.run_in(pool, max_wait_ms(), work)

    def run_in(self, pool: NamedThreadPool, max_wait_ms: int,
               work: "Callable[[], Answer]") -> Completable[RemotingCommand | None]:
        """Run `work` in the pool and return its future response.

        The response is SYSTEM_BUSY when the pool is full or the request waited for too long.
        """
        answer: Completable[RemotingCommand | None] = Completable()
        try:
            pool.submit(self._run, pool, time.monotonic_ns(), max_wait_ms, work, answer)
        except RejectedExecutionError:
            answer.complete(RemotingCommand.create_response_command(
                response_code.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while"))
        return answer

    def _run(self, pool: NamedThreadPool, created_ns: int, max_wait_ms: int, work: "Callable[[], Answer]",
             answer: Completable[RemotingCommand | None]) -> None:
        behind_ms = (time.monotonic_ns() - created_ns) // 1_000_000
        if behind_ms >= max_wait_ms and self._is_enabled():
            answer.complete(RemotingCommand.create_response_command(
                response_code.SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period "
                f"in queue: {behind_ms}ms, size of queue: {pool.queue_size()}"))
            return
        try:
            result = work()
        except Exception as failure:
            if isinstance(failure, _PEERS_FAULTS):
                log.error("process request exception, %s", failure)
            else:
                log.exception("process request exception")
            result = RemotingCommand.create_response_command(response_code.SYSTEM_ERROR,
                                                             exception_simple_desc(failure))
        if isinstance(result, Completable):
            result.then(answer.complete)
        else:
            answer.complete(result)
