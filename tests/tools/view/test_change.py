"""Rates, growth, lines and the memory of them: no server."""
from dataclasses import fields, replace

import pytest

from rmqha.common.units import bytes_text, count_text, percent_text, span_text
from rmqha.tools.check_base import Status
from rmqha.tools.replication.views import Fault
from rmqha.tools.view.snapshot import (
    BEHIND,
    CLUSTER,
    IN,
    LAG,
    BrokerRates,
    GroupRates,
    History,
    broker_rates,
    group_rates,
    picture,
    rate,
    seconds_to_go,
    sparkline,
)
from rmqha.tools.view.texts import overview
from tests.tools.view.pictures import MASTER, SLAVE, group, place, snapshot


@pytest.mark.parametrize(("before", "after", "seconds", "wanted"), [
    (100, 150, 2.0, 25.0), (100, 100, 2.0, 0.0), (100, 50, 2.0, None), (-1, 50, 2.0, None), (1, 2, 0.0, None)])
def test_a_rate_is_known_while_a_counter_only_grows(before, after, seconds, wanted):
    assert rate(before, after, seconds) == wanted


def test_brokers_have_rates_by_address():
    now = replace(MASTER, put_total=160, get_total=100, max_offset=8_000)
    rates = broker_rates(snapshot(10.0), snapshot(12.0, (now, SLAVE)))
    assert rates[MASTER.address] == BrokerRates(30.0, 30.0, 1500.0)
    assert rates[SLAVE.address] == BrokerRates(0.0, 0.0, 0.0)


def test_a_broker_that_has_restarted_or_is_away_has_no_rates():
    restarted = replace(MASTER, boot_ms=2, put_total=5)
    assert broker_rates(snapshot(10.0), snapshot(12.0, (restarted,)))[MASTER.address] == BrokerRates()
    away = replace(MASTER, error="no answer")
    assert broker_rates(snapshot(10.0), snapshot(12.0, (away,))) == {}
    assert broker_rates(snapshot(10.0, (away,)), snapshot(12.0)).get(MASTER.address) is None


def test_what_slaves_copy_is_not_sent_to_the_cluster():
    after = [replace(MASTER, put_total=120), replace(SLAVE, put_total=120)]
    assert picture(snapshot(12.0, after), snapshot(10.0), None).in_msgs == 10.0


def test_groups_have_rates_over_the_queues_that_they_had_before():
    before = snapshot(10.0, groups=[group("readers", place(0, 100, 90), place(1, 50, 50))])
    now = snapshot(15.0, groups=[group("readers", place(0, 150, 100), place(1, 55, 55), place(2, 1_000, 0)),
                                 group("new")])
    assert group_rates(before, now) == {"readers": GroupRates(3.0, 11.0, 8.0)}


def test_a_group_whose_offsets_were_set_back_has_no_speed():
    before, now = group("readers", place(0, 100, 90)), group("readers", place(0, 100, 10))
    rates = group_rates(snapshot(10.0, groups=[before]), snapshot(15.0, groups=[now]))["readers"]
    assert rates.consumed is None and rates.growth == 16.0


def test_groups_that_were_not_asked_anew_have_no_rates():
    before = snapshot(10.0, groups=[group()], groups_at_s=9.0)
    assert group_rates(before, snapshot(12.0, groups=[group()], groups_at_s=9.0))["readers"] == GroupRates()


def test_a_backlog_is_gone_only_if_it_shrinks():
    assert seconds_to_go(100, -20.0) == 5.0
    assert seconds_to_go(0, None) == 0.0
    assert seconds_to_go(100, 1.0) is None and seconds_to_go(100, None) is None


def test_the_delay_is_that_of_the_queue_furthest_behind():
    now_ms = 100_000
    behind = group("readers", place(0, 10, 10, 1_000), place(1, 10, 5, 90_000), place(2, 10, 5, 60_000))
    assert behind.delay_ms(now_ms) == 40_000
    assert group("readers", place(0, 10, 10, 1_000)).delay_ms(now_ms) == 0
    assert group("readers", place(0, 10, 0, 0)).delay_ms(now_ms) is None


