"""Loss of power of the master, the slave or both under load: they start again from what was on their disks."""
import shutil
import time

from click.testing import CliRunner

from rmqha.tools.rmqha_command import rmqha
from tests.faults import images, verdict
from tests.faults.fault import Fault
from tests.faults.pair import BOOT_MS, Pair
from tests.faults.pair_broker import Broker
from tests.faults.verdict import Violation
from tests.support import store_compare
from tests.support.wait import wait_until

_BEYOND = 50_000  # bytes
_SLAVE_RETRIES_S = 6  # a slave connects again after 5 s


class Power(Fault):
    """One cycle: some acknowledgements, an image of the disks at one moment, a restart from it, and the whole verdict.

    SYNC_FLUSH promises that the master's disk has what is acknowledged; the slave acknowledges what it has in memory.
    A master that comes back may have lost bytes that nobody was told to be safe, and that the slave holds: then the
    slave has to be refused, and rejoins or is set up anew, as an operator would.
    """

    name = "power"

    @classmethod
    def why_not(cls) -> str | None:
        return images.why_not()

    def make(self) -> Pair:
        pair = Pair(self.folder, self.seed, self.kinds, *self.sides())
        pair.original_may_lose_units = True
        self._disks = {broker.base_name: images.Disk(self.folder / f"{broker.base_name}.img", broker.store)
                       for broker in (pair.master, pair.slave)}
        for disk in self._disks.values():
            disk.open()
        return pair

    def cycle(self) -> str:
        pair, rng = self.pair, self.rng
        target = rng.choice(["master", "slave", "both"])
        victims = {"master": [pair.master], "slave": [pair.slave], "both": [pair.master, pair.slave]}[target]
        self.load()
        chance = [self._disks[victim.base_name].write_back_some(rng) for victim in victims]
        return self.lose_power_of(victims, "/".join(chance))

    def lose_power_of(self, victims: list[Broker], written_back: str) -> str:
        """Images of one moment, restarts from them, the verdict; what was done."""
        pair = self.pair
        for victim in victims:
            victim.freeze()
        for victim in victims:
            self._disks[victim.base_name].take()
        for victim in victims:
            victim.kill()
            self._disks[victim.base_name].lose_power()
            pair.commits.lost_power(victim)
            pair.copies[victim.base_name].forget()
        if pair.master in victims:
            pair.senders.pause()
        # the master stood still before its image was taken: each answer was given before
        acknowledged = pair.senders.snapshot()
        if self.trusting and pair.slave in victims:
            verdict.check_acknowledged(pair.slave, pair.copies["slave"], acknowledged,
                                       "'s disk after the loss of power")
        for victim in victims:
            self._start(victim)
        if pair.master in victims:
            verdict.check_acknowledged(pair.master, pair.copies["master"], acknowledged,
                                       " after the loss of power")
        anew = self._bring_slave_back_if_it_parts(victims)
        names = " and ".join(victim.base_name for victim in victims)
        return f"power of {names} lost, written back by chance: {written_back}{anew}: {pair.settle()}"

    def _start(self, victim: Broker) -> None:
        try:
            victim.start(BOOT_MS)
        except AssertionError as failure:
            # Java's broker may end at its first start on what was left (code 253: its store or a table can't be
            # loaded), and come up at the second; the reason is in its output.
            if victim.kind == "rmqha" or "code 253" not in str(failure):
                raise
            victim.start(BOOT_MS)
            self.notes["first starts that the original refused after a loss of power"] += 1

    def _bring_slave_back_if_it_parts(self, victims: list[Broker]) -> str:
        """As an operator would: when the slave is ahead of a master that has lost bytes, or when one of the two is the
        original, and keeps records with holes."""
        master, slave = self.pair.master, self.pair.slave
        ends = master.log_end(), slave.log_end()
        torn = any(self._keeps_holes(victim, slave if victim is master else master, min(ends))
                   for victim in victims if victim.kind != "rmqha")
        if not torn and (master not in victims or ends[1] <= ends[0]):
            return ""
        if self.kinds == ("rmqha", "rmqha"):
            self._outgrow(master, slave, ends[1])
            if self.rng.random() < 0.7:
                self._rejoin(slave)
                return f", slave {ends[1] - ends[0]} bytes ahead has rejoined"
        slave.kill()
        self.pair.commits.set_up_anew(slave)
        for child in slave.store.iterdir():
            if child.is_dir():
                shutil.rmtree(child)
            else:
                child.unlink()
        self.pair.give_topics(slave)
        slave.start(BOOT_MS)
        self.notes["records with holes kept by the original, slaves set up anew"] += torn
        self.notes["slaves ahead, set up anew"] += not torn
        self.pair.senders.go()  # an empty slave gets the master's last file, once there is something in it
        self.pair.senders.wait_for_more(1, BOOT_MS)
        what = "beside a record with holes" if torn else f"{ends[1] - ends[0]} bytes ahead"
        return f", slave {what} is set up anew"

    @staticmethod
    def _keeps_holes(broker: Broker, other: Broker, end: int) -> bool:
        """Whether a record in the last two files of the original, before `end`, has zeros behind its body where the
        other's has something: its CRC is that of the body alone, and a page behind that was not forced to the disk."""
        starts = [list(store_compare.segments(one.commit_log)) for one in (broker, other)]
        begin = max([*starts[0][-2:-1], starts[0][0], starts[1][0]]) if all(starts) else end
        mine, its = (store_compare.read_range(one.commit_log, begin, end) for one in (broker, other))
        for record in store_compare.walk(broker.commit_log, end, begin):
            at = slice(record.offset - begin, record.offset - begin + record.size)
            if at.stop <= end - begin and mine[at] != its[at] and _has_holes(mine[at], its[at], record):
                return True
        return False

    def _outgrow(self, master: Broker, slave: Broker, end_of_slave: int) -> None:
        """The master writes beyond the slave's end: the slave, whose last records it never had, still gets nothing."""
        self.pair.senders.go()
        end = verdict.end_of(master, self.pair.copies["master"])
        wait_until(lambda: end() > end_of_slave + _BEYOND, BOOT_MS, "the master beyond the slave's end")
        time.sleep(_SLAVE_RETRIES_S)
        self.pair.senders.pause()
        if slave.log_end() != end_of_slave:
            raise Violation(f"B: a slave whose log had diverged was served from {end_of_slave} to {slave.log_end()}")
        self.notes["diverged slaves refused"] += 1

    def _rejoin(self, slave: Broker) -> None:
        """One command; settling finds out whether the slave's log and queues are the master's then."""
        def rejoined() -> bool:
            result = CliRunner().invoke(rmqha, ["ha", "rejoin", "-b", slave.address])
            told.append(result.output)
            return result.exit_code == 0
        told: list[str] = []
        try:
            wait_until(rejoined, BOOT_MS, "the slave has rejoined")
        except AssertionError as failure:
            raise Violation(f"the slave that diverged does not come back: {told[-1]}") from failure
        self.notes["diverged slaves that rejoined"] += 1

    def end(self) -> None:
        super().end()
        self.notes["lives in which the original's queues lost units"] += bool(self.pair.flawed_queues)

    def close(self) -> None:
        super().close()
        for disk in getattr(self, "_disks", {}).values():
            disk.close()


def _has_holes(mine: bytes, its: bytes, record: store_compare.Record) -> bool:
    """Whether the two differ behind the record's body alone, and in the first one there are zeros."""
    differing = [at for at, (one, other) in enumerate(zip(mine, its, strict=False)) if one != other]
    behind_body = mine.index(record.body) + len(record.body)
    return bool(differing) and differing[0] >= behind_body and not any(mine[at] for at in differing)
