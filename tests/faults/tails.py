"""A master whose log has whole records behind a torn one, as a loss of power in a bad moment leaves them.

What lies behind the flaw must not come back after the next crash: new records take the place of the torn one, and an
old record that follows them by chance would repeat a queue offset.
"""
from tests.faults.fault import Fault
from tests.faults.pair import BOOT_MS, Pair
from tests.support import store_compare

_BODY = 300
_OLD_RECORDS = 12


class Tail(Fault):
    """One cycle: records that nobody acknowledged, the first of them torn; a restart, a few new ones, another crash.

    All records have the same size, so that what is left behind the new ones would fit.
    """

    name = "tail"

    def make(self) -> Pair:
        master, slave = self.sides()
        return Pair(self.folder, self.seed, self.kinds, {**master, "slaveTimeout": 500}, slave, fixed_size=_BODY)

    def cycle(self) -> str:
        pair, rng = self.pair, self.rng
        pair.senders.go()
        pair.senders.wait_for_more(rng.randint(1, 20), BOOT_MS)
        pair.slave.kill()
        pair.senders.wait_for_answers(_OLD_RECORDS + rng.randint(0, 20))
        pair.senders.pause()
        pair.master.kill()
        torn = self._tear()
        pair.master.start(BOOT_MS)
        pair.slave.start(BOOT_MS)
        pair.senders.go(1)  # all of them would overwrite the whole records before they are paused
        pair.senders.wait_for_more(rng.randint(1, 3), BOOT_MS)
        pair.senders.pause()
        pair.master.kill()
        pair.slave.kill()
        pair.master.start(BOOT_MS)
        pair.slave.start(BOOT_MS)
        told = pair.settle()
        return f"{torn}: {told}"

    def _tear(self) -> str:
        """Damage the body of a record that is not acknowledged, and that the slave has not; in the last file."""
        pair = self.pair
        taken = max((placed.offset for placed in pair.senders.snapshot().values()), default=-1)
        end_of_slave, size = store_compare.log_end(pair.slave.commit_log), pair.master.segment_size
        records = list(store_compare.walk(pair.master.commit_log))
        start = records[-1].offset - records[-1].offset % size
        behind = [record for record in records if record.offset > taken and record.offset >= max(end_of_slave, start)]
        if not behind:
            return "nothing to tear"
        record = behind[self.rng.randrange(max(1, len(behind) // 2))]
        with open(store_compare.segments(pair.master.commit_log)[start], "r+b") as log:
            at = record.offset - start + record.size // 2
            log.seek(at)
            flipped = bytes([log.read(1)[0] ^ 0xFF])
            log.seek(at)
            log.write(flipped)
        self.notes["torn records"] += 1
        whole = sum(one.offset > record.offset for one in behind)
        return f"record at {record.offset} torn, {whole} whole ones behind it"
