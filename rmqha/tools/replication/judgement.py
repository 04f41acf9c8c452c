"""Judging replication: which connection is which slave's, the state of each slave, and the resulting problems.

- `match`: finds the connection of each slave that the name server lists. An rmqha slave identifies itself in a
  handshake and reports the address of its end. A Java slave does neither: a connection from its host counts as its own
  as long as it acknowledges what the slave holds. Connections left over are unregistered slaves or receivers.
- `judge_slave`: judges by the slave's report, its master's report, and how both logs change between two polls. rmqha
  and 5.1.4 brokers report their connections. A 4.9 broker reports none: then the only proof is a log that follows the
  master's. A fact that can't be known is UNKNOWN, never OK.
- `judge_all`: returns the problems. `ha status`, `check ha` and `doctor` share these rules.
"""
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rmqha.common.protocol.cluster_bodies import HAConnectionRuntimeInfo
from rmqha.common.texts import whole
from rmqha.common.units import seconds_text, size_text
from rmqha.remoting.addresses import same_address
from rmqha.tools.admin.cluster_admin import Broker
from rmqha.tools.check_base import Limits, Status
from rmqha.tools.replication.ask import Look, Told
from rmqha.tools.replication.views import DAMAGED_TODO, MasterView, Reading, ScrubView, SlaveView
from rmqha.tools.terminal import cell, counted

_SLAVE, _REPORTED, _RETRANSMITS, _LAG_MS = (
    "haSlave_", "haSlaveSilenceMs_", "haSlaveRetransmits_", "haSlaveLagMs_")
# 5.1.4 reports no more than that.
_CONNECTED = "CONNECTED"


@dataclass(frozen=True)
class Connection:
    """A connection to a slave, as its master reports it."""

    info: HAConnectionRuntimeInfo
    state: str
    identity: str  # "" when the slave has not identified itself
    silence_ms: int | None
    retransmits: int  # in a row, of the same bytes to the slave
    lag_ms: int | None

    @property
    def address(self) -> str:
        """The address of the slave's end."""
        return self.info.addr or ""

    @property
    def host(self) -> str:
        """The address of the slave's end, without its port."""
        return self.address.rpartition(":")[0]


@dataclass
class Matches:
    """Slaves with their connections, and the connections left over. `unsure`: another poll may decide.

    `maybe`: slaves to which one of the connections left may belong, although it is from another host.
    """

    connections: dict[Broker, Connection] = field(default_factory=dict)
    left: list[Connection] = field(default_factory=list)
    maybe: set[Broker] = field(default_factory=set)
    unsure: bool = False


def connections_of(master: Told) -> list[Connection]:
    """Return all connections that the master serves."""
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
    """Match slaves and connections by the last poll; earlier ones tell which slave a silent connection fits."""
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
    # Slaves that do not answer get what is left.
    for slave in sorted(slaves, key=lambda each: not now[each].answered):
        if slave not in found.connections:
            _find(looks, master, slave, found)
    return found


def _take(found: Matches, slave: Broker, connection: Connection) -> None:
    found.connections[slave] = connection
    found.left = [each for each in found.left if each is not connection]


def _find(looks: Sequence[Look], master: Broker, slave: Broker, found: Matches) -> None:
    """Find the connection of a slave that does not report its own, or whose end differs because of a proxy."""
    told = looks[-1][slave]
    if told.table.get("haClientAddress") == "":
        return  # it reports that it has none
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
    """Return whether a connection acknowledges exactly what the slave holds; None: not known yet."""
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


_HEARTBEAT_MS = 5000
_SILENCE_MARGIN_MS = 1000
_LOST_IN_A_ROW = 4  # within 3 s
_SERVING = ("TRANSFER", "SUSPEND")
# States of a slave that needs manual action.
_ENDED = ("OFFSET_REFUSED", "APPEND_FAILED", "DIVERGED", "SHUTDOWN")
_PROBE = "--probe sends one message and waits for it to arrive"

# (HA address, master's answers) -> the broker at the HA address; "": the master itself, None: unknown.
Whose = Callable[[str, Told], str | None]


