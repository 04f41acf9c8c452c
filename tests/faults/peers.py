"""Peers on the master's HA port that report offsets which the master never had, while the real slave stands still."""
import socket
import struct

from tests.faults.fault import Fault
from tests.faults.pair import BOOT_MS, Pair
from tests.support import store_compare

_REPORT = struct.Struct(">q")
_ANSWERS = 12


class Liars(Fault):
    """One cycle: the slave stands (its connection lives), peers lie, messages are sent: none may be acknowledged that
    the slave has not."""

    name = "liars"
    master_of_rmqha_only = True

    def make(self) -> Pair:
        plants = self.sides()
        return Pair(self.folder, self.seed, self.kinds, {**plants[0], "slaveTimeout": 400}, plants[1])

    def cycle(self) -> str:
        pair, rng = self.pair, self.rng
        pair.senders.go()
        pair.senders.wait_for_more(rng.randint(1, 20), BOOT_MS)
        pair.senders.pause()
        pair.slave.freeze()
        highest = store_compare.log_end(pair.master.commit_log)
        lies = [[highest + 1], [1 << 62], [(1 << 63) - 1], [-1], [0, 1 << 62], [highest, highest + 1]]
        peers = [self._lie(lie) for lie in rng.sample(lies, rng.randint(1, 3))]
        peers.append(self._lie([1 << 62]))
        try:
            pair.senders.go()
            pair.senders.wait_for_answers(_ANSWERS)
            pair.check_copy(pair.slave)
        finally:
            pair.slave.thaw()
            for peer in peers:
                peer.close()
        told = pair.settle()
        self.hold()
        return f"{len(peers)} liars: {told}"

    def _lie(self, reports: list[int]) -> socket.socket:
        peer = socket.create_connection(("127.0.0.1", self.pair.master.ha_port), 10)
        for report in reports:
            peer.sendall(_REPORT.pack(report))
        return peer
