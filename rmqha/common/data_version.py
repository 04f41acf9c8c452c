"""The version stamp of a configuration table."""
import time
from dataclasses import dataclass, field

from rmqha.common.text_hash import text_hash


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class DataVersion:
    """When (ms since the epoch) and how often a table changed. Equal when both numbers are.

    Not locked: the owner of the table calls `next_version` under the table's guard.

    Java: org.apache.rocketmq.common.DataVersion (4.9.8)
    """

    timestamp: int = field(default_factory=_now_ms)
    counter: int = 0

    def copy(self) -> "DataVersion":
        """The present numbers, which stay."""
        return DataVersion(self.timestamp, self.counter)

    def assign_new_one(self, data_version: "DataVersion") -> None:
        """Take over the other's numbers."""
        self.timestamp = data_version.timestamp
        self.counter = data_version.counter

    def next_version(self) -> None:
        """The table changed now."""
        self.timestamp = _now_ms()
        self.counter += 1

    def __hash__(self) -> int:
        return text_hash(self.timestamp, self.counter)

    def __str__(self) -> str:
        return f"DataVersion[timestamp={self.timestamp}, counter={self.counter}]"
