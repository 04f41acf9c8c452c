"""kill -9 at named points of replication, and at those of the store (points.py) that a broker under load passes."""
import os
import signal
import time

from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.flush_services import GroupCommitRequest
from rmqha.store.ha.ha_connection import HAConnection
from rmqha.store.ha.ha_service import HAService
from rmqha.store.mapped_file import MappedFile
from tests.faults.fault import Fault
from tests.faults.pair import BOOT_MS, Pair
from tests.faults.pair_broker import Broker
from tests.faults.points import LOAD, POINTS, Point, after, before, torn_write

_LOG = "/commitlog/"
_SOON_MS, _NOT_PASSED_MS = 3000, 25_000
ARM = signal.SIGUSR1  # from here on passages of the trap count
_ON_SLAVE = [
    Point("slave: before it appends", LOAD, 40, before(DefaultMessageStore, "append_to_commit_log")),
    Point("slave: appended half of what came", LOAD, 40,
          torn_write(_LOG, lambda size: slice(0, size // 2), lambda size: size > 8)),
    Point("slave: appended the end of what came", LOAD, 40,
          torn_write(_LOG, lambda size: slice(size // 2, size), lambda size: size > 8)),
    Point("slave: position not moved", LOAD, 40,
          after(MappedFile, "write_at", lambda _result, file, *_: _LOG in file.file_name)),
    Point("slave: appended, not reported", LOAD, 40, after(DefaultMessageStore, "append_to_commit_log")),
]
_ON_MASTER = [
    Point("master: a slave is known, not served", LOAD, 1, after(HAService, "add_connection")),
    Point("master: before it serves a slave", LOAD, 1, before(HAConnection, "transfer_begins")),
    Point("master: a slave's report not taken over", LOAD, 40, before(HAService, "notify_transfer_some")),
    Point("master: a slave's report taken over, nobody told", LOAD, 40, after(HAService, "notify_transfer_some")),
    Point("master: safe, not answered", LOAD, 40, before(GroupCommitRequest, "wakeup_customer")),
    Point("master: told that it is safe", LOAD, 40, after(GroupCommitRequest, "wakeup_customer")),
]
_NEEDS_NO_PUT = ("flush:", "dispatch:", "index:", "consume queue:", "checkpoint:", "allocate:")
_OF_STORE = [point for point in POINTS.values() if point.phase == LOAD and not point.name.startswith("json")]
OF_SLAVE = {point.name: point for point in _ON_SLAVE + [one for one in _OF_STORE if one.name.startswith(_NEEDS_NO_PUT)]}
OF_MASTER = {point.name: point for point in _ON_MASTER + _OF_STORE}


class AtPoints(Fault):
    """One cycle: one side starts again with a trap in it, runs into it under load, and starts once more without.

    The trap is armed once messages are acknowledged. With the master the slave is killed as well: it would wait 5 s
    before it connects again.
    """

    name = "points"

    def make(self) -> Pair:
        return Pair(self.folder, self.seed, self.kinds, *self.sides())

    def cycle(self) -> str:
        pair, rng = self.pair, self.rng
        broker, points = rng.choice([(pair.master, OF_MASTER), (pair.slave, OF_SLAVE)])
        if broker.kind != "rmqha":
            broker, points = (pair.slave, OF_SLAVE) if broker is pair.master else (pair.master, OF_MASTER)
        name = rng.choice(list(points))
        passage = rng.randint(1, points[name].reach)
        self._restart(broker, name, passage)
        pair.senders.go()
        pair.senders.wait_for_more(rng.randint(1, 20), BOOT_MS)
        passed = self._run_into_it(broker)
        self.notes["points passed" if passed else "points not passed"] += 1
        pair.check_copy(pair.master)
        pair.check_copy(pair.slave)
        self._restart(broker, None, 0)
        return f"{broker.base_name} at {name!r}{'' if passed else ' (not passed)'}: {pair.settle()}"

    def _restart(self, broker: Broker, point: str | None, passage: int) -> None:
        broker.kill()
        broker.lay_trap(point, passage)
        broker.start(BOOT_MS)
        if broker is self.pair.master:
            self._restart_slave()

    def _restart_slave(self) -> None:
        self.pair.slave.kill()
        self.pair.slave.start(BOOT_MS)

    def _run_into_it(self, broker: Broker) -> bool:
        os.kill(broker.pid, ARM)
        try:
            if not self._is_dead_within(broker, _SOON_MS) and broker is self.pair.master:
                self._restart_slave()  # there are points that only a new connection passes
            return self._is_dead_within(broker, _NOT_PASSED_MS)
        finally:
            broker.kill()

    @staticmethod
    def _is_dead_within(broker: Broker, timeout_ms: int) -> bool:
        deadline = time.monotonic() + timeout_ms / 1000
        while broker.is_alive and time.monotonic() < deadline:
            time.sleep(0.01)
        return not broker.is_alive
