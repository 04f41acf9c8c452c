"""What two snapshots say together: rates, growth, when a backlog is gone. Pure functions."""
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rmqha.tools.dialect.numbers import real
from rmqha.tools.view.snapshot import BrokerState, GroupState, Snapshot

_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class BrokerRates:
    """Per second: messages in and out, bytes that the log grew by; None: not known, for instance after a restart."""

    in_msgs: float | None = None
    out_msgs: float | None = None
    log_bytes: float | None = None


@dataclass(frozen=True)
class GroupRates:
    """Messages per second: consumed, sent to its topics, and by how much the backlog grows (below 0: it shrinks)."""

    consumed: float | None = None
    produced: float | None = None
    growth: float | None = None


@dataclass(frozen=True)
class Picture:
    """A snapshot with its rates: what is shown. Rates are by address, and by group."""

    snapshot: Snapshot
    brokers: Mapping[str, BrokerRates] = field(default_factory=dict)
    groups: Mapping[str, GroupRates] = field(default_factory=dict)

    def broker_rates(self, address: str) -> BrokerRates:
        """All None for one that is new."""
        return self.brokers.get(address, BrokerRates())

    def group_rates(self, name: str) -> GroupRates:
        """All None for one that is new."""
        return self.groups.get(name, GroupRates())

    @property
    def in_msgs(self) -> float | None:
        """Of all masters; what slaves copy is not sent to them."""
        return total(self.broker_rates(broker.address).in_msgs for broker in self.snapshot.brokers if broker.is_master)

    @property
    def out_msgs(self) -> float | None:
        """Of all brokers."""
        return total(rates.out_msgs for rates in self.brokers.values())


def rate(before: int, after: int, seconds: float) -> float | None:
    """Of a counter; None when it was not told (below 0), has begun anew, or no time has passed."""
    if seconds <= 0 or before < 0 or after < before:
        return None
    return (after - before) / seconds


def total(values: Iterable[float | None]) -> float | None:
    """The sum of those that are known; None when none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def picture(now: Snapshot, before: Snapshot | None, groups_before: Snapshot | None) -> Picture:
    """`groups_before` is the last snapshot whose groups were asked at another time than those of `now`."""
    return Picture(now, {} if before is None else broker_rates(before, now),
                   {} if groups_before is None else group_rates(groups_before, now))


def broker_rates(before: Snapshot, now: Snapshot) -> dict[str, BrokerRates]:
    """By address, of the brokers that answered both times and ran all the while."""
    known, seconds = before.by_address, now.at_s - before.at_s
    return {broker.address: _broker_rates(known[broker.address], broker, seconds) for broker in now.brokers
            if broker.address in known and not broker.error and not known[broker.address].error}


def _broker_rates(before: BrokerState, now: BrokerState, seconds: float) -> BrokerRates:
    if before.boot_ms != now.boot_ms:
        return BrokerRates()
    return BrokerRates(rate(before.put_total, now.put_total, seconds), rate(before.get_total, now.get_total, seconds),
                       rate(before.max_offset, now.max_offset, seconds))


def group_rates(before: Snapshot, now: Snapshot) -> dict[str, GroupRates]:
    """By group, over the queues that it had both times."""
    known, seconds = {group.name: group for group in before.groups}, now.groups_at_s - before.groups_at_s
    return {group.name: _group_rates(known[group.name], group, seconds)
            for group in now.groups if group.name in known}


def _group_rates(before: GroupState, now: GroupState, seconds: float) -> GroupRates:
    if seconds <= 0:
        return GroupRates()
    places = {(place.topic, place.broker, place.queue_id): place for place in before.places}
    pairs = [(places[key], place) for place in now.places
             if (key := (place.topic, place.broker, place.queue_id)) in places]
    consumed = sum(after.offset - earlier.offset for earlier, after in pairs) / seconds
    produced = sum(after.end - earlier.end for earlier, after in pairs) / seconds
    growth = sum(after.behind - earlier.behind for earlier, after in pairs) / seconds
    # an offset that was set back, or a topic made anew: no speed
    return GroupRates(consumed if consumed >= 0 else None, produced if produced >= 0 else None, growth)


def seconds_to_go(behind: int, growth: float | None) -> float | None:
    """When a backlog is gone, if it goes on to shrink as it does; None when it does not."""
    if behind <= 0:
        return 0.0
    return behind / -growth if growth is not None and growth < 0 else None


def sparkline(values: Sequence[float | None], width: int, top: float | None = None) -> str:
    """The last `width` values as bars between 0 and the greatest (or `top`); a gap for what is not known.

    All are at the right end: the newest value always stands in the same place.
    """
    shown = [real(value) for value in list(values)[-width:]] if width > 0 else []
    highest = max([value for value in shown if value is not None] + [top or 0], default=0)
    bars = "".join(" " if value is None else _bar(value, highest) for value in shown)
    return bars.rjust(max(width, 0))


def _bar(value: float, highest: float) -> str:
    if value <= 0 or highest <= 0:
        return _BARS[0]
    return _BARS[min(len(_BARS) - 1, 1 + int(value / highest * (len(_BARS) - 1.001)))]