def test_a_queue_that_lost_its_end_is_not_ahead_of_itself():
    assert place(0, 5, 9).behind == 0


def test_a_sparkline_ends_at_the_right_and_has_gaps():
    assert sparkline([0, 1, 2, 4], 6) == "  ▁▃▅█"
    assert sparkline([None, 4.0, None], 3) == " █ "
    assert sparkline([1, 2, 3, 4, 5], 2) == "▇█"
    assert sparkline([0, 0], 2) == "▁▁"
    assert sparkline([], 3) == "   " and sparkline([1], 0) == ""


def test_a_sparkline_has_no_hill_below_its_least_top():
    assert sparkline([10.0], 1, top=1000.0) == "▂"


def test_a_history_forgets_old_points_and_silent_names():
    history = History(points=3, series=8)
    for second in range(5):
        history.add(picture(snapshot(float(second), groups=[group("first" if second < 4 else "second")]), None, None))
    assert [at_ms for at_ms, _value in history.line(LAG, SLAVE.address)] == [
        1_700_000_002_000, 1_700_000_003_000, 1_700_000_004_000]
    assert len(history) <= 8
    assert history.line(BEHIND, "first") == []  # the one that has been silent
    assert history.values(BEHIND, CLUSTER, 2) == [0, 0]
    assert history.line(IN, "nobody") == []


def test_many_groups_leave_room_for_those_furthest_behind():
    history = History(points=3, series=30)
    groups = [group(f"g{number}", place(0, number, 0)) for number in range(100)]
    history.add(picture(snapshot(groups=groups), None, None))
    assert history.line(BEHIND, "g99") and not history.line(BEHIND, "g0")
    assert history.line(IN, MASTER.address)


def test_the_json_says_all_that_is_seen():
    now = snapshot(12.0, groups=[group("readers", place(0, 10, 4))], name_servers=(("ns:9876", "gone"),),
                   faults=(Fault(Status.CRITICAL, "a fault"),), groups_errors=("slow",))
    told = overview(picture(now, snapshot(10.0), None))
    assert told["behind"] == 6 and told["groups"][0]["behind"] == 6
    assert told["replication"][0]["slaves"][0]["lag_bytes"] == 1_000
    assert told["name_servers"] == [{"address": "ns:9876", "error": "gone"}]
    assert told["faults"] == [{"status": "CRITICAL", "text": "a fault"}, {"status": "WARNING", "text": "slow"}]
    assert {each.name for each in fields(MASTER)} < told["brokers"][0].keys()
    assert told["brokers"][0]["segments"] == 1 and told["brokers"][0]["in_msgs_per_s"] == 0.0


@pytest.mark.parametrize(("size", "low", "high", "wanted"), [
    (100, 0, 0, 0), (100, 0, 100, 1), (100, 0, 101, 2), (100, 150, 450, 4), (100, 100, 200, 1)])
def test_the_files_of_a_log_are_counted(size, low, high, wanted):
    assert replace(MASTER, file_size=size, min_offset=low, max_offset=high).segments == wanted


@pytest.mark.parametrize(("value", "wanted"), [
    (None, "-"), (0, "0"), (0.5, "0.5"), (12, "12"), (1234, "1,234"), (9999.7, "10.0k"), (12_345, "12.3k"),
    (4_560_000, "4.56M"), (-3, "-3"), (123_456_789, "123M")])
def test_counts_are_short(value, wanted):
    assert count_text(value) == wanted


def test_sizes_parts_and_times_are_short():
    assert (bytes_text(None), bytes_text(1536)) == ("-", "1.5 KiB")
    assert (percent_text(0.174), percent_text(None)) == ("17 %", "-")
    assert [span_text(seconds) for seconds in (None, 0, 0.42, 12, 600, 7_300, 200_000)] == [
        "-", "0", "0.4 s", "12 s", "10 min", "2 h", "2 d"]
