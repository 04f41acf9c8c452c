"""A snapshot of a cluster and its changes, and `rmqha top` on it."""
import asyncio
import json
import sys
from contextlib import ExitStack
from dataclasses import fields, replace

import pytest
from click.testing import CliRunner

from rmqha.common.filesystem import how_to_install
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol.table_bodies import ConsumeStats, ConsumeStatsList, OffsetWrapper
from rmqha.common.units import bytes_text, count_text, percent_text, span_text
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.admin.cluster_admin import Broker
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.check_base import Status
from rmqha.tools.replication.ask import Told
from rmqha.tools.replication.views import Fault, MasterView, RefusedView, SlaveView
from rmqha.tools.rmqha_command import rmqha
from rmqha.tools.terminal import CannotAnswerError
from rmqha.tools.top.rows import Column, Row, Table, brokers, group_clients, group_queues, groups, topics, troubles
from rmqha.tools.view import snapshot as collector_module
from rmqha.tools.view.questions import (
    MAX_HEX_BYTES,
    ClientRow,
    GroupClients,
    Questions,
    TopicRow,
    ViewPoller,
    body_view,
    hex_dump,
)
from rmqha.tools.view.snapshot import (
    BEHIND,
    CLUSTER,
    IN,
    LAG,
    BrokerRates,
    Collector,
    GroupRates,
    History,
    Picture,
    all_faults,
    at_one_moment,
    broker_rates,
    broker_state,
    group_rates,
    group_states,
    picture,
    rate,
    seconds_to_go,
    snapshot_pair,
    sparkline,
)
from rmqha.tools.view.texts import overview
from tests.broker.support import running_broker
from tests.support import ports
from tests.support.in_process import running_name_server
from tests.support.wait import stays, wait_until
from tests.tools.pictures import MASTER, SLAVE, SLAVE_OF, group, place, snapshot

# Brokers' answers as a snapshot contains them, without servers.

BROKER = Broker("C", "broker-a", 0, "10.0.0.1:10911")


def test_broker_without_an_answer_has_the_reason():
    state = broker_state(Told(BROKER, error="no answer", alive=False))
    assert (state.error, state.address, state.put_total, state.disk_used) == ("no answer", BROKER.address, -1, None)


def test_runtime_table_is_parsed_and_invalid_values_are_unknown():
    state = broker_state(Told(BROKER, {"brokerRole": "SYNC_MASTER", "mappedFileSizeCommitLog": "1024",
                                       "diskMaxUsedSpaceRatio": "88"},
                              {"commitLogMinOffset": "-1", "commitLogMaxOffset": "2049", "msgPutTotalTodayNow": "7",
                               "msgGetTotalTodayNow": "many", "commitLogDiskRatio": "0.42",
                               "consumeQueueDiskRatio": "-1.0", "dispatchBehindBytes": "-5"}))
    assert (state.role, state.log_size, state.segments, state.put_total) == ("SYNC_MASTER", 2049, 3, 7)
    assert (state.get_total, state.disk_used, state.queue_disk_used) == (-1, 0.42, None)
    assert (state.disk_limit, state.dispatch_behind) == (0.88, 0)


def test_groups_of_all_brokers_are_merged_without_idle_system_groups():
    def told(broker, end, offset):
        stats = ConsumeStats({MessageQueue("T", broker, 0): OffsetWrapper(end, offset, 5)}, 1.5)
        return ConsumeStatsList([{"readers": [stats]}, {"TOOLS_CONSUMER": []}, {"CID_RMQ_SYS_X": []}, {"idle": []}])
    groups = group_states([told("broker-a", 10, 4), told("broker-b", 7, 7)])
    assert [(group.name, group.behind, group.tps) for group in groups] == [("idle", 0, 0), ("readers", 6, 3.0)]
    assert [place.broker for place in groups[1].places] == ["broker-a", "broker-b"]


def test_slave_queried_a_moment_after_its_master_does_not_lag():
    healthy = SlaveView("s:1", 1, state="TRANSFER", ack_offset=11, lag_bytes=-1, in_sync=False)
    ahead = SlaveView("s:2", 2, state="AHEAD", lag_bytes=-9, in_sync=False, status=Status.CRITICAL)
    state = at_one_moment(MasterView("C", "broker-a", "m:1", slaves=[healthy, ahead]))
    assert [(slave.lag_bytes, slave.in_sync) for slave in state.slaves] == [(0, True), (-9, False)]


