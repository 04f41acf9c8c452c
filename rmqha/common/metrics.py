"""The metrics and health pages of a server: /metrics, /healthz and /readyz, and the pages about its role.

- `Metric`, `Family`: a metric, and its samples.
- `Pace`: lets other threads run while a long answer is produced, and limits its time.
- `encode`, `encode_all`: the text format of Prometheus, by prometheus-client (the extra `metrics`).
- `Subject`, `Pages`: the server that provides the metrics and health, and the pages of its metrics port.

Only /metrics needs prometheus-client.
"""
import importlib.util
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rmqha.common.filesystem import how_to_install
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.stats import Distribution

if TYPE_CHECKING:
    from prometheus_client.core import Metric as ClientMetric


GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"

T = TypeVar("T")
Sample = tuple[tuple[str, ...], float | Distribution]
"""The values of the labels, in the order of the metric's `labels`, and the sample; a Distribution for a histogram."""


class MetricsNames(Enum):
    """The naming scheme of a broker's metrics, in addition to rmqha's own names."""

    exporter = "exporter"
    otel = "otel"
    both = "both"


class Metric(NamedTuple):
    """The name, kind, labels and meaning of a metric. A counter's name ends with `_total`."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


class Family(NamedTuple):
    """A metric and its samples, which may be produced while they are read."""

    metric: Metric
    samples: Iterable[Sample]


class Memo(Generic[T]):
    """An iterable that can be iterated over several times. It reads its source once, and only as far as needed."""

    def __init__(self, source: Iterable[T]) -> None:
        self._source = iter(source)
        self._seen: list[T] = []

    def __iter__(self) -> Iterator[T]:
        at = 0
        while True:
            while at < len(self._seen):
                yield self._seen[at]
                at += 1
            try:
                self._seen.append(next(self._source))
            except StopIteration:
                return


# Steps of work between two pauses, about a millisecond's.
STEPS = 200
_LET_IN_S = 0.0002


class OutOfTimeError(Exception):
    """The time for an answer is used up, or the server is shutting down."""


class Pace:
    """Counts steps of work. After every STEPS it lets other threads run, and checks the time.

    OutOfTimeError once `limit_s` have passed, or when `is_stopped` returns true.
    """

    def __init__(self, limit_s: float, is_stopped: Callable[[], bool] = lambda: False) -> None:
        self._ends = time.monotonic() + limit_s
        self._is_stopped = is_stopped
        self._left = STEPS

    def step(self) -> None:
        """Count one step."""
        self._left -= 1
        if self._left <= 0:
            self._left = STEPS
            time.sleep(_LET_IN_S)
            if self._is_stopped() or time.monotonic() > self._ends:
                raise OutOfTimeError


log = logging.getLogger("RocketmqCommon")

CONFIG_KEY = "metricsPort"
HOW_TO_INSTALL = f"metrics need prometheus-client: {how_to_install('metrics')}"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_HEADER_LINES = 2  # HELP and TYPE
_TOTAL = "_total"


def is_available() -> bool:
    """Return whether prometheus-client is installed."""
    return importlib.util.find_spec("prometheus_client") is not None


def encode(families: Iterable[Family], pace: Pace) -> Iterator[bytes]:
    """Yield the text of `families`, piece by piece. OutOfTimeError when the pace runs out of time.

    prometheus-client alone would produce a family's text in one go: with ten thousand topics all other threads would
    wait for it.
    """
    for family in families:
        samples, is_first = iter(family.samples), True
        while piece := list(islice(_paced(samples, pace), STEPS)):
            yield _encode(family.metric, piece, is_first)
            is_first = False
        if is_first:
            yield _encode(family.metric, [], True)


def encode_all(families: Iterable[Family], pace: Pace) -> tuple[list[bytes], bool]:
    """Return the text of `families`, and whether it is complete.

    It is incomplete when the time runs out or a family fails; both are logged.
    """
    pieces: list[bytes] = []
    is_whole = True
    for family in families:
        try:
            pieces += encode([family], pace)
        except OutOfTimeError:
            log.warning("metrics: out of time at %s; it and all later metrics are missing", family.metric.name)
            return pieces, False
        except Exception:
            log.exception("metrics: cannot report %s", family.metric.name)
            is_whole = False
    return pieces, is_whole


def process_metrics() -> bytes:
    """Return the metrics that prometheus-client has of this process: memory, CPU, descriptors, garbage collections."""
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

    # generate_latest calls nothing but `collect` on its registry.
    text = bytes(generate_latest(_Holder(_client_metric(metric, samples))))
    return text if with_header else text.split(b"\n", _HEADER_LINES)[_HEADER_LINES]


class _Holder:
    """A single metric in place of a registry."""

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


# For one answer. Prometheus waits 10 s by default.
TIME_LIMIT_S = 8.0
_SCRAPES_AT_ONCE = 2
_TEXT, _JSON = "text/plain; charset=utf-8", "application/json"
_INDEX = (("/metrics", "numbers for Prometheus"), ("/healthz", "200 as long as the process serves"),
          ("/readyz", "200 when clients can work with it, otherwise 503 and the reasons"))

HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
SCRAPE_INCOMPLETE = Metric("rmqha_scrape_incomplete", GAUGE, (),
                           "1 when this answer lacks metrics: it ran out of time, or a metric failed (see the log)")
SCRAPE_SECONDS = Metric("rmqha_scrape_seconds", GAUGE, (), "Time that it took to produce this answer")
OF_EACH_ANSWER = (SCRAPE_INCOMPLETE, SCRAPE_SECONDS)


class Page(NamedTuple):
    """An answer to a request for a page."""

    status: int
    content_type: str
    body: list[bytes]


def role_page(status: int, fields: Mapping[str, object]) -> Page:
    """Return the answer of a page about a role: a JSON object on one line."""
    return Page(status, _JSON, [json.dumps(fields).encode() + b"\n"])


class RolePage(NamedTuple):
    """A page about a server's role.

    `make` returns the answer to a query string. It only reads attributes, and waits for no lock and no disk. `meaning`
    is for the list of the pages.
    """

    make: Callable[[str], Page]
    meaning: str


class Subject:
    """The server that the pages are about. Override the first three methods; several threads may call them at once."""

    def families(self, pace: Pace) -> Iterable[Family]:
        """Return the metrics, the most important ones first. Long work calls `pace.step`."""
        raise NotImplementedError

    def why_not_healthy(self) -> list[str]:
        """Return what is permanently broken, so that only a restart helps; usually empty."""
        raise NotImplementedError

    def why_not_ready(self) -> list[str]:
        """Return the reasons why clients cannot use the server now; empty when they can."""
        raise NotImplementedError

    def role_pages(self) -> Mapping[str, RolePage]:
        """Return the pages about its role, by path. Called once."""
        return {}


class Pages:
    """The pages of one subject."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._free_scrapes = threading.BoundedSemaphore(_SCRAPES_AT_ONCE)
        # Once set, an answer in progress ends early.
        self.is_stopped = False
        role_pages = subject.role_pages()
        self._by_path: dict[str, Callable[[str], Page]] = {
            "/": lambda _query: Page(200, _TEXT, [self._index]), "/metrics": lambda _query: self._metrics(),
            "/healthz": lambda _query: _verdict(subject.why_not_healthy()),
            "/readyz": lambda _query: _verdict(subject.why_not_ready()),
            **{path: page.make for path, page in role_pages.items()}}
        # Pages that are quick to generate, and needed even when the server is busy.
        self.health_paths = HEALTH_PATHS.union(role_pages)
        lines = (*_INDEX, *((path, page.meaning) for path, page in role_pages.items()))
        self._index = "".join(f"{path:<9} {meaning}\n" for path, meaning in lines).encode()

    def page(self, target: str) -> Page:
        """Return the page at a path, which a query may follow; a 404 page for an unknown path."""
        path, _mark, query = target.partition("?")
        make = self._by_path.get(path)
        return make(query) if make is not None else Page(404, _TEXT, [b"there are:\n", self._index])

    def _metrics(self) -> Page:
        if not is_available():
            return Page(501, _TEXT, [f"{HOW_TO_INSTALL}\n".encode()])
        if not self._free_scrapes.acquire(blocking=False):
            return Page(503, _TEXT, [b"%d others ask at this moment\n" % _SCRAPES_AT_ONCE])
        try:
            begin = time.monotonic()
            pace = Pace(TIME_LIMIT_S, lambda: self.is_stopped)
            body, is_whole = encode_all(self._subject.families(pace), pace)
            of_answer = (Family(SCRAPE_INCOMPLETE, [((), 0 if is_whole else 1)]),
                         Family(SCRAPE_SECONDS, [((), time.monotonic() - begin)]))
            body += encode(of_answer, Pace(TIME_LIMIT_S))
            body.append(process_metrics())
            return Page(200, CONTENT_TYPE, body)
        finally:
            self._free_scrapes.release()


def _verdict(reasons: list[str]) -> Page:
    text = "".join(f"{reason}\n" for reason in reasons) or "ok\n"
    return Page(503 if reasons else 200, _TEXT, [text.encode()])
