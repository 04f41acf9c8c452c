"""How far the tests look."""
from tests.controller.explorer.model import Bounds
from tests.controller.explorer.planted import LEASES, LOGS

# All states of each: the first ones without a clock (who is dead is anybody's guess), the others without logs.
SPACES = {
    "an election": LOGS._replace(puts=1, unlinks=1, asks=1),
}

_MANY = 1_000_000
_ALL = {"kills": _MANY, "elections": _MANY, "asks": _MANY, "timeouts": _MANY, "unlinks": _MANY, "looks": _MANY}
WALKS = {
    "anybody may be taken for dead": Bounds(leases=False, heartbeats=False, puts=_MANY, **_ALL),
    "leases and connections": Bounds(puts=_MANY, beats=_MANY, breaks=_MANY, leaders=_MANY, switches=_MANY, ticks=_MANY,
                                     tick_ns=400_000_000, **_ALL),
}
__all__ = ["LEASES", "SPACES", "WALKS"]
