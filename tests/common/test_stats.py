"""Counters and their windows."""
import logging
import threading

import pytest

from rmqha.common import stats
from rmqha.common.stats import MomentStatsItemSet, StatsItemSet
from rmqha.common.threads import ScheduledService
from rmqha.store.broker_stats_manager import BrokerStatsManager
from tests.support.wait import wait_until

LOG = logging.getLogger("RocketmqStats")


@pytest.fixture
def clock(monkeypatch):
    """A monotonic clock, in ms, that the test moves."""
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


def test_unknown_key_is_all_zero():
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


def test_keys_beyond_the_greatest_number_are_not_kept(monkeypatch):
    monkeypatch.setattr("rmqha.common.stats.MAX_KEYS", 3)
    monkeypatch.setattr("rmqha.common.stats.MAX_KEYS", 3)
    counts, moments = StatsItemSet("N", logging.getLogger("n")), MomentStatsItemSet("M", logging.getLogger("n"))
    for key in ("a", "b", "c", "d", "a"):
        counts.add_value(key, 1, 1)
        counts.add_rt_value(key, 1, 1)
        moments.set_value(key, 7)
    assert counts.get_stats_item("d") is None and counts.get_stats_item("a").value == 4
    assert set(moments.stats_item_table) == {"a", "b", "c"}


def test_no_count_is_lost_among_threads():
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


def test_log_lines_have_the_originals_texts(caplog):
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


def test_broker_counts_under_the_originals_keys():
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


def test_topic_is_forgotten_without_queue_statistics_too():
    manager = BrokerStatsManager("cluster", False)
    manager.inc_queue_put_nums("T", 1)
    manager.inc_topic_put_nums("T")
    manager.inc_group_get_latency("G", "T", 1, 5)
    assert manager.get_stats_item("GROUP_GET_LATENCY", "T@G").value == 5
    manager.on_topic_deleted("T")
    assert manager.get_stats_item("TOPIC_PUT_NUMS", "T") is None
    assert manager.get_stats_item("QUEUE_PUT_NUMS", "T@1") is None and manager.get_stats_item("NO", "T") is None
