"""Transactions on the real broker and on rmqha's, and rmqha's clients with the real broker."""
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmqha.client import results
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus, MessageListenerOrderly
from rmqha.client.exception import MQClientException
from rmqha.client.hooks import LocalTransactionState, TransactionListener
from rmqha.client.impl.mq_client_manager import MQClientManager
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.producer.transaction_mq_producer import TransactionMQProducer
from rmqha.common import sys_flags as flags
from rmqha.common import util_all
from rmqha.common.message import message_decoder
from rmqha.common.message.message import Message
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.client_headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from rmqha.common.subscriptions import ConsumeFromWhere, HeartbeatData, ProducerData
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig
from tests.support import store_compare
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.wait import wait_until

pytestmark = pytest.mark.java


# The same half messages and outcomes, sent to the real broker and to rmqha's: the same answers, checks and log bytes.

TOPIC, GROUP = "TransTopic", "trans-group"
COMMIT, ROLLBACK, UNKNOWN = (flags.TRANSACTION_COMMIT_TYPE, flags.TRANSACTION_ROLLBACK_TYPE,
                             flags.TRANSACTION_NOT_TYPE)
FLAG, BORN_TIME, RECONSUME_TIMES = 16, 40, 72  # positions in a record


@dataclass
class Half:
    """The position of a half message as returned to its producer."""

    number: int
    commit_log_offset: int
    queue_offset: int
    msg_id: str


class Producer:
    """A producer whose fields the test chooses, and which records the broker's checks."""

    def __init__(self, address: str):
        self.address = address
        # Only the client's thread appends.
        self.asked: list[tuple[CheckTransactionStateRequestHeader, bytes]] = []
        self._client = RemotingClient(RemotingClientConfig())
        self._client.register_processor(request_code.CHECK_TRANSACTION_STATE, self)

    def __enter__(self) -> "Producer":
        self._client.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._client.shutdown()

    def process_request(self, _channel: object, request: RemotingCommand) -> None:
        """Record that the broker asks for an outcome."""
        header = request.decode_command_custom_header(CheckTransactionStateRequestHeader)
        self.asked.append((header, bytes(request.body)))

    @staticmethod
    def reject_request() -> bool:
        """Return False: nothing is rejected."""
        return False

    def call(self, code: int, header=None, body: bytes | None = None) -> RemotingCommand:
        """Send one request, and return its answer."""
        request = RemotingCommand.create_request_command(code, header)
        request.body = body
        return self._client.invoke_sync(self.address, request, 60_000)

    def heartbeat(self) -> None:
        """Send a heartbeat of the group."""
        data = HeartbeatData("client-1", {ProducerData(GROUP)}, set())
        response = self.call(request_code.HEART_BEAT, body=remoting_serializable.encode(data))
        assert response.code == response_code.SUCCESS

    def send_half(self, number: int, **properties: str) -> Half:
        """Send half message `number`, with more properties if given."""
        text = message_decoder.message_properties2string({
            "TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": f"{number:032X}", "KEYS": f"key-{number}",
            "TAGS": "TagA", "WAIT": "true", **properties})
        header = SendMessageRequestHeaderV2(
            a=GROUP, b=TOPIC, c="TBW102", d=4, e=number % 4, f=flags.TRANSACTION_PREPARED_TYPE,
            g=util_all.current_time_millis(), h=number * 7, i=text, j=0)
        response = self.call(request_code.SEND_MESSAGE_V2, header, f"half {number} ß".encode())
        assert response.code == response_code.SUCCESS, response
        fields = response.ext_fields
        assert fields["queueId"] == str(number % 4)
        offset = message_decoder.decode_message_id(fields["msgId"]).offset
        return Half(number, offset, int(fields["queueOffset"]), fields["msgId"])

    def end(self, half: Half, outcome: int, checked: bool = False, **changes: object) -> tuple[int, str | None]:
        """Send the outcome of a half message; return the answer's code and remark."""
        header = EndTransactionRequestHeader(
            producerGroup=GROUP, tranStateTableOffset=half.queue_offset, commitLogOffset=half.commit_log_offset,
            commitOrRollback=outcome, fromTransactionCheck=checked, msgId=f"{half.number:032X}")
        for name, value in changes.items():
            setattr(header, name, value)
        response = self.call(request_code.END_TRANSACTION, header)
        return response.code, response.remark

    def say_pending(self, half: Half) -> None:
        """Send the outcome "unknown", which is not answered."""
        header = EndTransactionRequestHeader(
            producerGroup=GROUP, tranStateTableOffset=half.queue_offset, commitLogOffset=half.commit_log_offset,
            commitOrRollback=UNKNOWN, msgId="x")
        self._client.invoke_oneway(
            self.address, RemotingCommand.create_request_command(request_code.END_TRANSACTION, header), 30_000)


