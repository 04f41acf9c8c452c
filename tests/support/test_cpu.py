"""The CPU of a process with all that it starts."""
import subprocess
import sys

from tests.support.cpu import Laps
from tests.support.wait import wait_until

BUSY_S = 0.5
BUSY = f"import time\nwhile time.process_time() < {BUSY_S}: pass\nprint('done', flush=True)\ninput()"


def test_a_child_that_runs_and_one_that_ended_are_counted_once():
    laps = Laps()
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"done\n"
        running = laps.lap()
        child.communicate(b"\n")
    ended = laps.lap()
    assert running > BUSY_S - 0.1
    assert ended < running  # what it took before is not counted again


def test_own_work_is_counted():
    laps, spent = Laps(), []

    def has_worked() -> bool:
        spent.append(laps.lap())
        return sum(spent) > 0.1
    wait_until(has_worked, 120_000, "a tenth of a second of CPU")