@dataclass(frozen=True)
class Case:
    """One slave that the name server lists, over all polls; `maybe`: an unidentified connection may be its own."""

    slave: Broker
    master: Broker
    looks: Sequence[Look]
    connection: Connection | None
    maybe: bool
    whose: Whose
    probe_offset: int | None = None  # of a message sent to the master meanwhile

    @property
    def told(self) -> Told:
        """The slave's last answer."""
        return self.looks[-1][self.slave]

    @property
    def master_told(self) -> Told:
        """The master's last answer."""
        return self.looks[-1][self.master]

    @property
    def master_tells(self) -> bool:
        """True if the master reports its connections."""
        return self.master_told.info is not None

    @property
    def held(self) -> list[int]:
        """The end of the slave's log in each poll."""
        return [look[self.slave].max_offset for look in self.looks]

    @property
    def wanted(self) -> list[int]:
        """The end of the master's log in each poll."""
        return [look[self.master].max_offset for look in self.looks]

    @property
    def is_ahead(self) -> bool:
        """True if the slave's log was longer in one poll than its master's in the next."""
        return any(held > wanted for held, wanted in zip(self.held, self.wanted[1:]))

    @property
    def grew(self) -> bool:
        """True if the slave's log has grown during the polls."""
        return self.held[-1] > self.held[0]

    @property
    def stands_still(self) -> bool:
        """True if the slave was behind in the first poll and has received nothing since."""
        return len(self.looks) > 1 and not self.grew and self.held[-1] < self.wanted[0]

    @property
    def lacks_probe(self) -> bool:
        """True if a probe was sent to the master and has not arrived at the slave."""
        return self.probe_offset is not None and not self.grew and self.held[-1] <= self.probe_offset

    @property
    def is_undecided(self) -> bool:
        """True if another poll may decide the slave's state."""
        if not self.told.answered or not self.master_told.answered or self.is_ahead:
            return False
        if self.lacks_probe:
            return True
        if self.held[-1] > self.wanted[-1] or not self.grew and self.held[-1] < self.wanted[0]:
            return True
        return not self.grew and not _tells(self.told) and self.connection is None and (
            not self.master_tells or self.maybe)


def _tells(told: Told) -> bool:
    """Return whether a slave reports its connection."""
    return "haClientState" in told.table


def judge_slave(case: Case, view: SlaveView) -> None:
    """Set status, state and note of `view`, whose offsets are known."""
    if not case.told.answered:
        _judge_silent_broker(case, view)
        return
    for judge in (_judge_role, _judge_own_word, _judge_address, _judge_offsets, _judge_silence, _judge_connection):
        if judge(case, view):
            return


def _judge_silent_broker(case: Case, view: SlaveView) -> None:
    told, connected = case.told, "it is connected to its master, but " if case.connection else ""
    if not told.alive:
        view.judge(Status.CRITICAL, "UNREACHABLE", f"{connected}{told.error}")
    elif case.connection is not None and case.connection.identity:
        view.judge(Status.OK, case.connection.state, told.error)
    else:
        view.judge(Status.UNKNOWN, "NOT_TOLD", told.error)


def _judge_role(case: Case, view: SlaveView) -> bool:
    told, broker = case.told, case.slave
    name, number = told.config.get("brokerName", broker.name), told.setting("brokerId", broker.broker_id)
    if name != broker.name or number != broker.broker_id and "haRole" not in told.table:
        view.judge(Status.CRITICAL, "NO_SLAVE", f"broker {name} {number} answers at its address: the name server's "
                   "list is stale, or two brokers register the same address")
    elif told.role not in ("SLAVE", ""):
        view.judge(Status.CRITICAL, "NO_SLAVE", f"its brokerRole is {told.role}: it does not replicate")
    else:
        return False
    return True


def _judge_own_word(case: Case, view: SlaveView) -> bool:
    """Judge a slave that reports its connection, when that does not work."""
    table, told = case.told.table, case.told
    if "haDivergedReason" in table:
        view.judge(Status.CRITICAL, "DIVERGED", diverged_text(table))
        return True
    if not _tells(told):
        return False
    state, error = table["haClientState"], table.get("haClientLastError", "")
    if state in _ENDED:
        view.judge(Status.CRITICAL, state, error or "see its store.log")
    elif table.get("haClientAddress") == "" or state not in _SERVING and case.connection is None:
        where = told.follows or "no master: it does not know a master's address yet"
        view.judge(Status.CRITICAL, "NOT_CONNECTED", error or f"it follows {where}; its connection is {state}")
    else:
        return False
    return True


