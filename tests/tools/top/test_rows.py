"""The tables of `top`: no server, no terminal."""
from dataclasses import replace

from rmqha.tools.check_base import Status
from rmqha.tools.replication.views import Fault, MasterView, SlaveView
from rmqha.tools.top.rows import Column, Row, Table, brokers, group_clients, group_queues, groups, topics, troubles
from rmqha.tools.view.questions import ClientRow, GroupClients, TopicRow
from rmqha.tools.view.snapshot import GroupRates, Picture, picture
from tests.tools.view.pictures import MASTER, SLAVE, SLAVE_OF, group, place, snapshot


def no_lines(_kind, _name, _last):
    return []


def texts(table: Table, *titles: str):
    places = [[column.title for column in table.columns].index(title) for title in titles]
    return [tuple(row.cells[number] for number in places) for row in table.rows]


def test_brokers_stand_with_rates_state_and_lag():
    after = [replace(MASTER, put_total=120), SLAVE]
    table = brokers(picture(snapshot(12.0, after), snapshot(10.0), None), no_lines)
    assert texts(table, "broker", "id", "in/s", "state", "lag", "lag time") == [
        ("broker-a", "0", "10", "up", "", ""), ("broker-a", "1", "0", "TRANSFER", "1000 B", "0.5 s")]
    assert [row.tone for row in table.rows] == ["good", "good"]


def test_a_silent_broker_and_a_slave_that_nobody_lists_are_seen():
    stranger = SlaveView("10.0.0.9:5", state="TRANSFER", status=Status.WARNING, lag_bytes=7, note="not listed")
    seen = snapshot(brokers=[replace(MASTER, error="away")], replication=(
        MasterView("C", "broker-a", MASTER.address, slaves=[stranger]),))
    table = brokers(Picture(seen), no_lines)
    assert texts(table, "address", "state", "lag") == [
        (MASTER.address, "NO ANSWER", ""), ("10.0.0.9:5", "TRANSFER", "7 B")]
    assert [row.tone for row in table.rows] == ["bad", "warn"]
    assert all(len(row.cells) == len(row.sort) == len(table.columns) for row in table.rows)


def test_a_disk_above_its_limit_is_told():
    full = brokers(Picture(snapshot(brokers=[replace(MASTER, disk_used=0.9)], replication=())), no_lines)
    assert texts(full, "disk", "state") == [("90 %", "DISK FULL")]


def test_groups_stand_by_what_they_are_behind_and_how_it_goes():
    three = [group("a", place(0, 100, 99)), group("b", place(0, 5_000, 0)), group("c")]
    seen = Picture(snapshot(groups=three), groups={
        "a": GroupRates(10.0, 10.0, 0.1), "b": GroupRates(10.0, 50.0, 40.0), "c": GroupRates(0.0, 0.0, 0.0)})
    table = groups(seen, no_lines)
    assert texts(table, "group", "behind", "growth/s", "gone in") == [
        ("b", "5,000", "40", "-"), ("a", "1", "0.1", "-"), ("c", "0", "0", "0")]
    assert [row.tone for row in table.rows] == ["bad", "good", "good"]


def test_rows_are_sorted_by_values_filtered_by_texts_and_turned_round():
    table = Table("t", (Column("name"), Column("size", right=True)), (
        Row("x", ("x", "9"), ("x", 9.0)), Row("y", ("y", "10"), ("y", 10.0)),
        Row("z", ("z", "?"), ("z", float("-inf")))))

    def keys(*how):
        return "".join(row.key for row in table.arranged(*how))
    assert keys(None, False, "") == "xyz"
    assert keys(1, False, "") == "yxz" and keys(1, True, "") == "zxy"
    assert keys(0, False, "") == "xyz" and keys(0, True, "") == "zyx"
    assert keys(1, False, "1") == "y" and keys(7, False, "X") == "x"


def test_names_from_a_cluster_can_not_steer_the_terminal():
    table = topics([TopicRow("evil\x1b[2J", "user", ("b",), 1, 1, "RW", False)])
    assert table.rows[0].cells[0] == "evil\\u001b[2J"


def test_users_topics_stand_first():
    told = [TopicRow("%RETRY%g", "retry", ("b",), 1, 1, "RW", False), TopicRow("Z", "user", ("b",), 1, 1, "RW", False)]
    assert [row.key for row in topics(told).rows] == ["Z", "%RETRY%g"]


def test_a_groups_queues_and_clients():
    seen = Picture(snapshot(10.0, groups=[group("g", place(0, 10, 4, 1_700_000_004_000), place(1))]))
    assert texts(group_queues(seen, "g"), "queue", "behind", "delay") == [("0", "6", "6.0 s"), ("1", "0", "")]
    assert group_queues(seen, "unknown").rows == ()
    told = GroupClients((ClientRow("id", "1.2.3.4:5", "JAVA", "V4_9_8"),), "CONSUME_PASSIVELY", "CLUSTERING", "",
                        (("T", "*"),))
    assert "T (*)" in group_clients("g", told).title and "nobody" in group_clients("g", GroupClients()).title


def test_troubles_are_told_once_the_worst_first():
    slave = replace(SLAVE_OF, status=Status.CRITICAL, note="it stands still")
    seen = Picture(snapshot(name_servers=(("ns", "ns is away"),),
                            faults=(Fault(Status.WARNING, "ns is away"), Fault(Status.WARNING, "odd")),
                            replication=(MasterView("C", "a", "m", slaves=[slave],
                                                    faults=[Fault(Status.CRITICAL, "two masters")]),),
                            groups_errors=("slow",)))
    assert troubles(seen) == [
        ("bad", "ns is away"), ("bad", "a: two masters"), ("bad", f"a, slave {SLAVE.address}: it stands still"),
        ("warn", "odd"), ("warn", "slow")]
