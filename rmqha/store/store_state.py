"""State shared by the parts of one store: its configuration, its role, whether it serves, and why it does not."""
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
    """The waits of a thread that repeats a task; they end early when the thread has to stop."""

    def __init__(self) -> None:
        self._over = threading.Event()
        # written by the pausing thread only
        self.is_on = False

    def wait(self, interval_ms: float) -> bool:
        """Wait for `interval_ms`; return True when the thread has to stop. Other threads may wait too."""
        return self._over.wait(interval_ms / 1000)

    def pause(self, interval_ms: float) -> bool:
        """Wait like `wait`, called by the thread itself while it can't make progress; `is_on` is set meanwhile."""
        self.is_on = True
        try:
            return self._over.wait(interval_ms / 1000)
        finally:
            self.is_on = False

    @property
    def is_over(self) -> bool:
        """True when the thread has to stop."""
        return self._over.is_set()

    def end(self) -> None:
        """End all waits, because the thread has to stop."""
        self._over.set()

    def begin(self) -> None:
        """Allow waits again, because the thread has been restarted."""
        self._over.clear()


class StoreState:
    """The shared state of one store. Each part of the store receives this object instead of the store itself.

    `is_shutdown`: the store serves no puts and no gets. Written by the store's start and shutdown.
    """

    def __init__(self, config: MessageStoreConfig, role: Role) -> None:
        self.config = config
        self.role = role
        self.running_flags = RunningFlags()
        self.stats = StoreStatsService()
        self.delay_levels = DelayLevels(config)
        # set when the store is loaded
        self.checkpoint: StoreCheckpoint = LATER
        self.is_shutdown = True
        self.tasks_pause = Pause()  # of the store's scheduled tasks
        self.dispatch_pause = Pause()  # of the dispatching thread
