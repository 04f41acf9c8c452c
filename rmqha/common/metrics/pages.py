"""The pages of a metrics port: /metrics, /healthz, /readyz."""
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rmqha.common.metrics import exposition
from rmqha.common.metrics.metric import GAUGE, Family, Metric
from rmqha.common.metrics.pace import Pace

TIME_LIMIT_S = 8.0  # for one answer; Prometheus by default waits 10 s
_SCRAPES_AT_ONCE = 2
_TEXT = "text/plain; charset=utf-8"
_INDEX = b"/metrics  numbers for Prometheus\n/healthz  200 as long as the process serves\n" \
         b"/readyz   200 when clients can work with it, otherwise 503 and the reasons\n"

HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
SCRAPE_INCOMPLETE = Metric("rmqha_scrape_incomplete", GAUGE, (),
                           "1 when this answer lacks metrics: the time was out, or one could not be told (see the log)")
SCRAPE_SECONDS = Metric("rmqha_scrape_seconds", GAUGE, (), "Time that this answer took to make")
OF_EACH_ANSWER = (SCRAPE_INCOMPLETE, SCRAPE_SECONDS)


class Page(NamedTuple):
    """An answer."""

    status: int
    content_type: str
    body: list[bytes]


class Subject:
    """Whose pages they are: override all three. They are called by several threads at once."""

    def families(self, pace: Pace) -> Iterable[Family]:
        """The metrics, the most important ones first; `pace` is to be told of long work."""
        raise NotImplementedError

    def why_not_healthy(self) -> list[str]:
        """What is broken for good, so that only a new process helps; empty as a rule."""
        raise NotImplementedError

    def why_not_ready(self) -> list[str]:
        """Why clients can't work with it now; empty when they can."""
        raise NotImplementedError


class Pages:
    """The pages of one subject."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._free_scrapes = threading.BoundedSemaphore(_SCRAPES_AT_ONCE)
        self.is_stopped = False  # an answer that is being made ends early
        self._by_path: dict[str, Callable[[], Page]] = {
            "/": lambda: Page(200, _TEXT, [_INDEX]), "/metrics": self._metrics,
            "/healthz": lambda: _verdict(self._subject.why_not_healthy()),
            "/readyz": lambda: _verdict(self._subject.why_not_ready())}

    def page(self, path: str) -> Page:
        """The page at a path; 404 for others."""
        make = self._by_path.get(path.partition("?")[0])
        return make() if make is not None else Page(404, _TEXT, [b"there are:\n", _INDEX])

    def _metrics(self) -> Page:
        if not self._free_scrapes.acquire(blocking=False):
            return Page(503, _TEXT, [b"%d others ask at this moment\n" % _SCRAPES_AT_ONCE])
        try:
            begin = time.monotonic()
            pace = Pace(TIME_LIMIT_S, lambda: self.is_stopped)
            body, is_whole = exposition.encode_all(self._subject.families(pace), pace)
            of_answer = (Family(SCRAPE_INCOMPLETE, [((), 0 if is_whole else 1)]),
                         Family(SCRAPE_SECONDS, [((), time.monotonic() - begin)]))
            body += exposition.encode(of_answer, Pace(TIME_LIMIT_S))
            body.append(exposition.process_metrics())
            return Page(200, exposition.CONTENT_TYPE, body)
        finally:
            self._free_scrapes.release()


def _verdict(reasons: list[str]) -> Page:
    text = "".join(f"{reason}\n" for reason in reasons) or "ok\n"
    return Page(503 if reasons else 200, _TEXT, [text.encode()])
