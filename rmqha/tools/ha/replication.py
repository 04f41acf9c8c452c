"""How replication stands, put together from what master and slaves tell.

rmqha and 5.1.4 tell each connection (request 907); rmqha adds states, times and refused slaves to its runtime table.
A 4.9 master tells nothing of its slaves: those that the name server lists are asked how far they are.
"""
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from rmqha.common.protocol.body.ha_runtime_info import HAConnectionRuntimeInfo, HARuntimeInfo
from rmqha.tools.ha.broker_admin import Broker, BrokerAdmin, NoAnswerError, RefusedError, number

_DEFAULT_FALLBEHIND_MAX = 256 * 1024 * 1024
_SLAVE, _REFUSED, _LAG_MS = "haSlave_", "haRefusedSlave_", "haSlaveLagMs_"
_CONNECTED = "CONNECTED"  # 5.1.4 does not tell more
_REGISTERED = "REGISTERED"  # it answers, and its master does not tell whether it is connected
_NOT_CONNECTED = "NOT_CONNECTED"
_UNREACHABLE = "UNREACHABLE"


@dataclass
class SlaveView:
    """One slave of a master; what nobody tells is None. `connection` is its end of the replication connection."""

    address: str
    broker_id: int | None = None
    connection: str | None = None
    state: str = _REGISTERED
    ack_offset: int | None = None
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    rate: float | None = None  # bytes/s
    in_sync: bool | None = None
    note: str = ""

    def set_offset(self, offset: int, master_max_offset: int, fallbehind_max: int) -> None:
        """The slave holds the log below `offset`."""
        self.ack_offset = offset
        self.lag_bytes = master_max_offset - offset
        if self.lag_bytes <= 0:
            self.lag_seconds = 0.0
        if self.in_sync is None:
            self.in_sync = 0 <= self.lag_bytes < fallbehind_max


@dataclass
class RefusedView:
    """A slave that its master can't serve: the offset that it asked for, and what the master holds."""

    address: str
    slave_offset: int
    master_min_offset: int
    master_max_offset: int

    @property
    def reason(self) -> str:
        """Why, in words."""
        if self.slave_offset > self.master_max_offset:
            return (f"it is ahead of the master: it asks for {self.slave_offset}, the master ends at "
                    f"{self.master_max_offset} and has lost what the slave holds")
        if self.slave_offset >= self.master_min_offset:
            return (f"its log is another one: before {self.slave_offset} it holds other bytes than the master, as the "
                    "store of another master does, or one that went on by itself")
        return (f"it is too far behind: it asks for {self.slave_offset}, the master begins at "
                f"{self.master_min_offset} and has deleted what the slave needs")


@dataclass
class MasterView:
    """A broker that was asked, and its slaves. `follows` is set when it is a slave itself."""

    cluster: str
    name: str
    address: str
    broker_id: int = 0
    role: str = ""
    version: str = ""
    min_offset: int = 0
    max_offset: int = 0
    fallbehind_max: int = _DEFAULT_FALLBEHIND_MAX
    slaves: list[SlaveView] = field(default_factory=list)
    refused: list[RefusedView] = field(default_factory=list)
    follows: SlaveView | None = None  # its own connection; `address` is the master's HA port
    error: str = ""  # why it could not be asked
    note: str = ""


def read_group(admin: BrokerAdmin, group: list[Broker]) -> MasterView:
    """The brokers of one name, as the name server lists them."""
    slaves = [each for each in group if not each.is_master]
    masters = [each for each in group if each.is_master]
    if not masters:
        first = slaves[0]
        view = MasterView(first.cluster, first.name, "", error="no master of this name is registered")
        view.slaves = [_registered_slave(admin, each, view, _slave_table(admin, each)) for each in slaves]
        return view
    master = masters[0]
    # the slaves first: the master only grows until it is asked
    tables = {each: _slave_table(admin, each) for each in slaves}
    view = read_broker(admin, master)
    if not view.error:
        _merge(admin, view, slaves, tables)
    return view


def read_broker(admin: BrokerAdmin, broker: Broker) -> MasterView:
    """One broker, asked alone."""
    view = MasterView(broker.cluster, broker.name, broker.address, broker.broker_id)
    try:
        config = admin.config(broker.address)
        info = admin.ha_runtime_info(broker.address)
        table = admin.runtime_info(broker.address)
    except NoAnswerError as error:
        view.error = error.message
        return view
    view.cluster = view.cluster or config.get("brokerClusterName", "")
    view.name = view.name or config.get("brokerName", "")
    view.role = config.get("brokerRole", "")
    view.broker_id = number(config, "brokerId", broker.address, broker.broker_id)
    view.fallbehind_max = number(config, "haSlaveFallbehindMax", broker.address, _DEFAULT_FALLBEHIND_MAX)
    view.version = table.get("brokerVersionDesc", "")
    view.min_offset = max(0, number(table, "commitLogMinOffset", broker.address))  # -1 when there is no file
    view.max_offset = max(0, number(table, "commitLogMaxOffset", broker.address))
    if view.role == "SLAVE":
        view.follows = _followed(info, table, view.max_offset)
    if info is not None:
        view.max_offset = max(view.max_offset, info.masterCommitLogMaxOffset)
        view.slaves = [_connected_slave(each, table, view) for each in info.haConnectionInfo]
    elif view.role != "SLAVE":
        view.note = "this broker tells nothing of its slaves; those at the name server are asked (-n)"
    view.refused = _refused(table, broker.address)
    return view


