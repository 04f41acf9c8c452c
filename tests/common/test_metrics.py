"""Counters and their windows, the text format of metrics, and the pages of a metrics port."""
import logging
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rmqha.common import metrics, stats
from rmqha.common.metrics import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    STEPS,
    Family,
    Memo,
    Metric,
    OutOfTimeError,
    Pace,
    Pages,
    Subject,
)
from rmqha.common.stats import LatencyHistogram, MomentStatsItemSet, StatsItemSet
from rmqha.common.threads import ScheduledService
from rmqha.store.broker_stats_manager import BrokerStatsManager
from tests.support.wait import wait_until

# Metrics are written as the library writes them, but in pieces.

SIZES = Metric("sizes", GAUGE, ("topic",), "Bytes\nof it")


def _parsed(pieces):
    return list(text_string_to_metric_families(b"".join(pieces).decode()))


def test_family_of_many_pieces_has_one_header():
    count = STEPS * 3 + 1
    pieces = list(metrics.encode([Family(SIZES, (((f"t{n}",), n) for n in range(count)))], Pace(60)))
    assert len(pieces) == 4 and b"".join(pieces).count(b"# TYPE") == 1
    (family,) = _parsed(pieces)
    assert family.name == "sizes" and family.type == "gauge" and len(family.samples) == count
    assert [sample.value for sample in family.samples] == list(range(count))


def test_label_values_that_need_escaping_are_read_back():
    topic = 'a"b\\c\nd'
    (family,) = _parsed(metrics.encode([Family(SIZES, [((topic,), 1)])], Pace(60)))
    assert family.samples[0].labels == {"topic": topic}


def test_counters_and_empty_families():
    counter = Metric("things_total", COUNTER, (), "Things")
    things, empty = _parsed(metrics.encode([Family(counter, [((), 7)]), Family(SIZES, [])], Pace(60)))
    assert things.type == "counter" and things.samples[0].name == "things_total" and things.samples[0].value == 7
    assert empty.name == "sizes" and not empty.samples


def test_buckets_are_cumulative():
    times = LatencyHistogram((.001, .01))
    for elapsed_ns in (500_000, 1_000_000, 2_000_000, 5_000_000_000):
        times.note(elapsed_ns)
    took = Metric("took_seconds", HISTOGRAM, ("what",), "Time")
    (family,) = _parsed(metrics.encode([Family(took, [(("x",), times.distribution())])], Pace(60)))
    values = {(sample.name, sample.labels.get("le")): sample.value for sample in family.samples}
    assert values == {("took_seconds_bucket", "0.001"): 2, ("took_seconds_bucket", "0.01"): 3,
                      ("took_seconds_bucket", "+Inf"): 4, ("took_seconds_count", None): 4,
                      ("took_seconds_sum", None): pytest.approx(5.0035)}


def test_wrong_number_of_labels_is_an_error():
    with pytest.raises(ValueError):
        list(metrics.encode([Family(SIZES, [((), 1)])], Pace(60)))


def test_failing_family_is_left_out_and_reported(caplog):
    def broken():
        yield ("a",), 1
        raise RuntimeError("planted")

    other = Metric("other", GAUGE, (), "Other")
    pieces, is_whole = metrics.encode_all([Family(SIZES, broken()), Family(other, [((), 1)])], Pace(60))
    assert not is_whole and [family.name for family in _parsed(pieces)][-1] == "other"
    assert "cannot report sizes" in caplog.text


def test_deadline_returns_the_finished_part(caplog):
    def endless():
        while True:
            yield ("a",), 1

    other = Metric("other", GAUGE, (), "Other")
    pace = Pace(0.05)
    pieces, is_whole = metrics.encode_all([Family(other, [((), 1)]), Family(SIZES, endless())], pace)
    assert not is_whole and _parsed(pieces)[0].name == "other"
    assert "out of time at sizes" in caplog.text


def test_pace_ends_on_stop():
    is_stopped = threading.Event()
    pace = Pace(60, is_stopped.is_set)
    for _ in range(STEPS * 2):
        pace.step()
    is_stopped.set()
    with pytest.raises(OutOfTimeError):
        for _ in range(STEPS):
            pace.step()


def test_memo_computes_each_value_once():
    made = []

    def source():
        for number in range(3):
            made.append(number)
            yield number

    memo = Memo(source())
    assert made == []
    first = iter(memo)
    assert next(first) == 0 and made == [0]
    assert list(memo) == [0, 1, 2] and list(first) == [1, 2] and made == [0, 1, 2]


