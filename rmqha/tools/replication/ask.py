"""What brokers answer when all are asked at the same time: one that stands still holds up nobody else's answer."""
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
_MARGIN_S = 0.5  # for the threads to notice that their time is up
_OF_SCRUBBING = frozenset({
    "haScrubPosition", "haScrubRoundBegin", "haScrubRoundEnd", "haScrubUnscrubbedMs", "haScrubRounds",
    "haScrubComparedBytes", "haScrubDifferences", "haScrubFirstDifference", "haVerifiedBytes", "haVerifyFailures",
    "haVerifyFailedOffset"})


@dataclass(frozen=True)
class Told:
    """What one broker has answered at one look; `error` says why it has not."""

    broker: Broker
    config: dict[str, str] = field(default_factory=dict)
    table: dict[str, str] = field(default_factory=dict)
    info: HARuntimeInfo | None = None  # None: it does not know the question, as 4.9
    error: str = ""
    alive: bool = True  # False: it gave no answer; an answer that is an error is one

    @property
    def answered(self) -> bool:
        """Whether there is anything to judge by."""
        return not self.error

    @property
    def max_offset(self) -> int:
        """The end of its log."""
        return max(0, self.number("commitLogMaxOffset"))

    @property
    def min_offset(self) -> int:
        """The beginning of its log; it tells -1 when there is no file."""
        return max(0, self.number("commitLogMinOffset"))

    @property
    def role(self) -> str:
        """Its brokerRole; what it is at the moment, with roles that change by request."""
        moving = self.table.get("haRole")
        if moving is not None:
            return "SLAVE" if moving == "slave" else self.config.get("brokerRole", "").replace("SLAVE", "ASYNC_MASTER")
        return self.config.get("brokerRole", "")

    @property
    def waits_for_role(self) -> bool:
        """Whether its role is given by others, and nobody has: it is no master, and follows nobody."""
        return self.table.get("haRole") == "slave" and not self.table.get("haMasterAddress")

    @property
    def ha_address(self) -> str:
        """Where it tells its slaves to connect."""
        return f"{self.config.get('brokerIP2', '')}:{self.config.get('haListenPort', '')}"

    @property
    def follows(self) -> str:
        """The master's HA address that it uses; "" when it does not tell."""
        client = self.info.haClientRuntimeInfo if self.info is not None and not self.info.master else None
        return (self.table.get("haMasterAddress") or (client.masterAddr if client is not None else None)
                or self.config.get("haMasterAddress") or "")

    def number(self, key: str, default: int = 0) -> int:
        """A number of its runtime table; an error for people when it is not a number."""
        return number(self.table, key, self.broker.address, default)

    def check_numbers(self) -> None:
        """CannotAnswerError when a number that all are judged by is not one."""
        told = [key for key in self.table if "SilenceMs" in key or "Retransmits" in key or key in _OF_SCRUBBING]
        for key in ("commitLogMaxOffset", "commitLogMinOffset", *told):
            self.number(key)
        for key in ("brokerId", "haSlaveFallbehindMax", "haSendHeartbeatInterval", "totalReplicas", "inSyncReplicas",
                    "mappedFileSizeCommitLog", "haScrubPromise"):
            self.setting(key, 0)

    def setting(self, key: str, default: int) -> int:
        """A number of its config."""
        return number(self.config, key, self.broker.address, default)


Look = dict[Broker, Told]


def ask_all(admin: ClusterAdmin, brokers: Iterable[Broker], before: Look | None = None) -> Look:
    """Ask each broker of itself; of those in `before` the config is known. Ends within the time-out of one answer."""
    known = before or {}
    return in_parallel(lambda broker: _ask(admin, broker, known.get(broker)), list(brokers), admin.timeout_millis,
                       lambda broker: _late(broker, admin.timeout_millis))


def in_parallel(ask: Callable[[K], V], keys: list[K], timeout_ms: float, late: Callable[[K], V]) -> dict[K, V]:
    """`ask` of each key, at the same time; `late` of those that are not there in time."""
    answers: dict[K, V] = {}
    changed = threading.Condition()  # announces: an answer more; guards answers

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
    return Told(broker, error=f"the broker {broker.address} answers too slowly: not all within {timeout_ms / 1000:g} s."
                              " Is it overloaded? --timeout waits longer", alive=False)