def test_refused_slaves_and_a_silent_master_are_faults():
    view = MasterView("C", "broker-a", "m:1", refused=[RefusedView("s:9", 50, 0, 10)], error="it is silent")
    assert [(each.status, each.text[:12]) for each in all_faults(view)] == [
        (Status.CRITICAL, "s:9 is refus"), (Status.CRITICAL, "it is silent")]


# Rates, growth, sparklines and their history, without servers.


@pytest.mark.parametrize(("before", "after", "seconds", "wanted"), [
    (100, 150, 2.0, 25.0), (100, 100, 2.0, 0.0), (100, 50, 2.0, None), (-1, 50, 2.0, None), (1, 2, 0.0, None)])
def test_rate_is_known_only_while_a_counter_grows(before, after, seconds, wanted):
    assert rate(before, after, seconds) == wanted


def test_brokers_have_rates_by_address():
    now = replace(MASTER, put_total=160, get_total=100, max_offset=8_000)
    rates = broker_rates(snapshot(10.0), snapshot(12.0, (now, SLAVE)))
    assert rates[MASTER.address] == BrokerRates(30.0, 30.0, 1500.0)
    assert rates[SLAVE.address] == BrokerRates(0.0, 0.0, 0.0)


def test_restarted_or_unreachable_broker_has_no_rates():
    restarted = replace(MASTER, boot_ms=2, put_total=5)
    assert broker_rates(snapshot(10.0), snapshot(12.0, (restarted,)))[MASTER.address] == BrokerRates()
    away = replace(MASTER, error="no answer")
    assert broker_rates(snapshot(10.0), snapshot(12.0, (away,))) == {}
    assert broker_rates(snapshot(10.0, (away,)), snapshot(12.0)).get(MASTER.address) is None


def test_replicated_messages_are_not_counted_as_sent_to_the_cluster():
    after = [replace(MASTER, put_total=120), replace(SLAVE, put_total=120)]
    assert picture(snapshot(12.0, after), snapshot(10.0), None).in_msgs == 10.0


def test_rates_of_groups_cover_only_queues_present_in_both_snapshots():
    before = snapshot(10.0, groups=[group("readers", place(0, 100, 90), place(1, 50, 50))])
    now = snapshot(15.0, groups=[group("readers", place(0, 150, 100), place(1, 55, 55), place(2, 1_000, 0)),
                                 group("new")])
    assert group_rates(before, now) == {"readers": GroupRates(3.0, 11.0, 8.0)}


def test_group_whose_offsets_were_reset_has_no_speed():
    before, now = group("readers", place(0, 100, 90)), group("readers", place(0, 100, 10))
    rates = group_rates(snapshot(10.0, groups=[before]), snapshot(15.0, groups=[now]))["readers"]
    assert rates.consumed is None and rates.growth == 16.0


def test_groups_that_were_not_queried_again_have_no_rates():
    before = snapshot(10.0, groups=[group()], groups_at_s=9.0)
    assert group_rates(before, snapshot(12.0, groups=[group()], groups_at_s=9.0))["readers"] == GroupRates()


def test_time_to_drain_is_known_only_for_a_shrinking_backlog():
    assert seconds_to_go(100, -20.0) == 5.0
    assert seconds_to_go(0, None) == 0.0
    assert seconds_to_go(100, 1.0) is None and seconds_to_go(100, None) is None


def test_delay_is_the_largest_of_all_queues_with_a_backlog():
    now_ms = 100_000
    behind = group("readers", place(0, 10, 10, 1_000), place(1, 10, 5, 90_000), place(2, 10, 5, 60_000))
    assert behind.delay_ms(now_ms) == 40_000
    assert group("readers", place(0, 10, 10, 1_000)).delay_ms(now_ms) == 0
    assert group("readers", place(0, 10, 0, 0)).delay_ms(now_ms) is None


def test_offset_beyond_the_end_of_a_queue_is_no_negative_backlog():
    assert place(0, 5, 9).behind == 0


