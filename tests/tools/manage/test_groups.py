"""`rmqha group` and its operations: lists, details, settings and deletions on two masters, and seeks of stopped and
running groups whose consumers are counted message by message."""
import json
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rmqha.client.consumer.default_lite_pull_consumer import DefaultLitePullConsumer
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.client_bodies import Connection, ConsumerConnection, ConsumerRunningInfo, QueueTimeSpan
from rmqha.common.subscriptions import ConsumeFromWhere, ConsumeType, MessageModel, build_subscription_data
from rmqha.common.topics import SubscriptionGroupConfig
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.tools import terminal
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin, NoAnswerError, RefusedError
from rmqha.tools.manage import group_command, group_seek, groups
from rmqha.tools.manage.group_detail import describe_group, subscriptions_that_differ
from rmqha.tools.manage.group_seek import (
    EARLIEST,
    LATEST,
    GroupQueue,
    QueueMove,
    SeekTarget,
    move_of,
    plan_seek,
    seek,
    target_offset,
)
from rmqha.tools.manage.groups import (
    PARTLY_PAUSED,
    PAUSED,
    RUNNING,
    STOPPED,
    GroupRow,
    create_group,
    list_groups,
    membership,
    oldest_unread,
    span_age,
    state_of,
)
from rmqha.tools.manage.masters import masters
from rmqha.tools.rmqha_command import rmqha
from rmqha.tools.terminal import CannotAnswerError
from rmqha.tools.view.snapshot import GroupState, QueuePlace
from tests.broker.support import BrokerHarness
from tests.store.support import wait_dispatched
from tests.support import tiers
from tests.support.in_process import running_name_server
from tests.support.java_driver import Workload
from tests.support.load import small_sizes
from tests.support.wait import stays, wait_until
from tests.tools.conftest import broker_at

MASTER = Broker("C", "broker-a", 0, "10.0.0.1:10911")
OTHER = Broker("C", "broker-b", 0, "10.0.0.2:10911")
QUEUES = 2  # per broker

# The plan of one queue: a pure function.

OFFSETS = st.integers(0, 10**6)
TARGETS = st.one_of(st.sampled_from([SeekTarget(EARLIEST), SeekTarget(LATEST)]),
                    st.builds(SeekTarget, time_ms=st.integers(0, 2 * 10**12)))


@st.composite
def bounds(draw):
    first = draw(OFFSETS)
    return GroupQueue(draw(st.none() | st.integers(-1, 2 * 10**6)), first, first + draw(OFFSETS),
                       draw(st.integers(0, 2 * 10**12)))


@given(bounds(), TARGETS, st.none() | st.integers(-5, 3 * 10**6), st.booleans())
def test_a_planned_target_is_in_the_queue_and_its_change_counts_messages(queue, target, found, is_online):
    move = move_of("T", MASTER, 0, queue, target, found, is_online)
    assert queue.first <= move.target <= queue.end
    if queue.committed is None:
        assert move.change is None and move.text == "no offset yet"
    else:
        # what the group would still have read before and after, of the messages that exist
        unread = queue.end - min(max(queue.committed, queue.first), queue.end)
        assert move.change == unread - (queue.end - move.target)
        assert ("skipped" in move.text) == (move.change > 0) and ("read again" in move.text) == (move.change < 0)
    if target.word is not None:
        assert move.target == (queue.first if target.word == EARLIEST else queue.end)
    elif not is_online and 0 < queue.last_ms < target.time_ms:
        assert move.target == queue.end
    else:
        assert move.target == min(max(found or 0, queue.first), queue.end)


@given(bounds(), st.integers(-1, 3 * 10**6))
def test_an_offset_is_taken_as_it_is_or_refused(queue, offset):
    if queue.first <= offset <= queue.end:
        assert target_offset(queue, SeekTarget(offset=offset), None, False) == offset
    else:
        with pytest.raises(ValueError, match=f"it has {queue.first} to {queue.end}"):
            target_offset(queue, SeekTarget(offset=offset), None, False)


def test_a_time_asks_the_broker_for_the_ms_before_it():
    assert SeekTarget(time_ms=1000).searched_ms == 999 and SeekTarget(time_ms=0).searched_ms == 0
    assert SeekTarget(EARLIEST).searched_ms == 0 and SeekTarget(LATEST).searched_ms == -1


@given(st.integers(0, 50), st.integers(0, 50), st.lists(st.integers(0, 60), max_size=20))
def test_a_watched_queue_is_there_when_its_offset_has_fallen_or_come_to_the_target(committed, target, seen):
    watched = group_seek._Watched(QueueMove("T", MASTER, 0, committed, 0, 60, target, True), target, committed)
    highest = committed
    expected = False
    for offset in seen:
        fell = offset < highest
        expected |= offset >= target and (fell if target < committed else True)
        highest = max(highest, offset)
        watched.see(offset)
        assert watched.is_there == expected and watched.seen == offset


# Merged answers: pure functions.


def connection(*clients, topics=("T",), kind=ConsumeType.CONSUME_PASSIVELY, language="JAVA"):
    return ConsumerConnection({Connection(name, f"10.0.0.9:{number}", language, 435)
                               for number, name in enumerate(clients)},
                              {topic: build_subscription_data(topic, "a || b") for topic in topics}, kind,
                              MessageModel.CLUSTERING)


def test_members_of_all_brokers_are_counted_once():
    joined = membership({OTHER: connection("one", "two"), MASTER: connection("two", "three", topics=("T", "U"))})
    assert list(joined.members) == ["one", "three", "two"] and joined.via["two"] == MASTER
    assert joined.subscriptions == {"T": "a || b", "U": "a || b"} and joined.kind == "push"
    assert membership({MASTER: None, OTHER: ConsumerConnection()}).kind == ""
    assert membership({MASTER: connection("one", kind=ConsumeType.CONSUME_ACTIVELY)}).kind == "pull"


@pytest.mark.parametrize(("enabled", "has_members", "state"), [
    ([True, True], True, RUNNING), ([True], False, STOPPED), ([False, False], True, PAUSED), ([], False, STOPPED),
    ([True, False], True, PARTLY_PAUSED)])
def test_state_is_paused_only_if_all_brokers_refuse(enabled, has_members, state):
    assert state_of([SubscriptionGroupConfig("g", consumeEnable=each) for each in enabled], has_members) == state


def span(queue_id, delay, first=0):
    return QueueTimeSpan(MessageQueue("T", "broker-a", queue_id), first, 9, 9, delay)


def test_age_of_a_queue_is_that_of_its_first_message_when_the_broker_found_none_at_the_offset():
    assert span_age(span(0, 700), 1_000_000) == (700, True)
    now_ms = 1_796_046_010_000
    assert span_age(span(0, now_ms + 1, now_ms - 5000), now_ms) == (5000, False)
    assert span_age(span(0, now_ms + 1, -1), now_ms) == span_age(span(0, -7, 0), now_ms) == (None, False)


