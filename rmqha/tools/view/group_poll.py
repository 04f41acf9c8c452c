"""`GroupPoll`: asks brokers for the progress of all groups, beside the polls of the brokers themselves.

    Collector --poll--> due? --> GroupPollThread_1 --ask_progress, in parallel--> brokers
              <--the latest Groups, which may be of the poll before--

With thousands of groups such an answer takes a broker, and the reader, a second or more. So the poll has its own thread
and its own connections: the figures of the brokers do not wait for it. It takes at most GROUPS_SHARE of the time.
"""
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from rmqha.common.threads import NamedThreadPool
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from rmqha.tools.connection import Account
from rmqha.tools.replication.ask import in_parallel
from rmqha.tools.terminal import CannotAnswerError
from rmqha.tools.view.progress import GroupState, Progress, ask_progress, merged

log = logging.getLogger("RocketmqTools")

GROUPS_EVERY_S = 5.0
GROUPS_SHARE = 0.1
# An answer about all groups may take so many times as long as others.
LONG = 10
# Small clusters have answered by then, and the groups are as new as the picture.
_WAIT_S = 0.5


@dataclass(frozen=True)
class Groups:
    """The groups of all brokers, and why some brokers did not report theirs. `at_s`: monotonic; 0 before the first
    poll has ended."""

    groups: tuple[GroupState, ...] = ()
    at_s: float = 0.0
    errors: tuple[str, ...] = ()


class GroupPoll:
    """Polls the groups; a context manager. Thread-safe."""

    def __init__(self, namesrv: str, timeout_ms: float, account: Account) -> None:
        self._admin = ClusterAdmin(namesrv, LONG * timeout_ms, account.rpc_hook, account.tls)
        self._pool = NamedThreadPool("GroupPollThread_", 1)
        self._changed = threading.Condition()  # notified when a poll has ended
        self._latest = Groups()  # guarded by _changed
        self._is_running = False  # guarded by _changed
        self._due_s = 0.0  # monotonic; guarded by _changed
        # Called when a poll has ended that `poll` did not wait for; on another thread.
        self.on_late: Callable[[], object] = lambda: None

    def __enter__(self) -> Self:
        self._admin.__enter__()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._admin.__exit__()
        self._pool.shutdown()

    def poll(self, addresses: Sequence[str], now: bool = False) -> Groups:
        """Return the latest groups; if they are due, ask these brokers, and wait a moment.

        `now`: ask in any case, and wait for the answers.
        """
        limit_s = 2 * self._admin.timeout_millis / 1000 + _WAIT_S if now else _WAIT_S
        with self._changed:
            if now:
                self._changed.wait_for(lambda: not self._is_running, limit_s)
            if addresses and not self._is_running and (now or time.monotonic() >= self._due_s):
                self._is_running = True
                self._pool.submit(self._run, list(addresses))
                self._changed.wait_for(lambda: not self._is_running, limit_s)
            return self._latest

    def _run(self, addresses: list[str]) -> None:
        begin = time.monotonic()
        limit_ms = self._admin.timeout_millis
        try:
            answers = in_parallel(self._of, addresses, limit_ms, lambda address: (
                f"broker {address} did not report its groups within {limit_ms / 1000:g} s"))
            latest = Groups(merged(each for each in answers.values() if not isinstance(each, str)), begin,
                            tuple(each for each in answers.values() if isinstance(each, str)))
        except Exception as error:  # the next poll asks again
            log.exception("the groups can't be read")
            latest = Groups(self._latest.groups, begin, (f"the groups can't be read: {error}",))
        with self._changed:
            self._latest, self._is_running = latest, False
            took = time.monotonic() - begin
            self._due_s = begin + max(GROUPS_EVERY_S, took / GROUPS_SHARE)
            self._changed.notify_all()
        if took > _WAIT_S:
            self.on_late()

    def _of(self, address: str) -> dict[str, Progress] | str:
        try:
            return self._admin.asked(f"broker {address}", ask_progress, self._admin, address,
                                     self._admin.timeout_millis)
        except CannotAnswerError as error:
            return error.message
