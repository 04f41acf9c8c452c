"""The figures of each client in each event, and the table. Times are in ms."""
import re
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from tests.faults.felt.programs import Program
from tests.faults.felt.records import Records, Send

_ERROR_CHARACTERS = 160
# Parts of an error's text: packages, times, addresses, sources.
_VARYING = re.compile(r"\b(org\.\w+\.)([a-z]\w*\.)+|, cost \[\d+\]ms|\b\d+\.\d+\.\d+\.\d+:\d+|"
                      r", BrokersSent: \[[^\]]*\]|,error:-1,in file .*|See \S+|For more information.*")


@dataclass(frozen=True)
class Window:
    """An event and the time until the next one; us since 1970."""

    number: int
    event: str
    text: str
    begin: int
    end: int
    # ms from the begin until the name server names another master; None if it does not.
    routed_ms: float | None = None


@dataclass(frozen=True)
class Figures:
    """The effect of one event on one client.

    `failed`: sends that threw. `other`: sends that returned, but not SEND_OK. `retried`: sends with several attempts,
    None if the client does not show them. `gap_ms`: the longest time without a SEND_OK. `late_ms`: the longest time
    from a send's begin to the reception of its message. `missing`: acknowledged and never received.
    """

    failed: int
    other: int
    retried: int | None
    gap_ms: float
    longest_send_ms: float
    late_ms: float
    missing: int
    twice: int


COLUMNS = {"failed": "failed", "other": "not OK", "retried": "retried", "gap_ms": "gap ms",
           "longest_send_ms": "send ms", "late_ms": "latest ms", "missing": "missing", "twice": "twice"}


def comes_at_once(program: Program, number: int) -> bool:
    """Return whether a message is to be received without a transaction check."""
    return program.mode != "transactions" or number % 10 <= 5


def is_expected(program: Program, number: int) -> bool:
    """Return whether a message is to be received at all."""
    return program.mode != "transactions" or number % 10 not in (6, 9)


def figures_of(program: Program, records: Records, window: Window) -> Figures:
    """Return the figures of one client in one window: of its sends that were under way then."""
    sends = [send for send in records.sends if send.end > window.begin and send.begin < window.end]
    acknowledged = [send for send in sends if send.ok]
    expected = [send for send in acknowledged if is_expected(program, send.number)]
    tries = [send.tries for send in sends if send.tries is not None]
    return Figures(
        failed=sum(bool(send.error) for send in sends),
        other=sum(not send.error and not send.ok for send in sends),
        retried=sum(each > 1 for each in tries) if tries else None,
        gap_ms=_ms(_longest_gap(records, window)),
        longest_send_ms=_ms(max((send.end - send.begin for send in sends), default=0)),
        late_ms=_ms(max((records.receptions[send.number][0] - send.begin for send in expected
                         if send.number in records.receptions and comes_at_once(program, send.number)), default=0)),
        missing=sum(send.number not in records.receptions for send in expected),
        twice=sum(window.begin <= at < window.end for times in records.receptions.values() for at in times[1:]))


def _longest_gap(records: Records, window: Window) -> int:
    """Return the longest time between two answers SEND_OK, of which at least a part is in the window."""
    ends = [send.end for send in records.sends if send.ok]
    before = max((end for end in ends if end <= window.begin), default=window.begin)
    inside = [end for end in ends if window.begin < end < window.end]
    after = min((end for end in ends if end >= window.end), default=window.end)
    points = [before, *inside, after]
    return max(later - earlier for earlier, later in zip(points, points[1:], strict=False))


def _ms(us: int) -> float:
    return round(us / 1000, 1)


def errors_of(sends: Iterable[Send], window: Window) -> dict[str, int]:
    """Return how often each error was thrown in a window, without its details."""
    counts: dict[str, int] = {}
    for send in sends:
        if (send.error or not send.ok) and send.end > window.begin and send.begin < window.end:
            text = _VARYING.sub("", (send.error or send.status).split("\n")[0])[:_ERROR_CHARACTERS]
            counts[text] = counts.get(text, 0) + 1
    return counts


Table = list[tuple[Window, dict[str, Figures]]]


def text_of(table: Table) -> str:
    """Return the table: each event, and of each kind of event the median and the maximum."""
    lines = []
    head = f"{'client':14}" + "".join(f"{title:>12}" for title in COLUMNS.values())
    for window, by_client in table:
        routed = "" if window.routed_ms is None else f", another master in the route after {window.routed_ms:.0f} ms"
        lines += [f"{window.number}. {window.event}: {window.text}{routed}", head]
        lines += [_row(name, asdict(figures)) for name, figures in by_client.items()] + [""]
    for event in dict.fromkeys(window.event for window, _ in table):
        rounds = [by_client for window, by_client in table if window.event == event]
        for what, summed in (("median", statistics.median), ("maximum", max)):
            lines += [f"{event}, {what} of {len(rounds)}", head]
            lines += [_row(name, {column: _summed([getattr(each[name], column) for each in rounds], summed)
                                  for column in COLUMNS}) for name in rounds[0]] + [""]
    return "\n".join(lines)


def _summed(values: list[float | None], how) -> float | None:
    known = [value for value in values if value is not None]
    return how(known) if known else None


def _row(name: str, values: dict[str, float | None]) -> str:
    return f"{name:14}" + "".join(f"{_shown(values[column]):>12}" for column in COLUMNS)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
