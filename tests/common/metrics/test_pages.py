"""The pages of a metrics port, without the port."""
import threading

from rmqha.common.metrics import GAUGE, Family, Metric, Pages, Subject

ONE = Metric("one", GAUGE, (), "One")


class _Subject(Subject):
    def __init__(self) -> None:
        self.healthy: list[str] = []
        self.ready: list[str] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.asked = threading.Semaphore(0)

    def families(self, pace):
        self.asked.release()
        assert self.may_go_on.wait(240)
        yield Family(ONE, [((), 1)])

    def why_not_healthy(self):
        return self.healthy

    def why_not_ready(self):
        return self.ready


def _text(page):
    return b"".join(page.body).decode()


def test_verdicts():
    subject = _Subject()
    pages = Pages(subject)
    assert pages.page("/healthz")[0] == pages.page("/readyz")[0] == 200 and _text(pages.page("/readyz")) == "ok\n"
    subject.ready = ["no disk", "no slave"]
    assert pages.page("/readyz").status == 503 and _text(pages.page("/readyz")) == "no disk\nno slave\n"
    assert pages.page("/healthz").status == 200
    subject.healthy = ["dead"]
    assert pages.page("/healthz").status == 503


def test_metrics_tell_how_the_answer_was_made():
    text = _text(Pages(_Subject()).page("/metrics?name=value"))
    assert "\none 1.0\n" in text and "\nrmqha_scrape_incomplete 0.0\n" in text and "\nrmqha_scrape_seconds " in text


def test_an_answer_that_lacks_something_says_so(caplog):
    subject = _Subject()
    subject.families = lambda pace: [Family(ONE, (1 / 0 for _ in "x"))]
    assert "\nrmqha_scrape_incomplete 1.0\n" in _text(Pages(subject).page("/metrics"))
    assert "ZeroDivisionError" in caplog.text


def test_other_paths_name_what_there_is():
    page = Pages(_Subject()).page("/metrix")
    assert page.status == 404 and "/metrics" in _text(page) and Pages(_Subject()).page("/").status == 200


def test_a_third_scrape_at_a_time_is_refused():
    subject = _Subject()
    pages, statuses = Pages(subject), []
    subject.may_go_on.clear()
    threads = [threading.Thread(target=lambda: statuses.append(pages.page("/metrics").status)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert subject.asked.acquire(timeout=600)
    assert pages.page("/metrics").status == 503 and pages.page("/healthz").status == 200
    subject.may_go_on.set()
    for thread in threads:
        thread.join(240)
    assert statuses == [200, 200] and pages.page("/metrics").status == 200
