"""Held pulls, the broker's permission, full queues and connections that end: rmqha's broker answers as the real one."""
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from rmqha.common import sys_flags
from rmqha.common.message import message_decoder
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import GetConsumerListByGroupRequestHeader, GetConsumerListByGroupResponseBody
from rmqha.common.protocol.client_headers import PullMessageRequestHeader, SendMessageRequestHeader
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
from tests.support.nodes import BrokerNode
from tests.support.raw_remoting import RawClient, frame, header
from tests.support.wait import wait_until

pytestmark = pytest.mark.java

KINDS = ("java", "rmqha")
TOPIC, ORDERED = "Held", "HeldOrdered"
BUSY = (response_code.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while")


class Talker:
    """A connection to a broker, by hand; counts the notifications that it gets."""

    def __init__(self, address: str):
        self.address = address
        self.notified: list[str] = []
        self.client = RemotingClient(RemotingClientConfig())
        self.client.register_processor(request_code.NOTIFY_CONSUMER_IDS_CHANGED, self, None)
        self.client.start()

    def process_request(self, _channel, request):
        """A broker says that a group changed."""
        self.notified.append(request.ext_fields["consumerGroup"])

    def reject_request(self) -> bool:
        """Never."""
        return False

    def ask(self, code: int, header=None, body: bytes | None = None, timeout_ms: int = 40_000) -> RemotingCommand:
        """One request and its answer."""
        request = RemotingCommand.create_request_command(code, header)
        request.body = body
        return self.client.invoke_sync(self.address, request, timeout_ms)

    def send(self, body: bytes = b"x", topic: str = TOPIC) -> RemotingCommand:
        """One message to queue 0."""
        properties = message_decoder.message_properties2string({"KEYS": "k"})
        header = SendMessageRequestHeader("p", topic, "TBW102", 4, 0, 0, 1, 0, properties)
        return self.ask(request_code.SEND_MESSAGE, header, body)

    def pull(self, offset: int, hold_ms: int | None = None) -> RemotingCommand:
        """From queue 0; `hold_ms` lets the broker wait."""
        flag = sys_flags.build_pull_sys_flag(False, hold_ms is not None, True, False)
        return self.ask(request_code.PULL_MESSAGE, PullMessageRequestHeader(
            consumerGroup="holder", topic=TOPIC, queueId=0, queueOffset=offset, maxMsgNums=32, sysFlag=flag,
            commitOffset=0, suspendTimeoutMillis=hold_ms or 0, subscription="*", subVersion=0, expressionType="TAG"))

    def beat(self, group: str, client_id: str) -> None:
        """Say that a consumer of `group` lives here."""
        subscription = SubscriptionData(topic=TOPIC, subString="*")
        consumer = ConsumerData(group, ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING,
                                ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, {subscription})
        body = remoting_serializable.encode(HeartbeatData(clientID=client_id, consumerDataSet={consumer}))
        assert self.ask(request_code.HEART_BEAT, None, body).code == response_code.SUCCESS

    def members(self, group: str) -> tuple:
        """Who consumes as `group`: ids, or code and remark."""
        answer = self.ask(request_code.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader(group))
        if answer.code != response_code.SUCCESS:
            return answer.code, answer.remark
        body = remoting_serializable.from_json(GetConsumerListByGroupResponseBody, answer.body)
        return tuple(sorted(body.consumerIdList))


@pytest.fixture(scope="module")
def brokers(client_broker, java_driver):
    """A broker of each kind with topics of one queue; kind -> broker."""
    found = {kind: client_broker(kind) for kind in KINDS}
    for broker in found.values():
        java_driver.create_topic(broker.namesrv, broker.address, TOPIC, 1)
        # what the name server calls ordered is so at each registration; else it may be forgotten at the next one
        java_driver.admin("updateOrderConf", "-n", broker.namesrv, "-t", ORDERED, "-m", "put", "-v", "broker-a:1")
        java_driver.admin("updateTopic", "-n", broker.namesrv, "-b", broker.address, "-t", ORDERED, "-r", "1", "-w",
                          "1", "-o", "true")
    return found


@pytest.fixture
def talk():
    """talk(broker) -> a Talker, closed at the test's end."""
    made: list[Talker] = []

    def make(broker: BrokerNode) -> Talker:
        made.append(Talker(broker.address))
        return made[-1]
    yield make
    for talker in made:
        talker.client.shutdown()


def of_both(brokers, act) -> dict:
    """What `act(broker)` gives for each kind."""
    return {kind: act(broker) for kind, broker in brokers.items()}


def test_a_held_pull_is_answered_when_its_time_is_over(brokers, talk):
    def act(broker):
        talker = talk(broker)
        end = talker.pull(0).ext_fields["maxOffset"]
        begin = time.monotonic()
        answer = talker.pull(int(end), hold_ms=1_500)
        return answer.code, answer.remark, answer.ext_fields["nextBeginOffset"] == end, time.monotonic() - begin >= 1.5
    with ThreadPoolExecutor() as pool:  # each looks every 5 s only
        answers = {kind: held.result() for kind, held in of_both(brokers, partial(pool.submit, act)).items()}
    assert answers["rmqha"] == answers["java"]
    assert answers["rmqha"][0] == response_code.PULL_NOT_FOUND and answers["rmqha"][2:] == (True, True)


def test_a_held_pull_is_answered_when_a_message_comes(brokers, talk):
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


def test_a_pull_that_does_not_wait_is_answered_at_once_with_the_same_words(brokers, talk):
    def act(broker):
        talker = talk(broker)
        end = int(talker.pull(0).ext_fields["maxOffset"])
        answers = [talker.pull(offset) for offset in (end, end + 1, end + 1000)]
        return [(answer.code, answer.remark, int(answer.ext_fields["nextBeginOffset"]) - end) for answer in answers]
    answers = of_both(brokers, act)
    assert answers["rmqha"] == answers["java"]


def test_without_long_polling_a_pull_waits_for_the_short_time(brokers, talk, java_driver):
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
def test_the_brokers_permission_refuses_with_the_same_words(brokers, talk, java_driver, permission):
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


def test_a_full_queue_refuses_with_the_same_words(brokers):
    asked = {"topic": TOPIC, "key": "k", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 62}

    def act(broker):
        with RawClient(broker.address) as client:  # all at once: the broker's thread is not to keep up
            client.send(b"".join(frame(header(request_code.QUERY_MESSAGE, opaque, **asked)) for opaque in range(300)))
            answers = [client.read_frame()[1] for _ in range(300)]
        return {(answer.code, answer.remark) for answer in answers if answer.code == response_code.SYSTEM_BUSY}
    answers = of_both(brokers, act)
    assert answers["rmqha"] == answers["java"] == {BUSY}


def test_a_connection_that_ends_takes_its_consumer_away_and_tells_the_others(brokers, talk):
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
