"""Faults of a process: kill -9 at any moment and at named points, SIGSTOP; and port probes and idle times."""
import os
import signal
import socket
import struct
import time

import psutil

from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.flush_services import GroupCommitRequest
from rmqha.store.ha.ha_connection import HAConnection
from rmqha.store.ha.ha_service import HAService
from rmqha.store.mapped_file import MappedFile
from tests.faults.pair import BOOT_MS, Fault, Pair
from tests.faults.pair_broker import Broker, Holdings
from tests.faults.points import LOAD, POINTS, Point, after, before, torn_write
from tests.faults.verdict import Violation
from tests.support.wait import wait_until

# kill -9 of the master, the slave or both under load, sometimes again during the recovery; or SIGTERM.

_SAVED_EACH = 8  # cycles


class Kill(Fault):
    """One cycle: some acknowledgements, a kill, a check of the survivor, a restart, and all checks.

    Sometimes the master has time to save its consumer offsets before.
    """

    name = "kill"

    def __init__(self, *args, **keys):
        super().__init__(*args, **keys)
        self._cycles = 0

    def make(self) -> Pair:
        return Pair(self.folder, self.seed, self.kinds, *self.sides(), namesrv=True)

    def cycle(self) -> str:
        pair, rng = self.pair, self.rng
        target = rng.choice(["master", "slave", "both"])
        gently, again = rng.random() < 0.1, rng.random() < 0.15
        self.load()
        self._cycles += 1
        if self._cycles % _SAVED_EACH == 2:
            pair.senders.pause()
            pair.commits.wait_until_saved()
            pair.senders.go()
            pair.senders.wait_for_more(rng.randint(1, 40), BOOT_MS)
        time.sleep(rng.random() * 0.02)
        victims = {"master": [pair.master], "slave": [pair.slave], "both": [pair.master, pair.slave]}[target]
        rng.shuffle(victims)
        for victim in victims:
            self._end(victim, gently)
        for victim in victims:
            # messages acknowledged so far must be in its files, and in those of the other broker
            pair.check_copy(victim)
        pair.check_copy(pair.slave)
        rng.shuffle(victims)
        for victim in victims:
            if again:
                self._kill_while_it_starts(victim)
            victim.start(BOOT_MS)
        told = pair.settle()
        return f"{'SIGTERM' if gently else 'kill -9'} of {target}{', again while it recovers' if again else ''}: {told}"

    def end(self) -> None:
        """Also count how often the slave has copied higher consumer offsets from its master."""
        super().end()
        self.notes["times higher offsets on the slave"] += self.pair.commits.grown_on_slave

    @staticmethod
    def _end(victim: Broker, gently: bool) -> None:
        if gently:
            victim.stop(60)
        else:
            victim.kill()

    def _kill_while_it_starts(self, victim: Broker) -> None:
        victim.launch()
        time.sleep(self.rng.random() * (3.0 if victim.kind == "java" else 0.8))
        victim.kill()


# SIGSTOP of the master, the slave or both for a while: a process that is alive but does nothing.

_LONG_STOPS_S = (5, 25, 60)


class Stop(Fault):
    """One cycle: some acknowledgements, a stop under load, and all checks after SIGCONT.

    One stop in forty is long. While only the slave is stopped, each send is answered within slaveTimeout and a margin.
    """

    name = "stop"

    def make(self) -> Pair:
        plants = self.sides()
        return Pair(self.folder, self.seed, self.kinds, {**plants[0], "slaveTimeout": 1500}, plants[1],
                    answer_within_s=90.0)

    def cycle(self) -> str:
        pair, rng = self.pair, self.rng
        target = rng.choice(["master", "slave", "both"])
        seconds = rng.choice(_LONG_STOPS_S) if rng.random() < 1 / 40 and not self.small else rng.uniform(0.05, 4)
        stopped = {"master": [pair.master], "slave": [pair.slave], "both": [pair.master, pair.slave]}[target]
        self.load()
        for broker in stopped:
            broker.freeze()
        begin = time.monotonic()
        if target == "slave":
            # answers arrive whatever the slave does
            pair.senders.wait_for_answers(6)
        time.sleep(max(0.0, begin + seconds - time.monotonic()))
        pair.check_copy(pair.slave)
        for broker in stopped:
            broker.thaw()
        told = pair.settle()
        self.hold()
        return f"{target} stopped for {seconds:.2f} s: {told}"


# kill -9 at named points of replication, and at those of the store (points.py) that a broker under load passes.

_LOG = "/commitlog/"
_SOON_MS, _NOT_PASSED_MS = 3000, 25_000
# From this signal on passages of the trap count.
ARM = signal.SIGUSR1
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
    Point("master: a slave's report not taken over", LOAD, 40, before(HAService, "slave_acknowledged")),
    Point("master: a slave's report taken over, nobody told", LOAD, 40, after(HAService, "slave_acknowledged")),
    Point("master: safe, not answered", LOAD, 40, before(GroupCommitRequest, "wakeup_customer")),
    Point("master: told that it is safe", LOAD, 40, after(GroupCommitRequest, "wakeup_customer")),
]
_NEEDS_NO_PUT = ("flush:", "dispatch:", "index:", "consume queue:", "checkpoint:", "allocate:")
_OF_STORE = [point for point in POINTS.values() if point.phase == LOAD and not point.name.startswith("json")]
OF_SLAVE = {point.name: point for point in _ON_SLAVE + [one for one in _OF_STORE if one.name.startswith(_NEEDS_NO_PUT)]}
OF_MASTER = {point.name: point for point in _ON_MASTER + _OF_STORE}