def without_place_and_time(log: Path) -> list[bytes]:
    """Return the records of a log (IPv4 hosts) with hosts and times set to zero."""
    files, records = store_compare.segments(log), []
    for record in store_compare.walk(log):
        start = max(at for at in files if at <= record.offset)
        data = bytearray(files[start].read_bytes()[record.offset - start:record.offset - start + record.size])
        data[BORN_TIME:RECONSUME_TIMES] = bytes(RECONSUME_TIMES - BORN_TIME)
        records.append(bytes(data))
    return records


def test_outcomes_get_the_same_answers_and_write_the_same_log(make_namesrv, make_broker):
    seen = {}
    for kind in ("java", "rmqha"):
        broker = make_broker(kind, make_namesrv("rmqha", f"{kind}-namesrv").address, f"{kind}-broker",
                             shared_jvm=True, transactionCheckInterval=3_600_000)
        with Producer(broker.address) as producer:
            halves = [producer.send_half(number) for number in range(8)]
            answers = [
                producer.end(halves[0], COMMIT),
                producer.end(halves[1], ROLLBACK),
                producer.end(halves[2], COMMIT, checked=True),
                producer.end(halves[3], ROLLBACK, checked=True),
                producer.end(halves[4], COMMIT, producerGroup="other"),
                producer.end(halves[4], COMMIT, tranStateTableOffset=99),
                producer.end(halves[4], COMMIT, commitLogOffset=halves[5].commit_log_offset),
                producer.end(halves[4], COMMIT, commitLogOffset=halves[4].commit_log_offset + 1),
                producer.end(halves[4], ROLLBACK, commitLogOffset=1 << 40),
                producer.end(halves[4], ROLLBACK, producerGroup="other"),
                producer.end(halves[0], COMMIT),  # again: committed twice
            ]
            producer.say_pending(halves[6])
            assert {code for code, _remark in answers[:4]} == {response_code.SUCCESS}
        broker.stop()
        seen[kind] = answers, halves, without_place_and_time(broker.commit_log)
    assert [half.queue_offset for half in seen["rmqha"][1]] == list(range(8))
    assert seen["rmqha"][0] == seen["java"][0]
    assert seen["rmqha"][2] == seen["java"][2]


def test_checks_are_the_same_and_write_the_same_log(make_namesrv, make_broker):
    namesrv, seen = make_namesrv("rmqha").address, {}
    brokers = {kind: make_broker(kind, namesrv, kind, shared_jvm=True, brokerName=kind, transactionCheckInterval=1000,
                                 transactionTimeOut=5000, transactionCheckMax=2) for kind in ("java", "rmqha")}
    with Producer(brokers["java"].address) as java_producer, Producer(brokers["rmqha"].address) as rmqha_producer:
        producers = {"java": java_producer, "rmqha": rmqha_producer}
        forgotten = {}
        for kind, producer in producers.items():
            producer.heartbeat()
            assert producer.end(producer.send_half(0), COMMIT) == (response_code.SUCCESS, None)
            forgotten[kind] = producer.send_half(4)
        for kind, producer in producers.items():
            seen[kind] = check_and_resume(brokers[kind], producer, forgotten[kind])
    rmqha, java = seen["rmqha"], seen["java"]
    assert [flag for *_, flag in rmqha[0]] == [28, 28, 28]
    # Java's broker loses the flag when it writes a half message again.
    assert [flag for *_, flag in java[0]] == [28, 0, 28]
    assert [asked for *asked, _flag in rmqha[0]] == [asked for *asked, _flag in java[0]]
    assert without_flag(rmqha[1]) == without_flag(java[1])


