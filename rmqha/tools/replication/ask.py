"""Questions to many brokers at the same time, so that a slow one does not delay the others' answers."""
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from rmqha.common.protocol.cluster_bodies import HARuntimeInfo
from rmqha.common.threads import NamedThreadPool
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin, NoAnswerError, number
from rmqha.tools.terminal import CannotAnswerError

K = TypeVar("K")
V = TypeVar("V")

_MAX_ASKED_AT_ONCE = 32
# Time for the threads to notice that their time-out has expired.
_MARGIN_S = 0.5
_OF_SCRUBBING = frozenset({
    "haScrubPosition", "haScrubRoundBegin", "haScrubRoundEnd", "haScrubUnscrubbedMs", "haScrubRounds",
    "haScrubComparedBytes", "haScrubDifferences", "haScrubFirstDifference", "haVerifiedBytes", "haVerifyFailures",
    "haVerifyFailedOffset"})


@dataclass(frozen=True)
class Told:
    """One broker's answers in one poll; `error` is the reason when it has none."""

    broker: Broker
    config: dict[str, str] = field(default_factory=dict)
    table: dict[str, str] = field(default_factory=dict)
    # None: it does not know the request, like 4.9.
    info: HARuntimeInfo | None = None
    error: str = ""
    # False: it did not answer. An error counts as an answer.
    alive: bool = True

    @property
    def answered(self) -> bool:
        """True if the broker answered all questions."""
        return not self.error

    @property
    def max_offset(self) -> int:
        """The end offset of the broker's log."""
        return max(0, self.number("commitLogMaxOffset"))

    @property
    def min_offset(self) -> int:
        """The first offset of the broker's log; it reports -1 when it has no file."""
        return max(0, self.number("commitLogMinOffset"))

    @property
    def role(self) -> str:
        """The broker's brokerRole, or its current role if its role can change at run time."""
        moving = self.table.get("haRole")
        if moving is not None:
            return "SLAVE" if moving == "slave" else self.config.get("brokerRole", "").replace("SLAVE", "ASYNC_MASTER")
        return self.config.get("brokerRole", "")

    @property
    def waits_for_role(self) -> bool:
        """True if the broker is still waiting for its role: it is not a master and follows none."""
        return self.table.get("haRole") == "slave" and not self.table.get("haMasterAddress")

    @property
    def ha_address(self) -> str:
        """The HA address that the broker announces to its slaves."""
        return f"{self.config.get('brokerIP2', '')}:{self.config.get('haListenPort', '')}"

    @property
    def follows(self) -> str:
        """The HA address of the master that the broker follows; "" when it does not report that."""
        client = self.info.haClientRuntimeInfo if self.info is not None and not self.info.master else None
        return (self.table.get("haMasterAddress") or (client.masterAddr if client is not None else None)
                or self.config.get("haMasterAddress") or "")

    def number(self, key: str, default: int = 0) -> int:
        """Return a number of the broker's runtime table; CannotAnswerError when it is not a number."""
        return number(self.table, key, self.broker.address, default)

    def check_numbers(self) -> None:
        """Check the numbers that every broker is judged by; CannotAnswerError when one is not a number."""
        told = [key for key in self.table if "SilenceMs" in key or "Retransmits" in key or key in _OF_SCRUBBING]
        for key in ("commitLogMaxOffset", "commitLogMinOffset", *told):
            self.number(key)
        for key in ("brokerId", "haSlaveFallbehindMax", "haSendHeartbeatInterval", "totalReplicas", "inSyncReplicas",
                    "mappedFileSizeCommitLog", "haScrubPromise"):
            self.setting(key, 0)

    def setting(self, key: str, default: int) -> int:
        """Return a number of the broker's config."""
        return number(self.config, key, self.broker.address, default)


Look = dict[Broker, Told]


def ask_all(admin: ClusterAdmin, brokers: Iterable[Broker], before: Look | None = None) -> Look:
    """Ask all brokers about themselves, within the time-out of one answer; configs in `before` are not asked again."""
    known = before or {}
    return in_parallel(lambda broker: _ask(admin, broker, known.get(broker)), list(brokers), admin.timeout_millis,
                       lambda broker: _late(broker, admin.timeout_millis))


def in_parallel(ask: Callable[[K], V], keys: list[K], timeout_ms: float, late: Callable[[K], V]) -> dict[K, V]:
    """Call `ask` for all keys in parallel; return `late` of a key whose answer is not there in time."""
    answers: dict[K, V] = {}
    changed = threading.Condition()  # notified for each answer; guards answers

    def run(key: K) -> None:
        answer = ask(key)
        with changed:
            answers[key] = answer
            changed.notify()
    pool = NamedThreadPool("AskThread_", min(len(keys), _MAX_ASKED_AT_ONCE))
    deadline = time.monotonic() + timeout_ms / 1000 + _MARGIN_S
    try:
        for key in keys:
            pool.submit(run, key)
        with changed:
            while len(answers) < len(keys) and (left := deadline - time.monotonic()) > 0:
                changed.wait(left)
            there = dict(answers)
    finally:
        pool.shutdown(0)
    return {key: there[key] if key in there else late(key) for key in keys}


def _ask(admin: ClusterAdmin, broker: Broker, before: Told | None) -> Told:
    try:
        config = before.config if before is not None else admin.get_broker_config(broker.address)
        info = admin.ha_runtime_info(broker.address)
        told = Told(broker, config, admin.runtime_info(broker.address), info)
        told.check_numbers()
    except NoAnswerError as error:
        return Told(broker, error=error.message, alive=False)
    except CannotAnswerError as error:
        return Told(broker, error=error.message)
    return told


def _late(broker: Broker, timeout_ms: float) -> Told:
    return Told(broker, error=f"broker {broker.address} is too slow: not all answers within {timeout_ms / 1000:g} s. "
                              "Is it overloaded? Increase --timeout to wait longer", alive=False)
