"""The real broker and rmqha's behave alike: held pulls, permissions, requests with replies, and SQL92."""
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from rmqha.common import sys_flags
from rmqha.common.message import message_decoder
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import GetConsumerListByGroupRequestHeader, GetConsumerListByGroupResponseBody
from rmqha.common.protocol.client_bodies import CheckClientRequestBody
from rmqha.common.protocol.client_headers import (
    PullMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from rmqha.common.subscriptions import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig
from tests.filter.expressions import EXPRESSIONS
from tests.support import store_compare
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.raw_remoting import RawClient, frame, header
from tests.support.wait import wait_until

pytestmark = pytest.mark.java


# Held pulls, the broker's permission, full queues and closed connections: rmqha's broker answers like the real one.

KINDS = ("java", "rmqha")
TOPIC, ORDERED = "Held", "HeldOrdered"
BUSY = (response_code.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while")


class Talker:
    """A client with requests written by hand, which counts the notifications that it gets."""

    def __init__(self, address: str):
        self.address = address
        self.notified: list[str] = []
        self.client = RemotingClient(RemotingClientConfig())
        self.client.register_processor(request_code.NOTIFY_CONSUMER_IDS_CHANGED, self, None)
        self.client.start()

    def process_request(self, _channel, request):
        """Count a notification that the group has changed."""
        self.notified.append(request.ext_fields["consumerGroup"])

    def reject_request(self) -> bool:
        """Return False: nothing is rejected."""
        return False

    def ask(self, code: int, header=None, body: bytes | None = None, timeout_ms: int = 40_000) -> RemotingCommand:
        """Send one request, and return its answer."""
        request = RemotingCommand.create_request_command(code, header)
        request.body = body
        return self.client.invoke_sync(self.address, request, timeout_ms)

    def send(self, body: bytes = b"x", topic: str = TOPIC) -> RemotingCommand:
        """Send one message to queue 0."""
        properties = message_decoder.message_properties2string({"KEYS": "k"})
        header = SendMessageRequestHeader("p", topic, "TBW102", 4, 0, 0, 1, 0, properties)
        return self.ask(request_code.SEND_MESSAGE, header, body)

    def pull(self, offset: int, hold_ms: int | None = None) -> RemotingCommand:
        """Pull from queue 0. `hold_ms` lets the broker hold the request."""
        flag = sys_flags.build_pull_sys_flag(False, hold_ms is not None, True, False)
        return self.ask(request_code.PULL_MESSAGE, PullMessageRequestHeader(
            consumerGroup="holder", topic=TOPIC, queueId=0, queueOffset=offset, maxMsgNums=32, sysFlag=flag,
            commitOffset=0, suspendTimeoutMillis=hold_ms or 0, subscription="*", subVersion=0, expressionType="TAG"))

    def beat(self, group: str, client_id: str) -> None:
        """Send the heartbeat of a consumer of `group`."""
        subscription = SubscriptionData(topic=TOPIC, subString="*")
        consumer = ConsumerData(group, ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING,
                                ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, {subscription})
        body = remoting_serializable.encode(HeartbeatData(clientID=client_id, consumerDataSet={consumer}))
        assert self.ask(request_code.HEART_BEAT, None, body).code == response_code.SUCCESS

    def members(self, group: str) -> tuple:
        """Return the client ids of the consumers of `group`, or code and remark."""
        answer = self.ask(request_code.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader(group))
        if answer.code != response_code.SUCCESS:
            return answer.code, answer.remark
        body = remoting_serializable.from_json(GetConsumerListByGroupResponseBody, answer.body)
        return tuple(sorted(body.consumerIdList))


@pytest.fixture(scope="module")
def brokers(client_broker, java_driver):
    """Return kind -> a broker with topics of one queue."""
    found = {kind: client_broker(kind) for kind in KINDS}
    for broker in found.values():
        java_driver.create_topic(broker.namesrv, broker.address, TOPIC, 1)
        # A topic that the name server lists as ordered stays so at each registration; another one may lose its order.
        java_driver.admin("updateOrderConf", "-n", broker.namesrv, "-t", ORDERED, "-m", "put", "-v", "broker-a:1")
        java_driver.admin("updateTopic", "-n", broker.namesrv, "-b", broker.address, "-t", ORDERED, "-r", "1", "-w",
                          "1", "-o", "true")
    return found


@pytest.fixture
def talk():
    """Yield talk(broker) -> a Talker; close all at the end of the test."""
    made: list[Talker] = []

    def make(broker: BrokerNode) -> Talker:
        made.append(Talker(broker.address))
        return made[-1]
    yield make
    for talker in made:
        talker.client.shutdown()


def of_both(brokers, act) -> dict:
    """Return the result of `act(broker)` for each kind."""
    return {kind: act(broker) for kind, broker in brokers.items()}


def test_held_pull_is_answered_when_its_time_is_over(brokers, talk):
    def act(broker):
        talker = talk(broker)
        end = talker.pull(0).ext_fields["maxOffset"]
        begin = time.monotonic()
        answer = talker.pull(int(end), hold_ms=1_500)
        return answer.code, answer.remark, answer.ext_fields["nextBeginOffset"] == end, time.monotonic() - begin >= 1.5
    # each checks held pulls only every 5 s
    with ThreadPoolExecutor() as pool:
        answers = {kind: held.result() for kind, held in of_both(brokers, partial(pool.submit, act)).items()}
    assert answers["rmqha"] == answers["java"]
    assert answers["rmqha"][0] == response_code.PULL_NOT_FOUND and answers["rmqha"][2:] == (True, True)


def test_held_pull_is_answered_when_a_message_arrives(brokers, talk):
    def act(broker):
        talker, sender = talk(broker), talk(broker)
        end = int(talker.pull(0).ext_fields["maxOffset"])
        timer = threading.Timer(0.5, sender.send, (b"awaited",))
        timer.start()
        answer = talker.pull(end, hold_ms=30_000)
        timer.join()
        [msg] = message_decoder.decodes(answer.body)
        return answer.code, answer.remark, bytes(msg.body), msg.queue_offset == end
    answers = of_both(brokers, act)
    assert answers["rmqha"] == answers["java"] == (response_code.SUCCESS, "FOUND", b"awaited", True)


def test_pull_without_a_hold_is_answered_at_once_with_the_same_remark(brokers, talk):
    def act(broker):
        talker = talk(broker)
        end = int(talker.pull(0).ext_fields["maxOffset"])
        answers = [talker.pull(offset) for offset in (end, end + 1, end + 1000)]
        return [(answer.code, answer.remark, int(answer.ext_fields["nextBeginOffset"]) - end) for answer in answers]
    answers = of_both(brokers, act)
    assert answers["rmqha"] == answers["java"]


def test_pull_without_long_polling_waits_for_the_short_interval(brokers, talk, java_driver):
    def set_long_polling(broker, value):
        java_driver.admin("updateBrokerConfig", "-n", broker.namesrv, "-b", broker.address, "-k", "longPollingEnable",
                          "-v", value)

    def act(broker):
        set_long_polling(broker, "false")
        try:
            talker = talk(broker)
            end = int(talker.pull(0).ext_fields["maxOffset"])
            begin = time.monotonic()
            answer = talker.pull(end, hold_ms=36_000)  # shortPollingTimeMills (1 s) counts instead
            return answer.code, answer.remark, time.monotonic() - begin >= 1.0
        finally:
            set_long_polling(broker, "true")
    answers = of_both(brokers, act)
    assert answers["rmqha"] == answers["java"] and answers["rmqha"][0] == response_code.PULL_NOT_FOUND


@pytest.mark.parametrize("permission", [2, 4, 6])
def test_brokers_refuse_by_permission_with_the_same_remark(brokers, talk, java_driver, permission):
    def act(broker):
        def set_permission(value):
            java_driver.admin("updateBrokerConfig", "-n", broker.namesrv, "-b", broker.address, "-k",
                              "brokerPermission", "-v", str(value))
        set_permission(permission)
        try:
            talker = talk(broker)
            answers = talker.send(), talker.send(topic=ORDERED), talker.pull(0)
            return [(answer.code, answer.remark) for answer in answers]
        finally:
            set_permission(6)
    answers = of_both(brokers, act)
    assert answers["rmqha"] == answers["java"]
    refused = [code == response_code.NO_PERMISSION for code, _remark in answers["rmqha"]]
    assert refused == [False, not permission & 2, not permission & 4]  # sends: of ordered topics only


def test_full_queue_refuses_with_the_same_remark(brokers):
    asked = {"topic": TOPIC, "key": "k", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 62}

    def act(broker):
        # all at once, so that the broker's thread cannot keep up
        with RawClient(broker.address) as client:
            client.send(b"".join(frame(header(request_code.QUERY_MESSAGE, opaque, **asked)) for opaque in range(300)))
            answers = [client.read_frame()[1] for _ in range(300)]
        return {(answer.code, answer.remark) for answer in answers if answer.code == response_code.SYSTEM_BUSY}
    answers = of_both(brokers, act)
    assert answers["rmqha"] == answers["java"] == {BUSY}


def test_closed_connection_unregisters_its_consumer_and_notifies_the_others(brokers, talk):
    def act(broker):
        one, two = talk(broker), talk(broker)
        one.beat("leaving", "id-1")
        two.beat("leaving", "id-2")
        seen = [one.members("leaving")]
        wait_until(lambda: one.notified, 60_000, "the news of the second")
        one.notified.clear()
        two.client.shutdown()
        wait_until(lambda: one.members("leaving") == ("id-1",), 60_000, "the first alone")
        wait_until(lambda: one.notified, 60_000, "the news of the end")
        seen.append(set(one.notified))
        one.client.shutdown()
        last = talk(broker)
        wait_until(lambda: last.members("leaving")[0] == response_code.SYSTEM_ERROR, 60_000, "nobody")
        return [*seen, last.members("leaving")]
    answers = of_both(brokers, act)
    assert answers["rmqha"] == answers["java"]
    assert answers["rmqha"][0] == ("id-1", "id-2") and answers["rmqha"][1] == {"leaving"}


# Java's requests and replies through the real broker and through rmqha's: the same replies and the same errors.

KINDS = ("java", "rmqha")
REQUEST_REPLY_TOPIC, REPLY_TOPIC = "Requests", "InteropCluster_REPLY_TOPIC"


@pytest.fixture(scope="module")
def request_reply_brokers(module_nodes, tmp_path_factory, java_driver):
    """Return kind -> broker."""
    started = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        namesrv = NamesrvNode("rmqha", folder / "namesrv")
        broker = started[kind] = BrokerNode(kind, folder / "broker", namesrv.address, shared_jvm=True)
        module_nodes.extend([namesrv, broker])
        namesrv.start()
        broker.start()
        java_driver.create_topic(namesrv.address, broker.address, REQUEST_REPLY_TOPIC, 2)
    return started


def replies(broker: BrokerNode) -> list:
    """Return the reply topic's records in the log: queue offset, body, queue, flags, and names of properties."""
    return [(record.queue_offset, record.body, record.queue_id, record.sys_flag, sorted(record.properties))
            for record in store_compare.walk(broker.commit_log) if record.topic == REPLY_TOPIC]


def test_java_gets_replies_to_its_requests(request_reply_brokers, java_driver):
    bodies = ["abc", "größe ß", "-", "x" * 3000 + "y"]
    before = {kind: len(replies(broker)) for kind, broker in request_reply_brokers.items()}
    got = {kind: java_driver.submit("ask", namesrv=broker.namesrv, topic=REQUEST_REPLY_TOPIC, group=f"ask-{kind}",
                                    bodies=bodies,
                                    timeoutMs=60_000).result()["replies"] for kind,
                                    broker in request_reply_brokers.items()}
    assert got["rmqha"] == got["java"]
    assert got["rmqha"][0] == "cba" and "wait reply message timeout, 3000 ms" in got["rmqha"][2]
    # A broker sends a reply to the requesting client before it stores it, so the next reply may be stored first.
    stored = {kind: wait_until(lambda kind=kind: len(all_of := replies(request_reply_brokers[kind])) == before[kind] +
                               3 and all_of,
                               60_000, f"three replies stored by {kind}")[before[kind]:]
                               for kind in request_reply_brokers}
    by_body = {kind: sorted((body, *more) for _queue_offset, body, *more in found) for kind, found in stored.items()}
    assert by_body["rmqha"] == by_body["java"]
    assert [offset for offset, *_ in stored["rmqha"]] == [offset for offset, *_ in stored["java"]]


def test_replies_to_unknown_clients_are_refused_with_the_same_remark(request_reply_brokers):
    answers = {}
    for kind, broker in request_reply_brokers.items():
        client = RemotingClient(RemotingClientConfig())
        client.start()
        try:
            answers[kind] = [send(client, broker.address, properties, is_v2) for is_v2 in (False, True)
                             for properties in ({}, {"REPLY_TO_CLIENT": "nobody", "CORRELATION_ID": "1"})]
        finally:
            client.shutdown()
    assert answers["rmqha"] == answers["java"]
    assert [code for code, *_ in answers["rmqha"]] == [1] * 4


def send(client: RemotingClient, address: str, properties: dict[str, str], is_v2: bool) -> tuple:
    """Send a reply; return the answer's code, remark and fields, except the message id."""
    text = message_decoder.message_properties2string({"MSG_TYPE": "reply", **properties})
    if is_v2:
        header = SendMessageRequestHeaderV2(a="p", b=REPLY_TOPIC, c="TBW102", d=4, e=0, f=0, g=1, h=0, i=text, j=0)
        code = request_code.SEND_REPLY_MESSAGE_V2
    else:
        header = SendMessageRequestHeader("p", REPLY_TOPIC, "TBW102", 4, 0, 0, 1, 0, text)
        code = request_code.SEND_REPLY_MESSAGE
    request = RemotingCommand.create_request_command(code, header)
    request.body = b"reply"
    response = client.invoke_sync(address, request, 30_000)
    fields = {name: value for name, value in (response.ext_fields or {}).items() if name != "msgId"}
    return response.code, response.remark, fields


# Java's consumers with MessageSelector.bySql on the real broker and on rmqha's: the same messages and errors.

SQL92_TOPIC = "SqlTopic"
KINDS = ("java", "rmqha")
VALUES = ("1", "3", "4.5", "07", "-3", "x", "true", "it's", "ß", "", None)
WHAT_TO_READ = (
    "a = 3", "a > 2.5", "a < 5 AND b IS NULL", "a IN ('x', '3')", "a NOT IN ('x', '3')", "NOT (a = 3)", "a = b",
    "a <> b",
    "a BETWEEN 1 AND 5", "a NOT BETWEEN 1 AND 5", "a IS NULL OR b IS NULL", "a = TRUE", "a = 'it''s'", "a = 'ß'",
    "a > b", "TAGS = 'TagB' AND a IS NOT NULL", "a", "nothing IS NULL", "a = 3 garbage",
)
# The index of the first message that a test sends.
SECOND = 1000


@pytest.fixture(scope="module")
def sql92_brokers(module_nodes, tmp_path_factory, java_driver):
    """Return kind -> a broker; both have the same messages."""
    from tests.support.nodes import BrokerNode, NamesrvNode
    started = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        namesrv = NamesrvNode("rmqha", folder / "namesrv")
        module_nodes.append(namesrv)
        namesrv.start()
        started[kind] = BrokerNode(kind, folder / "broker", namesrv.address, shared_jvm=True,
                                   enablePropertyFilter="true", enableConsumeQueueExt="true",
                                   enableCalcFilterBitMap="true")
        module_nodes.append(started[kind])
        started[kind].start()
        java_driver.create_topic(namesrv.address, started[kind].address, SQL92_TOPIC, 2)
        results = java_driver.send_mixed(namesrv.address, SQL92_TOPIC, messages(0))
        assert {result[0] for result in results} == {"SEND_OK"}
    return started


def messages(first: int) -> list[dict]:
    """Return one message for each pair of values of the properties a and b."""
    described = []
    for number in range(len(VALUES) ** 2):
        pair = {"a": VALUES[number // len(VALUES)], "b": VALUES[number % len(VALUES)]}
        described.append({"index": first + number, "body": "x", "tag": "TagA" if number % 3 else "TagB",
                          "properties": {name: value for name, value in pair.items() if value}})
    return described


def test_pulls_find_the_same_messages(sql92_brokers, java_driver):
    found = {kind: java_driver.submit("pullSql", namesrv=broker.namesrv, topic=SQL92_TOPIC, group="sql-pull",
                                      expressions=list(WHAT_TO_READ)).result()["found"]
             for kind, broker in sql92_brokers.items()}
    assert found["rmqha"] == found["java"]
    assert all(isinstance(numbers, list) for numbers in found["rmqha"])
    sizes = {sql: sum(number < SECOND for number in numbers)
             for sql, numbers in zip(WHAT_TO_READ, found["rmqha"], strict=True)}
    assert [sql for sql, size in sizes.items() if not 0 < size < len(VALUES) ** 2] == ["a", "nothing IS NULL"]


def test_consumers_get_the_same_messages_with_bit_maps_too(sql92_brokers, java_driver):
    expression = "a BETWEEN 1 AND 5 AND TAGS = 'TagA'"
    jobs, more = {}, messages(SECOND)
    first = java_driver.submit("pullSql", namesrv=sql92_brokers["java"].namesrv, topic=SQL92_TOPIC, group="sql-pull",
                               expressions=[expression]).result()["found"][0]
    assert isinstance(first, list), first
    for kind, broker in sql92_brokers.items():
        jobs[kind] = java_driver.submit("pushSql", namesrv=broker.namesrv, topic=SQL92_TOPIC, group="sql-push",
                                        lingerMs=500,
                                        expression=expression, until=2 * len(first), deadlineMs=240_000)
        wait_until(lambda: expression in registered(java_driver, broker), 60_000, "the consumer's expression")
        java_driver.send_mixed(broker.namesrv, SQL92_TOPIC, more)
    assert {kind: job.result()["found"] for kind, job in jobs.items()} == dict.fromkeys(
        KINDS, first + [number + SECOND for number in first])
    kept = {kind: wait_until(lambda broker=broker: kept_filters(broker), 60_000, "the expression in the file")
            for kind, broker in sql92_brokers.items()}
    for table in kept.values():
        data = table["filterDataByTopic"][SQL92_TOPIC]["groupFilterData"]["sql-push"]
        assert data.pop("bornTime") > 0 and data.pop("clientVersion") > 0
        data.pop("deadTime"), data.pop("dead")
    assert kept["rmqha"] == kept["java"]


def kept_filters(broker) -> dict | None:
    """Wait until the broker's file has the consumer, and return its table: brokers save it every 10 s, even empty."""
    table = json.loads(broker.config_text("consumerFilter.json") or '{"filterDataByTopic": {}}')
    groups = table["filterDataByTopic"].get(SQL92_TOPIC, {"groupFilterData": {}})["groupFilterData"]
    return table if "sql-push" in groups else None


def registered(driver, broker) -> str:
    return driver.admin("consumerConnection", "-n", broker.namesrv, "-g", "sql-push")


def check_client(address: str, expression: str, kind: str = "SQL92") -> tuple[int, str | None]:
    """Return code and remark of CHECK_CLIENT_CONFIG for an expression."""
    client = RemotingClient(RemotingClientConfig())
    client.start()
    try:
        request = RemotingCommand.create_request_command(request_code.CHECK_CLIENT_CONFIG)
        request.body = remoting_serializable.encode(CheckClientRequestBody(
            "client", "group", SubscriptionData(SQL92_TOPIC, expression, expressionType=kind)))
        response = client.invoke_sync(address, request, 60_000)
        return response.code, response.remark
    finally:
        client.shutdown()


def test_expressions_are_checked_with_the_same_remarks(sql92_brokers):
    said = {kind: [check_client(broker.address, sql) for sql in EXPRESSIONS[::3]] for kind,
            broker in sql92_brokers.items()}
    assert said["rmqha"] == said["java"]
    assert {code for code, _ in said["rmqha"]} == {0, 23}


def test_consumer_with_an_invalid_expression_gets_the_same_error(sql92_brokers, java_driver):
    told = [java_driver.submit("pushSql", namesrv=broker.namesrv, topic=SQL92_TOPIC, group="sql-bad", until=1,
                               lingerMs=0,
                               expression="a between 5 and 1", deadlineMs=1000).result()["error"].replace(
                                   broker.address, "BROKER") for broker in sql92_brokers.values()]
    assert told[0] == told[1]
    assert "Illegal values of between, left value(5) must less than or equal to right value(1)" in told[0]