def check_and_resume(broker, producer: Producer, forgotten: Half) -> tuple[list, list]:
    """Wait until a message is given up, resume its checks, and commit it; return the checks and the log."""
    wait_until(lambda: len(producer.asked) >= 2, 60_000, "two checks")
    wait_until(lambda: given_up(broker), 60_000, "a message given up")
    asked = producer.asked[:]
    resume = ResumeCheckHalfMessageRequestHeader(forgotten.msg_id)
    assert producer.call(request_code.RESUME_CHECK_HALF_MESSAGE, resume).code == response_code.SUCCESS
    wait_until(lambda: len(producer.asked) > len(asked), 60_000, "a check of the resumed message")
    header, body = producer.asked[len(asked)]
    half = Half(4, header.commitLogOffset, header.tranStateTableOffset, "")
    assert producer.end(half, COMMIT, checked=True) == (response_code.SUCCESS, None)
    broker.stop()
    records = list(store_compare.walk(broker.commit_log))
    assert [record.body.decode() for record in records if record.topic == TOPIC] == ["half 0 ß", "half 4 ß"]
    until = [record.offset for record in records].index(header.commitLogOffset)
    return ([question(*one) for one in [*asked, (header, body)]],
            without_place_and_time(broker.commit_log)[:until + 1])


def given_up(broker) -> bool:
    """Return whether a message was moved to the topic for messages that were checked too often."""
    return any(record.topic == "TRANS_CHECK_MAX_TIME_TOPIC" for record in store_compare.walk(broker.commit_log))


def question(header: CheckTransactionStateRequestHeader, body: bytes) -> tuple:
    """Return a check's fields, without addresses and times."""
    message = message_decoder.decode(body)
    assert header.offsetMsgId[16:] == f"{header.commitLogOffset:016X}"
    return (header.commitLogOffset, header.tranStateTableOffset, header.msgId, header.transactionId, message.topic,
            message.queue_id, message.body, message.properties, message.sys_flag, len(body), message.flag)


def without_flag(records: list[bytes]) -> list[bytes]:
    return [record[:FLAG] + record[FLAG + 4:] for record in records]


# rmqha's producers and consumers with a real broker: transactions, order, requests, SQL92.

LONG_MS = 60_000
DONE = ConsumeConcurrentlyStatus.CONSUME_SUCCESS


@pytest.fixture(scope="module")
def real(module_nodes, tmp_path_factory):
    """Return a real broker that checks transactions every second."""
    folder = tmp_path_factory.mktemp("real")
    namesrv = NamesrvNode("rmqha", folder / "namesrv")
    broker = BrokerNode("java", folder / "broker", namesrv.address, shared_jvm=True, enablePropertyFilter="true",
                        transactionCheckInterval=1000, transactionTimeOut=1000)
    module_nodes += [namesrv, broker]
    namesrv.start()
    return broker.start()


@pytest.fixture(scope="module")
def sender(real):
    """Yield a producer, after creating the topics of the tests."""
    with DefaultMQProducer("senders", real.namesrv) as producer:
        for topic in ("Transactions", "Ordered", "Requests", "Selected"):
            producer.admin.create_topic("TBW102", topic, 4)
        for topic in ("Transactions", "Ordered", "Requests", "Selected"):
            wait_until(lambda: queues_of(producer, topic) == 4, LONG_MS, f"queues of {topic}")
        yield producer


