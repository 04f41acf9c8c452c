"""Valid and invalid calls of every request code on a real 4.9 and on rmqha: the answers are the same, except as listed.

`python -m tests.interop.test_request_codes_beside_java` writes docs/reference/request-codes.md.
"""
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rmqha.remoting.protocol import fastjson
from tests.fuzz.beside_java import compare
from tests.interop.request_code_cases import BROKER, all_cases
from tests.interop.request_code_compare import (
    KNOWN,
    QUESTIONS_GROUP,
    QUESTIONS_TOPIC,
    Asked,
    Outcome,
    Row,
    Servers,
    call_all,
    java_consumer,
    render,
    rmqha_consumer,
)
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.sources import ROOT
from tests.support.tiers import in_long
from tests.support.wait import wait_until

PAGE = ROOT / "docs" / "reference" / "request-codes.md"

FUZZED, SEED = 160, 11
# Only a Java consumer has these: its objects, and an unused setting.
JAVA_ALONE = {"log", "defaultMQPushConsumerImpl", "messageListener", "offsetStore", "allocateMessageQueueStrategy",
              "subscription", "adjustThreadPoolNumsThreshold"}

pytestmark = pytest.mark.java


def started(kind: str, folder: Path, nodes: list) -> Servers:
    """Start a name server and a broker, and create their data."""
    namesrv = NamesrvNode(kind, folder / kind / "namesrv")
    nodes.append(namesrv)
    namesrv.start()
    # One thread: the original's JVM may crash if a queue is deleted while another thread looks for expired queues.
    broker = BrokerNode(kind, folder / kind / "broker", namesrv.address, mappedFileSizeCommitLog=16 << 20,
                        adminBrokerThreadPoolNums=1,
                        transactionCheckInterval=3_600_000)  # no checks on its own
    nodes.append(broker)
    broker.start()
    servers = Servers(namesrv, broker)
    servers.stock()
    return servers


def compared(folder: Path, nodes: list) -> tuple[list[Row], dict[str, Servers]]:
    """Call all cases on both; return the rows and the servers."""
    cases = all_cases()
    servers = {kind: started(kind, folder, nodes) for kind in ("java", "rmqha")}
    answers = call_all(list(servers.values()), cases)
    rows = [Row(case, *(Outcome.of(answer, case) for answer in pair))
            for case, *pair in zip(cases, *answers, strict=True)]
    return rows, servers


@pytest.fixture(scope="module")
def both(module_nodes, tmp_path_factory) -> Iterator[tuple[list[Row], dict[str, Servers]]]:
    rows, servers = compared(tmp_path_factory.mktemp("request-codes"), module_nodes)
    yield rows, servers
    for one in servers.values():
        one.close()


def test_answers_equal_the_originals_or_are_listed(both):
    unexplained = [text for row in both[0] if (text := row.unexplained())]
    assert not unexplained, "\n".join(unexplained[:20])


def test_each_listed_difference_exists(both):
    seen = {row.known for row in both[0] if row.verdict == "differs"}
    assert [KNOWN[index].reason for index in range(len(KNOWN)) if index not in seen] == []


def test_valid_calls_succeed(both):
    """Except those that need a client to answer them, or find nothing."""
    failed = {(row.case.code.server, row.case.code.number) for row in both[0]
              if row.case.what == "right" and row.rmqha.code != 0}
    assert failed == {(BROKER, number) for number in (50, 51, 52, 53, 54, 324, 325)}


def test_no_valid_request_is_answered_with_an_exception(both):
    """rmqha's remarks describe the request, never a bug of rmqha."""
    slips = ("AttributeError", "TypeError", "KeyError", "IndexError", "UnboundLocalError", "AssertionError")
    assert [row.rmqha for row in both[0] if row.rmqha.remark and row.rmqha.remark.startswith(slips)] == []


def test_consumers_get_the_same_requests(both):
    """Brokers send codes 40, 220, 221, 307 and 309 alike."""
    asked = {kind: one.online.questions() for kind, one in both[1].items()}
    assert {code for code, *_ in asked["java"]} == {40, 220, 221, 307, 309}
    only = {kind: asked[kind] - asked[other] for kind, other in (("java", "rmqha"), ("rmqha", "java"))}
    assert only["rmqha"] == set()
    # rmqha refuses to ask for offsets without a topic
    assert {(code, fields) for code, _flag, fields, _body in only["java"]} == {(221, (("group", "codes-online"),))}


def test_request_codes_page_is_up_to_date(both):
    assert PAGE.read_text("utf-8") == render(both[0]), "run: python -m tests.interop.test_request_codes_beside_java"


@pytest.fixture(scope="module")
def asked(both, java_driver) -> Iterator[dict[str, Asked]]:
    """Yield Java's consumer at rmqha's broker, and rmqha's at Java's."""
    with ExitStack() as stack:
        yield {"java": stack.enter_context(java_consumer(both[1]["rmqha"], java_driver)),
               "rmqha": stack.enter_context(rmqha_consumer(both[1]["java"], java_driver))}


