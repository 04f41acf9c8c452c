"""Which brokers a cluster has: "2m-2s" are two masters, with a slave each."""
import re
import string
from typing import NamedTuple

from rmqha.testing.errors import EmbeddedError

_FORM = re.compile(r"([1-9])m(?:-([1-9])s)?")


class Place(NamedTuple):
    """One broker's place in the cluster. `node` names it alone; a master and its slaves share `broker_name`."""

    node: str
    broker_name: str
    broker_id: int  # 0: the master


def parse_topology(topology: str) -> list[Place]:
    """The places: masters first. "1m-2s" is one master with two slaves. EmbeddedError for another form."""
    found = _FORM.fullmatch(topology)
    masters, slaves = (int(found[1]), int(found[2] or 0)) if found else (1, 0)
    if not found or slaves % masters:
        raise EmbeddedError(f"topology {topology!r} is none; it is masters and slaves, as many for each master: 1m, "
                            "1m-1s, 2m, 2m-2s, 1m-2s ...")
    names = [f"broker-{letter}" for letter in string.ascii_lowercase[:masters]]
    places = [Place(name, name, 0) for name in names]
    for number in range(1, slaves // masters + 1):
        places += [Place(f"{name}-s{number if number > 1 else ''}", name, number) for name in names]
    return places
