"""What is good and what is bad about replication: `ha status`, `check ha` and `doctor` judge alike."""
from collections.abc import Sequence
from dataclasses import dataclass

from rmqha.tools.check.check_base import Status
from rmqha.tools.check.thresholds import Limits
from rmqha.tools.dialect.numbers import whole
from rmqha.tools.ha.scrub_view import DAMAGED_TODO, ScrubView
from rmqha.tools.ha.views import MasterView, Reading, SlaveView
from rmqha.tools.store.output import cell, counted, seconds_text, size_text


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