def diverged_text(table: dict[str, str]) -> str:
    """Return the offset from which a slave's log or queues differ from its master's, and the evidence."""
    return f"diverged at offset {table.get('haDivergedOffset', '?')}: {table.get('haDivergedReason', '')}"


def _judge_address(case: Case, view: SlaveView) -> bool:
    """Judge a slave that follows another server than the master of its name, or that its master does not know."""
    # With a connection, it uses another of the master's addresses, or a proxy.
    if case.connection is not None:
        return False
    follows, master = case.told.follows, case.master_told.ha_address
    other = "" if not follows or same_address(follows, master) else case.whose(follows, case.master_told)
    unknown_to_master = case.master_tells and not case.maybe
    if other == "":
        if unknown_to_master:
            view.judge(Status.CRITICAL, "NOT_CONNECTED", "its master has no connection that acknowledges its log")
        return unknown_to_master
    text = f"it follows {follows}, but its master serves {master}"
    if other:
        view.judge(Status.CRITICAL, "OTHER_MASTER", f"{text}: that is {other}")
    elif unknown_to_master:
        view.judge(Status.CRITICAL, "NOT_CONNECTED", f"{text}, and has no connection that acknowledges its log")
    elif _judge_offsets(case, view):
        view.note += f"; {text}"
    elif case.grew:
        view.judge(Status.WARNING, "FOLLOWS", f"{text}; it is unknown whether both are the same server")
    else:
        view.judge(Status.UNKNOWN, "IDLE", f"{text}; it is unknown whether both are the same server. Correct "
                   f"haMasterAddress; {_PROBE}")
    return True


def _judge_offsets(case: Case, view: SlaveView) -> bool:
    """Judge logs that don't fit together, or a slave's log that does not grow."""
    held, wanted = case.held[-1], case.wanted[-1]
    if case.is_ahead or len(case.looks) == 1 and held > wanted:
        view.judge(Status.CRITICAL, "AHEAD", f"it holds {held - wanted} bytes more than its master, whose log ends at "
                   f"{wanted}: the master has lost its end, or the logs are unrelated. Compare them with rmqha store "
                   "diff")
    elif 0 < held < case.master_told.min_offset:
        view.judge(Status.CRITICAL, "TOO_FAR_BEHIND", f"its log ends at {held}, but the master's begins at "
                   f"{case.master_told.min_offset}: the master has deleted what it needs. Set it up again with an "
                   "empty store")
    elif case.stands_still:
        view.judge(Status.CRITICAL, "STANDS_STILL", f"it is {size_text(wanted - held)} behind and receives nothing: "
                   f"its log ends at {held}, its master's at {wanted}")
    elif case.lacks_probe:
        view.judge(Status.CRITICAL, "STANDS_STILL", f"the probe, a message at {case.probe_offset} of its master's log, "
                   f"has not arrived: its log ends at {held}")
    else:
        return False
    return True


def _judge_silence(case: Case, view: SlaveView) -> bool:
    """Judge a connection that has become silent in one direction or the other."""
    heard, limit = case.told.number("haClientSilenceMs", -1), _silence_limit_ms(case.master_told)
    if heard > limit:
        view.judge(Status.CRITICAL, "SILENT", f"it has received nothing from its master for {heard / 1000:.1f} s, not "
                   "even heartbeats: the link works in one direction only, or the master hangs")
        return True
    reported, limit = case.connection.silence_ms if case.connection else None, _silence_limit_ms(case.told)
    if reported is not None and reported > limit:
        view.judge(Status.CRITICAL, "SILENT", f"its master has received no report from it for {reported / 1000:.1f} s: "
                   "the link works in one direction only, or the slave's replication hangs")
        return True
    for whose, times in (("its master's", case.connection.retransmits if case.connection else 0),
                         ("its own", case.told.number("haClientRetransmits"))):
        if times >= _LOST_IN_A_ROW:
            view.judge(Status.CRITICAL, "SILENT", f"{whose} bytes were retransmitted {times} times without an answer: "
                       "the link works in one direction only, or not at all")
            return True
    return False


def _silence_limit_ms(sender: Told) -> int:
    """Return twice the interval at which an idle sender sends heartbeats, plus a margin."""
    return 2 * sender.setting("haSendHeartbeatInterval", _HEARTBEAT_MS) + _SILENCE_MARGIN_MS