def _slave_table(admin: BrokerAdmin, slave: Broker) -> dict[str, str] | None:
    try:
        return admin.runtime_info(slave.address)
    except (NoAnswerError, RefusedError):
        return None


def _followed(info: HARuntimeInfo | None, table: dict[str, str], max_offset: int) -> SlaveView:
    """A slave's own side of its connection."""
    client = info.haClientRuntimeInfo if info is not None and not info.master else None
    address = table.get("haMasterAddress") or (client.masterAddr if client is not None else None) or ""
    return SlaveView(address, state=table.get("haClientState", "UNKNOWN"), ack_offset=max_offset,
                     rate=client.transferredByteInSecond if client is not None else None,
                     note=table.get("haClientLastError", ""))


def _connected_slave(info: HAConnectionRuntimeInfo, table: dict[str, str], view: MasterView) -> SlaveView:
    address = info.addr or ""
    slave = SlaveView(address, connection=address, rate=info.transferredByteInSecond, in_sync=info.inSync)
    slave.state = table.get(_SLAVE + address, _CONNECTED).split(",")[0]
    if info.slaveAckOffset >= 0:
        slave.set_offset(info.slaveAckOffset, info.slaveAckOffset + info.diff, view.fallbehind_max)
    if _LAG_MS + address in table and slave.lag_bytes:
        slave.lag_seconds = number(table, _LAG_MS + address, view.address) / 1000
    return slave


def _refused(table: dict[str, str], view_address: str) -> list[RefusedView]:
    """The refused slaves in a runtime table: `haRefusedSlave_HOST_OFFSET` = slave's, master's lowest and highest."""
    refused, names = [], ("slaveOffset", "masterMinOffset", "masterMaxOffset")
    for key, value in sorted(table.items()):
        if key.startswith(_REFUSED):
            address = key.removeprefix(_REFUSED).rpartition("_")[0]
            offsets = dict(zip(names, value.split(",")))
            refused.append(RefusedView(address, *(number(offsets, name, view_address, -1) for name in names)))
    return refused


def _merge(admin: BrokerAdmin, view: MasterView, registered: Iterable[Broker],
           tables: dict[Broker, dict[str, str] | None]) -> None:
    """Put the slaves that the name server lists to the connections that the master tells.

    A connection comes from any port, so they belong together when they are the only ones of their host.
    """
    connected, listed = defaultdict(list), defaultdict(list)
    for slave in view.slaves:
        connected[_host(slave.address)].append(slave)
    for broker in registered:
        listed[_host(broker.address)].append(broker)
    for host, brokers in listed.items():
        connections = connected[host]
        if len(brokers) == len(connections) == 1:
            _name(admin, view, connections[0], brokers[0], tables[brokers[0]])
            continue
        for broker in brokers:
            table = tables[broker]
            if len(connections) < len(brokers) or table is None or table.get("haClientLastError"):
                view.slaves.append(_registered_slave(admin, broker, view, table))


def _name(admin: BrokerAdmin, view: MasterView, slave: SlaveView, broker: Broker,
          table: dict[str, str] | None) -> None:
    slave.address, slave.broker_id = broker.address, broker.broker_id
    if table is None:
        slave.note = "connected to its master, but does not answer here"
        return
    slave.note = table.get("haClientLastError", "")
    if slave.lag_seconds is None:
        slave.lag_seconds = _lag_seconds(admin, view, broker)


def _registered_slave(admin: BrokerAdmin, broker: Broker, view: MasterView,
                      table: dict[str, str] | None) -> SlaveView:
    """A slave of which its master tells nothing."""
    slave = SlaveView(broker.address, broker.broker_id)
    if table is None:
        slave.state, slave.in_sync, slave.note = _UNREACHABLE, False, "it is registered, but gives no answer"
        return slave
    master_tells = not view.note and not view.error
    slave.state = table.get("haClientState") or (_NOT_CONNECTED if master_tells else _REGISTERED)
    slave.note = table.get("haClientLastError", "")
    offset = number(table, "commitLogMaxOffset", broker.address)
    if view.error:
        slave.ack_offset = offset
        return slave
    slave.set_offset(offset, view.max_offset, view.fallbehind_max)
    if slave.lag_bytes is not None and slave.lag_bytes < 0:
        slave.state = "AHEAD"
        slave.note = f"it holds {-slave.lag_bytes} bytes more than its master, whose log ends at {view.max_offset}"
        slave.lag_seconds = None
    elif slave.lag_seconds is None:
        slave.lag_seconds = _lag_seconds(admin, view, broker)
    return slave


def _lag_seconds(admin: BrokerAdmin, view: MasterView, slave: Broker) -> float | None:
    """From the newest messages in the queues of both; None when one can't be asked."""
    try:
        behind = admin.newest_store_timestamp(slave.address)
        newest = admin.newest_store_timestamp(view.address)
    except (NoAnswerError, RefusedError):
        return None
    return max(newest - behind, 0) / 1000 if newest is not None and behind is not None else None


def _host(address: str) -> str:
    return address.rpartition(":")[0]
