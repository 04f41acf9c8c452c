"""Which of a master's connections is which of the slaves that the name server lists.

An rmqha slave says who it is (with a handshake), and where its end of the connection is. A slave of Java says neither:
a connection from its host is taken for its own while it acknowledges what the slave holds. What is left over is a slave
that is not registered, or a receiver.
"""
from collections.abc import Sequence
from dataclasses import dataclass, field

from rmqha.common.protocol.cluster_bodies import HAConnectionRuntimeInfo
from rmqha.tools.ha.answers import Look, Told
from rmqha.tools.ha.broker_admin import Broker

_SLAVE, _REPORTED, _RETRANSMITS, _LAG_MS = (
    "haSlave_", "haSlaveSilenceMs_", "haSlaveRetransmits_", "haSlaveLagMs_")
_CONNECTED = "CONNECTED"  # 5.1.4 does not tell more


@dataclass(frozen=True)
class Connection:
    """A connection to a slave, as its master tells it."""

    info: HAConnectionRuntimeInfo
    state: str
    identity: str  # "" when the slave has not said who it is
    silence_ms: int | None
    retransmits: int  # in a row, of the same bytes to the slave
    lag_ms: int | None

    @property
    def address(self) -> str:
        """The slave's end."""
        return self.info.addr or ""

    @property
    def host(self) -> str:
        """The slave's end without its port."""
        return self.address.rpartition(":")[0]


@dataclass
class Matches:
    """Slaves with their connections, and what is left over. `unsure`: another look may tell.

    `maybe`: slaves of which one of those left may be, from another host than the slave's.
    """

    connections: dict[Broker, Connection] = field(default_factory=dict)
    left: list[Connection] = field(default_factory=list)
    maybe: set[Broker] = field(default_factory=set)
    unsure: bool = False


def connections_of(master: Told) -> list[Connection]:
    """All that the master serves."""
    if master.info is None:
        return []
    return [_connection(each, master) for each in master.info.haConnectionInfo]


def _connection(info: HAConnectionRuntimeInfo, master: Told) -> Connection:
    address, table = info.addr or "", master.table
    told = table.get(_SLAVE + address, _CONNECTED).split(",")
    identity = told[-1] if len(told) > 5 and told[-1] != address.rpartition(":")[0] else ""
    silence, lag = (master.number(key + address) if key + address in table else None for key in (_REPORTED, _LAG_MS))
    return Connection(info, told[0], identity, silence, master.number(_RETRANSMITS + address), lag)


def match(looks: Sequence[Look], master: Broker, slaves: Sequence[Broker]) -> Matches:
    """By the last look; the earlier ones tell whether a connection fits to a slave that does not say which is its."""
    now = looks[-1]
    found = Matches(left=connections_of(now[master]))
    for slave in slaves:
        told = now[slave]
        names = (f"{slave.cluster}/{slave.name}/{slave.broker_id}", f"broker {slave.broker_id}")
        own = told.table.get("haClientAddress")
        for each in found.left:
            if each.identity in names and each.identity or own and each.address == own:
                _take(found, slave, each)
                break
    for slave in sorted(slaves, key=lambda each: not now[each].answered):  # the dead take what is left
        if slave not in found.connections:
            _find(looks, master, slave, found)
    return found


def _take(found: Matches, slave: Broker, connection: Connection) -> None:
    found.connections[slave] = connection
    found.left = [each for each in found.left if each is not connection]


def _find(looks: Sequence[Look], master: Broker, slave: Broker, found: Matches) -> None:
    """A connection for a slave that does not say which is its own, or whose end is another one behind a proxy."""
    told = looks[-1][slave]
    if told.table.get("haClientAddress") == "":
        return  # it says that it has none
    behind_proxy = bool(told.table.get("haClientAddress"))
    host = slave.address.rpartition(":")[0]
    for each in found.left:
        if each.identity:
            continue
        fits = _fits(looks, master, slave, each) if told.answered else True
        found.unsure |= fits is None
        if fits and (behind_proxy or each.host == host):
            _take(found, slave, each)
            return
        if fits and told.answered:
            found.maybe.add(slave)


def _fits(looks: Sequence[Look], master: Broker, slave: Broker, connection: Connection) -> bool | None:
    """Whether a connection acknowledges what the slave holds, no less and no more; None: not known yet."""
    held = [look[slave].max_offset for look in looks]
    acks = [next((each.info.slaveAckOffset for each in connections_of(look[master])
                  if each.address == connection.address), None) for look in looks]
    for earlier in range(len(looks) - 1):
        ack_before, ack_after = acks[earlier], acks[earlier + 1]
        if ack_after is not None and ack_after < held[earlier]:
            return False  # it acknowledges less than the slave held before
        if ack_before is not None and ack_before > held[earlier + 1]:
            return False  # and this one more than the slave holds
    if acks[-1] == held[-1]:
        return True
    return True if len(looks) > 1 and acks[-2] is not None else None
