"""What the parts of one store share: its configuration, its role, whether it serves, and why it does not."""
from __future__ import annotations

import threading

from rmqha.common.texts import LATER
from rmqha.store.delay_levels import DelayLevels
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.store.role import Role
from rmqha.store.running_flags import RunningFlags
from rmqha.store.store_checkpoint import StoreCheckpoint
from rmqha.store.store_stats_service import StoreStatsService


class Pause:
    """The waits of a thread that does something again and again; they end when it is to stop."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self.is_on = False  # written by the pausing thread only

    def wait(self, interval_ms: float) -> bool:
        """Wait so long; True when the thread is to stop. Any thread may wait along."""
        return self._over.wait(interval_ms / 1000)

    def pause(self, interval_ms: float) -> bool:
        """`wait`, on the thread itself, which can't go on at present."""
        self.is_on = True
        try:
            return self._over.wait(interval_ms / 1000)
        finally:
            self.is_on = False

    @property
    def is_over(self) -> bool:
        """Whether the thread is to stop."""
        return self._over.is_set()

    def end(self) -> None:
        """The thread is to stop: end its waits."""
        self._over.set()

    def begin(self) -> None:
        """The thread runs again."""
        self._over.clear()


class StoreState:
    """One store's shared state. Each part takes it, and no part takes the store.

    `is_shutdown`: no puts, no gets; written by the store's start and shutdown.
    """

    def __init__(self, config: MessageStoreConfig, role: Role) -> None:
        self.config = config
        self.role = role
        self.running_flags = RunningFlags()
        self.stats = StoreStatsService()
        self.delay_levels = DelayLevels(config)
        self.checkpoint: StoreCheckpoint = LATER  # from the store's load on
        self.is_shutdown = True
        self.tasks_pause = Pause()  # of the store's scheduled tasks
        self.dispatch_pause = Pause()  # of the dispatching thread