def test_sparkline_is_right_aligned_and_has_gaps():
    assert sparkline([0, 1, 2, 4], 6) == "  ▁▃▅█"
    assert sparkline([None, 4.0, None], 3) == " █ "
    assert sparkline([1, 2, 3, 4, 5], 2) == "▇█"
    assert sparkline([0, 0], 2) == "▁▁"
    assert sparkline([], 3) == "   " and sparkline([1], 0) == ""


def test_sparkline_is_flat_below_its_minimum_top():
    assert sparkline([10.0], 1, top=1000.0) == "▂"


def test_history_drops_old_points_and_missing_names():
    history = History(points=3, series=8)
    for second in range(5):
        history.add(picture(snapshot(float(second), groups=[group("first" if second < 4 else "second")]), None, None))
    assert [at_ms for at_ms, _value in history.line(LAG, SLAVE.address)] == [
        1_700_000_002_000, 1_700_000_003_000, 1_700_000_004_000]
    assert len(history) <= 8
    assert history.line(BEHIND, "first") == []  # the group missing in the latest picture
    assert history.values(BEHIND, CLUSTER, 2) == [0, 0]
    assert history.line(IN, "nobody") == []


def test_history_keeps_the_groups_furthest_behind():
    history = History(points=3, series=30)
    groups = [group(f"g{number}", place(0, number, 0)) for number in range(100)]
    history.add(picture(snapshot(groups=groups), None, None))
    assert history.line(BEHIND, "g99") and not history.line(BEHIND, "g0")
    assert history.line(IN, MASTER.address)


