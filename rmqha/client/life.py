"""Life cycle and logging of a client: start, shutdown, forked processes, and warnings about the user's code.

- `HomeProcess`: detects a forked process, which has none of the client's threads and shares its connections.
- `Lifecycle`: started and shut down, both by a `with` statement.
- `ServiceState`: the state of a producer, a consumer, or the instance that they share.
- `CONNECT_BROKER_EXCEPTION` to `CREATE_REPLY_MESSAGE_EXCEPTION`: the client's own codes in MQClientException.
- `ThreadLocalIndex`: a counter per thread.
- `log_to_stderr`: prints the client's log for programs that do not set up logging.
- `CauseLog`: logs a recurring error of the user's code once.

Java: org.apache.rocketmq.client.common.ClientErrorCode (4.9.8)
"""
import logging
import os
import random
import sys
import threading
from enum import Enum
from types import TracebackType
from typing import Any, Self

from rmqha.client import LOGGER_NAMES
from rmqha.client.exception import MQClientException


class HomeProcess:
    """The process that started a client. Only that process may use the client.

    Differs: a client cannot be used in a forked child; Java programs do not fork. A forked child shares the client's
    connections: a message that it sent would be stored, but the answer would reach the parent.
    """

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        # 0 until the client is started; written once, by the thread that starts it
        self._pid = 0

    def begin(self) -> None:
        """Record that this process starts the client. MQClientException if another process has started it."""
        self.check("a client")
        self._pid = os.getpid()

    def is_left(self) -> bool:
        """Return True if this process was forked from the one that started the client."""
        return self._pid != 0 and self._pid != os.getpid()

    def check(self, what: str) -> None:
        """Raise MQClientException if this process was forked from the one that started `what`."""
        if self.is_left():
            raise MQClientException(
                f"{what} started in process {self._pid} can't be used in process {os.getpid()}, which was forked from "
                "it and has none of its threads: create and start one in each process after the fork (with "
                "multiprocessing, in the worker)")


class Lifecycle:
    """Base class of producers and consumers. Each is started once, in the process that uses it."""

    def __init__(self) -> None:
        super().__init__()
        self._home = HomeProcess()

    @classmethod
    def from_context(cls, group: str, context: str | None = None, **settings: Any) -> Self:
        """Return a client of a group for the cluster of a context, with its account and TLS settings.

        `context`: its name; by default $RMQHA_CONTEXT, else the current one. `settings`: the other arguments of the
        class. ContextError when the context does not exist or can't be used.
        """
        from rmqha.client.contexts import client_from_context  # most clients are given an address

        return client_from_context(cls, group, context, settings)

    def check_process(self) -> None:
        """Raise MQClientException if this process was forked after the start."""
        self._home.check(f"a {type(self).__name__}")

    def start(self) -> None:
        """Start the client."""
        raise NotImplementedError

    def shutdown(self) -> None:
        """Shut the client down. Idempotent.

        Does nothing if the client was not started, or in a forked process, whose parent still uses the client.
        """
        raise NotImplementedError

    def is_of_another_process(self) -> bool:
        """Return True if this process was forked after the start."""
        return self._home.is_left()

    def __enter__(self) -> Self:
        try:
            self.start()
        except Exception:
            # For example, no name server answered. Stop the threads that the failed start has left running.
            self.shutdown()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.shutdown()


class ServiceState(Enum):
    """The state of a client: created, running, shut down, or failed to start."""

    CREATE_JUST = "CREATE_JUST"
    RUNNING = "RUNNING"
    SHUTDOWN_ALREADY = "SHUTDOWN_ALREADY"
    START_FAILED = "START_FAILED"


CONNECT_BROKER_EXCEPTION = 10001
ACCESS_BROKER_TIMEOUT = 10002
BROKER_NOT_EXIST_EXCEPTION = 10003
NO_NAME_SERVER_EXCEPTION = 10004
NOT_FOUND_TOPIC_EXCEPTION = 10005
REQUEST_TIMEOUT_EXCEPTION = 10006
CREATE_REPLY_MESSAGE_EXCEPTION = 10007


class ThreadLocalIndex:
    """A counter for each thread. It starts at a random number, so that threads and producers spread over the queues.

    Java: org.apache.rocketmq.client.common.ThreadLocalIndex (4.9.8)
    """

    __slots__ = ("_local",)

    def __init__(self) -> None:
        self._local = threading.local()

    def increment_and_get(self) -> int:
        """Return this thread's next number, from 0 to 2^31-1; then it wraps to 0."""
        index: int | None = getattr(self._local, "index", None)
        if index is None:
            index = random.getrandbits(31)
        self._local.index = index = (index + 1) & 0x7FFFFFFF
        return index


LINE_FORMAT = "%(asctime)s %(levelname)-7s %(name)s - %(message)s"


class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]  # generic for type checkers only
    """The handler that `log_to_stderr` installs, and finds again by its class."""


def log_to_stderr(level: int | str = logging.INFO) -> None:
    """Print the client's log to standard error, from `level` up. Another call changes the level.

        rmqha.log_to_stderr()             # connections, rebalancing, retries
        rmqha.log_to_stderr("WARNING")    # problems only

    It affects only the loggers of this library. A program that sets up logging itself does not need it:
    `logging.basicConfig(level=logging.INFO)` shows the same. ValueError for a level that does not exist.
    """
    for name in LOGGER_NAMES:
        logger = logging.getLogger(name)
        handler = next((old for old in logger.handlers if isinstance(old, _StderrHandler)), None)
        if handler is None:
            handler = _StderrHandler(sys.stderr)
            handler.setFormatter(logging.Formatter(LINE_FORMAT))
            logger.addHandler(handler)
            # Otherwise a root handler would print each line again.
            logger.propagate = False
        logger.setLevel(level)


# The number of causes that are counted separately. Any others are counted as one.
_MAX_CAUSES = 1000


class CauseLog:
    """Logs errors of the user's listeners, hooks, selectors and callbacks.

    The first error of each cause is logged as a WARNING; later ones are only counted. A cause is the type of an
    exception with the line that raised it, or the type of an invalid return value. Any thread may report one.
    Differs: a client logs the first error of each cause in the user's code, and counts later ones; 4.9.8 logs every
    error with all its messages, which floods the log.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._log = logger
        self._lock = threading.Lock()
        self.counts: dict[str, int] = {}  # by cause; written under _lock

    def raised(self, error: BaseException, text: str, *args: object) -> None:
        """Report that the user's code raised `error`; `text % args` names that code and what it was called with."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = f" in {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
        if self._is_new(f"{type(error).__name__}{place}"):
            self._log.warning(text + " (further errors with this cause are only counted)", *args, exc_info=error)

    def returned(self, value: object, text: str, *args: object) -> None:
        """Report that the user's code returned `value`, which is not a valid result."""
        if self._is_new(f"returned {type(value).__name__}"):
            self._log.warning(text + " (further errors with this cause are only counted)", *args)

    def happened(self, cause: str, text: str, *args: object) -> None:
        """Report another event that deserves one log line."""
        if self._is_new(cause):
            self._log.warning(text + " (further errors with this cause are only counted)", *args)

    def log_counts(self, whose: str) -> None:
        """At shutdown, log the count of each cause that occurred more than once."""
        for cause, count in sorted(self.counts.items()):
            if count > 1:
                self._log.info("%s: %s, %d times in total", whose, cause, count)

    def _is_new(self, cause: str) -> bool:
        with self._lock:
            if cause not in self.counts and len(self.counts) >= _MAX_CAUSES:
                cause = "others"
            count = self.counts[cause] = self.counts.get(cause, 0) + 1
        return count == 1
