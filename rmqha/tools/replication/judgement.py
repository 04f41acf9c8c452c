"""Judging replication: which connection is which slave's, the state of each slave, and the resulting problems.

- `match`: finds the connection of each slave that the name server lists. An rmqha slave identifies itself in a
  handshake and reports the address of its end. A Java slave does neither: a connection from its host counts as its own
  while it acknowledges what the slave holds. Connections left over are unregistered slaves or receivers.
- `judge_slave`: judges by the slave's report, its master's report, and how both logs change between two looks. An
  rmqha broker and 5.1.4 report their connections. A 4.9 broker reports none: then only a log that follows the master's
  is a proof. A fact that can't be known is UNKNOWN, never OK.
- `judge_all`: the problems. `ha status`, `check ha` and `doctor` share these rules.
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


_HEARTBEAT_MS = 5000
_SILENCE_MARGIN_MS = 1000
_LOST_IN_A_ROW = 4  # within 3 s
_SERVING = ("TRANSFER", "SUSPEND")
_ENDED = ("OFFSET_REFUSED", "APPEND_FAILED", "DIVERGED", "SHUTDOWN")  # states of a slave that needs a hand
_PROBE = "--probe sends one message and looks for it"

# (slave's table, master's) -> the broker at an HA address: "" the master itself, None nobody tells
Whose = Callable[[str, Told], str | None]


@dataclass(frozen=True)
class Case:
    """One slave that the name server lists, as all looks saw it; `maybe`: a connection of nobody known may be its."""

    slave: Broker
    master: Broker
    looks: Sequence[Look]
    connection: Connection | None
    maybe: bool
    whose: Whose
    probe_offset: int | None = None  # of a message that was sent to the master meanwhile

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
        """Whether the master knows of connections."""
        return self.master_told.info is not None

    @property
    def held(self) -> list[int]:
        """The end of the slave's log at each look; what its connection has acknowledged is as good."""
        return [look[self.slave].max_offset for look in self.looks]

    @property
    def wanted(self) -> list[int]:
        """The end of the master's log at each look."""
        return [look[self.master].max_offset for look in self.looks]

    @property
    def is_ahead(self) -> bool:
        """Whether it held more at one look than its master at the next."""
        return any(held > wanted for held, wanted in zip(self.held, self.wanted[1:]))

    @property
    def grew(self) -> bool:
        """Whether the slave's log has grown while it was looked at."""
        return self.held[-1] > self.held[0]

    @property
    def stands_still(self) -> bool:
        """Whether it lacked something at the first look, and still does not have a byte more."""
        return len(self.looks) > 1 and not self.grew and self.held[-1] < self.wanted[0]

    @property
    def lacks_probe(self) -> bool:
        """Whether a message was sent to its master, and nothing has come to it since."""
        return self.probe_offset is not None and not self.grew and self.held[-1] <= self.probe_offset

    @property
    def is_undecided(self) -> bool:
        """Whether another look may tell more."""
        if not self.told.answered or not self.master_told.answered or self.is_ahead:
            return False
        if self.lacks_probe:
            return True
        if self.held[-1] > self.wanted[-1] or not self.grew and self.held[-1] < self.wanted[0]:
            return True
        return not self.grew and not _tells(self.told) and self.connection is None and (
            not self.master_tells or self.maybe)


def _tells(told: Told) -> bool:
    """Whether a slave knows of its connection."""
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
        view.judge(Status.CRITICAL, "NO_SLAVE", f"at its address {name} {number} answers: the name server's list is "
                   "stale, or two brokers register one address")
    elif told.role not in ("SLAVE", ""):
        view.judge(Status.CRITICAL, "NO_SLAVE", f"its brokerRole is {told.role}: it replicates from nobody")
    else:
        return False
    return True


def _judge_own_word(case: Case, view: SlaveView) -> bool:
    """A slave that knows of its connection, and has none that works."""
    table, told = case.told.table, case.told
    if "haDivergedReason" in table:
        view.judge(Status.CRITICAL, "DIVERGED", diverged_text(table))
        return True
    if not _tells(told):
        return False
    state, error = table["haClientState"], table.get("haClientLastError", "")
    if state in _ENDED:
        view.judge(Status.CRITICAL, state, error or "its store.log says why")
    elif table.get("haClientAddress") == "" or state not in _SERVING and case.connection is None:
        where = told.follows or "nobody: it knows no master's address yet"
        view.judge(Status.CRITICAL, "NOT_CONNECTED", error or f"it follows {where}; its connection is {state}")
    else:
        return False
    return True