def test_history_keeps_the_last_points_and_one_per_minute_before_them():
    history = History(points=4, series=30)
    for second in range(0, 300, 20):
        lag = None if second == 280 else second
        history.add(picture(snapshot(float(second), replication=(
            MasterView("C", "broker-a", MASTER.address, slaves=[replace(SLAVE_OF, lag_bytes=lag)]),)), None, None))
    begin_ms = 1_700_000_000_000
    assert history.line(LAG, SLAVE.address) == [(begin_ms + second * 1000, None if second == 280 else second)
                                                for second in (220, 240, 260, 280)]
    assert history.values(LAG, SLAVE.address, 2) == [260, None] and history.values(LAG, SLAVE.address, 0) == []
    told = [(at_ms - begin_ms) // 1000 for at_ms, _value in history.range(LAG, SLAVE.address, 200_000)]
    assert told == [120, 180, 220, 240, 260, 280]
    assert history.range(LAG, "nobody", 200_000) == []


def test_json_contains_everything_shown():
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
def test_segments_of_a_log_are_counted(size, low, high, wanted):
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


# A collector with real servers that start and stop.

TIMEOUT_MS = 3_000


@pytest.fixture
def in_haste(monkeypatch):
    """Query name servers and silent brokers at each poll."""
    for name in ("NAMES_EVERY_S", "RETRY_S"):
        monkeypatch.setattr(collector_module, name, 0.0)


def test_cluster_is_collected_with_its_replication_rates_and_groups(cluster):
    with Collector(cluster.namesrv, TIMEOUT_MS) as collector:
        before, _ = snapshot_pair(collector, 0.1)
        cluster.send(20)
        now = collector.collect(ask_groups=True)
    seen = picture(now, before, before)
    assert {broker.address for broker in now.brokers} == {cluster.master.address, cluster.slave.address}
    assert seen.broker_rates(cluster.master.address).in_msgs > 0
    (replication,) = now.replication
    assert replication.address == cluster.master.address and not all_faults(replication)
    assert [(slave.address, slave.state, slave.status.name, slave.lag_bytes, slave.in_sync)
            for slave in replication.slaves] == [(cluster.slave.address, "TRANSFER", "OK", 0, True)]
    assert now.settled and now.name_servers == ((cluster.namesrv, ""),)


def test_only_the_requested_cluster_is_collected(cluster):
    with Collector(cluster.namesrv, TIMEOUT_MS, cluster="Nowhere") as collector:
        with pytest.raises(CannotAnswerError, match="no cluster 'Nowhere'.* it knows C"):
            collector.collect()
    with Collector(cluster.namesrv, TIMEOUT_MS, broker=cluster.slave.address) as collector:
        assert len(collector.collect().brokers) == 2  # all brokers with its name


def test_unreachable_name_server_is_a_readable_error():
    with Collector("127.0.0.1:1", TIMEOUT_MS) as collector:
        with pytest.raises(CannotAnswerError, match=r"name server 127.0.0.1:1 can't be reached"):
            collector.collect()


def test_name_server_and_brokers_may_stop_and_restart(tmp_path, in_haste):
    ns_port, slave_port = ports.free_port(), ports.free_broker_port()
    with ExitStack() as stack:
        names = stack.enter_context(ExitStack())
        namesrv = names.enter_context(running_name_server(tmp_path, ns_port))
        master = stack.enter_context(running_broker(tmp_path / "m", namesrv))
        slaves = stack.enter_context(ExitStack())

        def start_slave():
            return slaves.enter_context(running_broker(
                tmp_path / "s", namesrv, listenPort=slave_port, haListenPort=slave_port + 1, brokerId=1,
                brokerRole=BrokerRole.SLAVE, haMasterAddress=f"127.0.0.1:{master.store.ha_service.ha_listen_port}"))
        slave = start_slave()
        collector = stack.enter_context(Collector(namesrv, TIMEOUT_MS))
        wait_until(lambda: [each.state for one in collector.collect().replication for each in one.slaves] ==
                   ["TRANSFER"], what="the slave")
        names.close()
        alone = collector.collect()
        assert "can't be reached" in alone.name_servers[0][1]
        assert not any(broker.error for broker in alone.brokers) and len(alone.brokers) == 2
        # The name server is down and does not notice.
        slaves.close()
        gone = collector.collect()
        assert [bool(broker.error) for broker in gone.brokers] == [False, True]
        assert [(each.state, each.status.name) for each in gone.replication[0].slaves] == [("UNREACHABLE", "CRITICAL")]
        namesrv = names.enter_context(running_name_server(tmp_path, ns_port))
        slave = start_slave()
        wait_until(lambda: [each.state for one in collector.collect().replication for each in one.slaves] ==
                   ["TRANSFER"], what="the slave again")
        back = collector.collect()
        assert back.name_servers == ((namesrv, ""),) and not any(broker.error for broker in back.brokers)
        assert slave.address in back.by_address


def test_silent_broker_is_not_queried_for_a_while(cluster, monkeypatch):
    asked = []
    real = collector_module.ask_all

    def ask_all(admin, brokers, before):
        asked.append([each.address for each in brokers])
        return {each: told if each.is_master else collector_module.Told(each, error="silent", alive=False)
                for each, told in real(admin, brokers, before).items()}
    monkeypatch.setattr(collector_module, "ask_all", ask_all)
    with Collector(cluster.namesrv, TIMEOUT_MS) as collector:
        for _ in range(3):
            now = collector.collect()
    assert [len(each) for each in asked] == [2, 1, 1]
    assert now.by_address[cluster.slave.address].error == "silent"


def test_poller_updates_the_picture_until_it_is_paused(cluster):
    history = History()
    with Collector(cluster.namesrv, TIMEOUT_MS) as collector:
        poller = ViewPoller(collector, history, interval_s=0.01)
        assert poller.interval_s == 1.0
        early = collector.collect()
        poller.start()
        try:
            first = poller.wait_for_picture(600)
            assert poller.wakeup() is None
            wait_until(lambda: poller.wakeup() or poller.latest is not first)
            poller.pause(True)
            still = poller.latest
            stays(lambda: poller.wakeup() or poller.latest is still, 500)
            # As a round does that had started earlier.
            poller._publish(early)
            assert poller.latest is still
            poller.pause(False)
            wait_until(lambda: poller.latest is not still)
        finally:
            poller.shutdown()
    assert history.line("log", cluster.master.address)


def test_poller_reports_why_there_is_nothing_to_show():
    with Collector("127.0.0.1:1", TIMEOUT_MS) as collector:
        poller = ViewPoller(collector, History(), 1.0)
        poller.start()
        try:
            assert poller.wait_for_picture(600) is None and "can't be reached" in poller.error
        finally:
            poller.shutdown()


# Message bodies for display, without servers.


def test_text_is_shown_as_text_and_binary_data_as_a_dump():
    told = body_view("größer\n\ttea <b>".encode())
    assert told.text == "größer\n\ttea <b>" and not told.is_cut and told.size == 17
    assert body_view(b"\x00\x01\xff").text is None
    assert body_view(b"bell \x07").text is None  # a terminal control character
    assert body_view("\u202eevil".encode()).text is None  # reverses the reading direction


def test_large_body_is_truncated_even_within_a_character():
    told = body_view("ä".encode() * 100, max_bytes=51)
    assert told.text == "ä" * 25 and told.is_cut and told.size == 200
    binary = body_view(b"\xff" * 100_000)
    assert binary.text is None and binary.is_cut and len(binary.hex.splitlines()) == MAX_HEX_BYTES // 16


def test_invalid_utf8_at_the_end_of_a_complete_body_is_not_text():
    assert body_view("ä".encode()[:1]).text is None


def test_dump_has_offsets_bytes_and_letters():
    assert hex_dump(b"0123456789abcdef\n") == (
        "00000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef\n"
        "00000010  0a" + " " * 45 + "  .")
    assert hex_dump(b"") == ""


# The tables of `top`, without servers and without a terminal.


def no_lines(_kind, _name, _last):
    return []


def texts(table: Table, *titles: str):
    places = [[column.title for column in table.columns].index(title) for title in titles]
    return [tuple(row.cells[number] for number in places) for row in table.rows]


def test_brokers_are_listed_with_rates_state_and_lag():
    after = [replace(MASTER, put_total=120), SLAVE]
    table = brokers(picture(snapshot(12.0, after), snapshot(10.0), None), no_lines)
    assert texts(table, "broker", "id", "in/s", "state", "lag", "lag time") == [
        ("broker-a", "0", "10", "up", "", ""), ("broker-a", "1", "0", "TRANSFER", "1000 B", "0.5 s")]
    assert [row.tone for row in table.rows] == ["good", "good"]


def test_silent_broker_and_unregistered_slave_are_listed():
    stranger = SlaveView("10.0.0.9:5", state="TRANSFER", status=Status.WARNING, lag_bytes=7, note="not listed")
    seen = snapshot(brokers=[replace(MASTER, error="away")], replication=(
        MasterView("C", "broker-a", MASTER.address, slaves=[stranger]),))
    table = brokers(Picture(seen), no_lines)
    assert texts(table, "address", "state", "lag") == [
        (MASTER.address, "NO ANSWER", ""), ("10.0.0.9:5", "TRANSFER", "7 B")]
    assert [row.tone for row in table.rows] == ["bad", "warn"]
    assert all(len(row.cells) == len(row.sort) == len(table.columns) for row in table.rows)


def test_disk_above_its_limit_is_reported():
    full = brokers(Picture(snapshot(brokers=[replace(MASTER, disk_used=0.9)], replication=())), no_lines)
    assert texts(full, "disk", "state") == [("90 %", "DISK FULL")]


def test_groups_are_sorted_by_backlog_and_show_its_trend():
    three = [group("a", place(0, 100, 99)), group("b", place(0, 5_000, 0)), group("c")]
    seen = Picture(snapshot(groups=three), groups={
        "a": GroupRates(10.0, 10.0, 0.1), "b": GroupRates(10.0, 50.0, 40.0), "c": GroupRates(0.0, 0.0, 0.0)})
    table = groups(seen, no_lines)
    assert texts(table, "group", "behind", "growth/s", "drained in") == [
        ("b", "5,000", "40", "-"), ("a", "1", "0.1", "-"), ("c", "0", "0", "0")]
    assert [row.tone for row in table.rows] == ["bad", "good", "good"]


def test_rows_are_sorted_by_values_filtered_by_text_and_reversed():
    table = Table("t", (Column("name"), Column("size", right=True)), (
        Row("x", ("x", "9"), ("x", 9.0)), Row("y", ("y", "10"), ("y", 10.0)),
        Row("z", ("z", "?"), ("z", float("-inf")))))

    def keys(*how):
        return "".join(row.key for row in table.arranged(*how))
    assert keys(None, False, "") == "xyz"
    assert keys(1, False, "") == "yxz" and keys(1, True, "") == "zxy"
    assert keys(0, False, "") == "xyz" and keys(0, True, "") == "zyx"
    assert keys(1, False, "1") == "y" and keys(7, False, "X") == "x"


def test_names_from_a_cluster_cannot_control_the_terminal():
    table = topics([TopicRow("evil\x1b[2J", "user", ("b",), 1, 1, "RW", False)])
    assert table.rows[0].cells[0] == "evil\\u001b[2J"


def test_users_topics_are_listed_first():
    told = [TopicRow("%RETRY%g", "retry", ("b",), 1, 1, "RW", False), TopicRow("Z", "user", ("b",), 1, 1, "RW", False)]
    assert [row.key for row in topics(told).rows] == ["Z", "%RETRY%g"]


def test_queues_and_clients_of_a_group_are_listed():
    seen = Picture(snapshot(10.0, groups=[group("g", place(0, 10, 4, 1_700_000_004_000), place(1))]))
    assert texts(group_queues(seen, "g"), "queue", "behind", "delay") == [("0", "6", "6.0 s"), ("1", "0", "")]
    assert group_queues(seen, "unknown").rows == ()
    told = GroupClients((ClientRow("id", "1.2.3.4:5", "JAVA", "V4_9_8"),), "CONSUME_PASSIVELY", "CLUSTERING", "",
                        (("T", "*"),))
    assert "T (*)" in group_clients("g", told).title
    assert "no client is connected" in group_clients("g", GroupClients()).title


def test_troubles_are_listed_once_with_the_worst_first():
    slave = replace(SLAVE_OF, status=Status.CRITICAL, note="it stands still")
    seen = Picture(snapshot(name_servers=(("ns", "ns is away"),),
                            faults=(Fault(Status.WARNING, "ns is away"), Fault(Status.WARNING, "odd")),
                            replication=(MasterView("C", "a", "m", slaves=[slave],
                                                    faults=[Fault(Status.CRITICAL, "two masters")]),),
                            groups_errors=("slow",)))
    assert troubles(seen) == [
        ("bad", "ns is away"), ("bad", "a: two masters"), ("bad", f"a, slave {SLAVE.address}: it stands still"),
        ("warn", "odd"), ("warn", "slow")]


# `rmqha top` on a running cluster: a single poll for scripts, and the terminal application by its keys.


def test_once_prints_a_table_for_people(cluster, run):
    result = run("top", "-n", cluster.namesrv, "--once", "-i", 1)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    titles = ["broker", "id", "address", "role", "in/s", "out/s", "log/s", "log", "disk", "state", "lag", "lag time"]
    assert lines[0].split() == " ".join(titles).split()
    assert cluster.master.address in result.output and "TRANSFER" in result.output


def test_once_prints_json_for_programs(cluster, run):
    told = json.loads(run("top", "-n", cluster.namesrv, "--once", "-i", 1, "-o", "json").output)
    assert {broker["address"] for broker in told["brokers"]} == {cluster.master.address, cluster.slave.address}
    assert told["replication"][0]["slaves"][0]["lag_bytes"] == 0
    assert told["in_msgs_per_s"] == 0.0


def test_once_needs_no_extra(cluster, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "textual", None)
    assert run("top", "-n", cluster.namesrv, "--once", "-i", 1).exit_code == 0


def test_missing_extra_is_named_with_the_command_to_install_it(run, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("textual", "rmqha.tools.top.top_app"))]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("textual", "textual.app"):
        monkeypatch.setitem(sys.modules, name, None)
    result = run("top", "-n", "127.0.0.1:1")
    assert result.exit_code == 2
    assert "`rmqha top` needs the extra `tui`" in result.output and how_to_install("tui") in result.output


