"""Wall clocks that jump, of the master, the slave or both, under load."""
import struct
import time
from pathlib import Path

from tests.faults import preloads
from tests.faults.fault import Fault
from tests.faults.pair import BOOT_MS, Pair

_SHIFT = struct.Struct("=q")
_HOUR_S = 3600
_SHIFTS_S = (-24 * _HOUR_S, 24 * _HOUR_S, -_HOUR_S, _HOUR_S, -20, 20, -2, 2, 0)


class Clock(Fault):
    """One cycle: clocks jump by up to a day to either side, messages are acknowledged all the same, and nothing is cut
    or deleted; in every third cycle a kill -9 follows, so that recovery meets store times that went back."""

    name = "clock"

    def __init__(self, *args, **keys):
        super().__init__(*args, **keys)
        self._shifts = {"master": 0, "slave": 0}  # seconds

    @classmethod
    def why_not(cls) -> str | None:
        return preloads.why_not()

    def make(self) -> Pair:
        library = preloads.compiled("shifted_clock", self.folder)
        sides = self.sides()
        for name, side in zip(("master", "slave"), sides, strict=True):
            self._file(name).write_bytes(_SHIFT.pack(0))
            side["env"] = {"LD_PRELOAD": str(library), "FAULTS_CLOCK": str(self._file(name))}
        return Pair(self.folder, self.seed, self.kinds, *sides)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.clock"

    def cycle(self) -> str:
        pair, rng = self.pair, self.rng
        pair.senders.go()
        pair.senders.wait_for_more(rng.randint(1, 40), BOOT_MS)
        names = rng.choice([["master"], ["slave"], ["master", "slave"]])
        jumps = {name: rng.choice([shift for shift in _SHIFTS_S if shift != self._shifts[name]]) for name in names}
        self._shifts.update(jumps)
        for name, seconds in jumps.items():
            with open(self._file(name), "r+b") as file:  # in place: the broker has it mapped
                file.write(_SHIFT.pack(seconds))
        time.sleep(rng.random() * 1.5)
        pair.senders.wait_for_more(rng.randint(1, 40), BOOT_MS)
        killed = rng.sample([pair.master, pair.slave], rng.randint(1, 2)) if rng.random() < 1 / 3 else []
        for broker in killed:
            broker.kill()
        pair.check_copy(pair.slave)
        for broker in killed:
            broker.start(BOOT_MS)
        victims = " and ".join(broker.base_name for broker in killed)
        return f"clocks off by {jumps} s{f', kill -9 of {victims}' if killed else ''}: {pair.settle()}"