def test_oldest_unread_message_is_exact_or_a_limit_or_unknown():
    def state(*places):
        return GroupState("g", tuple(QueuePlace("T", "broker-a", *place) for place in places))
    assert oldest_unread(state((0, 5, 5, 9)), [], 1000) == (0, True)
    late = state((0, 9, 5, 100), (1, 9, 2, 200), (2, 3, 3, 0))
    assert oldest_unread(late, [span(0, 300), span(1, 400), span(2, 0)], 1000) == (400, True)
    assert oldest_unread(late, [span(1, 400)], 1000) == (900, False)
    assert oldest_unread(state((0, 9, 0, 0)), [], 1000) == (None, False)


def test_subscriptions_differ_by_topic_and_expression_but_not_by_the_order_of_tags():
    def info(**topics):
        return ConsumerRunningInfo(subscriptionSet=[build_subscription_data(topic, expression)
                                                    for topic, expression in topics.items()])
    same = {"one": info(T="a || b", RETRY="*"), "two": info(T="b||a")}
    assert subscriptions_that_differ(same, "RETRY") == ()
    assert subscriptions_that_differ({**same, "three": info(T="a", U="*")}, "RETRY") == ("T", "U")


# Two masters and consumers of rmqha, all in this process.


@dataclass
class Cluster:
    """Two masters with `QUEUES` queues per topic, and the command line."""

    namesrv: str
    brokers: list[BrokerHarness]

    def run(self, *arguments, stdin=None):
        result = CliRunner().invoke(rmqha, [str(each) for each in arguments], input=stdin,
                                    env={"NAMESRV_ADDR": self.namesrv})
        assert "Traceback" not in result.output and not isinstance(result.exception, AttributeError)
        return result

    def ok(self, *arguments):
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *arguments):
        return json.loads(self.ok(*arguments, "-o", "json"))

    def send(self, topic, count, text="m"):
        """Send `count` messages to each queue, and wait until they can be read."""
        for broker in self.brokers:
            for number in range(count):
                for queue_id in range(QUEUES):
                    assert broker.send(topic, f"{text}{number}".encode(), queue_id).code == response_code.SUCCESS
            wait_dispatched(broker.store)

    def committed(self, group, topic):
        return [broker.controller.consumer_offset_manager.query_offset(group, topic, queue_id)
                for broker in self.brokers for queue_id in range(QUEUES)]

    def config(self, group):
        return [broker.controller.subscription_group_manager.subscription_group_table.get(group)
                for broker in self.brokers]


@contextmanager
def running_cluster(folder, **config):
    with ExitStack() as stack:
        namesrv = stack.enter_context(running_name_server(folder))
        brokers = [stack.enter_context(broker_at(folder / name, namesrv, brokerName=name, brokerClusterName="C",
                                                 defaultTopicQueueNums=QUEUES, **config))
                   for name in ("broker-a", "broker-b")]
        yield Cluster(namesrv, brokers)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A running cluster, shared by the tests of this module; each uses its own group and topic."""
    with running_cluster(tmp_path_factory.mktemp("two")) as cluster:
        yield cluster


class Consumer:
    """A push consumer that counts (broker, queue id, offset). `gate` holds the listener back while it is not set, which
    is from the start with `blocked`."""

    def __init__(self, cluster, group, topic, expression="*", blocked=False, **settings):
        self.cluster, self.group, self.topic = cluster, group, topic
        self.gate = threading.Event()
        if not blocked:
            self.gate.set()
        self.got = Counter()
        self.client = DefaultMQPushConsumer(group, cluster.namesrv, self._consume,
                                            instance_name=f"{group}-{time.monotonic_ns()}", **settings)
        self.client.subscribe(topic, expression)

    def _consume(self, messages):
        assert self.gate.wait(120)
        self.got.update((each.broker_name, each.queue_id, each.queue_offset) for each in messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    def __enter__(self):
        self.client.start()
        return self

    def __exit__(self, *_exc):
        self.gate.set()
        self.client.shutdown()

    @property
    def total(self):
        return self.got.total()

    @property
    def held(self):
        """The queues that this member reads."""
        return list(self.client.default_mq_push_consumer_impl.rebalance_impl.process_queue_table)

    def has(self, total):
        """Wait until so many messages have been consumed, and their offsets stored, which is due every 5 s only."""
        wait_until(lambda: self.total == total, 60_000, f"{total} messages")

        def stored():
            self.client.default_mq_push_consumer_impl.persist_consumer_offset()
            return self.cluster.committed(self.group, self.topic) == self.ends()
        wait_until(stored, 60_000, "stored offsets")

    def ends(self):
        return [broker.next_offset(self.topic, queue_id) for broker in self.cluster.brokers
                for queue_id in range(QUEUES)]


def all_of(first, end):
    """Each queue's messages from `first` on, once each."""
    return Counter((name, queue_id, offset) for name in ("broker-a", "broker-b") for queue_id in range(QUEUES)
                   for offset in range(first, end))