@pytest.mark.parametrize(("arguments", "wanted"), [
    ((), "no name server: give it with -n host:port, in NAMESRV_ADDR, or as a context"),
    (("-n", "127.0.0.1:1", "-o", "json"), "-o json and -o yaml need --once"),
    (("-n", "127.0.0.1:1", "--once"), "name server 127.0.0.1:1 can't be reached"),
    (("-n", "nonsense", "--once"), "'nonsense' is not a valid host:port"),
    (("-n", "127.0.0.1:1", "--once", "-i", "0.1"), "Invalid value for '-i'"),
])
def test_invalid_input_gets_one_clear_error(arguments, wanted):
    result = CliRunner().invoke(rmqha, ["top", *arguments], env={"NAMESRV_ADDR": ""})
    assert result.exit_code == 2 and wanted in " ".join(result.output.split()), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.fixture
def app(cluster):
    """The application, with a cluster that is polled once a second."""
    pytest.importorskip("textual", reason="the extra `tui` is not installed")
    from rmqha.tools.top.top_app import TopApp
    admin = DefaultMQAdminExt(cluster.namesrv)
    with Collector(cluster.namesrv, 3_000) as collector:
        poller = ViewPoller(collector, History(), 1.0)
        poller.start()
        try:
            assert poller.wait_for_picture(600) is not None
            yield TopApp(poller, Questions(admin), cluster.namesrv)
        finally:
            poller.shutdown()
            admin.shutdown()


