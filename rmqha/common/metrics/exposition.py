"""Metrics as Prometheus reads them, by prometheus-client (the extra `metrics`)."""
import importlib.util
import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from rmqha.common.extras import how_to_install
from rmqha.common.metrics.metric import COUNTER, HISTOGRAM, Family, Metric
from rmqha.common.metrics.pace import STEPS, OutOfTimeError, Pace
from rmqha.common.stats.latency_histogram import Distribution

if TYPE_CHECKING:
    from prometheus_client.core import Metric as ClientMetric

log = logging.getLogger("RocketmqCommon")

CONFIG_KEY = "metricsPort"
HOW_TO_INSTALL = f"metrics need prometheus-client: {how_to_install('metrics')}"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_HEADER_LINES = 2  # HELP and TYPE
_TOTAL = "_total"


def check_available(port: int, bad_key: Callable[[str, str], object]) -> None:
    """`bad_key(key, what to install)` when a server is to have a metrics port without the library."""
    if port and not is_available():
        bad_key(CONFIG_KEY, HOW_TO_INSTALL)


def is_available() -> bool:
    """Whether prometheus-client is installed."""
    return importlib.util.find_spec("prometheus_client") is not None


def encode(families: Iterable[Family], pace: Pace) -> Iterator[bytes]:
    """The text of `families`, piece by piece. OutOfTimeError at the pace's end.

    prometheus-client alone would make a family's text in one go: with ten thousand topics all other threads would wait.
    """
    for family in families:
        samples, is_first = iter(family.samples), True
        while piece := list(islice(_paced(samples, pace), STEPS)):
            yield _encode(family.metric, piece, is_first)
            is_first = False
        if is_first:
            yield _encode(family.metric, [], True)


def encode_all(families: Iterable[Family], pace: Pace) -> tuple[list[bytes], bool]:
    """The text of `families`, and whether it is all of it: time may be out, or one of them fail, which is logged."""
    pieces: list[bytes] = []
    is_whole = True
    for family in families:
        try:
            pieces += encode([family], pace)
        except OutOfTimeError:
            log.warning("metrics: no time for %s and what comes behind it", family.metric.name)
            return pieces, False
        except Exception:
            log.exception("metrics: %s can't be told", family.metric.name)
            is_whole = False
    return pieces, is_whole


def process_metrics() -> bytes:
    """What prometheus-client itself knows of this process: memory, CPU time, descriptors, garbage collections."""
    from prometheus_client import GCCollector, ProcessCollector, generate_latest
    from prometheus_client.registry import CollectorRegistry

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return bytes(generate_latest(registry))


def _paced(samples: Iterator[Any], pace: Pace) -> Iterator[Any]:
    for sample in samples:
        pace.step()
        yield sample


def _encode(metric: Metric, samples: list[Any], with_header: bool) -> bytes:
    from prometheus_client import generate_latest

    text = bytes(generate_latest(_Holder(_client_metric(metric, samples))))  # asks a registry for nothing else
    return text if with_header else text.split(b"\n", _HEADER_LINES)[_HEADER_LINES]


class _Holder:
    """One metric in a registry's place."""

    def __init__(self, metric: "ClientMetric") -> None:
        self._metric = metric

    def collect(self) -> "Iterator[ClientMetric]":
        yield self._metric


def _client_metric(metric: Metric, samples: list[Any]) -> "ClientMetric":
    from prometheus_client.core import Metric as ClientMetric

    name = metric.name.removesuffix(_TOTAL) if metric.kind is COUNTER else metric.name
    made = ClientMetric(name, metric.meaning, metric.kind)
    for values, value in samples:
        labels = dict(zip(metric.labels, values, strict=True))
        if metric.kind is HISTOGRAM:
            _add_distribution(made, metric.name, labels, value)
        else:
            made.add_sample(metric.name, labels, value)
    return made


def _add_distribution(made: "ClientMetric", name: str, labels: dict[str, str], value: Distribution) -> None:
    passed = 0
    for bound, count in zip((*map(str, value.bounds_s), "+Inf"), value.counts, strict=True):
        passed += count
        made.add_sample(f"{name}_bucket", {**labels, "le": bound}, passed)
    made.add_sample(f"{name}_count", labels, passed)
    made.add_sample(f"{name}_sum", labels, value.sum_s)