class AtPoints(Fault):
    """One cycle: one side restarts with a trap, runs into it under load, and restarts without it.

    The trap is armed once messages are acknowledged. The slave is killed together with the master, because it would
    wait 5 s before it reconnects.
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
                # some points are passed only by a new connection
                self._restart_slave()
            return self._is_dead_within(broker, _NOT_PASSED_MS)
        finally:
            broker.kill()

    @staticmethod
    def _is_dead_within(broker: Broker, timeout_ms: int) -> bool:
        deadline = time.monotonic() + timeout_ms / 1000
        while broker.is_alive and time.monotonic() < deadline:
            time.sleep(0.01)
        return not broker.is_alive


# Port probes leak nothing, and a pair without load neither reconnects nor uses CPU.

# Probes after which pools have their threads and the allocator its arenas.
_WARM_UP = 200
_SPARE_BYTES = 8 << 20


class Probes(Fault):
    """One cycle: 10,000 short connections to the master's ports, closed in several ways. Descriptors, threads and
    memory must return to their earlier values, and the slave is served as before."""

    name = "probes"
    cycles_per_life = 1
    by_name_only = True

    def make(self) -> Pair:
        return Pair(self.folder, self.seed, self.kinds, *self.sides())

    def cycle(self) -> str:
        pair = self.pair
        pair.settle()
        process, holdings = psutil.Process(pair.master.pid), Holdings(pair.master)
        for _ in range(_WARM_UP):
            self._probe()
        holdings.assert_returned()
        memory = process.memory_info().rss
        count = 400 if self.small else 10_000
        begin = time.monotonic()
        for _ in range(count):
            self._probe()
        seconds = time.monotonic() - begin
        holdings.assert_returned()
        try:
            wait_until(lambda: process.memory_info().rss < memory + _SPARE_BYTES, 60_000)
        except AssertionError:
            raise Violation(f"F: {memory >> 10} KiB before, {process.memory_info().rss >> 10} now") from None
        pair.senders.go()
        pair.senders.wait_for_more(20, BOOT_MS)
        told = pair.settle()
        return (f"{count} probes in {seconds:.1f} s, memory {memory >> 10} -> {process.memory_info().rss >> 10} KiB, "
                f"{holdings}: {told}")

    def _probe(self) -> None:
        pair, rng = self.pair, self.rng
        port = rng.choice([pair.master.ha_port, pair.master.ha_port, pair.master.port])
        with socket.create_connection(("127.0.0.1", port), 60) as probe:
            kind = rng.randrange(8)
            if kind == 0:  # RST instead of FIN
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif kind == 1:
                probe.sendall(rng.randbytes(rng.randint(1, 7)))
            elif kind == 2:
                # the first report of an empty slave
                probe.sendall(bytes(8))


class Idle(Fault):
    """One cycle: two minutes without load, with the default intervals. The slave keeps its connection, and neither
    broker uses 1% of a core."""

    name = "idle"
    cycles_per_life = 1
    by_name_only = True
    _CORE_SHARE = 0.01

    def make(self) -> Pair:
        master, slave = self.sides()
        intervals = {"haSendHeartbeatInterval": 500, "haHousekeepingInterval": 7000} if self.small else {
            "haSendHeartbeatInterval": 5000, "haHousekeepingInterval": 20_000}
        return Pair(self.folder, self.seed, self.kinds, {**master, **intervals}, {**slave, **intervals})

    def cycle(self) -> str:
        pair, seconds = self.pair, 9 if self.small else 120
        told = pair.settle()
        pair.commits.pause()
        connected = self._connections()
        cpu, begin = [_cpu_seconds(broker) for broker in (pair.master, pair.slave)], time.monotonic()
        while time.monotonic() < begin + seconds:
            time.sleep(0.25)
            if self._connections() != connected:
                raise Violation(f"the slave had {connected}, and has {self._connections()} after "
                                f"{time.monotonic() - begin:.1f} s without load")
        shares = [(_cpu_seconds(broker) - before) / seconds
                  for broker, before in zip((pair.master, pair.slave), cpu, strict=True)]
        if not self.small and max(shares) >= self._CORE_SHARE:
            raise Violation(f"without load master and slave take {shares} of a core")
        pair.commits.go()
        pair.senders.go()
        pair.senders.wait_for_more(20, BOOT_MS)
        pair.settle()
        return f"idle for {seconds} s, {shares[0]:.2%} and {shares[1]:.2%} of a core, no reconnect: {told}"

    def _connections(self) -> set[int]:
        """Return the local ports of the slave's connections to the master's HA port."""
        process = psutil.Process(self.pair.slave.pid)
        connections = getattr(process, "net_connections", None) or process.connections  # renamed in psutil 6
        found = {c.laddr.port for c in connections("tcp") if c.raddr and c.raddr.port == self.pair.master.ha_port}
        if not found:
            raise Violation("the slave is not connected")
        return found


def _cpu_seconds(broker: Broker) -> float:
    times = psutil.Process(broker.pid).cpu_times()
    return times.user + times.system
