"""Faults of a machine: jumping clocks, no descriptors, failing disks, loss of power, torn logs."""
import contextlib
import ctypes
import errno
import functools
import os
import random
import resource
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import psutil
from click.testing import CliRunner

from rmqha.tools.rmqha_command import rmqha
from tests.faults import network, pair_broker, verdict
from tests.faults.network import run
from tests.faults.pair import BOOT_MS, Fault, Pair
from tests.faults.pair_broker import Broker
from tests.faults.senders import SENDERS
from tests.faults.verdict import Violation
from tests.support import store_compare
from tests.support.programs import not_installed
from tests.support.wait import wait_until

# A file system on a loop device whose backing file can be copied while it is mounted: the state after a loss of power.
#
# The backing file has only the data forced to the "disk". Everything else is in the page cache of the mounted file
# system, and is missing in a mounted copy. The broker is stopped while the copy is made (SIGSTOP), so it is consistent.
# Some pages may be written back before, by chance (sync_file_range) or with a commit of the journal, as a kernel may do
# at any time: any subset of the unforced pages may survive.

_SIZE = 1 << 30  # sparse
_PAGE = 4096
_WRITE_AND_WAIT = 1 | 2 | 4  # SYNC_FILE_RANGE_WAIT_BEFORE | _WRITE | _WAIT_AFTER
# The journal is committed only on request, never by a timer.
_OPTIONS = "loop,commit=6000,noatime"


@functools.cache
def why_no_images() -> str | None:
    """Return why loop devices are not available here, or None if they are."""
    missing = not_installed("mkfs.ext4", "mount", "umount")
    if missing is not None:
        return missing
    if os.geteuid() != 0:
        return "needs root to mount loop devices"
    folder = Path(tempfile.mkdtemp(prefix="faults-loop-"))
    disk = Disk(folder / "image", folder / "mounted")
    try:
        disk.open()
    except (AssertionError, OSError, subprocess.SubprocessError) as failure:
        return f"loop devices do not work here: {failure}"
    finally:
        disk.close()
        shutil.rmtree(folder)
    return None


