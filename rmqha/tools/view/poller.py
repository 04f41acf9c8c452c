"""Looks at a cluster again and again, and keeps what is to be shown.

    ViewPoller --collect--> name servers, brokers
               --Picture--> latest, History <--read-- terminal, web page
"""
import logging
import threading
import time
from collections.abc import Callable

from rmqha.common.service_thread import ServiceThread
from rmqha.tools.ha.broker_admin import ReplicationToolError
from rmqha.tools.view.change import Picture, picture
from rmqha.tools.view.collector import Collector
from rmqha.tools.view.history import History
from rmqha.tools.view.snapshot import Snapshot

log = logging.getLogger("RocketmqTools")

MIN_INTERVAL_S = 1.0


class ViewPoller(ServiceThread):
    """One round each `interval_s`, 1 s at least, that the brokers don't pay for how closely somebody looks."""

    def __init__(self, collector: Collector, history: History, interval_s: float) -> None:
        super().__init__()
        self.daemon = True
        self.join_time_ms = 2_000
        self.history = history
        self.interval_s = max(MIN_INTERVAL_S, interval_s)
        self.paused = False  # written under _changed
        self.latest: Picture | None = None  # written by the service
        self.error = ""  # why there is nothing newer than `latest`; "" when all is well
        self._collector = collector
        self._before: Snapshot | None = None
        self._groups_before: Snapshot | None = None
        self._changed = threading.Condition()  # announces: a round more

    def run(self) -> None:
        while not self.stopped:
            begin = time.monotonic()
            if not self.paused:
                self._round()
            self.wait_for_running(max(50.0, (self.interval_s - (time.monotonic() - begin)) * 1000))

    def _round(self) -> None:
        try:
            self._publish(self._collector.collect())
            self.error = ""
        except ReplicationToolError as error:  # no name server has ever answered
            if self.error != error.message:
                log.warning("nothing to show: %s", error.message)
            self.error = error.message
        except Exception as error:  # what brokers tell is others' work: the next round asks again
            log.exception("the cluster can't be shown")
            self.error = f"the cluster can't be shown: {type(error).__name__}: {error}"
        with self._changed:
            self._changed.notify_all()

    def _publish(self, now: Snapshot) -> None:
        before = self._before
        if before is not None and before.groups_at_s != now.groups_at_s:
            self._groups_before = before
        made = picture(now, before, self._groups_before)
        with self._changed:
            if self.paused and self.latest is not None:
                return  # asked for while this one was being made
            self.history.add(made)
            self._before, self.latest = now, made

    def pause(self, paused: bool) -> None:
        """Keep the latest picture, or continue. Once paused no other one appears."""
        with self._changed:
            self.paused = paused
        if not paused:
            self.wakeup()

    def wait_for_picture(self, timeout_s: float) -> Picture | None:
        """The latest; the first one is waited for, or the first error."""
        return self.wait_until(lambda: self.latest is not None or bool(self.error), timeout_s)

    def wait_until(self, come: Callable[[], bool], timeout_s: float) -> Picture | None:
        """The latest once `come()`, which is looked at after each round, or when time is over."""
        with self._changed:
            self._changed.wait_for(come, timeout_s)
        return self.latest