def prepared(cluster, name, count=20):
    """A group of that name, and a topic of the same name with messages; returns the time between its two halves."""
    cluster.ok("group", "create", name)
    cluster.send(name, count // 2, "old")
    between = round(time.time() * 1000)
    wait_until(lambda: time.time() * 1000 > between + 20)
    cluster.send(name, count - count // 2, "new")
    return between + 10


# Settings.


def test_group_is_created_where_it_lacks_changed_and_deleted_on_all_masters(two):
    assert two.ok("group", "create", "made", "--retries", 3, "--no-broadcast").count("created") == 2
    assert {(each.retryMaxTimes, each.consumeBroadcastEnable, each.retryQueueNums) for each in two.config("made")} == {
        (3, False, 1)}
    again = two.run("group", "create", "made")
    assert again.exit_code == 2 and "exists already" in again.output
    two.brokers[1].controller.subscription_group_manager.delete_subscription_group_config("made")
    assert two.ok("group", "create", "made", "--retries", 3, "--no-broadcast").count("created") == 1
    changed = two.json("group", "alter", "made", "--retry-queues", 2, "--slow-broker-id", 0)
    assert [each["changed"]["retryQueueNums"] for each in changed] == [{"before": 1, "after": 2}] * 2
    assert two.config("made") == [SubscriptionGroupConfig(
        "made", retryMaxTimes=3, consumeBroadcastEnable=False, retryQueueNums=2, whichBrokerWhenConsumeSlowly=0)] * 2
    assert "nothing to change" in two.ok("group", "alter", "made", "--retry-queues", 2)
    assert two.run("group", "alter", "made").exit_code == 2
    two.ok("group", "delete", "made", "--yes")
    assert two.config("made") == [None, None]
    gone = two.run("group", "delete", "made", "--yes")
    assert gone.exit_code == 2 and "no group 'made' in this cluster" in gone.output


@pytest.mark.parametrize("name", ["a b", "x" * 256, "TOOLS_CONSUMER", "CID_RMQ_SYS_X", "DEFAULT_CONSUMER"])
def test_names_that_clients_refuse_and_those_of_the_system_are_not_created(two, name):
    result = two.run("group", "create", name)
    assert result.exit_code == 2 and two.config(name) in ([None, None], [SubscriptionGroupConfig(name)] * 2)


def test_group_with_other_settings_or_missing_on_a_broker_is_named(two):
    two.ok("group", "create", "uneven")
    table = two.brokers[0].controller.subscription_group_manager
    table.update_subscription_group_config(replace(two.config("uneven")[0], retryMaxTimes=7))
    text = two.ok("group", "describe", "uneven")
    assert "the setting retryMaxTimes differs: broker-a has 7, broker-b has 16" in text
    assert "broker-a: 7, broker-b: 16  differs" in text
    two.brokers[1].controller.subscription_group_manager.delete_subscription_group_config("uneven")
    assert "the group is not on broker-b" in two.ok("group", "describe", "uneven")
    result = two.run("group", "alter", "uneven", "--retries", 1)
    assert result.exit_code == 1 and "broker-b" in result.stderr and "`rmqha group create uneven`" in result.stderr
    assert two.config("uneven")[0].retryMaxTimes == 1
    # a pause is for all brokers: otherwise the next member would create the group there, enabled
    assert "created, paused" in two.ok("group", "pause", "uneven")
    assert two.config("uneven") == [SubscriptionGroupConfig("uneven", False, retryMaxTimes=1)] * 2


def test_unknown_group_names_a_similar_one(two):
    two.ok("group", "create", "invoices")
    for words in (["describe"], ["pause"], ["alter", "--retries", 1], ["delete", "--yes"],
                  ["seek", "-t", "T", "--to", "latest", "--yes"]):
        result = two.run("group", words[0], "invoice", *words[1:])
        assert result.exit_code == 2 and "no group 'invoice' in this cluster; did you mean invoices?" in result.output


def test_deletion_asks_spares_running_groups_and_takes_offsets_and_topics(two, monkeypatch):
    prepared(two, "doomed", 2)
    two.send("%DLQ%doomed", 1)
    with Consumer(two, "doomed", "doomed") as consumer:
        consumer.has(8)
        refused = two.run("group", "delete", "doomed", "--yes")
        assert refused.exit_code == 2 and "has 1 member" in refused.output and None not in two.config("doomed")
    refused = two.run("group", "delete", "doomed")
    assert refused.exit_code == 2 and "give --yes" in refused.output
    monkeypatch.setattr(terminal, "on_terminal", lambda: True)
    kept = two.run("group", "delete", "doomed", "--topics", stdin="n\n")
    assert kept.exit_code == 1 and "on 2 masters, with its retry topic, 4 dead letters?" in kept.output
    assert None not in two.config("doomed")
    assert two.run("group", "delete", "doomed", "--topics", stdin="y\n").exit_code == 0
    topics = [set(each.controller.topic_config_manager.topic_config_table) for each in two.brokers]
    assert two.config("doomed") == [None, None] and not any({"%RETRY%doomed", "%DLQ%doomed"} & each for each in topics)
    assert two.committed("doomed", "doomed") == [2] * 4  # a new group of this name continues there
    two.ok("group", "create", "doomed")
    assert "offsets" in two.ok("group", "delete", "doomed", "--offsets", "--yes")
    assert two.committed("doomed", "doomed") == [-1] * 4


def test_several_groups_are_deleted_after_one_question(two, monkeypatch):
    for name in ("first", "second"):
        two.ok("group", "create", name)
    asked = two.run("group", "delete", "first", "zzz", "second", "--offsets")
    assert asked.exit_code == 2 and asked.output.startswith("zzz: no group 'zzz'")
    assert asked.output.endswith("Error: Delete 2 groups: first on 2 masters, with its offsets; second on 2 masters, "
                                 "with its offsets? No terminal to ask on: give --yes\n")
    monkeypatch.setattr(terminal, "on_terminal", lambda: True)
    told = two.run("group", "rm", "first", "zzz", "second", stdin="y\n")
    assert told.exit_code == 1 and "Error: 1 group of 3 failed" in told.stderr
    assert [line for line in told.stdout.splitlines() if line.startswith("group")] == ["group first", "group second"]
    assert two.config("first") == two.config("second") == [None, None]
    gone = two.run("group", "delete", "first", "second", "--yes", "-o", "json")
    assert gone.exit_code == 2 and [each["name"] for each in json.loads(gone.stdout)] == ["first", "second"]


# Lists and details.


def test_list_shows_state_members_and_unread_messages(two):
    prepared(two, "listed", 4)
    with Consumer(two, "listed", "listed") as consumer:
        consumer.has(16)
        row = two.json("group", "list", "listed*")[0]
        assert {name: row[name] for name in ("name", "state", "members", "model", "type", "topics", "unread",
                                             "oldest_unread_ms")} == {
            "name": "listed", "state": "running", "members": 1, "model": "CLUSTERING", "type": "push",
            "topics": ["listed"], "unread": 0, "oldest_unread_ms": 0}
    two.send("listed", 3)
    row = two.json("group", "list", "list?d")[0]
    assert (row["state"], row["members"], row["unread"], row["oldest_unread_exact"]) == ("stopped", 0, 12, True)
    assert 0 <= row["oldest_unread_ms"] < 600_000
    two.ok("group", "pause", "listed")
    assert "paused" in two.ok("group", "list", "listed")
    assert "no group matches nothing-*" in two.run("group", "list", "nothing-*").stderr
    names = [each["name"] for each in two.json("group", "list")]
    assert "TOOLS_CONSUMER" not in names and names == sorted(names)
    assert "TOOLS_CONSUMER" in [each["name"] for each in two.json("group", "list", "--all")]


def test_list_counts_what_a_member_has_not_stored_an_offset_for(two, monkeypatch):
    two.ok("group", "create", "blocked")
    two.send("blocked", 1)
    with Consumer(two, "blocked", "blocked", blocked=True,
                  consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET):
        wait_until(lambda: two.json("group", "list", "blocked")[0]["members"] == 1, 60_000)
        row, detail = two.json("group", "list", "blocked")[0], two.json("group", "describe", "blocked")
        assert two.committed("blocked", "blocked") == [-1] * 4
        assert (row["unread"], row["oldest_unread_exact"]) == (detail["unread"], True) == (4, True)
        assert 0 < row["oldest_unread_ms"] <= detail["oldest_unread_ms"]
        monkeypatch.setattr(groups, "_MAX_UNSTORED", 0)
        row = two.json("group", "list", "blocked")[0]
        assert (row["unread"], row["oldest_unread_ms"], row["oldest_unread_exact"]) == (None, None, False)
        assert two.ok("group", "list", "blocked").splitlines()[-1].split()[-4:] == ["?", "0", "0", "?"]


def test_unread_messages_of_a_broadcasting_group_are_unknown(two):
    two.send("broadcast", 1)
    with Consumer(two, "broadcast", "broadcast", message_model=MessageModel.BROADCASTING):
        wait_until(lambda: two.json("group", "list", "broadcast")[0]["members"] == 1, 60_000)
        row = two.json("group", "list", "broadcast")[0]
        detail, text = two.json("group", "describe", "broadcast"), two.ok("group", "describe", "broadcast")
    assert (row["model"], row["unread"], row["oldest_unread_ms"]) == ("BROADCASTING", None, None)
    assert (detail["unread"], detail["oldest_unread_ms"], detail["oldest_unread_at"]) == (None, None, "")
    assert {(each["unread"], each["oldest_unread_ms"]) for each in detail["queues"]} == {(None, None)}
    assert "\nunread         ?\n" in text and "\noldest unread  unknown\n" in text
    assert {tuple(line.split()[4:6]) for line in text.splitlines() if line.startswith("broadcast ")} == {("?", "-")}


def test_thousands_of_groups_take_a_bounded_number_of_requests(two, monkeypatch):
    two.send("many", 1)
    count, most = tiers.pick((300, 50), all=(5_000, groups._MAX_SPANS))
    monkeypatch.setattr(groups, "_MAX_SPANS", most)
    for broker in two.brokers:
        for number in range(count):
            name = f"many-{number:04d}"
            broker.controller.subscription_group_manager.subscription_group_table[name] = SubscriptionGroupConfig(name)
            broker.controller.consumer_offset_manager.offset_table[f"many@{name}"] = {0: number % 2, 1: 1}
    sent = Counter()
    real = groups._pipelined

    def counting(admin, address, requests, deadline):
        sent.update(each.code for each in requests)
        return real(admin, address, requests, deadline)
    monkeypatch.setattr(groups, "_pipelined", counting)
    try:
        with ClusterAdmin(two.namesrv, 60_000) as admin:
            rows = list_groups(admin, masters(admin), "many-*").rows
    finally:
        for broker in two.brokers:
            table = broker.controller.subscription_group_manager.subscription_group_table
            for name in [name for name in table if name.startswith("many-")]:
                del table[name]
                del broker.controller.consumer_offset_manager.offset_table[f"many@{name}"]
    assert len(rows) == count and sum(row.unread for row in rows) == 2 * count // 2
    assert sent == {request_code.GET_CONSUMER_CONNECTION_LIST: 2 * count,
                    request_code.QUERY_CONSUME_TIME_SPAN: 2 * most}
    exact = [row for row in rows if row.unread and row.oldest_is_exact]
    assert len(exact) == most and all(row.oldest_ms is None for row in rows if not row.oldest_is_exact)


def test_details_have_members_queues_and_the_oldest_unread_message(two):
    prepared(two, "shown", 4)
    with Consumer(two, "shown", "shown") as consumer, ExitStack() as stack:
        consumer.has(16)
        second = stack.enter_context(Consumer(two, "shown", "shown"))
        wait_until(lambda: [sum(queue.topic == "shown" for queue in each.held) for each in (consumer, second)]
                   == [QUEUES] * 2, 60_000, "both have half of the queues")
        consumer.gate.clear()
        second.gate.clear()
        two.send("shown", 2)
        detail = wait_until(lambda: (found := two.json("group", "describe", "shown"))["unread"] == 8 and found, 60_000)
        owners = {(each["broker"], each["queue_id"]): each["members"] for each in detail["queues"]
                  if each["topic"] == "shown"}
        assert {len(each) for each in owners.values()} == {1} and len(owners) == 4
        assert {each["client_id"] for each in detail["members"]} == {one for each in owners.values() for one in each}
        assert detail["members"][0]["subscriptions"] == [
            {"topic": "%RETRY%shown", "expression": "*"}, {"topic": "shown", "expression": "*"}]
        assert (detail["state"], detail["model"], detail["type"]) == ("running", "CLUSTERING", "push")
        assert detail["oldest_unread_at"] == "committed" and 0 <= detail["oldest_unread_ms"] < 600_000
        assert detail["warnings"] == [] and detail["differs"] == []
        text = two.ok("group", "describe", "shown")
        assert "the message at the group's offset in shown broker-" in text and "running, 2 members" in text
    two.send("%DLQ%shown", 1)
    stopped = two.json("group", "describe", "shown")
    assert (stopped["state"], stopped["dead_letters"], stopped["members"]) == ("stopped", 4, [])


def test_members_with_different_subscriptions_are_a_warning(two):
    prepared(two, "mixed", 2)
    two.send("mixed-other", 1)
    with Consumer(two, "mixed", "mixed", "a"), Consumer(two, "mixed", "mixed-other"):
        with ClusterAdmin(two.namesrv, 60_000) as admin:
            detail = wait_until(lambda: (found := describe_group(admin, masters(admin), "mixed"))
                                and len(found.members) == 2 and found, 60_000)
    assert detail.subscription_differs == ("mixed", "mixed-other")
    assert any("members have different subscriptions to 'mixed'" in each and "no subscription: " in each
               for each in detail.warnings)


def test_pause_stops_members_and_resume_lets_them_continue_where_they_were(two):
    prepared(two, "held", 4)
    with Consumer(two, "held", "held") as consumer:
        consumer.client.pull_time_delay_mills_when_exception = 100
        consumer.has(16)
        two.ok("group", "alter", "held", "--retries", 5)
        assert two.ok("group", "pause", "held").count("consumeEnable: true -> false") == 2
        assert two.config("held") == [SubscriptionGroupConfig("held", False, retryMaxTimes=5)] * 2
        two.send("held", 3)
        stays(lambda: consumer.total == 16, 400, "a paused group gets nothing")
        assert two.json("group", "list", "held")[0]["state"] == "paused"
        assert two.ok("group", "resume", "held").count("consumeEnable: false -> true") == 2
        wait_until(lambda: consumer.total == 28, 60_000)
        assert consumer.got == all_of(0, 7)


# Seeks of a stopped group.


def test_plan_changes_nothing_and_a_seek_needs_an_answer(two, monkeypatch):
    prepared(two, "asked")
    before = two.committed("asked", "asked")
    plan = two.json("group", "seek", "asked", "-t", "asked", "--to", "latest", "--dry-run")
    assert plan["online"] is False and [(each["committed"], each["target"], each["change"])
                                        for each in plan["plan"]] == [(None, 20, None)] * 4
    told = two.run("group", "seek", "asked", "-t", "asked", "--to", "latest", "--dry-run")
    assert told.exit_code == 0 and told.stderr == "note: asked has no offsets for asked\n"
    assert [line.split()[2] for line in told.stdout.splitlines()[2:6]] == ["-"] * 4
    assert "no offset yet" in told.stdout and "4 queues: 0 skipped, 0 read again; no member reads them" in told.stdout
    for output in ("table", "json"):
        refused = two.run("group", "seek", "asked", "-t", "asked", "--to", "latest", "-o", output)
        assert refused.exit_code == 2 and "no member reads them" in refused.output
        assert refused.output.endswith("Error: Move group asked? No terminal to ask on: give --yes\n")
    monkeypatch.setattr(terminal, "on_terminal", lambda: True)
    refused = two.run("group", "seek", "asked", "-t", "asked", "--to", "latest", stdin="n\n")
    assert refused.exit_code == 1 and "Move group asked?" in refused.output
    assert two.committed("asked", "asked") == before == [-1] * 4
    done = two.run("group", "seek", "asked", "-t", "asked", "--to", "latest", stdin="y\n")
    assert done.exit_code == 0 and two.committed("asked", "asked") == [20] * 4


def test_stopped_group_goes_to_each_kind_of_target_and_reads_exactly_what_is_left(two):
    between = prepared(two, "moved")
    for target, offset in (("latest", 20), ("earliest", 0), ("end", 20), ("start", 0), (between, 10), (2 * 10**12, 20)):
        two.ok("group", "seek", "moved", "-t", "moved", "--to", target, "--yes")
        # the broker may find the last message before that time instead of the first one after it
        assert set(two.committed("moved", "moved")) <= ({9, 10} if offset == 10 else {offset})
    two.ok("group", "seek", "moved", "-t", "moved", "--to", "latest", "--yes")
    back = two.run("group", "seek", "moved", "-t", "moved", "--to", "earliest", "--dry-run")
    assert "4 queues: 0 skipped, 80 read again" in back.stdout and back.stderr == ""
    done = two.json("group", "seek", "moved", "-t", "moved", "--to", "12", "--queue", "broker-b:1", "--yes")
    assert [(each["broker"], each["queue_id"], each["seen"], each["change"], each["done"])
            for each in done["queues"]] == [("broker-b", 1, 12, -8, True)]
    assert two.committed("moved", "moved") == [20, 20, 20, 12]
    with Consumer(two, "moved", "moved") as consumer:
        consumer.has(8)
    two.ok("group", "seek", "moved", "-t", "moved", "--to", "earliest", "--yes")
    wanted = Counter(("broker-b", 1, offset) for offset in range(12, 20))
    assert consumer.got == wanted
    with Consumer(two, "moved", "moved") as consumer:
        wait_until(lambda: consumer.total == 80, 60_000)
    assert consumer.got == all_of(0, 20)


def test_all_topics_of_a_group_move_but_not_its_retries(two):
    prepared(two, "wide", 4)
    two.send("wide-other", 2)
    two.send("%RETRY%wide", 1)
    none = two.run("group", "seek", "wide", "--all-topics", "--to", "latest", "--yes")
    assert none.exit_code == 2 and "has no offsets of any topic" in none.output
    for topic in ("wide", "wide-other", "%RETRY%wide"):
        two.ok("group", "seek", "wide", "-t", topic, "--to", "earliest", "--yes")
    done = two.json("group", "seek", "wide", "--all-topics", "--to", "latest", "--yes")
    assert {each["topic"] for each in done["queues"]} == {"wide", "wide-other"} and len(done["queues"]) == 8
    assert two.committed("wide", "wide") == [4] * 4 and two.committed("wide", "wide-other") == [2] * 4
    assert two.committed("wide", "%RETRY%wide") == [0] * 4


def test_stopped_group_takes_the_offsets_of_another_group(two):
    prepared(two, "leader", 8)
    two.ok("group", "create", "follower")
    two.ok("group", "seek", "leader", "-t", "leader", "--to", "earliest", "--yes")
    two.ok("group", "seek", "leader", "-t", "leader", "--to", "5", "--queue", "broker-a:1", "--yes")
    for broker in two.brokers:  # as if the broker had deleted all before, or the queue had been cut
        broker.controller.consumer_offset_manager.commit_offset("t", "leader", "leader", 0, 99)
    seek_words = ("group", "seek", "follower", "--to-group", "leader")
    told = two.run(*seek_words, "-t", "leader", "--dry-run")
    assert told.exit_code == 0 and "note: follower has no offsets for leader" in told.stderr
    assert two.committed("follower", "leader") == [-1] * 4
    assert two.ok(*seek_words, "-t", "leader", "--yes").count("done") == 4
    assert two.committed("follower", "leader") == [8, 5, 8, 0]
    two.ok("group", "seek", "leader", "-t", "leader", "--to", "2", "--queue", "broker-b:1", "--yes")
    del two.brokers[0].controller.consumer_offset_manager.offset_table["leader@leader"]
    done = two.json(*seek_words, "--all-topics", "--yes")["queues"]
    assert {(each["broker"], each["queue_id"], each["target"]) for each in done} >= {("broker-b", 1, 2)}
    assert {each["broker"] for each in done} == {"broker-b"} and two.committed("follower", "leader") == [8, 5, 8, 2]
    with Consumer(two, "follower", "leader"):
        wait_until(lambda: groups_of_members(two, "follower") == 1, 60_000)
        running = two.run(*seek_words, "-t", "leader", "--yes")
    assert running.exit_code == 2 and "RocketMQ can only move all queues of a topic" in running.output


@pytest.mark.parametrize(("arguments", "says"), [
    (["--to", "latest"], "give a topic with -t, or --all-topics"),
    (["-t", "T"], "give --to or --to-group"),
    (["-t", "T", "--to", "latest", "--to-group", "other"], "give --to or --to-group"),
    (["-t", "T", "--to-group", "wrong"], "--to-group: give another group"),
    (["-t", "wrong", "--to-group", "wrong-one"], "no group 'wrong-one' in this cluster; did you mean wrong?"),
    (["-t", "wrong", "--to-group", "idle"], "group 'idle' has no offsets for wrong"),
    (["--all-topics", "--to-group", "idle"], "group 'idle' has no offsets of any topic"),
    (["--to", "latest", "-t", "wrng"], "no topic 'wrng' in this cluster; did you mean wrong?"),
    (["--to", "latest", "-t", "T", "--all-topics"], "give a topic with -t, or --all-topics"),
    (["--to", "5", "-t", "T"], "5 is an offset: name its queue"),
    (["--to", "5", "-t", "T", "--queue", "broker-a"], "'broker-a' is not a queue"),
    (["--to", "5", "-t", "T", "--queue", "broker-a:x"], "'broker-a:x' is not a queue"),
    (["--to", "5", "-t", "T", "--queue", "broker-a:" + "9" * 5000], "is not a queue id"),
    (["--to", "latest", "-t", "T", "-t", "U", "--queue", "broker-a:0"], "--queue needs one topic"),
    (["--to", "soon", "-t", "T"], "is not earliest, latest, the offset of one queue, or a time"),
    (["--to", "99", "-t", "wrong", "--queue", "broker-a:0"], "offset 99 is not in the queue: it has 0 to 2"),
    (["--to", "1", "-t", "wrong", "--queue", "broker-a:7"], "no queue broker-a:7 in this topic"),
    (["--to", "latest", "-t", "none"], "no topic 'none' in this cluster")])
def test_wrong_seeks_are_refused(two, arguments, says):
    if two.config("wrong") == [None, None]:
        prepared(two, "wrong", 2)
        two.ok("group", "create", "idle")
    result = two.run("group", "seek", "wrong", *arguments, "--yes")
    assert result.exit_code == 2 and says in result.output
    assert two.committed("wrong", "wrong") == [-1] * 4


# Seeks of a running group.


def test_running_group_goes_back_and_reads_each_message_once_more(two):
    between = prepared(two, "again")
    with Consumer(two, "again", "again") as consumer:
        consumer.client.pull_time_delay_mills_when_exception = 100
        consumer.has(80)
        text = two.ok("group", "seek", "again", "-t", "again", "--to", "earliest", "--yes")
        assert text.count("done") == 4 and "1 running member will move them" in text
        consumer.has(160)
        assert consumer.got == all_of(0, 20) + all_of(0, 20)
        done = two.json("group", "seek", "again", "-t", "again", "--to", between, "--yes")
        targets = {(each["broker"], each["queue_id"]): each["target"] for each in done["queues"]}
        assert done["online"] and set(targets.values()) <= {9, 10}
        left = Counter((name, queue_id, offset) for (name, queue_id), target in targets.items()
                       for offset in range(target, 20))
        wait_until(lambda: consumer.total == 160 + left.total(), 60_000)
        assert consumer.got == all_of(0, 20) + all_of(0, 20) + left
        assert {each.consumeEnable for each in two.config("again")} == {True}


def test_running_group_skips_to_the_end_and_reads_only_what_comes_after(two):
    prepared(two, "ahead", 4)
    with Consumer(two, "ahead", "ahead", pull_batch_size=1, pull_threshold_for_queue=1) as consumer:
        consumer.client.pull_time_delay_mills_when_exception = 100
        consumer.has(16)
        two.ok("group", "pause", "ahead")
        two.send("ahead", 50)
        text = two.ok("group", "seek", "ahead", "-t", "ahead", "--to", "latest", "--yes")
        assert text.count("50 skipped") == 4 and "200 skipped" in text and text.count("done") == 4
        # the seek leaves a paused group paused
        assert {each.consumeEnable for each in two.config("ahead")} == {False}
        two.ok("group", "resume", "ahead")
        two.send("ahead", 3)
        wait_until(lambda: consumer.total == 16 + 12, 60_000)
        stays(lambda: consumer.total == 28, 200)
        assert consumer.got == all_of(0, 4) + all_of(54, 57)


def test_queue_that_no_member_moves_is_reported(two, monkeypatch):
    prepared(two, "stuck", 4)
    with Consumer(two, "stuck", "stuck") as consumer:
        consumer.has(16)
        monkeypatch.setattr(consumer.client.default_mq_push_consumer_impl.mq_client_factory, "reset_offset",
                            lambda *_arguments: None)
        result = two.run("group", "seek", "stuck", "-t", "stuck", "--to", "earliest", "--yes", "--wait", "1")
    assert result.exit_code == 1 and "4 queues of 4 did not move" in result.stderr
    assert "no member has stored the new offset within 1 s; the broker has 4" in result.output
    assert {each.consumeEnable for each in two.config("stuck")} == {True}


def test_running_group_without_an_offset_in_some_queue_moves(two):
    prepared(two, "young", 4)
    with Consumer(two, "young", "young") as consumer:
        consumer.has(16)
        del two.brokers[0].controller.consumer_offset_manager.offset_table["young@young"][1]
        text = two.ok("group", "seek", "young", "-t", "young", "--to", "latest", "--yes")
        assert text.count("done") == 4 and two.committed("young", "young") == [4] * 4


def test_members_that_cannot_follow_a_seek_are_explained(two):
    prepared(two, "push-only", 4)
    seek_words = ("group", "seek", "push-only", "-t", "push-only", "--yes", "--to")
    with Consumer(two, "push-only", "push-only") as consumer:
        wait_until(lambda: consumer.total == 16, 60_000)
        for words in (["2", "--queue", "broker-a:0"], ["earliest", "--queue", "broker-a:0"]):
            result = two.run(*seek_words, *words)
            assert result.exit_code == 2 and "RocketMQ can only move all queues of a topic" in result.output
    with Consumer(two, "push-only", "push-only", message_model=MessageModel.BROADCASTING) as consumer:
        wait_until(lambda: groups_of_members(two, "push-only") == 1, 60_000)
        result = two.run(*seek_words, "earliest")
        assert result.exit_code == 2 and "broadcasting" in result.output
    puller = DefaultLitePullConsumer("push-only", two.namesrv, instance_name="puller")
    puller.subscribe("push-only", "*")
    puller.start()
    try:
        wait_until(lambda: groups_of_members(two, "push-only") == 1, 60_000)
        result = two.run(*seek_words, "earliest")
        assert result.exit_code == 2 and "Pull consumers ignore a reset" in result.output
        assert "type" in two.json("group", "list", "push-only")[0] and " pull " in two.ok("group", "list", "push-only")
    finally:
        puller.shutdown()


def groups_of_members(cluster, group):
    return cluster.json("group", "list", group)[0]["members"]


@pytest.mark.parametrize(("languages", "is_cpp"), [(("CPP", "CPP"), True), (("JAVA", "GO"), False)])
def test_cpp_members_get_their_own_form(languages, is_cpp):
    joined = membership({MASTER: connection("one", language=languages[0]),
                         OTHER: connection("two", language=languages[1])})
    assert group_seek._check_members("g", joined, ["T"], SeekTarget(EARLIEST), ()) == is_cpp


def test_members_in_cpp_and_other_languages_can_not_be_moved_together():
    joined = membership({MASTER: connection("one", language="CPP"), OTHER: connection("two")})
    with pytest.raises(CannotAnswerError, match="some in C\\+\\+ and some in JAVA"):
        group_seek._check_members("g", joined, ["T"], SeekTarget(EARLIEST), ())


def test_topic_of_the_same_name_in_another_cluster_is_left_alone(two, tmp_path):
    prepared(two, "twice", 2)
    with broker_at(tmp_path, two.namesrv, brokerName="broker-d", brokerClusterName="D",
                   defaultTopicQueueNums=QUEUES) as other:
        other.send("twice")
        wait_until(lambda: "several clusters" in two.run("group", "list").output, 60_000)
        done = two.ok("group", "seek", "twice", "-t", "twice", "--to", "latest", "-c", "C", "--yes")
        assert done.count("done") == 4 and "broker-d" not in done
        assert other.controller.consumer_offset_manager.query_offset("twice", "twice", 0) == -1


def test_member_that_starts_after_the_plan_stops_the_seek(two):
    prepared(two, "late", 4)
    with ClusterAdmin(two.namesrv, 60_000) as admin:
        plan = plan_seek(admin, masters(admin), "late", ["late"], SeekTarget(LATEST))
        with Consumer(two, "late", "late") as consumer:
            wait_until(lambda: consumer.total == 16, 60_000)
            with pytest.raises(CannotAnswerError, match="have started or ended since the plan was made"):
                seek(admin, plan)


# Brokers that fail or answer wrongly.


def test_silent_master_is_named_and_the_others_are_done(tmp_path):
    with running_cluster(tmp_path) as cluster:
        prepared(cluster, "partly", 4)
        cluster.brokers[1].controller.remoting_server.shutdown()
        address = cluster.brokers[1].address
        seek_words = ("seek", "partly", "-t", "partly", "--to", "latest")
        for words, done in ((("pause", "partly"), "consumeEnable: true -> false"), (("list",), "partly"),
                            (("describe", "partly"), "partly"), ((*seek_words, "--dry-run"), "no offset yet"),
                            ((*seek_words, "--yes"), "done"), (("delete", "partly", "--yes"), "group")):
            result = cluster.run("group", *words)
            assert result.exit_code == 1, (words, result.output)
            assert f"broker-b ({address}): the broker {address} can't be reached" in result.stderr
            assert done in result.stdout
        assert cluster.config("partly")[0] is None and cluster.committed("partly", "partly")[:2] == [4, 4]
        cluster.brokers[0].controller.remoting_server.shutdown()
        assert cluster.run("group", "list").exit_code == 2


def test_interrupted_seek_ends_its_pause(two, monkeypatch):
    prepared(two, "broken-off", 4)
    with Consumer(two, "broken-off", "broken-off") as consumer:
        consumer.has(16)
        real = group_seek._set_consuming

        def interrupted(admin, brokers, group, enabled):
            done = real(admin, brokers, group, enabled)
            if not enabled:
                raise KeyboardInterrupt
            return done
        monkeypatch.setattr(group_seek, "_set_consuming", interrupted)
        result = two.run("group", "seek", "broken-off", "-t", "broken-off", "--to", "earliest", "--yes")
        assert result.exit_code == 130 and {each.consumeEnable for each in two.config("broken-off")} == {True}
        assert two.committed("broken-off", "broken-off") == [4] * 4


def test_group_stays_paused_where_the_pause_can_not_be_ended_and_that_is_said(two, monkeypatch):
    prepared(two, "left", 4)
    real = group_seek._set_consuming

    def failing(admin, brokers, group, enabled):
        done = real(admin, [each for each in brokers if each.name == "broker-a" or not enabled], group, enabled)
        if enabled:
            done.errors[next(each for each in brokers if each.name == "broker-b")] = NoAnswerError("it is gone")
        return done
    monkeypatch.setattr(group_seek, "_set_consuming", failing)
    with Consumer(two, "left", "left") as consumer:
        consumer.has(16)
        result = two.run("group", "seek", "left", "-t", "left", "--to", "earliest", "--yes")
        assert result.exit_code == 1
        assert "still paused on broker-b: `rmqha group resume left`" in result.stderr
        assert [each.consumeEnable for each in two.config("left")] == [True, False]
        two.ok("group", "resume", "left")
        wait_until(lambda: consumer.total == 32, 60_000)


class Answer:
    """A processor that answers each request with the same body, or with an error."""

    def __init__(self, body, code=response_code.SUCCESS):
        self.body, self.code = body, code

    def process_request(self, _channel, _request):
        response = RemotingCommand.create_response_command(self.code, "a remark \x1b[2J")
        response.body = self.body
        return response

    def reject_request(self):
        return False


@contextmanager
def answering(cluster, code, answer):
    """All brokers answer requests of this code so."""
    servers = [broker.controller.remoting_server for broker in cluster.brokers]
    before = [dict(server.processor_table) for server in servers]
    for server in servers:
        server.register_processor(code, answer)
    try:
        yield
    finally:
        for server, table in zip(servers, before):
            server.processor_table.clear()
            server.processor_table.update(table)


HOSTILE = [b"[]", b"null", b"\xff\xfe", b'{"offsetTable":{"x":1}}', b'{"subscriptionGroupTable":[]}',
           b'{"connectionSet":[{"clientId":"\\u001b[2J","version":-5,"language":"NONE"}]}',
           b'{"consumeTimeSpanSet":[{"delayTime":-9223372036854775808}]}', b"[" * 5000]
ASKED = [request_code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, request_code.GET_BROKER_CONSUME_STATS,
         request_code.GET_CONSUMER_CONNECTION_LIST, request_code.GET_CONSUME_STATS, request_code.GET_TOPIC_STATS_INFO,
         request_code.QUERY_CONSUME_TIME_SPAN, request_code.QUERY_CONSUMER_OFFSET]


@pytest.mark.parametrize("code", ASKED)
def test_hostile_answers_are_errors_in_one_line_or_left_out(two, code):
    if two.config("hostile") == [None, None]:
        prepared(two, "hostile", 2)
        two.ok("group", "seek", "hostile", "-t", "hostile", "--to", "earliest", "--yes")
    for body in HOSTILE:
        with answering(two, code, Answer(body)):
            for words in (["list", "hostile"], ["describe", "hostile"],
                          ["seek", "hostile", "-t", "hostile", "--to", "latest", "--dry-run"]):
                result = two.run("group", *words)
                assert result.exit_code in (0, 1, 2) and "internal error" not in result.output, (body, result.output)
                assert "\x1b" not in result.output
                assert result.exit_code == 0 or "Error: " in result.stderr


@pytest.mark.parametrize("offsets", [(-1, 5), (5, -9), (0, -1)])
def test_impossible_offsets_are_not_believed(two, offsets):
    if two.config("absurd") == [None, None]:
        prepared(two, "absurd", 2)
    table = json.dumps({"offsetTable": {}}).encode().replace(b"{}", (
        b'{{"brokerName":"broker-a","queueId":0,"topic":"absurd"}:{"minOffset":%d,"maxOffset":%d,'
        b'"lastUpdateTimestamp":0}}' % offsets))
    with answering(two, request_code.GET_TOPIC_STATS_INFO, Answer(table)):
        result = two.run("group", "seek", "absurd", "-t", "absurd", "--to", "latest", "--dry-run")
    assert result.exit_code == 2 and "reports impossible offsets of queue 0 of 'absurd'" in result.output


def test_offsets_that_a_broker_accepts_but_does_not_keep_are_an_error(two):
    prepared(two, "unkept", 2)
    seek_words = ("group", "seek", "unkept", "-t", "unkept", "--to", "latest", "--yes")
    with answering(two, request_code.UPDATE_CONSUMER_OFFSET, Answer(None)):
        result = two.run(*seek_words)
    assert result.exit_code == 1 and "4 queues of 4 did not move" in result.stderr
    assert result.stdout.count("the broker accepted the offset, but returns another one") == 4
    with answering(two, request_code.UPDATE_CONSUMER_OFFSET, Answer(None, response_code.SYSTEM_BUSY)):
        result = two.run(*seek_words)
    assert result.exit_code == 1 and result.stdout.count("returned error 2: a remark") == 4
    assert "\x1b" not in result.output and two.committed("unkept", "unkept") == [-1] * 4


def test_settings_that_a_broker_accepts_but_does_not_keep_are_an_error(two):
    two.ok("group", "create", "forgotten")
    with answering(two, request_code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Answer(None)):
        result = two.run("group", "alter", "forgotten", "--retries", 2)
    assert result.exit_code == 2 and "it accepted the settings, but does not return them" in result.stderr
    with ClusterAdmin(two.namesrv, 60_000) as admin, \
            answering(two, request_code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Answer(None, response_code.NO_PERMISSION)):
        outcomes = create_group(admin, masters(admin), "refused", {})
        assert not outcomes.values and {type(each) for each in outcomes.errors.values()} == {RefusedError}


def test_row_of_a_group_with_control_characters_is_safe_to_print():
    row = GroupRow("a\x1b[2Jb", RUNNING, 1, "CLUSTERING", "push", ("t\n", "u", "v", "w"), 1, 0, 0.5, None, False)
    cells = group_command._row_cells(row)
    assert cells[0] == "a\\u001b[2Jb" and cells[5] == "t\\u000a, u, v +1" and cells[-1] == "?"


# The real RocketMQ: its brokers, and a consumer in Java.


@dataclass
class RealCluster(Cluster):
    """A cluster whose brokers run in other processes."""

    def ends(self, group):
        return {(each["topic"], each["broker"], each["queue_id"]): (each["committed"], each["max"])
                for each in self.json("group", "describe", group)["queues"] if not each["topic"].startswith("%")}


@pytest.fixture
def real(make_namesrv, make_broker, java_driver):
    """real(namesrv kind, broker kind) -> a cluster with two queues of topic `Orders`."""
    def make(namesrv_kind, broker_kind):
        namesrv = make_namesrv(namesrv_kind).address
        broker = make_broker(broker_kind, namesrv, shared_jvm=True)
        java_driver.create_topic(namesrv, broker.address, "Orders", QUEUES)
        return RealCluster(namesrv, [])
    return make


@pytest.mark.java
@pytest.mark.parametrize(("namesrv_kind", "broker_kind"), [
    ("java", "java"), pytest.param("rmqha", "rmqha", marks=tiers.in_long)])
def test_member_in_java_goes_back_pauses_and_skips(namesrv_kind, broker_kind, real, java_driver):
    cluster = real(namesrv_kind, broker_kind)
    load = Workload("Orders", 300, small_sizes(300, seed=5))
    cluster.ok("group", "create", "billing", "--retries", 4)
    job = java_driver.start_consume(cluster.namesrv, load, "billing")
    assert all(one.ok for one in java_driver.produce(cluster.namesrv, load.part(0, 200)))
    job.wait_progress(200)
    wait_until(lambda: sum(committed for committed, _end in cluster.ends("billing").values()) == 200, 60_000)

    def owned():
        found = cluster.json("group", "describe", "billing")
        return found if {len(each["members"]) for each in found["queues"]} == {1} else None
    detail = wait_until(owned, 60_000, "the member has all queues, also the retry topic's")
    assert [(each["language"], each["version"][:5], each["error"]) for each in detail["members"]] == [
        ("JAVA", "V4_9_", "")]
    assert detail["warnings"] == []
    # all of it again: the member stores the new offsets after 10 s
    text = cluster.ok("group", "seek", "billing", "-t", "Orders", "--to", "earliest", "--yes")
    assert text.count("done") == QUEUES and "200 read again" in text
    wait_until(lambda: sum(committed for committed, _end in cluster.ends("billing").values()) == 200, 60_000)
    # the messages that come during a pause are skipped
    cluster.ok("group", "pause", "billing")
    assert all(one.ok for one in java_driver.produce(cluster.namesrv, load.part(200, 40)))
    skipped = cluster.ok("group", "seek", "billing", "-t", "Orders", "--to", "latest", "--yes")
    assert "40 skipped" in skipped and skipped.count("done") == QUEUES
    cluster.ok("group", "resume", "billing")
    assert all(one.ok for one in java_driver.produce(cluster.namesrv, load.part(240, 60)))
    wait_until(lambda: all(committed == end for committed, end in cluster.ends("billing").values()), 60_000)
    row = cluster.json("group", "list", "billing")[0]
    assert (row["state"], row["members"], row["unread"]) == ("running", 1, 0)
    # the consumer ends when it has all messages: what it has skipped is sent again
    assert all(one.ok for one in java_driver.produce(cluster.namesrv, load.part(200, 40)))
    report = job.result()
    assert (report["distinct"], report["repeats"], report["total"], report["foreign"], report["bad"]) == (
        300, 200, 500, 0, [])


@pytest.mark.java
def test_stopped_group_and_member_in_python_at_a_broker_in_java(real, java_driver):
    cluster = real("java", "java")
    load = Workload("Orders", 100, small_sizes(100, seed=6))
    cluster.ok("group", "create", "audit")
    assert all(one.ok for one in java_driver.produce(cluster.namesrv, load))
    seek_words = ("group", "seek", "audit", "-t", "Orders", "--to", "latest", "--dry-run")
    plan = wait_until(lambda: (found := cluster.json(*seek_words)["plan"]) and sum(
        each["max"] for each in found) == 100 and found, 60_000)
    assert {each["committed"] for each in plan} == {None}
    assert "note: audit has no offsets for Orders" in cluster.run(*seek_words).stderr
    cluster.ok("group", "seek", "audit", "-t", "Orders", "--to", "latest", "--yes")
    cluster.ok("group", "seek", "audit", "-t", "Orders", "--to", "30", "--queue", "broker-a:1", "--yes")
    places = cluster.ends("audit")
    ends = {queue_id: end for (_topic, _broker, queue_id), (_committed, end) in places.items()}
    assert [committed for committed, _end in places.values()] == [ends[0], 30] and sum(ends.values()) == 100
    with Consumer(cluster, "audit", "Orders") as consumer:
        left = Counter(("broker-a", 1, offset) for offset in range(30, ends[1]))
        wait_until(lambda: consumer.total == left.total(), 60_000)
        text = cluster.ok("group", "seek", "audit", "-t", "Orders", "--to", "earliest", "--yes")
        assert text.count("done") == QUEUES
        wait_until(lambda: consumer.total == 100 + left.total(), 60_000)
        assert consumer.got == left + Counter(("broker-a", queue_id, offset) for queue_id, end in ends.items()
                                              for offset in range(end))
    assert cluster.run("group", "delete", "audit", "--offsets", "--topics", "--yes").exit_code == 0
    assert cluster.run("group", "describe", "audit").exit_code == 2