async def until(pilot, come, what):
    """Wait for a condition while the application runs."""
    for _ in range(600):
        await pilot.pause(0.05)
        if come():
            return
    raise AssertionError(f"timed out after 30 s waiting for {what}")


def title(app) -> str:
    return str(app.query_one("#title").render())


def column(app, number: int) -> list[str]:
    from textual.widgets import DataTable
    table = app.query_one(DataTable)
    return [str(table.get_row_at(row)[number]) for row in range(table.row_count)]


def piloted(app, steps) -> None:
    async def run() -> None:
        async with app.run_test(size=(160, 30)) as pilot:
            await until(pilot, lambda: app.query_one("DataTable").row_count, "the brokers")
            await steps(pilot)
    asyncio.run(run())


def test_keys_open_topics_and_queues_of_a_broker_and_return(app, cluster):
    async def steps(pilot):
        assert column(app, 2) == [cluster.master.address, cluster.slave.address]
        await pilot.press("enter")
        await until(pilot, lambda: "T" in column(app, 0), "the broker's topics")
        assert title(app).startswith(f"topics of {cluster.master.address}")
        # Users' topics are listed first.
        await pilot.press("enter")
        await until(pilot, lambda: title(app).startswith("queues of topic T"), "the topic's queues")
        assert column(app, 0)[0] == "broker-a" and column(app, 3)[0] == column(app, 4)[0] != "0"
        await pilot.press("escape", "escape")
        await until(pilot, lambda: title(app).startswith("brokers"), "the brokers again")
    piloted(app, steps)


