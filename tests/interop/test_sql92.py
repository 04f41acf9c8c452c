"""Java's consumers with MessageSelector.bySql on the real broker and on rmqha's: the same messages, the same errors."""
import json

import pytest

from rmqha.common.protocol import request_code
from rmqha.common.protocol.client_bodies import CheckClientRequestBody
from rmqha.common.subscriptions import SubscriptionData
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig
from tests.filter.expressions import EXPRESSIONS
from tests.support.wait import wait_until

pytestmark = pytest.mark.java

TOPIC = "SqlTopic"
KINDS = ("java", "rmqha")
VALUES = ("1", "3", "4.5", "07", "-3", "x", "true", "it's", "ß", "", None)
WHAT_TO_READ = (
    "a = 3", "a > 2.5", "a < 5 AND b IS NULL", "a IN ('x', '3')", "a NOT IN ('x', '3')", "NOT (a = 3)", "a = b",
    "a <> b",
    "a BETWEEN 1 AND 5", "a NOT BETWEEN 1 AND 5", "a IS NULL OR b IS NULL", "a = TRUE", "a = 'it''s'", "a = 'ß'",
    "a > b", "TAGS = 'TagB' AND a IS NOT NULL", "a", "nothing IS NULL", "a = 3 garbage",
)
SECOND = 1000  # index of the first message that a test sends


@pytest.fixture(scope="module")
def brokers(module_nodes, tmp_path_factory, java_driver):
    """A broker of each kind with the same messages; kind -> broker."""
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
        java_driver.create_topic(namesrv.address, started[kind].address, TOPIC, 2)
        results = java_driver.send_mixed(namesrv.address, TOPIC, messages(0))
        assert {result[0] for result in results} == {"SEND_OK"}
    return started


def messages(first: int) -> list[dict]:
    """One message for each pair of values of the properties a and b."""
    described = []
    for number in range(len(VALUES) ** 2):
        pair = {"a": VALUES[number // len(VALUES)], "b": VALUES[number % len(VALUES)]}
        described.append({"index": first + number, "body": "x", "tag": "TagA" if number % 3 else "TagB",
                          "properties": {name: value for name, value in pair.items() if value}})
    return described


def test_pulls_find_the_same_messages(brokers, java_driver):
    found = {kind: java_driver.submit("pullSql", namesrv=broker.namesrv, topic=TOPIC, group="sql-pull",
                                      expressions=list(WHAT_TO_READ)).result()["found"]
             for kind, broker in brokers.items()}
    assert found["rmqha"] == found["java"]
    assert all(isinstance(numbers, list) for numbers in found["rmqha"])
    sizes = {sql: sum(number < SECOND for number in numbers)
             for sql, numbers in zip(WHAT_TO_READ, found["rmqha"], strict=True)}
    assert [sql for sql, size in sizes.items() if not 0 < size < len(VALUES) ** 2] == ["a", "nothing IS NULL"]


def test_consumers_get_the_same_messages_also_through_the_bit_maps(brokers, java_driver):
    expression = "a BETWEEN 1 AND 5 AND TAGS = 'TagA'"
    jobs, more = {}, messages(SECOND)
    first = java_driver.submit("pullSql", namesrv=brokers["java"].namesrv, topic=TOPIC, group="sql-pull",
                               expressions=[expression]).result()["found"][0]
    assert isinstance(first, list), first
    for kind, broker in brokers.items():
        jobs[kind] = java_driver.submit("pushSql", namesrv=broker.namesrv, topic=TOPIC, group="sql-push", lingerMs=500,
                                        expression=expression, until=2 * len(first), deadlineMs=240_000)
        wait_until(lambda: expression in registered(java_driver, broker), 60_000, "the consumer's expression")
        java_driver.send_mixed(broker.namesrv, TOPIC, more)
    assert {kind: job.result()["found"] for kind, job in jobs.items()} == dict.fromkeys(
        KINDS, first + [number + SECOND for number in first])
    kept = {kind: wait_until(lambda broker=broker: kept_filters(broker), 60_000, "the expression in the file")
            for kind, broker in brokers.items()}
    for table in kept.values():
        data = table["filterDataByTopic"][TOPIC]["groupFilterData"]["sql-push"]
        assert data.pop("bornTime") > 0 and data.pop("clientVersion") > 0
        data.pop("deadTime"), data.pop("dead")
    assert kept["rmqha"] == kept["java"]


def kept_filters(broker) -> dict | None:
    """The table in the broker's file, once the consumer is in it: a broker saves it each 10 s, when empty as well."""
    table = json.loads(broker.config_text("consumerFilter.json") or '{"filterDataByTopic": {}}')
    groups = table["filterDataByTopic"].get(TOPIC, {"groupFilterData": {}})["groupFilterData"]
    return table if "sql-push" in groups else None


def registered(driver, broker) -> str:
    return driver.admin("consumerConnection", "-n", broker.namesrv, "-g", "sql-push")


def check_client(address: str, expression: str, kind: str = "SQL92") -> tuple[int, str | None]:
    """What CHECK_CLIENT_CONFIG says of an expression."""
    client = RemotingClient(RemotingClientConfig())
    client.start()
    try:
        request = RemotingCommand.create_request_command(request_code.CHECK_CLIENT_CONFIG)
        request.body = remoting_serializable.encode(CheckClientRequestBody(
            "client", "group", SubscriptionData(TOPIC, expression, expressionType=kind)))
        response = client.invoke_sync(address, request, 60_000)
        return response.code, response.remark
    finally:
        client.shutdown()


def test_expressions_are_checked_with_the_same_words(brokers):
    said = {kind: [check_client(broker.address, sql) for sql in EXPRESSIONS[::3]] for kind, broker in brokers.items()}
    assert said["rmqha"] == said["java"]
    assert {code for code, _ in said["rmqha"]} == {0, 23}


def test_consumer_with_a_bad_expression_is_told_the_same(brokers, java_driver):
    told = [java_driver.submit("pushSql", namesrv=broker.namesrv, topic=TOPIC, group="sql-bad", until=1, lingerMs=0,
                               expression="a between 5 and 1", deadlineMs=1000).result()["error"].replace(
                                   broker.address, "BROKER") for broker in brokers.values()]
    assert told[0] == told[1]
    assert "Illegal values of between, left value(5) must less than or equal to right value(1)" in told[0]