def test_process_metrics_are_exposed():
    names = {family.name for family in _parsed([metrics.process_metrics()])}
    assert {"process_resident_memory_bytes", "process_cpu_seconds", "process_open_fds"} <= names


# The pages of a metrics port, without the port.

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


def test_health_and_readiness_answers():
    subject = _Subject()
    pages = Pages(subject)
    assert pages.page("/healthz")[0] == pages.page("/readyz")[0] == 200 and _text(pages.page("/readyz")) == "ok\n"
    subject.ready = ["no disk", "no slave"]
    assert pages.page("/readyz").status == 503 and _text(pages.page("/readyz")) == "no disk\nno slave\n"
    assert pages.page("/healthz").status == 200
    subject.healthy = ["dead"]
    assert pages.page("/healthz").status == 503


def test_metrics_include_the_duration_of_the_scrape():
    text = _text(Pages(_Subject()).page("/metrics?name=value"))
    assert "\none 1.0\n" in text and "\nrmqha_scrape_incomplete 0.0\n" in text and "\nrmqha_scrape_seconds " in text


def test_incomplete_answer_is_marked(caplog):
    subject = _Subject()
    subject.families = lambda pace: [Family(ONE, (1 / 0 for _ in "x"))]
    assert "\nrmqha_scrape_incomplete 1.0\n" in _text(Pages(subject).page("/metrics"))
    assert "ZeroDivisionError" in caplog.text


def test_other_paths_list_the_available_pages():
    page = Pages(_Subject()).page("/metrix")
    assert page.status == 404 and "/metrics" in _text(page) and Pages(_Subject()).page("/").status == 200


def test_third_concurrent_scrape_is_refused():
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


# Counters and their windows.

LOG = logging.getLogger("RocketmqStats")


@pytest.fixture
def clock(monkeypatch):
    """A monotonic clock, in ms, that the test sets."""
    now = [1_000_000]
    monkeypatch.setattr(stats.time, "monotonic_ns", lambda: now[0] * 1_000_000)
    return now


def test_minute_is_the_difference_of_its_first_and_last_sample(clock):
    items = StatsItemSet("NUMS", LOG)
    for _ in range(10):
        items.add_value("key", 20, 2)
        items.get_stats_item("key").sampling_in_seconds()
        clock[0] += 10_000
    snapshot = items.get_stats_data_in_minute("key")
    assert (snapshot.sum, snapshot.times, snapshot.avgpt) == (120, 12, 10.0)
    assert snapshot.tps == pytest.approx(2.0)


def test_first_sample_counts_from_zero(clock):
    items = StatsItemSet("NUMS", LOG)
    items.add_value("key", 100, 1)
    item = items.get_stats_item("key")
    item.sampling_in_seconds()
    item.sampling_in_minutes()
    item.sampling_in_hour()
    assert items.get_stats_data_in_minute("key").tps == pytest.approx(10.0)
    assert items.get_stats_data_in_hour("key").tps == pytest.approx(100 / 600)
    assert items.get_stats_data_in_day("key").tps == pytest.approx(100 / 3600)


def test_unknown_key_has_zero_values():
    items = StatsItemSet("NUMS", LOG)
    assert items.get_stats_data_in_day("key").sum == 0 and items.get_stats_item("key") is None


def test_keys_are_forgotten_by_their_parts():
    items = StatsItemSet("NUMS", LOG)
    for key in ("topic@group", "topic2@group", "0@topic@group", "0@other@group2"):
        items.add_value(key, 1, 1)
    items.del_value_by_prefix_key("topic", "@")
    assert items.get_stats_item("topic@group") is None and items.get_stats_item("topic2@group") is not None
    items.del_value_by_infix_key("topic", "@")
    assert items.get_stats_item("0@topic@group") is None
    items.del_value_by_suffix_key("group2", "@")
    assert items.get_stats_item("0@other@group2") is None


def test_number_of_keys_is_limited(monkeypatch):
    monkeypatch.setattr("rmqha.common.stats.MAX_KEYS", 3)
    monkeypatch.setattr("rmqha.common.stats.MAX_KEYS", 3)
    counts, moments = StatsItemSet("N", logging.getLogger("n")), MomentStatsItemSet("M", logging.getLogger("n"))
    for key in ("a", "b", "c", "d", "a"):
        counts.add_value(key, 1, 1)
        counts.add_rt_value(key, 1, 1)
        moments.set_value(key, 7)
    assert counts.get_stats_item("d") is None and counts.get_stats_item("a").value == 4
    assert set(moments.stats_item_table) == {"a", "b", "c"}


