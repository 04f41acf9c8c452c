"""No more descriptors (RLIMIT_NOFILE) for the master or the slave: for connections, new files, saved tables."""
import contextlib
import resource
import socket
import time

import psutil

from tests.faults.fault import Fault
from tests.faults.pair import BOOT_MS, Pair
from tests.faults.pair_broker import Broker
from tests.faults.verdict import Violation

_MORE_THAN_FREE = 12  # connections that come beyond the limit
_CORE_SHARE = 0.5  # of a broker that can accept nothing, and is asked for nothing
_QUIET_S = 1.5
_RESUMES_MS = 60_000


class Descriptors(Fault):
    """One cycle: the limit of a broker comes down to what it has open and a few more, while connections come; it
    neither spins nor acknowledges what it can't store, and goes on when there is room again."""

    name = "descriptors"

    def make(self) -> Pair:
        master, slave = self.sides()
        return Pair(self.folder, self.seed, self.kinds, {**master, "slaveTimeout": 1000}, slave)

    def cycle(self) -> str:
        pair, rng = self.pair, self.rng
        broker = rng.choice([one for one in (pair.master, pair.slave) if one.kind == "rmqha"])
        pair.senders.go()
        pair.senders.wait_for_more(rng.randint(1, 30), BOOT_MS)
        process, room, loaded = psutil.Process(broker.pid), rng.randint(0, 4), rng.random() < 0.7
        limits = process.rlimit(resource.RLIMIT_NOFILE)
        process.rlimit(resource.RLIMIT_NOFILE, (process.num_fds() + room, limits[1]))
        try:
            with contextlib.ExitStack() as stack:
                self._connect(broker, room + _MORE_THAN_FREE, stack)
                if loaded:
                    time.sleep(rng.uniform(0.5, 3))
                else:
                    pair.senders.pause()
                    self._check_rests(broker)
                pair.check_copy(pair.slave)
        finally:
            process.rlimit(resource.RLIMIT_NOFILE, limits)
        pair.senders.go()
        pair.senders.wait_for_more(5, _RESUMES_MS)
        told = pair.settle()
        self.hold()
        return f"{room} descriptors left for the {broker.base_name}{' under load' if loaded else ''}: {told}"

    @staticmethod
    def _connect(broker: Broker, count: int, stack: contextlib.ExitStack) -> None:
        """Connections to both ports; the kernel takes them, whether the broker does or not."""
        for number in range(count):
            port = broker.ha_port if number % 2 else broker.port
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 20))

    @staticmethod
    def _check_rests(broker: Broker) -> None:
        process = psutil.Process(broker.pid)
        before, begin = sum(process.cpu_times()[:2]), time.monotonic()
        time.sleep(_QUIET_S)
        share = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - begin)
        if share > _CORE_SHARE:
            raise Violation(f"F: without descriptors and load the {broker.base_name} takes {share:.0%} of a core")
