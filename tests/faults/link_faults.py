"""Faults of the link between master and slave: cuts, proxies, and lying peers."""
import os
import random
import socket
import struct
import threading
import time

from tests.faults import network
from tests.faults.flips import shut
from tests.faults.pair import BOOT_MS, Fault, Pair
from tests.support import store_compare
from tests.support.ports import free_ha_port

# Cuts of the link between master and slave: cable out, packets lost in one or both directions, resets, a slow link.


class Link(Fault):
    """One cycle: some acknowledgements, a cut under load for a while, and all checks after it is healed.

    Both brokers survive all cycles: at the end they hold no more descriptors and threads than after the first.
    """

    name = "link"
    cycles_per_life = 25

    def __init__(self, *args, **keys):
        super().__init__(*args, **keys)
        self._network = network.Network(f"rq{os.getpid()}")

    @classmethod
    def why_not(cls) -> str | None:
        return network.why_not()

    def make(self) -> Pair:
        net = self._network
        net.close()
        net.open()
        plants = self.sides()
        addresses = {"brokerIP1": net.master_ip, "brokerIP2": network.MASTER_HA_IP}
        pair = Pair(self.folder, self.seed, self.kinds,
                    {**plants[0], "prefix": net.master_prefix, "slaveTimeout": 1500, **addresses},
                    {**plants[1], "prefix": net.slave_prefix, "brokerIP1": network.SLAVE_HA_IP,
                     "brokerIP2": network.SLAVE_HA_IP})
        pair.slave.properties["haMasterAddress"] = f"{network.MASTER_HA_IP}:{pair.master.ha_port}"
        pair.slave.become(pair.slave.kind)
        pair.near_slave = net.near_slave
        return pair

    def open(self) -> None:
        self.address_of_master = self._network.master_ip
        super().open()

    def cycle(self) -> str:
        pair, rng, net = self.pair, self.rng, self._network
        kinds = ["down", "slow", *(["to-slave", "to-master", "both", "reset"] if network.can_drop() else [])]
        kind = rng.choice(kinds)
        # A few cuts are longer than the housekeeping interval.
        seconds = rng.uniform(4, 7) if rng.random() < 0.1 else rng.uniform(0.05, 2)
        self.load()
        try:
            if kind == "down":
                net.down()
            elif kind == "reset":
                net.reset()
            elif kind == "slow":
                net.slow(rng.choice([64, 256, 1000]))
            else:
                net.drop(kind)
            time.sleep(seconds)
            pair.check_copy(pair.slave)
        finally:
            net.heal()
        told = pair.settle()
        self.hold()
        return f"{kind} for {seconds:.2f} s: {told}"

    def close(self) -> None:
        super().close()
        self._network.close()


# A proxy between slave and master that delays, sends byte by byte, stalls, or resets within a frame.

_CHUNK = 64 * 1024
# Bytes per tenth of a second.
_SLOW = 10 * 1024
# Bytes of a connection that are sent one by one; then whole chunks again.
_DRIPPED = 4000


class Proxy:
    """A proxy that forwards connections to `target`. `mode` may be changed at any time.

    Modes: pass, delay (each chunk is `delay_s` late), drip (1-byte segments), stall (nothing is sent to the slave),
    deaf (nothing is sent to the master), mute (nothing is sent in either direction), slow (100 KiB/s to the slave),
    tear (after `tear_after` bytes to the slave both sides are reset; then pass).
    """

    def __init__(self, target: tuple[str, int]):
        self._target = target
        self.port = free_ha_port()
        self.mode = "pass"
        self.delay_s = 0.0
        self.tear_after = 0
        self._stopped = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._listener.settimeout(0.5)
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def close(self) -> None:
        """Stop accepting connections. Open ones end with the brokers."""
        self._stopped.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                slave, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return  # closed
            try:
                master = socket.create_connection(self._target, 5)
            except OSError:
                _reset(slave)
                continue
            for one in (slave, master):
                one.settimeout(None)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, sink, to_slave in ((master, slave, True), (slave, master, False)):
                threading.Thread(target=self._pump, args=(source, sink, to_slave), name="pump", daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, to_slave: bool) -> None:
        try:
            while data := source.recv(_CHUNK):
                while self.mode in ("mute", "stall" if to_slave else "deaf") and not self._stopped.is_set():
                    time.sleep(0.01)
                if not self._forward(sink, data, to_slave):
                    _reset(source)
                    _reset(sink)
                    return
        except OSError:
            _reset(source)
            _reset(sink)
        else:
            for one in (sink, source):
                shut(one)

    def _forward(self, sink: socket.socket, data: bytes, to_slave: bool) -> bool:
        """Forward a chunk. Return False if the connection is to be torn."""
        if self.mode == "delay":
            time.sleep(self.delay_s)
        if self.mode == "tear" and to_slave:
            sink.sendall(data[:self.tear_after])
            if len(data) > self.tear_after:
                self.mode = "pass"
                return False
            self.tear_after -= len(data)
            return True
        while self.mode == "slow" and to_slave and data:
            sink.sendall(data[:_SLOW])
            data = data[_SLOW:]
            time.sleep(0.1)
        if self.mode == "drip":
            for at in range(min(len(data), _DRIPPED)):
                sink.sendall(data[at:at + 1])
            data = data[_DRIPPED:]
        sink.sendall(data)
        return True


def _reset(sock: socket.socket) -> None:
    """Close with RST instead of FIN."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        shut(sock)
    except OSError:
        return  # closed by the other direction


class ThroughProxy(Fault):
    """One cycle: some acknowledgements, a mode of the proxy under load for a while, and all checks."""

    name = "proxy"
    cycles_per_life = 25
    _proxy: Proxy | None = None

    def make(self) -> Pair:
        plants = self.sides()
        pair = Pair(self.folder, self.seed, self.kinds, {**plants[0], "slaveTimeout": 1500}, plants[1])
        self._proxy = Proxy(("127.0.0.1", pair.master.ha_port))
        pair.slave.properties["haMasterAddress"] = f"127.0.0.1:{self._proxy.port}"
        pair.slave.become(pair.slave.kind)
        return pair

    def cycle(self) -> str:
        pair, proxy, rng = self.pair, self._proxy, self.rng
        mode = rng.choice(["delay", "drip", "stall", "deaf", "tear", "tear"])
        seconds = rng.uniform(4, 6) if rng.random() < 0.05 else rng.uniform(0.1, 1.2)
        self.load()
        proxy.delay_s, proxy.tear_after = rng.uniform(0.001, 0.2), self._tear_after(rng)
        proxy.mode = mode
        try:
            time.sleep(seconds)
            pair.check_copy(pair.slave)
        finally:
            proxy.mode = "pass"
        told = pair.settle()
        self.hold()
        return f"{mode} for {seconds:.2f} s: {told}"

    @staticmethod
    def _tear_after(rng: random.Random) -> int:
        """Draw a place in a header, right after it, or anywhere in a small or large body."""
        return rng.choice([rng.randint(1, 11), 12, rng.randint(13, 3000), rng.randint(3000, 300_000)])

    def close(self) -> None:
        super().close()
        if self._proxy is not None:
            self._proxy.close()


# Peers on the master's HA port that report offsets which the master never had, while the real slave is stopped.

_REPORT = struct.Struct(">q")
_ANSWERS = 12


class Liars(Fault):
    """One cycle: the slave is stopped (its connection lives), peers lie, and messages are sent. None may be
    acknowledged that the slave does not have."""

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