def _judge_connection(case: Case, view: SlaveView) -> bool:
    """Judge by the report of one side; without a report the only proof is a log that follows the master's."""
    if case.connection is not None:
        view.judge(Status.OK if case.connection.state in (*_SERVING, "CONNECTED") else Status.CRITICAL,
                   case.connection.state)
    elif _tells(case.told):
        view.judge(Status.OK, case.told.table["haClientState"])
    elif case.grew:
        view.judge(Status.OK, "FOLLOWS")
    elif case.wanted[-1] == 0:
        view.judge(Status.UNKNOWN, "IDLE", "both logs are empty, and neither broker reports whether they are "
                   f"connected; {_PROBE}")
    else:
        view.judge(Status.UNKNOWN, "IDLE", "it holds the same as its master, but nothing was written during the polls, "
                   f"and neither broker reports whether they are connected; {_PROBE}")
    return True


def judge_own_connection(told: Told, view: SlaveView) -> None:
    """Judge the connection to its master of a slave that is asked alone."""
    heard = told.number("haClientSilenceMs", -1)
    if "haDivergedReason" in told.table:
        view.judge(Status.CRITICAL, "DIVERGED", diverged_text(told.table))
    elif not _tells(told):
        view.judge(Status.UNKNOWN, "UNKNOWN", "this slave does not report whether it is connected; give the name "
                   "server (-n), so that its master is asked")
    elif heard > _silence_limit_ms(told):
        view.judge(Status.CRITICAL, "SILENT", f"it has received nothing from its master for {heard / 1000:.1f} s")
    elif view.state not in _SERVING or told.table.get("haClientAddress") == "":
        view.judge(Status.CRITICAL, view.state if view.state not in _SERVING else "NOT_CONNECTED",
                   view.note or "it has not heard from its master yet")


@dataclass(frozen=True)
class Problem:
    """A finding of a check. `state`: the slave's, if it concerns one. `todo`: a remedy beyond what the state implies.
    """

    status: Status
    text: str
    state: str = ""
    todo: str = ""


@dataclass(frozen=True)
class Rules:
    """The limits that are asked for.

    `min_slaves` None: as many as the master's own config requires. `ignore` are hosts, or host:port.
    """

    warn: Limits = Limits()
    crit: Limits = Limits()
    min_slaves: int | None = None
    ignore: tuple[str, ...] = ()

    def ignores(self, slave: SlaveView) -> bool:
        """Return whether to ignore a slave, by its own address or by its end of the connection."""
        return self.ignores_address(slave.address) or slave.connection is not None and not slave.registered and (
            self.ignores_address(slave.connection))

    def ignores_address(self, address: str) -> bool:
        """Return whether to ignore an address."""
        return address in self.ignore or address.rpartition(":")[0] in self.ignore

    def slaves_wanted(self, view: MasterView) -> int:
        """Return the number of slaves that a master should have."""
        return view.wanted_slaves if self.min_slaves is None else self.min_slaves


def judge_all(reading: Reading, rules: Rules) -> list[Problem]:
    """Return the problems of the name servers and of each master's replication."""
    problems = [Problem(fault.status, fault.text, todo=fault.todo) for fault in reading.faults
                if not rules.ignores_address(fault.address)]
    problems += [problem for view in reading.views for problem in judge(view, rules)]
    return problems


def judge(view: MasterView, rules: Rules) -> list[Problem]:
    """Return the problems of one master's replication."""
    problems = [Problem(fault.status, f"{name_of(view)}: {cell(fault.text)}", todo=fault.todo) for fault in view.faults
                if not rules.ignores_address(fault.address)]
    slaves = [slave for slave in view.slaves if not rules.ignores(slave)]
    problems += log_problems(view, slaves)
    if view.error:
        return [*problems, Problem(view.error_status, f"{name_of(view)}: {view.error}")]
    if view.follows is not None:
        problems += _judge_own_connection(view, view.follows)
        if not view.slaves:
            return problems
    problems += [problem for slave in slaves for problem in _judge_slave(view, slave, rules)]
    problems += [Problem(Status.CRITICAL, f"{name_of(view)} refuses the slave {cell(each.address)}: {each.reason}",
                         "OFFSET_REFUSED", each.todo)
                 for each in view.refused if not rules.ignores_address(each.address)]
    return problems + _judge_number(view, slaves, rules)