class Disk:
    """One file system in `image`, mounted at `mount_point`."""

    def __init__(self, image: Path, mount_point: Path):
        self._image = image
        self._copy = image.with_suffix(".copy")
        self._mount_point = mount_point

    def open(self) -> None:
        """Create an empty file system and mount it."""
        self._image.parent.mkdir(parents=True, exist_ok=True)
        self._mount_point.mkdir(parents=True, exist_ok=True)
        self._image.unlink(missing_ok=True)
        with open(self._image, "wb") as file:
            file.truncate(_SIZE)
        run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", str(self._image))
        self._mount()

    def _mount(self) -> None:
        run("mount", "-o", _OPTIONS, str(self._image), str(self._mount_point))

    def close(self) -> None:
        """Unmount the file system, if it is mounted."""
        if os.path.ismount(self._mount_point):
            run("umount", str(self._mount_point))

    def write_back_some(self, rng: random.Random) -> str:
        """Let some unforced pages reach the disk by chance; return what was done."""
        kind = rng.choice(["nothing", "pages", "pages", "journal"])
        if kind in ("pages", "journal"):
            files = [file for file in self._mount_point.rglob("*") if file.is_file() and file.stat().st_size]
            for file in rng.sample(files, min(len(files), 12)):
                self._write_back(file, rng)
        if kind == "journal":
            marker = self._mount_point / "journal-commit"
            with open(marker, "ab") as file:
                file.write(b"x")
                os.fsync(file.fileno())
        return kind

    @staticmethod
    def _write_back(file: Path, rng: random.Random) -> None:
        try:
            fd = os.open(file, os.O_RDWR)
        except FileNotFoundError:
            return  # replaced in the meantime
        try:
            pages = -(-os.fstat(fd).st_size // _PAGE)
            for page in rng.sample(range(pages), max(1, pages // 3)):
                ctypes.CDLL(None).sync_file_range(fd, ctypes.c_int64(page * _PAGE), ctypes.c_int64(_PAGE),
                                                  _WRITE_AND_WAIT)
        finally:
            os.close(fd)

    def take(self) -> None:
        """Copy the current content of the disk."""
        run("cp", "--sparse=always", "--reflink=never", str(self._image), str(self._copy))

    def lose_power(self) -> None:
        """Replace the file system by the copy made by `take`. The file system must not be in use."""
        self.close()
        self._copy.replace(self._image)
        self._mount()


# Jumping wall clocks of the master, the slave or both, under load.

_SHIFT = struct.Struct("=q")
_HOUR_S = 3600
_SHIFTS_S = (-24 * _HOUR_S, 24 * _HOUR_S, -_HOUR_S, _HOUR_S, -20, 20, -2, 2, 0)


class Clock(Fault):
    """One cycle: clocks jump by up to a day in either direction. Messages must still be acknowledged, and nothing is
    truncated or deleted. In every third cycle a kill -9 follows, so that recovery finds store times that decrease."""

    name = "clock"

    def __init__(self, *args, **keys):
        super().__init__(*args, **keys)
        self._shifts = {"master": 0, "slave": 0}  # seconds

    @classmethod
    def why_not(cls) -> str | None:
        return pair_broker.why_not()

    def make(self) -> Pair:
        library = pair_broker.compiled("shifted_clock", self.folder)
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
            # In place: the broker has mapped the file.
            with open(self._file(name), "r+b") as file:
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


# No more descriptors (RLIMIT_NOFILE) for the master or the slave, neither for connections, new files nor saved tables.

_MORE_THAN_FREE = 12  # connections beyond the limit
# The CPU share allowed to a broker that can accept no connections, and has no load.
_CORE_SHARE = 0.5
_QUIET_S = 1.5
_RESUMES_MS = 60_000


class Descriptors(Fault):
    """One cycle: a broker's limit is lowered to its open descriptors and a few more, while connections arrive. It must
    neither spin nor acknowledge messages that it cannot store, and must continue when the limit is raised."""

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
        """Connect to both ports. The kernel accepts connections even if the broker does not."""
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


# Loss of power of the master, the slave or both under load: they restart from the data on their disks.

_BEYOND = 50_000  # bytes
# A slave reconnects after 5 s.
_SLAVE_RETRIES_S = 6


class Power(Fault):
    """One cycle: some acknowledgements, a consistent image of the disks, a restart from it, and all checks.

    SYNC_FLUSH promises that acknowledged messages are on the master's disk; the slave acknowledges data in memory.
    A restarted master may have lost unacknowledged bytes that the slave has. Then the slave must be refused, and the
    test rejoins it or sets it up from scratch, like an operator.
    """

    name = "power"

    @classmethod
    def why_not(cls) -> str | None:
        return why_no_images()

    def make(self) -> Pair:
        pair = Pair(self.folder, self.seed, self.kinds, *self.sides())
        pair.original_may_lose_units = True
        self._disks = {broker.base_name: Disk(self.folder / f"{broker.base_name}.img", broker.store)
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
        """Take consistent images, restart from them, and check; return what was done."""
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
        # the master was stopped before its image was taken, so it had sent every answer before
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
            # Java's broker may exit at its first start on such a disk (code 253: its store or a table cannot be
            # loaded), and start at the second. The reason is in its output.
            if victim.kind == "rmqha" or "code 253" not in str(failure):
                raise
            victim.start(BOOT_MS)
            self.notes["first starts that the original refused after a loss of power"] += 1

    def _bring_slave_back_if_it_parts(self, victims: list[Broker]) -> str:
        """Repair the slave like an operator, if it is ahead of a master that has lost bytes, or if one of the two is
        the original, which keeps records with holes."""
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
        self.notes["records with holes kept by the original, slaves set up from scratch"] += torn
        self.notes["slaves ahead, set up from scratch"] += not torn
        # An empty slave gets the master's last file once it is not empty.
        self.pair.senders.go()
        self.pair.senders.wait_for_more(1, BOOT_MS)
        what = "beside a record with holes" if torn else f"{ends[1] - ends[0]} bytes ahead"
        return f", slave {what} is set up from scratch"

    @staticmethod
    def _keeps_holes(broker: Broker, other: Broker, end: int) -> bool:
        """Return whether a record in the original's last two files, before `end`, has zeros after its body where the
        other's has data: the CRC covers only the body, and a later page was not forced to the disk."""
        starts = [list(store_compare.segments(one.commit_log)) for one in (broker, other)]
        begin = max([*starts[0][-2:-1], starts[0][0], starts[1][0]]) if all(starts) else end
        mine, its = (store_compare.read_range(one.commit_log, begin, end) for one in (broker, other))
        for record in store_compare.walk(broker.commit_log, end, begin):
            at = slice(record.offset - begin, record.offset - begin + record.size)
            if at.stop <= end - begin and mine[at] != its[at] and _has_holes(mine[at], its[at], record):
                return True
        return False

    def _outgrow(self, master: Broker, slave: Broker, end_of_slave: int) -> None:
        """Let the master write beyond the slave's end. The diverged slave must still get nothing."""
        self.pair.senders.go()
        end = verdict.end_of(master, self.pair.copies["master"])
        wait_until(lambda: end() > end_of_slave + _BEYOND, BOOT_MS, "the master beyond the slave's end")
        time.sleep(_SLAVE_RETRIES_S)
        self.pair.senders.pause()
        if slave.log_end() != end_of_slave:
            raise Violation(f"B: a slave whose log had diverged was served from {end_of_slave} to {slave.log_end()}")
        self.notes["diverged slaves refused"] += 1

    def _rejoin(self, slave: Broker) -> None:
        """Rejoin the slave with one command. `settle` later checks that its log and queues equal the master's."""
        def rejoined() -> bool:
            result = CliRunner().invoke(rmqha, ["ha", "rejoin", "-b", slave.address])
            told.append(result.output)
            return result.exit_code == 0
        told: list[str] = []
        try:
            wait_until(rejoined, BOOT_MS, "the slave has rejoined")
        except AssertionError as failure:
            raise Violation(f"the diverged slave does not rejoin: {told[-1]}") from failure
        self.notes["diverged slaves that rejoined"] += 1

    def end(self) -> None:
        super().end()
        self.notes["lives in which the original's queues lost units"] += bool(self.pair.flawed_queues)

    def close(self) -> None:
        super().close()
        for disk in getattr(self, "_disks", {}).values():
            disk.close()


def _has_holes(mine: bytes, its: bytes, record: store_compare.Record) -> bool:
    """Return whether the two differ only after the record's body, and the first one has zeros there."""
    differing = [at for at, (one, other) in enumerate(zip(mine, its, strict=False)) if one != other]
    behind_body = mine.index(record.body) + len(record.body)
    return bool(differing) and differing[0] >= behind_body and not any(mine[at] for at in differing)


# Failing disks: an fsync that fails with EIO, slow fsyncs, a file system that is full for a while.


def _free_bytes(folder: Path) -> int:
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize


class Sync(Power):
    """One cycle: an fsync of the master's log fails with EIO, or all are slow. The master must acknowledge nothing
    after the failure. Then it loses power, and restarts with every acknowledged message."""

    name = "sync"

    @classmethod
    def why_not(cls) -> str | None:
        return pair_broker.why_not() or why_no_images()

    def sides(self) -> tuple[dict, dict]:
        master, slave = super().sides()
        self._trigger = self.folder / "trigger"
        library = pair_broker.compiled("failing_sync", self.folder)
        environment = {"LD_PRELOAD": str(library), "FAULTS_SYNC_TRIGGER": str(self._trigger)}
        return {**master, "env": environment}, slave

    def cycle(self) -> str:
        pair = self.pair
        pair.senders.go()
        pair.senders.wait_for_more(self.rng.randint(1, 30), BOOT_MS)
        if self.rng.random() < 0.3:
            return self._slow()
        self._trigger.touch()
        wait_until(lambda: not self._trigger.exists(), 60_000, "an fsync of the log")
        # Then the answers of earlier fsyncs have arrived.
        pair.senders.pause()
        before = pair.senders.snapshot()
        pair.senders.go()
        pair.senders.wait_for_answers(SENDERS, BOOT_MS)
        more = len(set(pair.senders.snapshot()) - set(before))
        if more:
            raise Violation(f"A: {more} messages are acknowledged after a failed fsync")
        return f"EIO once, then {self.lose_power_of([pair.master], 'nothing')}"

    def _slow(self) -> str:
        slow = self._trigger.with_name("trigger.slow")
        slow.touch()
        try:
            self.pair.senders.wait_for_more(6, BOOT_MS)
        finally:
            slow.unlink()
        return f"slow fsyncs: {self.pair.settle()}"


class Full(Fault):
    """One cycle: a file system of the master or the slave is full for a second or two, under load.

    In every other life the consume queues have their own file system, so that only one of the two is full.
    """

    name = "full"
    cycles_per_life = 8
    _SIZE = 192 << 20
    _RESUMES_MS = 60_000

    def __init__(self, *args, **keys):
        super().__init__(*args, **keys)
        self._mounted: list[Path] = []

    @classmethod
    def why_not(cls) -> str | None:
        if shutil.which("mount") is None or os.geteuid() != 0:
            return "needs root and mount for a small tmpfs"
        return None

    def make(self) -> Pair:
        master, slave = self.sides()
        pair = Pair(self.folder, self.seed, self.kinds,
                    {**master, "slaveTimeout": 1000, "cleanResourceInterval": 2000},
                    {**slave, "cleanResourceInterval": 2000})
        folders = [broker.store for broker in (pair.master, pair.slave)]
        if self.rng.random() < 0.5:
            folders += [broker.store / "consumequeue" for broker in (pair.master, pair.slave)]
        for folder in folders:
            folder.mkdir(parents=True)
            network.run("mount", "-t", "tmpfs", "-o", f"size={self._SIZE}", "faults", str(folder))
            self._mounted.append(folder)
        return pair

    def cycle(self) -> str:
        pair, rng = self.pair, self.rng
        folder = rng.choice(self._mounted)
        pair.senders.go()
        pair.senders.wait_for_more(rng.randint(1, 30), BOOT_MS)
        ballast = folder / "ballast"
        left = self._fill(ballast, rng.randint(0, 64 << 10))
        try:
            time.sleep(rng.uniform(0.3, 2))
            pair.check_copy(pair.slave)
            pair.check_copy(pair.master)
        finally:
            ballast.unlink()
        pair.senders.wait_for_more(1, self._RESUMES_MS)
        return f"{left} bytes left for {folder.relative_to(self.folder)}: {pair.settle()}"

    @staticmethod
    def _fill(ballast: Path, leave: int) -> int:
        """Use all space except about `leave` bytes; return the space that is left."""
        with open(ballast, "wb") as file:
            while (space := _free_bytes(ballast.parent)) > leave:
                try:
                    os.posix_fallocate(file.fileno(), 0, space - leave)
                    break
                # the brokers use space at the same time
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
        return _free_bytes(ballast.parent)

    def close(self) -> None:
        super().close()
        while self._mounted:
            network.run("umount", str(self._mounted.pop()))


# A master whose log has valid records after a torn one, as after a loss of power at a bad moment.
#
# The records after the torn one must not reappear after the next crash: new records replace the torn one, and an old
# record that follows them by chance would repeat a queue offset.

_BODY = 300
_OLD_RECORDS = 12


class Tail(Fault):
    """One cycle: unacknowledged records, of which the first is torn; a restart, a few new records, another crash.

    All records have the same size, so that old ones after the new ones would fit.
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
        # All senders would overwrite the valid records before they are paused.
        pair.senders.go(1)
        pair.senders.wait_for_more(rng.randint(1, 3), BOOT_MS)
        pair.senders.pause()
        pair.master.kill()
        pair.slave.kill()
        pair.master.start(BOOT_MS)
        pair.slave.start(BOOT_MS)
        told = pair.settle()
        return f"{torn}: {told}"

    def _tear(self) -> str:
        """Damage the body of an unacknowledged record in the last file that the slave does not have."""
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
        return f"record at {record.offset} torn, {whole} valid ones after it"
