"""kill -9 of the master, the slave or both under load, now and then again while it recovers; or SIGTERM."""
import time

from tests.faults.fault import Fault
from tests.faults.pair import BOOT_MS, Pair
from tests.faults.pair_broker import Broker

_SAVED_EACH = 8  # cycles


class Kill(Fault):
    """One cycle: some acknowledgements, a kill, what the survivors hold, a restart, and the whole verdict.

    Now and then the master has time to save its consumer offsets before.
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
            # what is acknowledged by now must be in its files, and in those of the other one
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
        """Also count how often the slave has taken higher consumer offsets from its master."""
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