def diverged_text(table: dict[str, str]) -> str:
    """From where on a slave's log or queues are not its master's, and how it knows."""
    return f"from offset {table.get('haDivergedOffset', '?')} on: {table.get('haDivergedReason', '')}"


def _judge_address(case: Case, view: SlaveView) -> bool:
    """A slave that follows somebody else than the master of its name, or that its master does not know."""
    if case.connection is not None:  # by another of the master's addresses, or by a proxy
        return False
    follows, master = case.told.follows, case.master_told.ha_address
    other = "" if not follows or same_address(follows, master) else case.whose(follows, case.master_told)
    unknown_to_master = case.master_tells and not case.maybe
    if other == "":
        if unknown_to_master:
            view.judge(Status.CRITICAL, "NOT_CONNECTED", "its master has no connection that acknowledges what it holds")
        return unknown_to_master
    text = f"it follows {follows}, its master serves {master}"
    if other:
        view.judge(Status.CRITICAL, "OTHER_MASTER", f"{text}: that is {other}")
    elif unknown_to_master:
        view.judge(Status.CRITICAL, "NOT_CONNECTED", f"{text}, and has no connection that acknowledges what it holds")
    elif _judge_offsets(case, view):
        view.note += f"; {text}"
    elif case.grew:
        view.judge(Status.WARNING, "FOLLOWS", f"{text}; nobody tells whether that is the same")
    else:
        view.judge(Status.UNKNOWN, "IDLE", f"{text}; nobody tells whether that is the same. Correct haMasterAddress; "
                   f"{_PROBE}")
    return True


def _judge_offsets(case: Case, view: SlaveView) -> bool:
    """Logs that don't fit together, or of which one does not go on."""
    held, wanted = case.held[-1], case.wanted[-1]
    if case.is_ahead or len(case.looks) == 1 and held > wanted:
        view.judge(Status.CRITICAL, "AHEAD", f"it holds {held - wanted} bytes more than its master, whose log ends at "
                   f"{wanted}: the master has lost its end, or these are two logs. Compare them with rmqha store diff")
    elif 0 < held < case.master_told.min_offset:
        view.judge(Status.CRITICAL, "TOO_FAR_BEHIND", f"its log ends at {held}, the master's begins at "
                   f"{case.master_told.min_offset}: what it needs is deleted. Set it up anew with an empty store")
    elif case.stands_still:
        view.judge(Status.CRITICAL, "STANDS_STILL", f"it lacks {size_text(wanted - held)} and gets none of it: its log "
                   f"ends at {held}, its master's at {wanted}")
    elif case.lacks_probe:
        view.judge(Status.CRITICAL, "STANDS_STILL", f"the probe, a message at {case.probe_offset} of its master's log, "
                   f"has not come to it: its log ends at {held}")
    else:
        return False
    return True


def _judge_silence(case: Case, view: SlaveView) -> bool:
    """A connection that says nothing any more, in one direction or the other."""
    heard, limit = case.told.number("haClientSilenceMs", -1), _silence_limit_ms(case.master_told)
    if heard > limit:
        view.judge(Status.CRITICAL, "SILENT", f"it has heard nothing of its master for {heard / 1000:.1f} s, and "
                   "heartbeats should come: the link passes one direction only, or the master stands still")
        return True
    reported, limit = case.connection.silence_ms if case.connection else None, _silence_limit_ms(case.told)
    if reported is not None and reported > limit:
        view.judge(Status.CRITICAL, "SILENT", f"its master has had no report of it for {reported / 1000:.1f} s: the "
                   "link passes one direction only, or the slave's replication stands still")
        return True
    for whose, times in (("its master's", case.connection.retransmits if case.connection else 0),
                         ("its own", case.told.number("haClientRetransmits"))):
        if times >= _LOST_IN_A_ROW:
            view.judge(Status.CRITICAL, "SILENT", f"{whose} bytes were sent {times} times again without an answer: the "
                       "link passes one direction only, or none")
            return True
    return False


def _silence_limit_ms(sender: Told) -> int:
    """Twice the time after which it speaks when it has nothing to say."""
    return 2 * sender.setting("haSendHeartbeatInterval", _HEARTBEAT_MS) + _SILENCE_MARGIN_MS


