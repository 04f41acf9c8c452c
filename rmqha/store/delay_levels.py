"""The delay levels of a store, as configured by messageDelayLevel, such as "1s 5s ... 2h"."""
from __future__ import annotations

import logging

from rmqha.common.message.message import parse_int
from rmqha.store.message_store_config import MessageStoreConfig

log = logging.getLogger("RocketmqStore")

_TIME_UNITS_MS = {"s": 1000, "m": 1000 * 60, "h": 1000 * 60 * 60, "d": 1000 * 60 * 60 * 24}
_UNKNOWN_LEVEL_MS = 1000


class DelayLevels:
    """The delay of each level from 1 on; `parse` reads it from the configuration before recovery dispatches.

    Java: org.apache.rocketmq.store.schedule.ScheduleMessageService#parseDelayLevel (4.9.8)
    """

    def __init__(self, config: MessageStoreConfig) -> None:
        self._config = config
        self.table: dict[int, int] = {}  # level -> delay, ms
        self.max_level = 0
        self.delays: tuple[int, ...] = ()  # ms, of each level from 1 on

    def parse(self) -> bool:
        """Read messageDelayLevel; return False when it is malformed."""
        level_string = self._config.messageDelayLevel
        try:
            for level, value in enumerate(level_string.rstrip(" ").split(" "), 1):
                self.table[level] = _TIME_UNITS_MS[value[-1:]] * parse_int(value[:-1])
                self.max_level = max(self.max_level, level)
            self.delays = tuple([self.table[level] for level in range(1, self.max_level + 1)])
        except (KeyError, ValueError):
            log.exception("parseDelayLevel exception")
            log.info("levelString String = %s", level_string)
            return False
        return True

    def deliver_timestamp(self, level: int, store_timestamp: int) -> int:
        """Return the time (ms) at which a message stored at `store_timestamp` is due; an unknown level means 1 s.

        Java: org.apache.rocketmq.store.schedule.ScheduleMessageService#computeDeliverTimestamp (4.9.8)
        """
        return store_timestamp + self.table.get(level, _UNKNOWN_LEVEL_MS)
