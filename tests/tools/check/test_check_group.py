"""`rmqha check group`: the verdicts, the output line, and a group on two masters."""
import json
import re

import pytest

from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus
from rmqha.common.subscriptions import ConsumeFromWhere, MessageModel
from rmqha.tools.check_base import Status
from rmqha.tools.group_check import GroupLimits, judge_group, perfdata
from rmqha.tools.manage.groups import PARTLY_PAUSED, PAUSED, RUNNING, STOPPED, GroupRow
from rmqha.tools.replication.judgement import worst
from tests.support.wait import wait_until
from tests.tools.manage.two_masters import two_masters, unreachable_master

LIMITS = GroupLimits(10, 100, 60.0, 600.0)
LINE = re.compile(r"GROUP (?P<status>\w+) - (?P<text>[^|]+)( \| (?P<data>.*))?\n")
PERF = re.compile(r"'[^']+'=-?[\d.]+s?;[\d.]*;[\d.]*:?;0")


def row(unread=0, oldest_ms=0, exact=True, members=1, state=RUNNING, retries=0, model="CLUSTERING"):
    return GroupRow("billing", state, members, model, "push", ("orders",), unread, retries, 0.5, oldest_ms, exact)


@pytest.mark.parametrize(("found", "status", "text"), [
    (row(), Status.OK, ""), (row(10, 60_000), Status.OK, ""),
    (row(11, 60_000), Status.WARNING, "11 unread messages, more than 10"),
    (row(101, 60_000), Status.CRITICAL, "101 unread messages, more than 100"),
    (row(9, 1000, retries=2), Status.WARNING, "11 unread messages, 2 of them retries, more than 10"),
    (row(1, 61_000), Status.WARNING, "the oldest unread message is 61 s old, more than 60 s"),
    (row(0, 601_000, retries=1), Status.CRITICAL, "the oldest unread message is 10 min old, more than 10 min"),
    (row(1, 61_000, exact=False), Status.UNKNOWN, "the oldest unread message is at most 61 s old"),
    (row(1, 59_000, exact=False), Status.OK, ""),
    (row(1, None, exact=False), Status.UNKNOWN, "the age of the oldest unread message is not known"),
    (row(None, None, exact=False), Status.UNKNOWN, "the unread messages are not known: it has no offsets yet"),
    (row(None, None, exact=False, model="BROADCASTING"), Status.UNKNOWN, "members of a broadcasting group have its"),
    (row(members=0, state=STOPPED), Status.CRITICAL, "no member runs"),
    (row(state=PAUSED), Status.WARNING, "paused"), (row(state=PARTLY_PAUSED), Status.WARNING, "paused on some masters"),
    (row(500, members=0, state=PAUSED), Status.CRITICAL, "no member runs")])
def test_verdict(found, status, text):
    problems = list(judge_group(found, LIMITS))
    assert worst(problems) is status
    assert text == "" or any(text in problem.text for problem in problems), problems


def test_limits_that_are_not_given_are_not_checked():
    assert not list(judge_group(row(5, None, exact=False, members=0), GroupLimits(10, 100, min_members=0)))
    few, = judge_group(row(members=1), GroupLimits(10, 100, min_members=2))
    assert (few.status, few.text) == (Status.CRITICAL, "1 member, 2 wanted")


def test_perfdata_has_the_format_of_monitoring_plugins():
    text = perfdata(row(5, 1500, retries=1), LIMITS)
    assert text == "'unread'=6;10;100;0 'age'=1.5s;60;600;0 'members'=1;;1:;0"
    assert all(PERF.fullmatch(part) for part in text.split())
    assert perfdata(row(None, None), GroupLimits(10, 100)) == "'members'=1;;1:;0"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster of two masters."""
    with two_masters(tmp_path_factory.mktemp("groups")) as masters:
        yield masters


def check(cluster, group, *arguments, code):
    """Return the line, which has the form that monitoring plugins expect."""
    result = cluster.run("check", "group", group, *arguments)
    assert result.exit_code == code, result.output
    match = LINE.fullmatch(result.stdout)
    assert match and match["status"] == Status(code).name
    assert all(PERF.fullmatch(part) for part in (match["data"] or "").split())
    return match["text"]


def consumer(cluster, group, topic, **settings):
    made = DefaultMQPushConsumer(group, cluster.namesrv, lambda _messages: ConsumeConcurrentlyStatus.CONSUME_SUCCESS,
                                 instance_name=group, **settings)
    made.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    made.subscribe(topic, "*")
    return made


def test_group_that_keeps_up_then_stops_and_falls_behind(cluster):
    cluster.ok("topic", "create", "orders", "-q", 1)
    cluster.ok("group", "create", "billing")
    for broker in cluster.brokers.values():
        assert broker.send("orders").code == 0
    with consumer(cluster, "billing", "orders") as member:
        def is_read():
            member.default_mq_push_consumer_impl.persist_consumer_offset()
            found = cluster.object("group", "list", "billing")[0]
            return found["members"] == 1 and found["unread"] == 0
        wait_until(is_read, 60_000, "all is read")
        assert check(cluster, "billing", code=0) == "billing: 0 unread messages; 1 member"
        cluster.ok("group", "pause", "billing")
        assert check(cluster, "billing", code=1) == "billing: paused"
        cluster.ok("group", "resume", "billing")
    cluster.dispatched()
    for broker in cluster.brokers.values():
        assert broker.send("orders").code == 0
    cluster.dispatched()
    assert check(cluster, "billing", code=2) == "billing: no member runs"
    text = check(cluster, "billing", "--min-members", 0, code=0)
    assert re.fullmatch(r"billing: 2 unread messages, the oldest [\d.]+ \w+ old; 0 members", text)
    text = check(cluster, "billing", "--min-members", 0, "--warn", 1, "--crit", 5, "--age-crit", "0s", code=2)
    assert re.fullmatch(r"billing: the oldest unread message is [\d.]+ \w+ old, more than 0; 2 unread messages, more "
                        r"than 1", text)
    told = json.loads(cluster.run("check", "group", "billing", "-o", "json").stdout)
    assert (told["check"], told["status"], told["code"], told["group"]["unread"]) == ("group", "CRITICAL", 2, 2)
    assert told["problems"] == [{"status": "CRITICAL", "text": "no member runs"}]


def test_what_is_not_known_is_unknown(cluster):
    cluster.ok("topic", "create", "prices", "-q", 1)
    cluster.ok("group", "create", "prices-readers")
    assert check(cluster, "price-readers", code=3) == (
        "no group 'price-readers' in this cluster; did you mean prices-readers?")
    assert "Invalid value for '--warn'" in check(cluster, "prices-readers", "--warn", "few", code=3)
    with consumer(cluster, "prices-readers", "prices", message_model=MessageModel.BROADCASTING):
        wait_until(lambda: cluster.object("group", "list", "prices-readers")[0]["members"] == 1, 60_000)
        assert "members of a broadcasting group have its offsets themselves" in check(cluster, "prices-readers", code=3)
    with unreachable_master(cluster.namesrv):
        text = check(cluster, "prices-readers", "--min-members", 0, code=3)
        assert text.startswith("prices-readers: broker-c: ") and "can't be reached" in text
        assert "no member runs; broker-c: " in check(cluster, "prices-readers", code=2)