def _judge_connection(case: Case, view: SlaveView) -> bool:
    """A connection that works by the word of one side; without one only a log that follows is a proof."""
    if case.connection is not None:
        view.judge(Status.OK if case.connection.state in (*_SERVING, "CONNECTED") else Status.CRITICAL,
                   case.connection.state)
    elif _tells(case.told):
        view.judge(Status.OK, case.told.table["haClientState"])
    elif case.grew:
        view.judge(Status.OK, "FOLLOWS")
    elif case.wanted[-1] == 0:
        view.judge(Status.UNKNOWN, "IDLE", "both logs are empty, and neither broker tells whether they are connected; "
                   f"{_PROBE}")
    else:
        view.judge(Status.UNKNOWN, "IDLE", "it holds what its master holds, but nothing was written while it was "
                   f"looked at, and neither broker tells whether they are connected; {_PROBE}")
    return True


def judge_own_connection(told: Told, view: SlaveView) -> None:
    """The connection to its master of a slave that is asked alone."""
    heard = told.number("haClientSilenceMs", -1)
    if "haDivergedReason" in told.table:
        view.judge(Status.CRITICAL, "DIVERGED", diverged_text(told.table))
    elif not _tells(told):
        view.judge(Status.UNKNOWN, "UNKNOWN", "this slave does not tell whether it is connected; give the name server "
                   "(-n), and its master is asked")
    elif heard > _silence_limit_ms(told):
        view.judge(Status.CRITICAL, "SILENT", f"it has heard nothing of its master for {heard / 1000:.1f} s")
    elif view.state not in _SERVING or told.table.get("haClientAddress") == "":
        view.judge(Status.CRITICAL, view.state if view.state not in _SERVING else "NOT_CONNECTED",
                   view.note or "it has not heard its master yet")


@dataclass(frozen=True)
class Problem:
    """What a check found; `state` is the slave's when it is about one. `todo`: what to do, where the state won't do."""

    status: Status
    text: str
    state: str = ""
    todo: str = ""


@dataclass(frozen=True)
class Rules:
    """What is asked for. `min_slaves` None: as many as the master's own config wants. `ignore` are hosts, or host:port.
    """

    warn: Limits = Limits()
    crit: Limits = Limits()
    min_slaves: int | None = None
    ignore: tuple[str, ...] = ()

    def ignores(self, slave: SlaveView) -> bool:
        """Whether a slave does not matter, by its own address or by its end of the connection."""
        return self.ignores_address(slave.address) or slave.connection is not None and not slave.registered and (
            self.ignores_address(slave.connection))

    def ignores_address(self, address: str) -> bool:
        """Whether an address is among them."""
        return address in self.ignore or address.rpartition(":")[0] in self.ignore

    def slaves_wanted(self, view: MasterView) -> int:
        """How many slaves a master should have."""
        return view.wanted_slaves if self.min_slaves is None else self.min_slaves


def judge_all(reading: Reading, rules: Rules) -> list[Problem]:
    """What is wrong with the name servers and with each master's replication."""
    problems = [Problem(fault.status, fault.text, todo=fault.todo) for fault in reading.faults
                if not rules.ignores_address(fault.address)]
    problems += [problem for view in reading.views for problem in judge(view, rules)]
    return problems


def judge(view: MasterView, rules: Rules) -> list[Problem]:
    """What is wrong with one master's replication."""
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
    """What slaves have found wrong with their own logs, or have not looked at in time."""
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
    """The address of a master whose HA address is known: its main port is the one below."""
    host, _colon, port = ha_address.rpartition(":")
    return f"{host}:{number - 1}" if host and (number := whole(port, 0, 2, 65_535)) else "HOST:PORT"


def _judge_number(view: MasterView, slaves: list[SlaveView], rules: Rules) -> list[Problem]:
    """Those of which nobody knows are problems themselves, and may be the ones that are wanted."""
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
    """Also a slave that only gets damaged bytes is DIVERGED, and need not be set up again."""
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
        problems.append(Problem(Status.UNKNOWN, f"{who}: nobody tells how far behind it is"
                                + ("" if slave.lag_bytes is None else " in seconds")))
    return problems


def worst(problems: list[Problem]) -> Status:
    """CRITICAL before UNKNOWN: what is surely bad is not covered by what isn't known."""
    for status in (Status.CRITICAL, Status.UNKNOWN, Status.WARNING):
        if any(problem.status is status for problem in problems):
            return status
    return Status.OK


def name_of(view: MasterView) -> str:
    """What to call it: its name, or its address."""
    return cell(view.name) or view.address
