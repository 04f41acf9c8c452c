"""A name server's metrics and health. RocketMQ's exporter and 5.x tell nothing of a name server."""
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import rmqha
from rmqha.common import java
from rmqha.common.metrics import GAUGE, Family, Metric, Pace, Sample, Subject

if TYPE_CHECKING:
    from rmqha.namesrv.namesrv_controller import NamesrvController

_BROKER = ("cluster", "broker", "broker_id", "address")

INFO = Metric("rmqha_namesrv_info", GAUGE, ("version", "rocketmq_version"), "Always 1: what it is")
READY = Metric("rmqha_namesrv_ready", GAUGE, (), "1 when it serves; /readyz has the reasons why not")
BROKERS = Metric("rmqha_namesrv_brokers", GAUGE, ("cluster",), "Brokers that are registered, masters and slaves")
MASTERS = Metric("rmqha_namesrv_masters", GAUGE, ("cluster",), "Masters that are registered")
WITHOUT_MASTER = Metric("rmqha_namesrv_broker_names_without_master", GAUGE, ("cluster",),
                        "Broker names of which only slaves are registered")
HEARTBEAT_AGE = Metric("rmqha_namesrv_broker_heartbeat_age_seconds", GAUGE, _BROKER,
                       "Since the broker's last registration; after 120 s it is dropped")
TOPICS = Metric("rmqha_namesrv_topics", GAUGE, (), "Topics that have a route")
CONNECTIONS = Metric("rmqha_namesrv_connections", GAUGE, (), "Connections of brokers and clients")
WAITING = Metric("rmqha_namesrv_requests_waiting", GAUGE, (), "Requests that wait for a thread")
DEPARTED = Metric("rmqha_namesrv_brokers_departed", GAUGE, ("cluster",),
                  "Brokers that went without saying goodbye, and have not come back")
NAMESRV_METRICS = (INFO, READY, BROKERS, MASTERS, WITHOUT_MASTER, HEARTBEAT_AGE, TOPICS, CONNECTIONS, WAITING,
                   DEPARTED)


class NamesrvMetrics(Subject):
    """What a name server tells on its metrics port."""

    def __init__(self, controller: "NamesrvController") -> None:
        self._controller = controller

    def families(self, pace: Pace) -> Iterator[Family]:
        """Each metric once."""
        controller, routes = self._controller, self._controller.route_info_manager
        yield Family(INFO, [((rmqha.__version__, java.get_version_desc(java.CURRENT_VERSION)), 1)])
        yield Family(READY, [((), float(not self.why_not_ready()))])
        brokers = routes.live_brokers()
        in_cluster = Counter(one.cluster for one in brokers)
        masters = {(one.cluster, one.name) for one in brokers if one.broker_id == 0}
        slaves_only = {(one.cluster, one.name) for one in brokers} - masters
        yield Family(BROKERS, _by_cluster(in_cluster, in_cluster))
        yield Family(MASTERS, _by_cluster(Counter(cluster for cluster, _name in masters), in_cluster))
        yield Family(WITHOUT_MASTER, _by_cluster(Counter(cluster for cluster, _name in slaves_only), in_cluster))
        yield Family(HEARTBEAT_AGE, (((one.cluster, one.name, str(one.broker_id), one.address), one.age_ms / 1000)
                                     for one in brokers))
        yield Family(TOPICS, [((), routes.topic_count())])
        yield Family(CONNECTIONS, [((), len(controller.remoting_server.io.channels))])
        yield Family(WAITING, [((), controller.requests_waiting())])
        departed = Counter(one.cluster for one in routes.departed_brokers())
        yield Family(DEPARTED, _by_cluster(departed, in_cluster | departed))
        if controller.controller_manager is not None:
            from rmqha.controller.metrics.controller_metrics import ControllerMetrics  # most have no controller

            yield from ControllerMetrics(controller.controller_manager).families(pace)

    def why_not_healthy(self) -> list[str]:
        """Its port's thread has ended."""
        controller = self._controller
        if controller.failure is not None:
            return [controller.failure]
        if controller.is_started and not controller.remoting_server.io.is_alive():
            return ["the thread of its port has ended"]
        return []

    def why_not_ready(self) -> list[str]:
        """It is not up yet, or not healthy."""
        return self.why_not_healthy() if self._controller.is_started else ["it is starting, or going down"]


def _by_cluster(counts: "Counter[str]", clusters: "Counter[str]") -> list[Sample]:
    return [((cluster,), counts[cluster]) for cluster in clusters]