def queues_of(producer, topic):
    try:
        return len(producer.fetch_publish_message_queues(topic))
    except MQClientException:
        return 0


def reading(real, topic, listener, expression="*", kind=None):
    consumer = DefaultMQPushConsumer(f"{topic}-readers", real.namesrv, listener, client_manager=MQClientManager())
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.subscribe(topic, expression, kind)
    return consumer


class Outcomes(TransactionListener):
    """A listener to which the argument of the send is the outcome. Messages without one are committed at the check.

    The broker may also check others, before it has their outcome.
    """

    def execute_local_transaction(self, msg, arg):
        return arg

    def check_local_transaction(self, msg):
        known = LocalTransactionState[msg.body.decode()]
        return LocalTransactionState.COMMIT_MESSAGE if known is LocalTransactionState.UNKNOW else known


def test_transactions_of_rmqhas_producer_complete_on_a_real_broker(real, sender):
    bodies, lock = Counter(), threading.Lock()

    def listener(messages):
        with lock:
            bodies.update(message.body for message in messages)
        return DONE

    with reading(real, "Transactions", listener), \
            TransactionMQProducer("outcomes", real.namesrv, Outcomes(), client_manager=MQClientManager()) as producer:
        for state in LocalTransactionState:
            result = producer.send_message_in_transaction(Message("Transactions", state.name.encode()), state)
            assert result.local_transaction_state is state
        wait_until(lambda: len(bodies) == 2, LONG_MS, "all messages committed at once or at a check")
    assert set(bodies) == {b"COMMIT_MESSAGE", b"UNKNOW"}


class InOrder(MessageListenerOrderly):
    """A listener that records the bodies of each queue; one of them has to arrive twice."""

    def __init__(self):
        self.seen = defaultdict(list)

    def consume_message(self, msgs, context):
        seen = self.seen[context.message_queue]
        seen.extend(int(msg.body) for msg in msgs)
        again = seen[-1] == 17 and seen.count(17) == 1
        context.suspend_current_queue_time_millis = 10
        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT if again else ConsumeOrderlyStatus.SUCCESS


def test_rmqhas_orderly_consumer_locks_queues_of_a_real_broker(real, sender):
    queues, listener = sorted(sender.fetch_publish_message_queues("Ordered")), InOrder()
    for number in range(100):
        sender.send(Message("Ordered", b"%d" % number), queue=queues[number % 4])
    with reading(real, "Ordered", listener):
        wait_until(lambda: sum(map(len, listener.seen.values())) == 101, LONG_MS, "all messages, one of them twice")
    assert sorted(listener.seen.values()) == [
        sorted([*range(first, 100, 4)] + ([17] if first == 1 else [])) for first in range(4)]


def test_request_and_reply_of_rmqhas_client_through_a_real_broker(real, sender):
    def listener(messages):
        for message in messages:
            sender.send(results.create_reply_message(message, message.body[::-1]))
        return DONE

    with reading(real, "Requests", listener), \
            DefaultMQProducer("askers", real.namesrv, client_manager=MQClientManager()) as asker:
        for body in (b"abc", b"x" * 10_000 + b"y"):
            assert asker.request(Message("Requests", body), LONG_MS).body == body[::-1]


def test_rmqhas_consumer_selects_by_sql_on_a_real_broker(real, sender):
    seen = []

    def listener(messages):
        seen.extend(int(message.body) for message in messages)
        return DONE

    for number in range(40):
        message = Message("Selected", b"%d" % number)
        message.put_user_property("number", str(number))
        sender.send(message)
    with reading(real, "Selected", listener, "number BETWEEN 10 AND 19", "SQL92"):
        wait_until(lambda: len(seen) == 10, LONG_MS, "the selected messages")
    assert sorted(seen) == list(range(10, 20))
    with pytest.raises(MQClientException, match="Encountered"), \
            reading(real, "Selected", listener, "number BETWEEN", "SQL92"):
        pass
