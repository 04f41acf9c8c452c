"""SIGSTOP of the master, the slave or both for a while: a process that is alive and does nothing."""
import time

from tests.faults.fault import Fault
from tests.faults.pair import Pair

_LONG_STOPS_S = (5, 25, 60)


class Stop(Fault):
    """One cycle: some acknowledgements, a stop under load, and the whole verdict after SIGCONT.

    One stop of forty is long. While the slave alone stands, each send is answered within slaveTimeout and a little.
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
            pair.senders.wait_for_answers(6)  # they come, whatever the slave does
        time.sleep(max(0.0, begin + seconds - time.monotonic()))
        pair.check_copy(pair.slave)
        for broker in stopped:
            broker.thaw()
        told = pair.settle()
        self.hold()
        return f"{target} stopped for {seconds:.2f} s: {told}"
