"""How far the tests look. Each is looked through whole: all states that are reached within its bounds."""
from tests.controller.explorer.model import Bounds
from tests.controller.explorer.planted import FOLLOWED, LEASES, LOGS

# Logs and sync-state sets of three replicas, while anybody may be taken for dead at any time, whatever leases say; and
# leases of two replicas under two controllers, where nothing is written.
SPACES = {
    "an election, a slave that leaves and comes back": LOGS._replace(unlinks=1, asks=1),
    "asks without an answer": LOGS._replace(unlinks=1, asks=2, timeouts=1, looks=0),
    "one that joins, asks without an answer": LOGS._replace(in_sync=2, asks=2, timeouts=1),
    "a kill": LOGS._replace(kills=1, asks=1),
    "a kill, one that joins": LOGS._replace(in_sync=2, kills=1, asks=2, elections=0),
    "two elections": LOGS._replace(elections=2, looks=2),
    "two messages": LOGS._replace(puts=2, looks=2),
    "connections": LEASES._replace(breaks=2, beats=2),
    "a leader": LEASES._replace(controllers=2, leaders=1, breaks=1, beats=2),
    "silence": LEASES._replace(ticks=3, beats=3),
    "a switch": LEASES._replace(controllers=2, leaders=1, switches=1, beats=2),
    "a new leader whom the master follows": FOLLOWED._replace(breaks=1, beats=3),
    "a new leader, the master is killed": FOLLOWED._replace(kills=1, looks=1, beats=2),
    "a new leader, a master that was started just now": FOLLOWED._replace(has_asked=False, breaks=1, beats=3),
    "a new leader, a switch": FOLLOWED._replace(switches=1, beats=3),
    "a kill of the master": LEASES._replace(kills=1, beats=2, looks=2),
}
# Minutes, for the tier `long`.
LONG_SPACES = {
    "two elections, a slave that leaves": LOGS._replace(elections=2, unlinks=1, asks=1, looks=2),
    "one that joins and leaves, asks without an answer": LOGS._replace(in_sync=2, unlinks=1, asks=2, timeouts=1),
    "a kill in the middle of an ask": LOGS._replace(in_sync=2, kills=1, asks=2, timeouts=1, elections=0),
    "a kill, one that joins, an election": LOGS._replace(in_sync=2, kills=1, asks=2),
    "a controller that sleeps": LOGS._replace(in_sync=2, unlinks=1, asks=2, timeouts=1, ticks=1, looks=0, elections=0,
                                              tick_ns=12_000_000_000),
    "silence, and a connection": LEASES._replace(ticks=3, beats=2, breaks=1),
    "connections of three replicas": LEASES._replace(brokers=3, in_sync=3, breaks=1, beats=2),
    "connections, many heartbeats": LEASES._replace(breaks=2, beats=3),
    "two leaders": LEASES._replace(controllers=2, leaders=2, breaks=1, beats=2),
    "leaders and silence": LEASES._replace(controllers=2, leaders=1, ticks=3, beats=2),
    "a new leader, silence": FOLLOWED._replace(ticks=3, beats=4),
    "a new leader, the master is killed, many heartbeats": FOLLOWED._replace(kills=1, looks=1, beats=4),
    "a new leader, the master is killed twice": FOLLOWED._replace(kills=2, looks=2, beats=3),
    "two new leaders, the master is killed": FOLLOWED._replace(leaders=2, kills=1, looks=1, beats=3),
    "two new leaders, a connection": FOLLOWED._replace(leaders=2, breaks=1, beats=4),
    "a switch, and a connection": LEASES._replace(controllers=2, leaders=1, switches=1, breaks=1, beats=2),
    "two elections of masters": LEASES._replace(elections=2, breaks=2, beats=3, looks=2),
}

_MANY = 1_000_000
_ALL = {"kills": _MANY, "elections": _MANY, "asks": _MANY, "timeouts": _MANY, "unlinks": _MANY, "looks": _MANY,
        "puts": _MANY}
WALKS = {
    "anybody may be taken for dead": Bounds(leases=False, heartbeats=False, **_ALL),
    "leases and connections": Bounds(beats=_MANY, breaks=_MANY, leaders=_MANY, switches=_MANY, ticks=_MANY, **_ALL),
}
