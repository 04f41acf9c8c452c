"""The events: what happens to the master of one broker name."""
import random
import time
from collections.abc import Callable

from tests.faults.felt.system import Server, System

RESTART_S = 1.0


def switch(system: System, master: Server, rng: random.Random) -> str:
    """Make another replica the master, as an operator does."""
    others = [replica for replica in system.of(master.broker_name) if replica is not master]
    target = rng.choice(others)
    begin = time.monotonic()
    system.switch_to(target)
    return f"switch from {master.name} to {target.name}, the command took {time.monotonic() - begin:.1f} s"


def kill(system: System, master: Server, rng: random.Random) -> str:
    """kill -9, and start again after a second."""
    master.process.kill()
    time.sleep(RESTART_S)
    master.kill()
    master.launch()
    return f"kill -9 of {master.name}, started again after {RESTART_S} s"


def crash(system: System, master: Server, rng: random.Random) -> str:
    """kill -9; it is started again only when the figures of the event are complete."""
    master.kill()
    return f"kill -9 of {master.name}"


def gone(system: System, master: Server, rng: random.Random) -> str:
    """The host vanishes: no packet leaves it or reaches it, and nothing is answered."""
    system.take_away(master)
    return f"the host of {master.name} is gone"


def none(system: System, master: Server, rng: random.Random) -> str:
    """Nothing, for comparison."""
    return "nothing"


EVENTS: dict[str, Callable[[System, Server, random.Random], str]] = {
    event.__name__: event for event in (switch, kill, gone, crash, none)}
NEEDS_NETWORKS = {"gone"}
