"""What is known of one slave, by its own word, by its master's, and by what both logs do between two looks.

An rmqha broker and 5.1.4 tell of their connections, a 4.9 broker of none: then only a log that follows the master's is
a proof. What can't be known is UNKNOWN, never OK.
"""
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rmqha.remoting.addresses import same_address
from rmqha.tools.check.check_base import Status
from rmqha.tools.ha.answers import Look, Told
from rmqha.tools.ha.broker_admin import Broker
from rmqha.tools.ha.matching import Connection
from rmqha.tools.ha.views import SlaveView
from rmqha.tools.store.output import size_text

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
