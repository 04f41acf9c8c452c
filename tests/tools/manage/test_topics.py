"""`rmqha topic` on two masters, on masters that are gone, on RocketMQ, and with malformed answers."""
import json
import re
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.protocol import request_code
from rmqha.common.topics import TopicConfig
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.tools import terminal
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin
from rmqha.tools.admin.topic_tables import settings_of
from rmqha.tools.manage import topics
from rmqha.tools.manage.topics import RowMaker, TopicSettings, matcher
from rmqha.tools.terminal import CannotAnswerError
from tests.support.in_process import running_name_server
from tests.support.raw_remoting import RawClient
from tests.support.tiers import drawn
from tests.support.wait import wait_until
from tests.tools.manage.two_masters import CLUSTER, FakeServer, Line, two_masters, unreachable_master

READ, WRITE = 4, 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster of two masters."""
    with two_masters(tmp_path_factory.mktemp("topics")) as masters:
        yield masters


def queues_of(cluster, topic):
    """Return (read, write) by broker."""
    return {name: None if config is None else (config.readQueueNums, config.writeQueueNums)
            for name, config in cluster.configs(topic).items()}


def order_conf(cluster, topic):
    with ClusterAdmin(cluster.namesrv, 60_000) as admin:
        return topics.order_conf(admin, topic)


# ---- create


def test_new_topic_is_on_all_masters_and_producers_can_send_at_once(cluster):
    name = cluster.unique("New")
    told = cluster.ok("topic", "create", name)
    assert told.output == f"created topic {name} on broker-a, broker-b: 8 read and 8 write queues each, RW\n"
    assert queues_of(cluster, name) == {"broker-a": (8, 8), "broker-b": (8, 8)}
    with DefaultMQProducer("p", cluster.namesrv) as producer:
        sent = [producer.send(Message(name, b"x"), queue=MessageQueue(name, broker, 7)) for broker in cluster.brokers]
    assert [each.send_status.name for each in sent] == ["SEND_OK"] * 2


def test_settings_of_a_new_topic(cluster):
    name = cluster.unique("Set")
    made = cluster.object("topic", "create", name, "--read-queues", 4, "--write-queues", 2, "--perm", "r")
    assert [(each["broker"], each["read_queues"], each["write_queues"], each["perm"]) for each in made["created"]] == [
        ("broker-a", 4, 2, "R-"), ("broker-b", 4, 2, "R-")]
    assert {config.perm for config in cluster.configs(name).values()} == {READ}


def test_existing_topic_is_refused_unless_that_is_wanted(cluster):
    name = cluster.unique("Twice")
    cluster.ok("topic", "create", name, "-q", 2)
    again = cluster.run("topic", "create", name, "-q", 5)
    assert again.exit_code == 2
    assert f"topic {name} exists on broker-a, broker-b; `rmqha topic alter` changes it" in again.output
    assert "exists on broker-a, broker-b" in cluster.ok("topic", "create", name, "-q", 5, "--if-not-exists").output
    assert queues_of(cluster, name) == {"broker-a": (2, 2), "broker-b": (2, 2)}


def test_topic_is_added_on_a_broker_with_the_settings_of_the_others(cluster):
    name = cluster.unique("Half")
    cluster.ok("topic", "create", name, "--read-queues", 6, "--write-queues", 3, "-b", "broker-a")
    assert queues_of(cluster, name) == {"broker-a": (6, 3), "broker-b": None}
    refused = cluster.run("topic", "create", name)
    assert refused.exit_code == 2
    assert "it is missing on broker-b, and --if-not-exists creates it there" in refused.output
    told = cluster.ok("topic", "create", name, "--if-not-exists").stdout
    assert f"topic {name} exists on broker-a\ncreated topic {name} on broker-b: 6 read and 3 write" in told
    assert queues_of(cluster, name) == {"broker-a": (6, 3), "broker-b": (6, 3)}


@pytest.mark.parametrize(("arguments", "text"), [
    (["a b"], "'a b' is not a valid topic name"), (["x" * 128], "use 1 to 127 of the characters"),
    (["ö"], "is not a valid topic name"), (["rmq_sys_x"], "is a topic of the system"), (["TBW102"], "of the system"),
    (["broker-b"], "of the system"), ([CLUSTER], "of the system"), ([f"{CLUSTER}_REPLY_TOPIC"], "of the system"),
    (["t", "--read-queues", 1], "1 read queues for 8 write queues"), (["t", "-q", 0], "0 is not in the range"),
    (["t", "-q", 1, "--read-queues", 2], "give it alone"), (["t", "-c", "D"], "no cluster 'D'"),
    (["t", "-b", "broker-z"], "no broker 'broker-z'")])
def test_invalid_topic_is_wrong_usage(cluster, arguments, text):
    result = cluster.run("topic", "create", *arguments)
    assert result.exit_code == 2 and text in result.output
    assert cluster.configs("t") == {"broker-a": None, "broker-b": None}


@given(st.text(max_size=200))
@settings(max_examples=drawn(100))
def test_valid_names_are_those_of_brokers(name):
    is_valid = topics.topics.check_topic(name) is None
    try:
        topics.check_name(name, {"broker-a"})
    except CannotAnswerError as error:
        assert not is_valid or "of the system" in error.message
    else:
        assert is_valid


def test_route_that_no_name_server_lists_is_an_error(cluster, monkeypatch):
    monkeypatch.setattr(topics, "routed_brokers", lambda _admin, _topic: {"broker-a"})
    name = cluster.unique("Late")
    result = cluster.run("topic", "create", name, "--wait", "10ms")
    assert result.exit_code == 1
    assert f"name server {cluster.namesrv} does not list it on broker-b after 0.01 s" in result.output
    assert cluster.run("topic", "create", cluster.unique("Late"), "--wait", 0).exit_code == 0


def test_name_server_that_is_away_does_not_fail_a_new_topic(cluster):
    name = cluster.unique("Away")
    result = Line(f"{cluster.namesrv};127.0.0.1:1").run("topic", "create", name)
    assert result.exit_code == 0 and "note: the name server 127.0.0.1:1 can't be reached" in result.stderr


# ---- order


def test_ordered_topic_has_an_order_conf_that_follows_its_queues(cluster):
    name = cluster.unique("Order")
    cluster.ok("topic", "create", name, "-q", 4, "--order")
    assert order_conf(cluster, name) == "broker-a:4;broker-b:4"
    (row,) = cluster.object("topic", "list", name)
    assert row["order"] is True
    assert "order conf: broker-a:2;broker-b:4" in cluster.ok("topic", "alter", name, "-q", 2, "-b", "broker-a").stdout
    cluster.ok("topic", "alter", name, "-q", 6)
    assert order_conf(cluster, name) == "broker-a:6;broker-b:6"
    assert cluster.object("topic", "describe", name)["order_conf"] == "broker-a:6;broker-b:6"
    assert "order conf: removed" in cluster.ok("topic", "alter", name, "--no-order").stdout
    assert order_conf(cluster, name) is None
    cluster.ok("topic", "alter", name, "--order")
    cluster.ok("topic", "delete", name, "--yes")
    assert order_conf(cluster, name) is None


def test_brokers_of_other_clusters_stay_in_an_order_conf(cluster):
    name = cluster.unique("Shared")
    with ClusterAdmin(cluster.namesrv, 60_000) as admin:
        admin.create_or_update_order_conf(name, "broker-z:3;odd;broker-a:1", True)
        cluster.ok("topic", "create", name, "-q", 2, "--order")
        assert topics.order_conf(admin, name) == "broker-z:3;odd;broker-a:2;broker-b:2"
        cluster.ok("topic", "delete", name, "--yes")
        assert topics.order_conf(admin, name) == "broker-z:3;odd"
        admin.create_or_update_order_conf(name, "broker-a:2", True)
        cluster.ok("topic", "create", name, "-q", 2)
        cluster.ok("topic", "alter", name, "-q", 3)
        assert topics.order_conf(admin, name) == "broker-a:3", "only --order adds a broker"
        cluster.ok("topic", "delete", name, "--yes")


# ---- list


def test_topics_are_listed_by_kind_and_pattern(cluster):
    name = cluster.unique("List")
    cluster.ok("topic", "create", name, "-q", 3)
    cluster.ok("topic", "create", f"{name}-b", "-b", "broker-b")
    rows = {row["name"]: row for row in cluster.object("topic", "list", f"{name}*")}
    assert rows == {
        name: {"name": name, "kind": "user", "brokers": ["broker-a", "broker-b"], "read_queues": 6, "write_queues": 6,
               "perm": "RW", "order": False},
        f"{name}-b": {"name": f"{name}-b", "kind": "user", "brokers": ["broker-b"], "read_queues": 8,
                      "write_queues": 8, "perm": "RW", "order": False}}
    text = cluster.ok("topic", "list", f"{name}?b").stdout.splitlines()
    assert text[0].split() == ["topic", "kind", "brokers", "read", "write", "perm", "order"]
    assert text[2:] and text[2].split() == [f"{name}-b", "user", "broker-b", "8", "8", "RW"]
    system = {row["name"]: row["kind"] for row in cluster.object("topic", "list", "--all")}
    assert {"TBW102", CLUSTER, "broker-a"} <= {name for name, kind in system.items() if kind == "system"}
    assert name in system and name not in {row["name"] for row in cluster.object("topic", "list", "--kind", "system")}
    assert cluster.object("topic", "list", "-b", "broker-a", f"{name}-*") == []
    assert cluster.run("topic", "list", "--all", "--kind", "user").exit_code == 2


def test_messages_are_counted_on_demand(cluster):
    name = cluster.unique("Count")
    cluster.ok("topic", "create", name, "-q", 2)
    for broker, queue_id in (("broker-a", 0), ("broker-a", 1), ("broker-b", 1)):
        assert cluster.brokers[broker].send(name, queue_id=queue_id).code == 0
    cluster.dispatched()
    (row,) = cluster.object("topic", "list", name, "--stats")
    assert row["messages"] == 3 and row["last_ms"] > 0 and row["last_time"]
    # A queue that is read but no longer written.
    cluster.ok("topic", "alter", name, "--write-queues", 1)
    assert cluster.object("topic", "list", name, "--stats")[0]["messages"] == 3


@given(st.lists(st.text("abc*?[]-!", max_size=4), max_size=4), st.text("abc-!", max_size=6))
@settings(max_examples=drawn(100))
def test_any_pattern_matches_or_not(parts, name):
    assert matcher("".join(parts))(name) in (True, False)
    assert matcher(f"*{name.replace('[', '')}*".replace("!", "?"))(f"x{name}y".replace("[", ""))


def test_row_of_a_topic_shows_all_permissions():
    tables = [("b", settings_of({"T": TopicConfig("T", 1, 1, READ)})),
              ("a", settings_of({"T": TopicConfig("T", 2, 3, READ | WRITE)})), ("c", {})]
    row = RowMaker({"a"}).row("T", tables)
    assert (row.brokers, row.read_queues, row.write_queues, row.perm) == (("a", "b"), 3, 4, "R- RW")


# ---- describe


def test_description_has_settings_queues_and_groups(cluster):
    name, group = cluster.unique("Told"), cluster.unique("readers")
    cluster.ok("topic", "create", name, "-q", 2)
    for number in range(3):
        assert cluster.brokers["broker-a"].send(name, queue_id=number % 2).code == 0
    cluster.dispatched()
    with ClusterAdmin(cluster.namesrv, 60_000) as admin:
        admin.update_consume_offset(cluster.brokers["broker-a"].address, group, MessageQueue(name, "broker-a", 0), 1)
    told = cluster.object("topic", "describe", name)
    assert (told["name"], told["kind"], told["messages"], told["differences"], told["missing"]) == (
        name, "user", 3, [], [])
    one, other = told["brokers"]
    assert [(queue["queue"], queue["begin"], queue["end"], queue["messages"]) for queue in one["queues"]] == [
        (0, 0, 2, 2), (1, 0, 1, 1)]
    assert one["queues"][0]["last_ms"] > 0 and [queue["messages"] for queue in other["queues"]] == [0, 0]
    assert told["groups"] == one["groups"] == [{"group": group, "unread": 2, "lag": 2}]
    text = cluster.ok("topic", "describe", name).stdout
    assert re.search(rf"\ngroup +unread\n-+  -+\n{group}       2\n", text)
    assert f"{group}  " in text and "messages     3" in text and "order" not in text
    assert "no group consumes it" in cluster.ok("topic", "describe", "TBW102").stdout


def test_differences_between_brokers_are_marked(cluster):
    name = cluster.unique("Differ")
    cluster.ok("topic", "create", name, "-q", 2)
    cluster.ok("topic", "alter", name, "-q", 3, "-b", "broker-b")
    assert cluster.object("topic", "describe", name)["differences"] == ["read_queues", "write_queues"]
    text = cluster.ok("topic", "describe", name).stdout
    assert "* read queues  * write queues  perm" in text
    cluster.ok("topic", "create", f"{name}-one", "-b", "broker-a")
    assert "missing on   broker-b" in cluster.ok("topic", "describe", f"{name}-one").stdout
    missing = cluster.run("topic", "describe", f"{name}-none")
    assert missing.exit_code == 2
    assert f"no topic '{name}-none' on the masters of this cluster; did you mean {name}-one?" in missing.output


# ---- alter


def test_only_the_given_settings_change_and_each_broker_keeps_the_rest(cluster):
    name = cluster.unique("Alter")
    cluster.ok("topic", "create", name, "-q", 4)
    cluster.ok("topic", "alter", name, "-q", 8, "-b", "broker-b")
    told = cluster.ok("topic", "alter", name, "--write-queues", 2)
    assert told.stdout == "broker-a: write queues 4 -> 2\nbroker-b: write queues 8 -> 2\n"
    assert "note: broker-b: the queues 2 to 7 get no more messages; reduce --read-queues when" in told.stderr
    assert queues_of(cluster, name) == {"broker-a": (4, 2), "broker-b": (8, 2)}
    changed = cluster.object("topic", "alter", name, "--perm", "w")["brokers"][0]
    assert (changed["before"]["perm"], changed["after"]["perm"], changed["after"]["read_queues"]) == ("RW", "-W", 4)
    assert cluster.ok("topic", "alter", name, "--perm", "w").stdout == "broker-a: unchanged\nbroker-b: unchanged\n"


def test_messages_in_queues_that_are_no_longer_read_are_counted(cluster):
    name = cluster.unique("Shrink")
    cluster.ok("topic", "create", name, "-q", 4, "-b", "broker-a")
    for _ in range(3):
        assert cluster.brokers["broker-a"].send(name, queue_id=3).code == 0
    cluster.dispatched()
    cluster.ok("topic", "alter", name, "--write-queues", 2)
    queues = cluster.object("topic", "describe", name)["brokers"][0]["queues"]
    assert [(queue["queue"], queue["messages"]) for queue in queues] == [(0, 0), (1, 0), (2, 0), (3, 3)]
    told = cluster.ok("topic", "alter", name, "--read-queues", 2)
    assert "consumers no longer read the queues 2 to 3, which hold 3 messages" in told.stderr
    assert "not on broker-b; `rmqha topic create" in told.stdout


def test_change_that_loses_messages_or_changes_nothing_is_refused(cluster):
    name = cluster.unique("Wrong")
    cluster.ok("topic", "create", name, "-q", 4)
    for arguments, text in (([], "give a setting to change"), (["--read-queues", 2], "2 read queues for 4 write")):
        result = cluster.run("topic", "alter", name, *arguments)
        assert result.exit_code == 2 and text in result.output
    assert queues_of(cluster, name) == {"broker-a": (4, 4), "broker-b": (4, 4)}
    assert cluster.run("topic", "alter", f"{name}x", "-q", 2).exit_code == 2


# ---- delete


def test_topic_is_deleted_on_all_masters_and_at_the_name_server(cluster, monkeypatch):
    name = cluster.unique("Gone")
    cluster.ok("topic", "create", name)
    assert cluster.brokers["broker-a"].send(name).code == 0
    cluster.dispatched()
    asked = cluster.run("topic", "delete", name)
    assert asked.exit_code == 2
    assert asked.output == (
        f"Error: Delete topic {name} with 1 message on broker-a, broker-b? No terminal to ask on: give --yes\n")
    monkeypatch.setattr(terminal, "on_terminal", lambda: True)
    assert cluster.run("topic", "delete", name, stdin="n\n").exit_code == 1
    assert queues_of(cluster, name) == {"broker-a": (8, 8), "broker-b": (8, 8)}
    told = cluster.run("topic", "delete", name, stdin="y\n")
    assert told.exit_code == 0
    assert told.stdout == f"deleted topic {name} on broker-a, broker-b, and at the name servers\n"
    assert queues_of(cluster, name) == {"broker-a": None, "broker-b": None}
    with ClusterAdmin(cluster.namesrv, 60_000) as admin:
        assert topics.routed_brokers(admin, name) == set()
    again = cluster.run("topic", "delete", name, "--yes")
    assert again.exit_code == 2 and "no topic" in again.output


def test_similar_topic_is_named(cluster):
    name = cluster.unique("Ledgers")
    cluster.ok("topic", "create", name, "-q", 1)
    for words in (["describe"], ["delete", "--yes"], ["alter", "-q", 2], ["stats"]):
        wrong = cluster.run("topic", words[0], name.replace("gers", "grs"), *words[1:])
        assert wrong.exit_code == 2 and f"on the masters of this cluster; did you mean {name}?" in wrong.output
    far = cluster.run("topic", "describe", "zzz")
    assert far.exit_code == 2 and "cluster. `rmqha topic list` shows those that exist" in far.output


def test_list_says_that_no_topic_matches(cluster):
    none = cluster.ok("topic", "list", "zzz*")
    assert (none.stdout, none.stderr) == ("", "no topic matches zzz*\n")
    assert cluster.object("topic", "list", "zzz*") == []


def test_names_of_other_programs_commands_are_understood(cluster):
    name = cluster.unique("Alias")
    cluster.ok("topic", "create", name)
    assert name in cluster.ok("topic", "ls", name).stdout
    assert "deleted topic" in cluster.ok("topic", "rm", name, "--yes").stdout
    help_text = cluster.run("topic", "remove").output
    assert "Missing argument 'NAME...'" in help_text
    assert not re.search(r"^ +(ls|rm|remove) ", cluster.run("topic").output, re.MULTILINE)


# ---- several topics


def test_several_topics_are_created_and_a_refused_one_does_not_stop_the_others(cluster):
    one, two, three = (cluster.unique("Several") for _ in range(3))
    made = cluster.ok("topic", "create", one, two, one, "-q", 2)
    assert made.stdout.splitlines() == [
        f"created topic {name} on broker-a, broker-b: 2 read and 2 write queues each, RW" for name in (one, two)]
    partly = cluster.run("topic", "create", one, "a b", three)
    assert partly.exit_code == 1 and f"created topic {three} on broker-a, broker-b" in partly.stdout
    assert f"{one}: topic {one} exists on broker-a, broker-b" in partly.stderr
    assert "a b: 'a b' is not a valid topic name" in partly.stderr and "Error: 2 topics of 3 failed" in partly.stderr
    none = cluster.run("topic", "create", one, two, "-o", "json")
    assert none.exit_code == 2 and "Error: 2 topics of 2 failed" in none.stderr
    assert [sorted(each) for each in json.loads(none.stdout)] == [["error", "name"]] * 2


def test_several_topics_are_described_one_after_the_other(cluster):
    one, two = cluster.unique("Both"), cluster.unique("Both")
    cluster.ok("topic", "create", one, two, "-q", 2)
    assert [each["name"] for each in cluster.object("topic", "describe", one, two)] == [one, two]
    assert cluster.object("topic", "describe", one)["name"] == one
    text = cluster.run("topic", "describe", one, "zzz", two)
    assert text.exit_code == 1 and f"no group consumes it\n\ntopic        {two}\n" in text.stdout
    assert "zzz: no topic 'zzz'" in text.stderr
    told = cluster.run("topic", "describe", one, "zzz", "-o", "json")
    assert told.exit_code == 1 and [each.get("error") is None for each in json.loads(told.stdout)] == [True, False]


def test_deletion_of_several_topics_asks_once_and_names_all(cluster, monkeypatch):
    one, two = cluster.unique("Late"), cluster.unique("Late")
    cluster.ok("topic", "create", one, two, "-q", 1)
    assert cluster.brokers["broker-a"].send(one).code == 0
    cluster.dispatched()
    question = (f"Delete 2 topics: {one} with 1 message on broker-a, broker-b; {two} with 0 messages on broker-a, "
                "broker-b?")
    asked = cluster.run("topic", "delete", one, "zzz", two)
    assert asked.exit_code == 2 and f"Error: {question} No terminal" in asked.output
    assert asked.output.startswith("zzz: no topic 'zzz'")
    monkeypatch.setattr(terminal, "on_terminal", lambda: True)
    assert cluster.run("topic", "delete", one, two, stdin="n\n").exit_code == 1
    assert queues_of(cluster, one) == {"broker-a": (1, 1), "broker-b": (1, 1)}
    told = cluster.run("topic", "delete", one, "zzz", two, stdin="y\n")
    assert told.exit_code == 1 and told.stdout.count("\n") == told.stdout.count("and at the name servers\n") == 2
    assert "Error: 1 topic of 3 failed" in told.stderr
    assert queues_of(cluster, one) == queues_of(cluster, two) == {"broker-a": None, "broker-b": None}
    gone = cluster.run("topic", "delete", one, two, "--yes", "-o", "json")
    assert gone.exit_code == 2 and [each["name"] for each in json.loads(gone.stdout)] == [one, two]


def test_topics_of_the_system_are_not_deleted(cluster):
    for name in ("BenchmarkTest", "broker-a", CLUSTER):
        result = cluster.run("topic", "delete", name, "--yes")
        assert result.exit_code == 2 and "is a topic of the system" in result.output


# ---- stats


def test_messages_in_and_out_are_shown(cluster):
    name, group = cluster.unique("Flow"), "consumer"
    cluster.ok("topic", "create", name, "-q", 1)
    broker = cluster.brokers["broker-a"]
    manager = broker.controller.broker_stats_manager
    for _ in range(4):
        assert broker.send(name, b"x" * 1000).code == 0
    broker.next_offset(name)
    broker.heartbeat(group, name)
    assert broker.pull(name, 0, group=group).code == 0
    for counter, key in (("TOPIC_PUT_NUMS", name), ("TOPIC_PUT_SIZE", name), ("GROUP_GET_NUMS", f"{name}@{group}"),
                         ("GROUP_GET_SIZE", f"{name}@{group}")):
        item = wait_until(lambda counter=counter, key=key: manager.stats_table[counter].get_stats_item(key), 60_000,
                          f"{counter} of {key}")
        for sample in (item.sampling_in_seconds, item.sampling_in_hour):  # as brokers do at times
            sample()
    with ClusterAdmin(cluster.namesrv, 60_000) as admin:
        admin.update_consume_offset(broker.address, group, MessageQueue(name, "broker-a", 0), 4)
    flows = {(each["broker"], each["group"]): each for each in cluster.object("topic", "stats", name)}
    assert flows["broker-a", None]["messages"]["minute"]["sum"] == 4
    assert flows["broker-a", None]["bytes"]["day"]["sum"] >= 4000
    assert flows["broker-a", group]["messages"]["day"]["sum"] == 4
    assert flows["broker-b", None]["messages"]["day"] == {"sum": 0, "per_s": 0.0}
    text = cluster.ok("topic", "stats", name).stdout
    assert f"out to {group}" in text and "KiB" in text
    assert cluster.run("topic", "stats", f"{name}x").exit_code == 2


# ---- masters that are gone


@pytest.fixture(params=["unreachable", "crashed"])
def broken(cluster, request):
    """The cluster with a third master, which is registered but does not answer, or has crashed."""
    with unreachable_master(cluster.namesrv, crashed=request.param == "crashed"):
        yield cluster


def test_change_fails_in_part_and_says_where(broken):
    name = broken.unique("Part")
    made = broken.run("topic", "create", name)
    assert made.exit_code == 1 and f"created topic {name} on broker-a, broker-b" in made.output
    assert "broker-c (127.0.0.1:" in made.stderr and "can't be reached" in made.stderr
    assert "Error: 1 broker of 3 failed" in made.stderr
    told = broken.run("topic", "alter", name, "-q", 2, "-o", "json")
    assert told.exit_code == 1
    done = json.loads(told.stdout)
    assert [each["broker"] for each in done["brokers"]] == ["broker-a", "broker-b"]
    assert [each["broker"] for each in done["failed"]] == ["broker-c"]
    gone = broken.run("topic", "delete", name, "--yes")
    assert gone.exit_code == 1 and gone.stdout == f"deleted topic {name} on broker-a, broker-b\n"
    with ClusterAdmin(broken.namesrv, 60_000) as admin:
        assert topics.routed_brokers(admin, name) == {"broker-a", "broker-b"}, "the route stays until all is deleted"


def test_reading_fails_in_part(cluster):
    name = cluster.unique("Read")
    cluster.ok("topic", "create", name)
    with unreachable_master(cluster.namesrv):
        for arguments in (["list", name], ["list", name, "--stats"], ["describe", name], ["stats", name]):
            result = cluster.run("topic", *arguments)
            assert result.exit_code == 1 and "broker-a" in result.stdout, arguments
            assert "broker-c" in result.stderr and "1 broker of 3 failed" in result.stderr
        nothing = cluster.run("topic", "describe", f"{name}x")
        assert nothing.exit_code == 2 and "broker-c did not answer" in nothing.output


def test_no_master_answers(tmp_path):
    with running_name_server(tmp_path) as namesrv, unreachable_master(namesrv):
        for arguments in (["list"], ["create", "T"], ["describe", "T"], ["delete", "T", "--yes"], ["stats", "T"]):
            result = Line(namesrv).run("topic", *arguments)
            assert result.exit_code == 2 and "can't be reached" in result.output, arguments


def test_two_clusters_need_a_choice(tmp_path):
    with running_name_server(tmp_path) as namesrv, ExitStack() as stack:
        stack.enter_context(unreachable_master(namesrv))
        with RawClient(namesrv) as client:
            client.request(request_code.REGISTER_BROKER, b"", brokerName="b", brokerAddr="127.0.0.1:1",
                           clusterName="D", haServerAddr="127.0.0.1:1", brokerId=0, compressed="false", bodyCrc32=0)
            result = Line(namesrv).run("topic", "list")
            assert result.exit_code == 2 and "choose one with --cluster: C, D" in result.output


# ---- malformed answers

COMMANDS = (["list", "--all", "--stats"], ["create", "T"], ["describe", "T"], ["alter", "T", "-q", "3"],
            ["delete", "T", "--yes"], ["stats", "T"])
CODES = (request_code.GET_ALL_TOPIC_CONFIG, request_code.GET_TOPIC_STATS_INFO, request_code.GET_ROUTEINFO_BY_TOPIC,
         request_code.QUERY_TOPIC_CONSUME_BY_WHO, request_code.GET_CONSUME_STATS, request_code.VIEW_BROKER_STATS_DATA,
         request_code.GET_KVLIST_BY_NAMESPACE)
ODD_CONFIGS = (b"", b"[[", b"null", b'{"topicConfigTable":[1]}', b'{"topicConfigTable":{"T":7}}', b"\xff",
               b'{"topicConfigTable":{"T":{"readQueueNums":-5,"writeQueueNums":99999999999,"perm":77,'
               b'"topicFilterType":"Z"}}}', b'{"topicConfigTable":{"T":{"readQueueNums":99999999999,'
               b'"writeQueueNums":-3}}}', b'{"topicConfigTable":{"\\u001b[2J":{},"T":{"topicName":null}}}')
_NUMBERS = st.one_of(st.integers(), st.floats(), st.sampled_from(["", "x", None, True, [], {}]))
_TABLES = st.builds(lambda rows: json.dumps({"topicConfigTable": rows, "offsetTable": rows}).encode(), st.dictionaries(
    st.sampled_from(["T", "U", "%DLQ%g", "\ud800", "\x1b"]), st.dictionaries(st.sampled_from(
        ["readQueueNums", "writeQueueNums", "perm", "order", "topicSysFlag", "topicFilterType", "maxOffset"]),
        _NUMBERS)))


def run_all(server: FakeServer) -> None:
    """Run each command; it must end with an exit code and without a traceback."""
    for command in COMMANDS:
        result = Line(server.address).run("topic", *command)
        assert result.exit_code in (0, 1, 2) and "internal error" not in result.output, (command, result.output)
        assert "\x1b" not in result.output, command


@pytest.mark.parametrize("body", ODD_CONFIGS)
def test_malformed_answers_are_errors(monkeypatch, body):
    monkeypatch.setattr(topics, "_ROUTE_STEP_S", 0.0)
    monkeypatch.setattr(topics, "_MOST_UNWRITTEN", 3)
    with FakeServer(dict.fromkeys(CODES, body)) as server:
        run_all(server)
        for code in CODES:
            server.answers = {request_code.GET_ALL_TOPIC_CONFIG: b'{"topicConfigTable":{"T":{}}}', code: body}
            result = Line(server.address).run("topic", "describe", "T")
            assert result.exit_code in (0, 1, 2) and "internal error" not in result.output, (code, result.output)


@settings(max_examples=drawn(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=100), _TABLES))
def test_random_answers_are_errors(body):
    with FakeServer(dict.fromkeys(CODES, body)) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(topics, "_MOST_UNWRITTEN", 3)
        for command in (["list", "--all"], ["describe", "T"], ["stats", "T"]):
            result = Line(server.address).run("topic", *command)
            assert result.exit_code in (0, 1, 2) and "internal error" not in result.output, (command, result.output)


def test_refusal_of_a_broker_is_an_error_with_its_text():
    def refuse(_request: RemotingCommand) -> RemotingCommand:
        return RemotingCommand.create_response_command(16, "no\nway")
    with FakeServer({request_code.GET_ALL_TOPIC_CONFIG: refuse}) as server:
        result = Line(server.address).run("topic", "list")
    assert result.exit_code == 2 and "refused the request, no permission: no\nway. Use an account" in result.output


def test_internal_error_of_a_request_is_reported_and_not_waited_for(monkeypatch):
    def broken(*_arguments):
        raise KeyError("odd")
    with FakeServer({}) as server:
        monkeypatch.setattr(topics, "settings_on", broken)
        result = Line(server.address).run("topic", "list")
    assert result.exit_code == 2 and "internal error in rmqha, KeyError: 'odd'. Please report it" in result.output


def test_queues_that_are_only_read_are_bounded():
    with FakeServer({request_code.GET_TOPIC_STATS_INFO: b'{"offsetTable":{}}'}) as server, \
            pytest.MonkeyPatch.context() as patch, ClusterAdmin(server.address, 60_000) as admin:
        patch.setattr(topics, "_MOST_UNWRITTEN", 5)
        config = TopicConfig("T", 1 << 62, 0)
        with pytest.raises(CannotAnswerError):  # no offset in the answer
            topics.queues_on(admin, Broker("X", "broker-x", 0, server.address), "T", config)
        patch.setattr(admin.api, "get_min_offset", lambda *_: 2)
        patch.setattr(admin.api, "get_max_offset", lambda *_: 7)
        found = topics.queues_on(admin, Broker("X", "broker-x", 0, server.address), "T", config)
    assert [queue.count for queue in found] == [5] * 5


def test_settings_keep_what_is_not_given():
    before = TopicConfig("T", 4, 2, WRITE)
    assert TopicSettings().applied(before) == before
    assert TopicSettings(read_queues=9).applied(before) == TopicConfig("T", 9, 2, WRITE)


# ---- RocketMQ


@pytest.mark.java
@pytest.mark.parametrize("kind", ["java", "rmqha"])
def test_topics_of_rocketmq(make_namesrv, make_broker, kind):
    namesrv = make_namesrv(kind).address
    for name in ("broker-a", "broker-b"):
        make_broker("java", namesrv, name, brokerName=name)
    line = Line(namesrv)
    with ClusterAdmin(namesrv, 60_000) as admin:
        wait_until(lambda: len(admin.brokers()) == 2, 60_000, "both are registered")
        made = line.ok("topic", "create", "orders", "-q", 4, "--order", "--wait", 60)
        assert "created topic orders on broker-a, broker-b: 4 read and 4 write" in made.output
        assert topics.order_conf(admin, "orders") == "broker-a:4;broker-b:4"
        with DefaultMQProducer("p", namesrv) as producer:
            for number in range(8):
                queue = MessageQueue("orders", f"broker-{'ab'[number % 2]}", number // 2)
                assert producer.send(Message("orders", b"x"), queue=queue).send_status.name == "SEND_OK"

        def counted():
            (row,) = line.object("topic", "list", "--stats")
            return row if row["messages"] == 8 else None
        row = wait_until(counted, 60_000, "the messages are dispatched")
        assert (row["name"], row["kind"], row["read_queues"], row["order"]) == ("orders", "user", 8, True)
        assert "system" in {row["kind"] for row in line.object("topic", "list", "--all")}
        told = line.ok("topic", "alter", "orders", "--write-queues", 2)
        assert told.stdout == ("broker-a: write queues 4 -> 2\nbroker-b: write queues 4 -> 2\n"
                               "order conf: broker-a:2;broker-b:2\n")
        described = line.object("topic", "describe", "orders")
        assert described["messages"] == 8 and described["order_conf"] == "broker-a:2;broker-b:2"
        assert [len(part["queues"]) for part in described["brokers"]] == [4, 4]
        assert {part["write_queues"] for part in described["brokers"]} == {2}
        assert [each["direction"] for each in line.object("topic", "stats", "orders")] == ["in", "in"]
        assert line.run("topic", "create", "orders").exit_code == 2
        assert line.run("topic", "create", "TBW102").exit_code == 2
        line.ok("topic", "delete", "orders", "--yes")
        assert topics.routed_brokers(admin, "orders") == set() and topics.order_conf(admin, "orders") is None
        assert line.object("topic", "list") == []
