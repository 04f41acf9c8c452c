"""Cuts of the link between master and slave: cable out, packets lost one way or both, resets, a slow link."""
import os
import time

from tests.faults import network
from tests.faults.fault import Fault
from tests.faults.pair import Pair


class Link(Fault):
    """One cycle: some acknowledgements, a cut under load for a while, and the whole verdict after it is healed.

    Both brokers live through all cycles: at the end they hold no more descriptors and threads than after the first.
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
        seconds = rng.uniform(4, 7) if rng.random() < 0.1 else rng.uniform(0.05, 2)  # a few outlast the housekeeping
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
