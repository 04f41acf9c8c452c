"""A broker's metrics, put together.

    MetricsPort's threads --families--> ExporterMetrics, RuntimeMetrics, OtelMetrics, OwnMetrics: made for each scrape;
    they read what the broker keeps anyway, and change nothing
"""
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqha.broker.metrics import broker_health
from rmqha.broker.metrics.exporter_metrics import EXPORTER_METRICS, ExporterMetrics
from rmqha.broker.metrics.group_progress import StoreTimes, group_progress
from rmqha.broker.metrics.otel_metrics import OTEL_METRICS, OtelMetrics
from rmqha.broker.metrics.own_metrics import OWN_METRICS, OwnMetrics
from rmqha.broker.metrics.runtime_metrics import RUNTIME_METRICS, RuntimeMetrics
from rmqha.common.metrics import Family, Memo, MetricsNames, Pace, Subject
from rmqha.store.message_store_config import SLAVE

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController

BROKER_METRICS = (*OWN_METRICS, *EXPORTER_METRICS, *RUNTIME_METRICS, *OTEL_METRICS)


class BrokerMetrics(Subject):
    """What a broker tells on its metrics port."""

    def __init__(self, controller: "BrokerController") -> None:
        self._controller = controller
        self._runtime = RuntimeMetrics(controller)
        self._times: StoreTimes | None = None  # once the store is there

    def families(self, pace: Pace) -> Iterator[Family]:
        """rmqha's own first, since they tell what is wrong; then by `metricsNames`."""
        controller = self._controller
        own = OwnMetrics(controller)
        yield from own.at_any_time()
        if not controller.is_started or controller.message_store.is_shutdown:
            return
        yield from own.families()
        names = controller.broker_config.metricsNames
        if names is not MetricsNames.otel:
            yield from self._runtime.families()
        if self._times is None:
            self._times = StoreTimes(controller.message_store)
        times = self._times.of_scrape(pace)
        progress = Memo(group_progress(controller, times, pace))
        if names is not MetricsNames.otel and controller.message_store_config.brokerRole is not SLAVE:
            yield from ExporterMetrics(controller, progress, pace).families()
        if names is not MetricsNames.exporter:
            yield from OtelMetrics(controller, progress, self._runtime).families()
        self._times.keep(times)

    def why_not_healthy(self) -> list[str]:
        """See broker_health."""
        return broker_health.why_not_healthy(self._controller)

    def why_not_ready(self) -> list[str]:
        """See broker_health."""
        return broker_health.why_not_ready(self._controller)