def test_rows_are_sorted_and_filtered_by_keys(app, cluster):
    async def steps(pilot):
        await pilot.press("t")
        await until(pilot, lambda: len(column(app, 0)) > 5, "all topics")
        everything = column(app, 0)
        await pilot.press("s")
        await until(pilot, lambda: column(app, 0) == sorted(everything), "sorted by name")
        await pilot.press("r")
        await until(pilot, lambda: column(app, 0) == sorted(everything, reverse=True), "the other way round")
        await pilot.press("slash", *"schedule_t")
        await until(pilot, lambda: column(app, 0) == ["SCHEDULE_TOPIC_XXXX"], "the filter")
        assert "1 of" in title(app)
        await pilot.press("enter", "escape")
        await until(pilot, lambda: len(column(app, 0)) == len(everything), "no filter")
    piloted(app, steps)


def test_groups_open_their_clients_and_an_unknown_one_has_none(app, cluster):
    async def steps(pilot):
        await pilot.press("g")
        await until(pilot, lambda: title(app).startswith("groups"), "the groups")
        # The table may be empty: then nothing happens.
        await pilot.press("enter", "c")
        app._places.append(type(app.place)("clients", "nobody"))
        await until(pilot, lambda: "no client is connected" in title(app), "an answer")
    piloted(app, steps)


def test_pause_freezes_the_picture_and_q_quits(app, cluster):
    async def steps(pilot):
        await pilot.press("p")
        assert "PAUSED" in str(app.query_one("#head").render())
        still = app._poller.latest
        await pilot.pause(1.5)
        assert app._poller.latest is still
        await pilot.press("p")
        await until(pilot, lambda: app._poller.latest is not still, "it goes on")
        await pilot.press("q")
        wait_until(lambda: app._exit, what="the end")
    piloted(app, steps)
