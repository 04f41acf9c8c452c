"""Which records of a block are wanted: decided on the kernel's rows, before anything else of a record is looked at."""
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rmqha.pipeline.log.log_scan import Block

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
# Column of the table -> column of the rows.
COLUMNS = {"queueId": "queueId", "queueOffset": "queueOffset", "physicalOffset": "offset",
           "storeTimestamp": "storeTime", "storeSize": "size", "sysFlag": "sysFlag"}


@dataclass
class RowFilter:
    """Conditions that must all hold. Times are ms; ends are exclusive.

    `starting`, `ending`: topic -> queue id -> offset, for the queues that are named there. `starting_times`,
    `ending_times`: the same with store times.
    """

    topics: frozenset[str] | None = None
    pattern: str | None = None
    starting: dict[str, dict[int, int]] = field(default_factory=dict)
    ending: dict[str, dict[int, int]] = field(default_factory=dict)
    starting_times: dict[str, dict[int, int]] = field(default_factory=dict)
    ending_times: dict[str, dict[int, int]] = field(default_factory=dict)
    begin_time: int | None = None
    end_time: int | None = None
    comparisons: list[tuple[str, str, Any]] = field(default_factory=list)  # column of the rows, operator, value
    pushed_topics: list[frozenset[str]] = field(default_factory=list)

    def wants_topic(self, topic: str) -> bool:
        """Whether messages of a topic may be wanted."""
        return (self.topics is None or topic in self.topics) \
            and (self.pattern is None or re.fullmatch(self.pattern, topic) is not None) \
            and all(topic in topics for topics in self.pushed_topics)

    @property
    def is_open(self) -> bool:
        """Whether everything is wanted."""
        return self == RowFilter()

    def choose(self, block: Block) -> np.ndarray | None:
        """Numbers of the wanted rows; None for all."""
        if self.is_open:
            return None
        rows = block.rows
        mask = np.fromiter(map(self.wants_topic, block.topics), bool, len(block.topics))[rows["topic"]]
        if self.begin_time is not None:
            mask &= rows["storeTime"] >= self.begin_time
        if self.end_time is not None:
            mask &= rows["storeTime"] < self.end_time
        for column, name, value in self.comparisons:
            mask &= np.isin(rows[column], value) if name == "in" else _COMPARE[name](rows[column], value)
        self._by_queue(block, mask)
        return np.flatnonzero(mask)

    def _by_queue(self, block: Block, mask: np.ndarray) -> None:
        rows = block.rows
        for wanted, compare, column in ((self.starting, operator.ge, "queueOffset"),
                                        (self.ending, operator.lt, "queueOffset"),
                                        (self.starting_times, operator.ge, "storeTime"),
                                        (self.ending_times, operator.lt, "storeTime")):
            for topic, by_queue in wanted.items():
                if topic not in block.topics:
                    continue
                own = rows["topic"] == block.topics.index(topic)
                for queue_id, bound in by_queue.items():
                    mine = own & (rows["queueId"] == queue_id)
                    mask &= ~mine | compare(rows[column], bound)
