"""What costs nothing: port probes leave nothing behind, and a pair without load neither reconnects nor computes."""
import socket
import struct
import time

import psutil

from tests.faults.fault import Fault
from tests.faults.pair import BOOT_MS, Pair
from tests.faults.pair_broker import Broker, Holdings
from tests.faults.verdict import Violation
from tests.support.wait import wait_until

_WARM_UP = 200  # probes after which pools have their threads and the allocator its arenas
_SPARE_BYTES = 8 << 20


class Probes(Fault):
    """One cycle: 10,000 connections to the master's ports that end soon, in several ways; descriptors, threads and
    memory return to where they were, and the slave is served as before."""

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
                probe.sendall(bytes(8))  # the first report of an empty slave


class Idle(Fault):
    """One cycle: two minutes without load, with the default intervals: the slave keeps its connection, and neither
    broker takes 1% of a core."""

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
        """Local ports of the slave's connections to the master's HA port."""
        process = psutil.Process(self.pair.slave.pid)
        connections = getattr(process, "net_connections", None) or process.connections  # renamed in psutil 6
        found = {c.laddr.port for c in connections("tcp") if c.raddr and c.raddr.port == self.pair.master.ha_port}
        if not found:
            raise Violation("the slave is not connected")
        return found


def _cpu_seconds(broker: Broker) -> float:
    times = psutil.Process(broker.pid).cpu_times()
    return times.user + times.system