def test_consumers_return_their_running_info(asked):
    """The broker forwards 307 to the consumer."""
    infos = {}
    for kind, one in asked.items():
        what = {"consumerGroup": QUESTIONS_GROUP, "clientId": one.client_id, "jstackEnable": "true"}
        infos[kind] = wait_until(lambda one=one, what=what: (info := one.ask(307, **what))["statusTable"]
                                 and queues_of(info) and info, 60_000, "messages of the queue are consumed")
    java, rmqha = infos["java"], infos["rmqha"]
    assert [rmqha.keys(), rmqha["statusTable"].keys()] == [java.keys(), java["statusTable"].keys()]
    assert rmqha["properties"].keys() == java["properties"].keys() - JAVA_ALONE
    # a time, the driver's settings, the client
    own = ("consumeTimestamp", "consumeThread", "PROP_")
    settings = [{name: text for name, text in info["properties"].items() if not name.startswith(own)}
                for info in (java, rmqha)]
    assert settings[1].items() <= settings[0].items()
    (java_queue,), (rmqha_queue,) = queues_of(java), queues_of(rmqha)
    assert java_queue.keys() == rmqha_queue.keys() and all(info["jstack"] for info in infos.values())
    wanted = [[{**one, "subVersion": 0} for one in sorted(info["subscriptionSet"], key=lambda one: one["topic"])]
              for info in infos.values()]
    assert wanted[0] == wanted[1]


def queues_of(info: dict) -> list[dict]:
    """Return the consumer's state of the one queue; an empty one before the queue is assigned to it."""
    return [process for queue, process in info["mqTable"].items()
            if queue == {"brokerName": "broker-a", "queueId": 0, "topic": QUESTIONS_TOPIC}]


def test_consumers_return_their_offsets(asked):
    """On 223 the broker sends 221 to the consumers."""
    queue = {"brokerName": "broker-a", "queueId": 0, "topic": QUESTIONS_TOPIC}
    for one in asked.values():
        def table():
            return one.ask(223, topic=QUESTIONS_TOPIC, group=QUESTIONS_GROUP, clientAddr="")["consumerTable"]
        wait_until(lambda: table() == {one.client_id: {fastjson.FrozenObject(queue): 10}}, 60_000, "all consumed")


def test_consumers_consume_a_message_directly(asked):
    """On 309 the message is consumed once more."""
    answers = {}
    for kind, one in asked.items():
        answers[kind] = one.ask(309, consumerGroup=QUESTIONS_GROUP, clientId=one.client_id, msgId=one.message_id)
        assert answers[kind].pop("spentTimeMills") >= 0
    assert answers["rmqha"] == answers["java"]
    assert answers["java"]["consumeResult"] == "CR_SUCCESS"
    wait_until(lambda: asked["rmqha"].consumed() == 11, 60_000, "consumed once more")


@in_long
def test_consumers_reset_their_offsets(asked):
    """On 222 the broker sends 220 to the consumers. Java's waits ten seconds before it continues."""
    before = asked["rmqha"].consumed()
    for one in asked.values():
        assert one.broker.request(15, consumerGroup=QUESTIONS_GROUP, topic=QUESTIONS_TOPIC, queueId=0,
                                  commitOffset=10).code == 0
        offsets = one.ask(222, topic=QUESTIONS_TOPIC, group=QUESTIONS_GROUP, timestamp=0, isForce="true")["offsetTable"]
        assert list(offsets.values()) == [0]
    wait_until(lambda: asked["rmqha"].consumed() >= before + 10, 60_000, "all again")
    one = asked["java"]
    status = {"topic": QUESTIONS_TOPIC, "group": QUESTIONS_GROUP, "clientAddr": ""}
    wait_until(lambda: one.ask(223, **status)["consumerTable"][one.client_id].popitem()[1] < 10, 60_000, "went back")
    wait_until(lambda: one.ask(223, **status)["consumerTable"][one.client_id].popitem()[1] == 10, 60_000, "all again")
    assert one.consumed() >= 20


def test_broken_frames_have_the_same_outcome(both):
    """Both answer with the same code, close, or do not answer. The last test: afterwards the servers are unusable."""
    new = [one for one in compare(both[1], FUZZED, SEED) if not one.is_known()]
    assert not new, new[:5]


def write_page() -> None:
    """Call all cases and write the page."""
    nodes: list = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.callback(lambda: [node.kill() for node in reversed(nodes)])
        rows, servers = compared(Path(folder), nodes)
        for one in servers.values():
            stack.callback(one.close)
        PAGE.write_text(render(rows), "utf-8")
    sys.stdout.write(f"wrote {PAGE.name}: {len(rows)} cases\n")
    sys.stdout.writelines(f"{text}\n" for row in rows if (text := row.unexplained()))


if __name__ == "__main__":
    write_page()