def log_problems(view: MasterView, slaves: Sequence[SlaveView]) -> list[Problem]:
    """Return the problems that slaves report of their own logs, and overdue checks."""
    problems = []
    if view.follows is not None and view.follows.scrub is not None:
        problems = _log_problems(name_of(view), view.follows.scrub, master_port(view.follows.address))
    for slave in slaves:
        if slave.scrub is not None:
            problems += _log_problems(f"{name_of(view)}'s slave {cell(slave.address)}", slave.scrub,
                                      view.address or "HOST:PORT")
    return problems


def _log_problems(who: str, scrub: ScrubView, master: str) -> list[Problem]:
    return [Problem(fault.status, f"{who}: {fault.text}", fault.kind, fault.todo) for fault in scrub.faults(master)]


def master_port(ha_address: str) -> str:
    """Return a master's address by its HA address: its main port is one below the HA port."""
    host, _colon, port = ha_address.rpartition(":")
    return f"{host}:{number - 1}" if host and (number := whole(port, 0, 2, 65_535)) else "HOST:PORT"


def _judge_number(view: MasterView, slaves: list[SlaveView], rules: Rules) -> list[Problem]:
    """Judge the number of slaves. A slave in an unknown state may be a working one: it is reported on its own."""
    wanted = rules.slaves_wanted(view)
    unknown = sum(slave.status is Status.UNKNOWN for slave in slaves)
    good = sum(slave.counts and slave.status in (Status.OK, Status.WARNING) for slave in slaves)
    if view.note and not slaves and wanted:
        return [Problem(Status.UNKNOWN, f"{name_of(view)}: {view.note}")]
    if good + unknown >= wanted:
        return []
    return [Problem(Status.CRITICAL, f"{name_of(view)} has {counted(good, 'working slave')}, {wanted} wanted")]


def _judge_own_connection(view: MasterView, follows: SlaveView) -> list[Problem]:
    if follows.status is Status.OK:
        return []
    return [Problem(follows.status, f"{name_of(view)} follows {follows.address or 'nobody'}: {follows.state}"
                    + (f", {cell(follows.note)}" if follows.note else ""), follows.state, _todo(follows))]


def _todo(slave: SlaveView) -> str:
    """Return the remedy for a slave that is DIVERGED only because it gets damaged bytes: no new setup is needed."""
    return DAMAGED_TODO if slave.state == "DIVERGED" and slave.scrub is not None and slave.scrub.gets_damaged else ""


def _judge_slave(view: MasterView, slave: SlaveView, rules: Rules) -> list[Problem]:
    who = f"{name_of(view)}'s slave {cell(slave.address)}"
    problems = []
    if slave.status is not Status.OK:
        problems = [Problem(slave.status, f"{who} is {slave.state}" + (f": {cell(slave.note)}" if slave.note else ""),
                            slave.state if slave.registered else "STRANGER", _todo(slave))]
        if slave.status is not Status.WARNING or not slave.counts:
            return problems
    behind = f"{who} is {size_text(slave.lag_bytes or 0)}, {seconds_text(slave.lag_seconds)} behind"
    if rules.crit.exceeded(slave.lag_bytes, slave.lag_seconds):
        return [*problems, Problem(Status.CRITICAL, behind)]
    if rules.warn.exceeded(slave.lag_bytes, slave.lag_seconds):
        return [*problems, Problem(Status.WARNING, behind)]
    timed = rules.warn.seconds is not None or rules.crit.seconds is not None
    if slave.registered and (slave.lag_bytes is None or timed and slave.lag_seconds is None):
        problems.append(Problem(Status.UNKNOWN, f"{who}: no broker reports its lag"
                                + ("" if slave.lag_bytes is None else " in seconds")))
    return problems


def worst(problems: list[Problem]) -> Status:
    """Return the worst status, CRITICAL before UNKNOWN: an unknown fact must not hide a known failure."""
    for status in (Status.CRITICAL, Status.UNKNOWN, Status.WARNING):
        if any(problem.status is status for problem in problems):
            return status
    return Status.OK


def name_of(view: MasterView) -> str:
    """Return the name of a broker, or its address."""
    return cell(view.name) or view.address
