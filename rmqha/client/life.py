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
from typing import Self

from rmqha.client import LOGGER_NAMES
from rmqha.client.exception import MQClientException


class HomeProcess:
    """Remembers which process started a client: that one alone may use it.

    Differs: in the original no process is forked from a client's. What a child sent over the shared connection would be
    stored, and the answer would reach the parent.
    """

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = 0  # until it is started; written once, by who starts it

    def begin(self) -> None:
        """The client is started here. MQClientException when it was started in another process."""
        self.check("a client")
        self._pid = os.getpid()

    def is_left(self) -> bool:
        """Whether this process was forked from the one that started the client."""
        return self._pid != 0 and self._pid != os.getpid()

    def check(self, what: str) -> None:
        """Raise MQClientException when this process was forked from the one that started `what`."""
        if self.is_left():
            raise MQClientException(
                f"{what} that was started in process {self._pid} can't be used in process {os.getpid()}, which was "
                "forked from it and has none of its threads: make and start one after the fork, in each process its "
                "own (with multiprocessing, in the worker)")


class Lifecycle:
    """Base of producers and consumers: started once, in the process that uses them."""

    def __init__(self) -> None:
        super().__init__()
        self._home = HomeProcess()

    def check_process(self) -> None:
        """Raise MQClientException in a process that was forked after the start."""
        self._home.check(f"a {type(self).__name__}")

    def start(self) -> None:
        """Begin."""
        raise NotImplementedError

    def shutdown(self) -> None:
        """End. Idempotent, and no harm where nothing began, nor in a forked process, whose parent still uses it."""
        raise NotImplementedError

    def is_of_another_process(self) -> bool:
        """Whether this process was forked after the start."""
        return self._home.is_left()

    def __enter__(self) -> Self:
        try:
            self.start()
        except Exception:  # no name server, say: leave no thread behind
            self.shutdown()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.shutdown()


class ServiceState(Enum):
    """Made, running, shut down, or broken at its start."""

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
    """Counts up per thread from a random start, so that threads and producers spread over the queues.

    Java: org.apache.rocketmq.client.common.ThreadLocalIndex (4.9.8)
    """

    __slots__ = ("_local",)

    def __init__(self) -> None:
        self._local = threading.local()

    def increment_and_get(self) -> int:
        """The next number of this thread, from 0 to 2^31-1; wraps to 0."""
        index: int | None = getattr(self._local, "index", None)
        if index is None:
            index = random.getrandbits(31)
        self._local.index = index = (index + 1) & 0x7FFFFFFF
        return index


LINE_FORMAT = "%(asctime)s %(levelname)-7s %(name)s - %(message)s"


class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]  # generic for type checkers only
    """The handler of `log_to_stderr`, known by its class."""


def log_to_stderr(level: int | str = logging.INFO) -> None:
    """Print what the client logs from `level` on; called again it changes the level.

        rmqha.log_to_stderr()             # connections, rebalancing, retries
        rmqha.log_to_stderr("WARNING")    # only what went wrong

    It concerns the loggers of this library alone. A program that sets up logging itself needs none of it:
    `logging.basicConfig(level=logging.INFO)` shows the same. ValueError for a level that does not exist.
    """
    for name in LOGGER_NAMES:
        logger = logging.getLogger(name)
        handler = next((old for old in logger.handlers if isinstance(old, _StderrHandler)), None)
        if handler is None:
            handler = _StderrHandler(sys.stderr)
            handler.setFormatter(logging.Formatter(LINE_FORMAT))
            logger.addHandler(handler)
            logger.propagate = False  # a root handler would print it again
        logger.setLevel(level)


_MAX_CAUSES = 1000  # kept apart; all others count as one


class CauseLog:
    """What listeners, hooks, selectors and callbacks do wrong: a WARNING the first time of each cause, then a count.

    A cause is an exception's type and the line that raised it, or the type of a value other than those asked for.
    Any thread may tell of one. Differs: 4.9.8 logs each time, with all messages, which drowns the log.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._log = logger
        self._lock = threading.Lock()
        self.counts: dict[str, int] = {}  # by cause; written under _lock

    def raised(self, error: BaseException, text: str, *args: object) -> None:
        """The user's code has raised `error`; `text % args` says which and at what."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = f" in {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
        if self._is_new(f"{type(error).__name__}{place}"):
            self._log.warning(text + " (others of this cause are counted only)", *args, exc_info=error)

    def returned(self, value: object, text: str, *args: object) -> None:
        """The user's code has returned `value`, which it must not."""
        if self._is_new(f"returned {type(value).__name__}"):
            self._log.warning(text + " (others of this cause are counted only)", *args)

    def happened(self, cause: str, text: str, *args: object) -> None:
        """Something else that is worth one line."""
        if self._is_new(cause):
            self._log.warning(text + " (others of this cause are counted only)", *args)

    def log_counts(self, whose: str) -> None:
        """At the end: how often each cause came that came more than once."""
        for cause, count in sorted(self.counts.items()):
            if count > 1:
                self._log.info("%s: %s, %d times in all", whose, cause, count)

    def _is_new(self, cause: str) -> bool:
        with self._lock:
            if cause not in self.counts and len(self.counts) >= _MAX_CAUSES:
                cause = "others"
            count = self.counts[cause] = self.counts.get(cause, 0) + 1
        return count == 1
