"""What was shown in the last minutes, for sparklines and charts: a bounded memory."""
import threading
from collections import deque

from rmqha.tools.view.change import Picture

IN, OUT, LOG, LAG, BEHIND, DISK = "in", "out", "log", "lag", "behind", "disk"
KINDS = (IN, OUT, LOG, LAG, BEHIND, DISK)
CLUSTER = ""  # the name under which sums of all brokers stand

Point = tuple[int, float | None]  # ms since 1970, value; None: not known then
Key = tuple[str, str]  # (kind, address or group)


class History:
    """At most `points` of each series, and at most `series` of these: a new one takes the place of the one that has
    been silent for longest, so that groups that come and go don't fill the memory."""

    def __init__(self, points: int = 900, series: int = 2_000) -> None:
        self.points = points
        self.series = series
        self._series: dict[Key, deque[Point]] = {}  # in the order of their last points; guarded by _lock
        self._lock = threading.Lock()

    def add(self, picture: Picture) -> None:
        """Take all values of a moment."""
        values = _values(picture)
        at_ms = picture.snapshot.at_ms
        with self._lock:
            for key, value in values.items():
                line = self._series.pop(key, None) or deque(maxlen=self.points)
                line.append((at_ms, value))
                self._series[key] = line
            while len(self._series) > self.series:
                del self._series[next(iter(self._series))]

    def line(self, kind: str, name: str, last: int | None = None) -> list[Point]:
        """A series, oldest first: all of it, or its last points; empty for one that is not there."""
        with self._lock:
            points = list(self._series.get((kind, name), ()))
        return points if last is None else points[-last:]

    def values(self, kind: str, name: str, last: int) -> list[float | None]:
        """The same without times."""
        return [value for _at, value in self.line(kind, name, last)]

    def __len__(self) -> int:
        return len(self._series)


def _values(picture: Picture) -> dict[Key, float | None]:
    now = picture.snapshot
    values: dict[Key, float | None] = {(BEHIND, group.name): group.behind
                                       for group in sorted(now.groups, key=lambda each: each.behind)}
    for broker in now.brokers:
        rates = picture.broker_rates(broker.address)
        values[IN, broker.address], values[OUT, broker.address] = rates.in_msgs, rates.out_msgs
        values[LOG, broker.address], values[DISK, broker.address] = rates.log_bytes, broker.disk_used
    for each in now.replication:
        for slave in each.slaves:
            values[LAG, slave.address] = slave.lag_bytes
    values[IN, CLUSTER], values[OUT, CLUSTER] = picture.in_msgs, picture.out_msgs
    values[BEHIND, CLUSTER] = sum(group.behind for group in now.groups)
    return values
