"""The face of a kind of fault: a pair of brokers that lives for some cycles, each of which does one thing to it."""
import random
from collections import Counter
from pathlib import Path

from tests.faults.pair import BOOT_MS, Pair, some_file_sizes
from tests.faults.pair_broker import Holdings

# What 4.9 does not know: the slave shows its last record, takes the whole history, and acknowledges what is forced.
TRUST = {"haHandshakeEnable": "true", "haSyncFromFirstFile": "true", "haSlaveAckAfterFlush": "true"}
_FEW, _MANY = 40, 120  # messages before a fault, at most


class Fault:
    """One life of a pair. Everything that is chosen follows from `seed`; when it happens is up to the machine.

    `plants`: faults of planted.py, for the master and for the slave, which the cycles are expected to find. `small`:
    leave out what takes long.
    """

    name = ""
    cycles_per_life = 20
    address_of_master = "127.0.0.1"
    by_name_only = False  # True: only when it is asked for by name
    master_of_rmqha_only = False  # True: the original is known to fail as a master

    def __init__(self, folder: Path, seed: int, kinds: tuple[str, str] = ("rmqha", "rmqha"),
                 plants: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()), small: bool = False):
        self.folder = folder
        self.seed = seed
        self.kinds = kinds
        self.plants = plants
        self.small = small
        self.rng = random.Random(f"{self.name} {seed}")
        self.trusting = kinds == ("rmqha", "rmqha") and random.Random(f"settings {seed}").random() < 0.5
        self.file_sizes = some_file_sizes(f"{self.name} {seed}")
        self.pair: Pair | None = None
        self.holdings: list[Holdings] = []
        self.told = ""  # by the end
        self.notes: Counter[str] = Counter()  # what happened how often; summed up at the end

    @classmethod
    def why_not(cls) -> str | None:
        """The reason why this kind can't be had on this machine; None when it can."""
        return None

    def sides(self) -> tuple[dict, dict]:
        """Options of master and slave: the plants, sizes of files, and for every other pair rmqha's own settings."""
        settings = {**self.file_sizes, **(TRUST if self.trusting else {})}
        return {"plants": self.plants[0], **settings}, {"plants": self.plants[1], **settings}

    def make(self) -> Pair:
        """The pair, not started."""
        raise NotImplementedError

    def open(self) -> None:
        """Make and start the pair."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.notes["lives with handshake, whole history and acks after flush"] += self.trusting
        self.pair = self.make()
        master = self.pair.master
        self.pair.open(f"{self.address_of_master}:{master.port}")

    def load(self) -> None:
        """Send, until some messages are acknowledged: at first a few senders, whose records come one by one, then all.
        """
        self.pair.senders.go(self.rng.randint(1, 3))
        self.pair.senders.wait_for_more(self.rng.randint(1, _FEW), BOOT_MS)
        self.pair.senders.go()
        self.pair.senders.wait_for_more(self.rng.randint(1, _FEW if self.small else _MANY), BOOT_MS)

    def cycle(self) -> str:
        """Do one thing to the pair, check, and say in a few words what was done. Raises Violation."""
        raise NotImplementedError

    def hold(self) -> None:
        """Remember what both brokers hold, when it is asked for the first time: they live through all cycles."""
        if not self.holdings:
            self.holdings = [Holdings(broker) for broker in (self.pair.master, self.pair.slave)]

    def end(self) -> None:
        """At the end of a life that went well: brokers that lived through all cycles hold no more than at first, and
        the last word on both stores."""
        brokers = self.pair.master, self.pair.slave
        self.notes["empty files of the original taken away"] += sum(broker.empty_files for broker in brokers)
        for holdings in self.holdings:
            holdings.assert_returned()
        self.told = self.pair.end()

    def close(self) -> None:
        """Kill what runs, take down what was put up; called also after a failure."""
        if self.pair is not None:
            self.pair.close()