def test_concurrent_counts_are_not_lost():
    items = StatsItemSet("NUMS", LOG)

    def count():
        for _ in range(5000):
            items.add_value("key", 1, 1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (items.get_stats_item("key").value, items.get_stats_item("key").times) == (20_000, 20_000)


def test_log_lines_equal_the_originals(caplog):
    caplog.set_level("INFO", "RocketmqStats")
    LOG.propagate = True
    items = StatsItemSet("NUMS", LOG)
    items.add_value("key", 3, 1)
    items.add_rt_value("times", 3, 1)
    items.get_stats_item("key").print_at_minutes()
    items.get_stats_item("key").print_at_hour()
    items.get_stats_item("times").print_at_day()
    moments = MomentStatsItemSet("FALL", LOG)
    moments.set_value("key", 9)
    moments.print_at_minutes()
    assert caplog.messages == [
        "[NUMS] [key] Stats In One Minute, SUM: 0 TPS: 0.00 AVGPT: 0.00",
        "[NUMS] [key] Stats In One Hour, SUM: 0 TPS: 0.00 AVGPT: 0.00",
        "[NUMS] [times] Stats In One Day, TIMES: 0 AVGRT: 0.00",
        "[FALL] [key] Stats Every 5 Minutes, Value: 9"]


def test_timer_samples_at_once():
    scheduler = ScheduledService("test")
    items = StatsItemSet("NUMS", LOG)
    items.add_value("key", 7, 1)
    items.init(scheduler)
    try:
        wait_until(lambda: items.get_stats_data_in_minute("key").sum == 7, 60_000, "the first sample")
    finally:
        scheduler.shutdown()


def test_broker_uses_the_originals_keys():
    manager = BrokerStatsManager("cluster", True)
    manager.inc_topic_put_nums("T", 3, 1)
    manager.inc_topic_put_size("T", 300)
    manager.inc_queue_put_nums("T", 1)
    manager.inc_queue_put_size("T", 1, 30)
    manager.inc_queue_get_nums("G", "T", 1, 2)
    manager.inc_queue_get_size("G", "T", 1, 20)
    manager.inc_group_get_nums("G", "T", 2)
    manager.inc_group_get_size("G", "T", 20)
    manager.inc_group_get_latency("G", "T", 1, 5)
    manager.inc_broker_put_nums(3)
    manager.inc_broker_get_nums(2)
    manager.inc_send_back_nums("G", "T")
    manager.record_disk_fall_behind_time("G", "T", 1, 6)
    expected = {
        ("TOPIC_PUT_NUMS", "T"): 3, ("TOPIC_PUT_SIZE", "T"): 300, ("QUEUE_PUT_NUMS", "T@1"): 1,
        ("QUEUE_PUT_SIZE", "T@1"): 30, ("QUEUE_GET_NUMS", "T@1@G"): 2, ("QUEUE_GET_SIZE", "T@1@G"): 20,
        ("GROUP_GET_NUMS", "T@G"): 2, ("GROUP_GET_SIZE", "T@G"): 20, ("GROUP_GET_LATENCY", "1@T@G"): 5,
        ("BROKER_PUT_NUMS", "cluster"): 3, ("BROKER_GET_NUMS", "cluster"): 2, ("SNDBCK_PUT_NUMS", "T@G"): 1}
    assert {key: manager.get_stats_item(*key).value for key in expected} == expected
    assert manager.moment_stats_item_set_fall_time.stats_item_table["1@T@G"].value == 6
    manager.on_topic_deleted("T")
    manager.on_group_deleted("G")
    gone = [key for key in expected if manager.get_stats_item(*key) is None]
    assert len(gone) == 10 and ("BROKER_PUT_NUMS", "cluster") not in gone
    assert not manager.moment_stats_item_set_fall_time.stats_item_table


def test_topic_is_forgotten_even_without_queue_statistics():
    manager = BrokerStatsManager("cluster", False)
    manager.inc_queue_put_nums("T", 1)
    manager.inc_topic_put_nums("T")
    manager.inc_group_get_latency("G", "T", 1, 5)
    assert manager.get_stats_item("GROUP_GET_LATENCY", "T@G").value == 5
    manager.on_topic_deleted("T")
    assert manager.get_stats_item("TOPIC_PUT_NUMS", "T") is None
    assert manager.get_stats_item("QUEUE_PUT_NUMS", "T@1") is None and manager.get_stats_item("NO", "T") is None
