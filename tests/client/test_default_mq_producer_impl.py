"""A producer's retries, compression and headers, and avoiding slow brokers."""
import zlib
from types import SimpleNamespace

import pytest

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.hooks import TransactionListener
from rmqha.client.impl import producer_parts
from rmqha.client.impl.client_routes import TopicPublishInfo
from rmqha.client.life import ServiceState
from rmqha.client.mq_fault_strategy import LatencyFaultToleranceImpl, MQFaultStrategy
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.producer.transaction_mq_producer import TransactionMQProducer
from rmqha.client.results import CommunicationMode, SendCallback, SendResult, SendStatus
from rmqha.common import sys_flags, util_all
from rmqha.common.message import message_decoder
from rmqha.common.message import message_decoder as message_client_id_setter
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.message.message_decoder import MessageBatch
from rmqha.common.protocol import response_code
from rmqha.common.protocol.topic_route_data import BrokerData, QueueData, TopicRouteData
from rmqha.remoting.exception import RemotingConnectException, RemotingTimeoutException, RemotingTooMuchRequestException
from rmqha.store.role import AUTOMATIC

# A producer's retries, compression and headers, without a broker.

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b") for number in range(2)]


class FakeApi:
    """Returns the prepared answers in order, and records the sent messages."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.sent = []

    def send_message(self, addr, broker_name, msg, header, body, timeout_ms):
        self.sent.append(SimpleNamespace(addr=addr, broker=broker_name, header=header, body=body, timeout=timeout_ms))
        answer = self.answers.pop(0) if self.answers else SendStatus.SEND_OK
        if isinstance(answer, Exception):
            raise answer
        return SendResult(answer, "id", MessageQueue("T", broker_name, header.e), 0)

    def get_name_server_address_list(self):
        return ["1:1"]


@pytest.fixture
def make_producer():
    def make(*answers, **settings):
        producer = DefaultMQProducer("g", "127.0.0.1:1")
        for name, value in settings.items():
            setattr(producer, name, value)
        impl, api = producer.default_mq_producer_impl, FakeApi(*answers)
        impl.service_state = ServiceState.RUNNING
        impl.mq_client_factory = SimpleNamespace(mq_client_api_impl=api)
        impl.routes = SimpleNamespace(find_broker_address_in_publish={"a": "1:1", "b": "1:2"}.get,
                                      update_topic_route_info_from_name_server=lambda *args: False)
        impl.topic_publish_info_table["T"] = TopicPublishInfo(message_queue_list=list(QUEUES))
        return producer, api

    return make


def brokers(api):
    return [sent.broker for sent in api.sent]


@pytest.mark.parametrize("error", [
    RemotingConnectException("1:1"), RemotingTimeoutException("1:1", 10), MQClientException("not exist"),
    MQBrokerException(response_code.SYSTEM_ERROR, "x"), MQBrokerException(response_code.SERVICE_NOT_AVAILABLE, "x"),
    MQBrokerException(response_code.TOPIC_NOT_EXIST, "x"), MQBrokerException(response_code.NO_PERMISSION, "x")])
def test_retry_goes_to_another_broker(make_producer, error):
    producer, api = make_producer(error)
    assert producer.send(Message("T", b"x")).send_status is SendStatus.SEND_OK
    first, second = brokers(api)
    assert first != second


def test_final_refusal_is_raised_at_once(make_producer):
    producer, api = make_producer(MQBrokerException(response_code.MESSAGE_ILLEGAL, "too long"))
    with pytest.raises(MQBrokerException, match="too long"):
        producer.send(Message("T", b"x"))
    assert len(api.sent) == 1


@pytest.mark.parametrize("error, code", [
    (RemotingConnectException("1:1"), 10001), (RemotingTimeoutException("1:1", 10), 10002),
    (MQClientException("x"), 10003), (MQBrokerException(1, "x"), 1)])
def test_three_failed_tries_raise_their_code(make_producer, error, code):
    producer, api = make_producer(error, error, error)
    with pytest.raises(MQClientException, match=r"Send \[3\] times, still failed") as failure:
        producer.send(Message("T", b"x"))
    assert failure.value.response_code == code and len(api.sent) == 3 and failure.value.__cause__ is error


def test_no_retry_after_the_timeout(make_producer):
    producer, api = make_producer()
    with pytest.raises(RemotingTooMuchRequestException):
        producer.send(Message("T", b"x"), timeout_ms=-1)
    assert api.sent == []


def test_stored_without_slave_is_a_result_unless_another_broker_is_wanted(make_producer):
    producer, api = make_producer(SendStatus.SLAVE_NOT_AVAILABLE)
    assert producer.send(Message("T", b"x")).send_status is SendStatus.SLAVE_NOT_AVAILABLE and len(api.sent) == 1
    producer, api = make_producer(SendStatus.SLAVE_NOT_AVAILABLE, retry_another_broker_when_not_store_ok=True)
    assert producer.send(Message("T", b"x")).send_status is SendStatus.SEND_OK and len(api.sent) == 2
    producer, api = make_producer(*[SendStatus.FLUSH_DISK_TIMEOUT] * 3, retry_another_broker_when_not_store_ok=True)
    assert producer.send(Message("T", b"x")).send_status is SendStatus.FLUSH_DISK_TIMEOUT, "the status of the last try"


def test_long_bodies_are_compressed_without_changing_the_message(make_producer):
    producer, api = make_producer()
    message = Message("T", b"x" * 4096)
    producer.send(message)
    producer.send(Message("T", b"x" * 4095))
    assert zlib.decompress(api.sent[0].body) == message.body == b"x" * 4096
    assert [sent.header.f for sent in api.sent] == [0x1 | 0x3 << 8, 0]


def test_header_has_group_default_topic_queue_and_properties(make_producer):
    producer, api = make_producer()
    message = Message("T", b"x", tags="red", keys="k1 k2", flag=7)
    producer.send(message, queue=QUEUES[3])
    header = api.sent[0].header
    assert (header.a, header.b, header.c, header.d, header.e, header.h, header.m, header.n) == (
        "g", "T", "TBW102", 4, 1, 7, False, "b")
    properties = message_decoder.string2message_properties(header.i)
    assert properties["TAGS"] == "red" and properties["KEYS"] == "k1 k2" and properties["WAIT"] == "true"
    assert properties["UNIQ_KEY"] == message_client_id_setter.get_uniq_id(message)


def test_batch_is_encoded_once_with_an_id_per_message_and_not_compressed(make_producer):
    producer, api = make_producer()
    messages = [Message("T", b"y" * 3000) for _ in range(3)]
    producer.send_batch(messages)
    sent = api.sent[0]
    assert sent.header.m and sent.header.f == 0
    assert [item.body for item in message_decoder.decode_messages(sent.body)] == [item.body for item in messages]
    assert len({message_client_id_setter.get_uniq_id(item) for item in messages}) == 3


@pytest.mark.parametrize("messages, says", [
    ([], "MessageBatch"), ([Message("T", b"x"), Message("U", b"x")], "MessageBatch"),
    ([Message("T", b"x"), Message("T", b"x", keys="k" * 32_740)], "MessageBatch"),  # plus an id
    ([Message("T", b"x"), Message("T", b"x", tags="t" * 40_000)], "MessageBatch"),
    ([Message("T", b"x", flag=1 << 31), Message("T", b"x")], "MessageBatch")], ids=lambda each: str(each)[:40])
def test_invalid_batch_is_refused(make_producer, messages, says):
    producer, api = make_producer()
    with pytest.raises(MQClientException, match=says):
        producer.send_batch(messages)
    with pytest.raises(MQClientException, match=says):
        producer.send_batch_async(messages, SendCallback())
    assert not api.sent


def _with(message: Message, **attributes) -> Message:
    for name, value in attributes.items():
        setattr(message, name, value)
    return message


# A change that makes a message unfit for a batch -> a part of the error
SPOILED = {
    "empty": (lambda: Message("T", b""), "body length is zero"),
    "empty view": (lambda: Message("T", memoryview(b"")), "body length is zero"),
    "no body": (lambda: _with(Message("T", b"x"), body=None), "body is null"),
    "too long": (lambda: Message("T", b"x" * 101), "over max value, MAX: 100"),
    "no topic": (lambda: _with(Message("T", b"x"), topic=None), "topic is blank"),
    "bad topic": (lambda: Message("T T", b"x"), "illegal characters"),
    "long topic": (lambda: Message("T" * 128, b"x"), "longer than topic max length"),
    "system topic": (lambda: Message("SCHEDULE_TOPIC_XXXX", b"x"), "is forbidden"),
    "other topic": (lambda: Message("U", b"x"), "should be the same"),
    "retry topic": (lambda: Message("%RETRY%g", b"x"), "Retry Group is not supported"),
    "delayed": (lambda: _with(Message("T", b"x"), delay_time_level=3), "TimeDelayLevel is not supported"),
    "delay no number": (lambda: _with(Message("T", b"x"), properties={"DELAY": "soon"}), "For input string"),
    "does not wait": (lambda: Message("T", b"x", wait_store_msg_ok=False), "waitStoreMsgOK"),
    "null": (lambda: None, "the message is null"),
    "body of text": (lambda: _with(Message("T", b"x"), body="x"), "body must be bytes"),
    "no message": (lambda: b"x", "must be a Message, not bytes"),
    "a batch": (lambda: _with(MessageBatch([Message("T", b"x")]), topic="T", body=b"x"), "part of a batch"),
}
WAYS = {
    "send_batch": lambda producer, messages: producer.send_batch(messages),
    "of an iterator": lambda producer, messages: producer.send_batch(iter(messages)),
    "to a queue": lambda producer, messages: producer.send_batch(messages, queue=QUEUES[0]),
    "send_batch_async": lambda producer, messages: producer.send_batch_async(messages, SendCallback()),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", SPOILED)
def test_each_message_of_a_batch_is_checked(make_producer, kind, way):
    make, says = SPOILED[kind]
    producer, api = make_producer(max_message_size=100)
    with pytest.raises((MQClientException, TypeError), match=f"message 1: .*{says}"):
        WAYS[way](producer, [Message("T", b"a"), make(), Message("T", b"c")])
    assert not api.sent


def _made_by_hand(make) -> MessageBatch:
    batch = MessageBatch([Message("T", b"a"), make()])
    batch.topic, batch.body = "T", b"encoded before"
    return batch


@pytest.mark.parametrize("kind", SPOILED)
def test_each_message_of_a_hand_made_batch_is_checked(make_producer, kind):
    make, says = SPOILED[kind]
    producer, api = make_producer(max_message_size=100)
    for send in (producer.send, producer.send_oneway, lambda batch: producer.send(batch, queue=QUEUES[0]),
                 lambda batch: producer.send(batch, selector=lambda queues, _msg, _arg: queues[0])):
        with pytest.raises((MQClientException, TypeError), match=f"message 1: .*{says}"):
            send(_made_by_hand(make))
    assert not api.sent


def test_whole_batch_has_the_size_limit_of_one_message(make_producer):
    producer, api = make_producer(max_message_size=100)
    with pytest.raises(MQClientException, match="over max value, MAX: 100"):
        producer.send_batch([Message("T", b"x" * 60), Message("T", b"x" * 60)])
    assert not api.sent


def test_batch_can_be_neither_a_request_nor_a_half_message(make_producer):
    producer, api = make_producer()
    batch = MessageBatch.generate_from_list([Message("T", b"a"), Message("T", b"b")])
    batch.body = batch.encode()
    with pytest.raises(MQClientException, match="a batch can't be a request"):
        producer.request(batch, 1000)
    transactional = TransactionMQProducer("g", "127.0.0.1:1", TransactionListener())
    with pytest.raises(MQClientException, match="a batch can't be sent in a transaction"):
        transactional.send_message_in_transaction(batch)
    assert not api.sent


def test_vip_channel_sends_to_the_fast_port(make_producer):
    producer, api = make_producer(vip_channel_enabled=True)
    producer.default_mq_producer_impl.routes.find_broker_address_in_publish = lambda name: "1:10911"
    producer.send(Message("T", b"x"))
    assert api.sent[0].addr == "1:10909"


def test_queue_of_another_topic_and_topic_without_a_route_are_refused(make_producer):
    producer, _api = make_producer()
    with pytest.raises(MQClientException, match="topic not equal"):
        producer.send(Message("T", b"x"), queue=MessageQueue("U", "a", 0))
    with pytest.raises(MQClientException, match="No route info") as failure:
        producer.send(Message("U", b"x"))
    assert failure.value.response_code == 10005


def test_selector_chooses_the_queue_and_its_errors_are_raised(make_producer):
    producer, api = make_producer()
    producer.send(Message("T", b"x"), selector=lambda queues, msg, arg: queues[arg], arg=2)
    assert (api.sent[0].broker, api.sent[0].header.e) == ("b", 0)
    with pytest.raises(MQClientException, match="threw exception"):
        producer.send(Message("T", b"x"), selector=lambda queues, msg, arg: queues[99])
    with pytest.raises(MQClientException, match="return null"):
        producer.send(Message("T", b"x"), selector=lambda queues, msg, arg: None)


def test_asynchronous_send_passes_its_error_to_the_callback(make_producer):
    producer, _api = make_producer()
    errors = []
    producer.send_async(Message("T", b""), SendCallback(on_exception=errors.append))
    producer.send_async(Message("U", b"x"), SendCallback(on_exception=errors.append))
    assert [type(error) for error in errors] == [MQClientException] * 2


def test_retry_topic_turns_properties_into_header_fields(make_producer):
    producer, api = make_producer()
    topic = "%RETRY%g"
    producer.default_mq_producer_impl.topic_publish_info_table[topic] = TopicPublishInfo(
        message_queue_list=[MessageQueue(topic, "a", 0)])
    message = Message(topic, b"x")
    message.properties |= {"RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "5"}
    producer.send(message)
    header = api.sent[0].header
    assert (header.j, header.l) == (3, 5) and "RECONSUME_TIME" not in header.i
    assert message.properties["RECONSUME_TIME"] == "3"


def test_producer_that_is_not_running_refuses():
    producer = DefaultMQProducer("g", "127.0.0.1:1")
    with pytest.raises(MQClientException, match="service state not OK"):
        producer.send(Message("T", b"x"))
    producer.shutdown()


def test_invalid_groups_cannot_start():
    for group in ("DEFAULT_PRODUCER", "a b", ""):
        with pytest.raises(MQClientException):
            DefaultMQProducer(group, "127.0.0.1:1").start()


def test_kernel_supports_three_communication_modes():
    assert {mode.name for mode in CommunicationMode} == {"SYNC", "ASYNC", "ONEWAY"}


class OneBroker:
    """The route of one broker with a slave; its master changes after `moves_at` route requests."""

    def __init__(self, producer, moves_at: int) -> None:
        self.impl, self.asked, self.moves_at = producer.default_mq_producer_impl, 0, moves_at
        self.broker_addr_table = {"a": {0: "1:1", 1: "1:2"}}
        self.impl.topic_publish_info_table["T"] = TopicPublishInfo(
            message_queue_list=[queue for queue in QUEUES if queue.brokerName == "a"])
        self.impl.routes = self

    def find_broker_address_in_publish(self, broker_name):
        return self.broker_addr_table.get(broker_name, {}).get(0)

    def update_topic_route_info_from_name_server(self, *_args) -> bool:
        self.asked += 1
        if self.asked == self.moves_at:
            self.broker_addr_table = {"a": {0: "1:2", 1: "1:1"}}
        return True


@pytest.mark.parametrize(("error", "refusals"), [
    (RemotingConnectException("1:1"), 3), (MQBrokerException(response_code.SERVICE_NOT_AVAILABLE, "no lease"), 1)])
@pytest.mark.parametrize("moves_at", [1, 3])
def test_refused_send_goes_to_the_new_master(make_producer, error, refusals, moves_at):
    refusals = min(refusals, moves_at)
    producer, api = make_producer(*[error] * refusals)
    factory = OneBroker(producer, moves_at)
    assert producer.send(Message("T", b"x")).send_status is SendStatus.SEND_OK
    assert [sent.addr for sent in api.sent] == ["1:1"] * refusals + ["1:2"] and factory.asked == moves_at


def test_address_that_moves_is_tried_until_it_accepts_a_connection(make_producer, monkeypatch):
    monkeypatch.setattr(producer_parts, "_WAIT_MS", 600_000)
    producer, api = make_producer(*[RemotingConnectException("1:1")] * 9, send_msg_timeout=60_000)
    factory = OneBroker(producer, -1)
    assert producer.send(Message("T", b"x")).send_status is SendStatus.SEND_OK
    assert [sent.addr for sent in api.sent] == ["1:1"] * 10 and factory.asked == 9


def test_unchanged_master_is_tried_within_the_sends_timeout(make_producer):
    producer, api = make_producer(*[RemotingConnectException("1:1")] * 1000, send_msg_timeout=200)
    factory = OneBroker(producer, -1)
    with pytest.raises((MQClientException, RemotingTooMuchRequestException)):
        producer.send(Message("T", b"x"))
    assert 3 <= factory.asked and 3 <= len(api.sent) < 1000


def test_broker_without_slaves_is_not_waited_for(make_producer):
    producer, api = make_producer(RemotingConnectException("1:1"))
    factory = OneBroker(producer, -1)
    factory.broker_addr_table = {"a": {0: "1:1"}}
    assert producer.send(Message("T", b"x")).send_status is SendStatus.SEND_OK
    assert factory.asked == 1


SOON_OVER = MQBrokerException(response_code.SERVICE_NOT_AVAILABLE, f"no lease; {AUTOMATIC}")
TOO_FEW = MQBrokerException(response_code.SYSTEM_ERROR, "in-sync replicas not enough")  # as 5.1.4 says it


@pytest.mark.parametrize("refusal", [SOON_OVER, TOO_FEW])
@pytest.mark.parametrize("addresses", [{0: "1:1"}, {0: "1:1", 1: "1:2"}])
def test_briefly_unavailable_master_is_retried_until_it_accepts(make_producer, monkeypatch, addresses, refusal):
    monkeypatch.setattr(producer_parts, "_WAIT_MS", 600_000)
    producer, api = make_producer(*[refusal] * 9, send_msg_timeout=60_000)
    OneBroker(producer, -1).broker_addr_table = {"a": addresses}
    assert producer.send(Message("T", b"x")).send_status is SendStatus.SEND_OK
    assert [sent.addr for sent in api.sent] == ["1:1"] * 10


def test_new_master_is_tried_at_once_when_the_old_one_refuses(make_producer, monkeypatch):
    monkeypatch.setattr(producer_parts, "_PAUSE_MS", 600_000)
    producer, api = make_producer(SOON_OVER)
    OneBroker(producer, 1)
    assert producer.send(Message("T", b"x")).send_status is SendStatus.SEND_OK
    assert [sent.addr for sent in api.sent] == ["1:1", "1:2"]


@pytest.mark.parametrize("refusal, tries", [
    (SOON_OVER, range(3, 1000)), (TOO_FEW, range(3, 1000)),
    (MQBrokerException(response_code.SYSTEM_ERROR, "create mapped file failed"), [3]),
    (MQBrokerException(response_code.SERVICE_NOT_AVAILABLE, "the disk is full"), [3])])
def test_only_master_that_keeps_refusing_is_not_retried_forever(make_producer, refusal, tries):
    producer, api = make_producer(*[refusal] * 1000, send_msg_timeout=60_000)
    OneBroker(producer, -1).broker_addr_table = {"a": {0: "1:1"}}
    with pytest.raises(MQClientException, match="still failed") as failed:
        producer.send(Message("T", b"x"))
    assert len(api.sent) in tries and failed.value.response_code == refusal.response_code


def test_send_without_retries_leaves_a_new_route_for_the_next(make_producer):
    producer, api = make_producer(RemotingConnectException("1:1"))
    factory = OneBroker(producer, 1)
    with pytest.raises(RemotingConnectException):
        producer.send(Message("T", b"x"), queue=QUEUES[0])
    assert factory.asked == 1 and factory.find_broker_address_in_publish("a") == "1:2"


def test_lost_master_is_waited_for_while_slaves_remain(make_producer):
    producer, api = make_producer(RemotingConnectException("1:1"))
    factory = OneBroker(producer, 4)
    ask = factory.update_topic_route_info_from_name_server

    def lose_the_master_first(*args) -> bool:
        if factory.asked == 0:
            # The name server has noticed, but does not know another master yet.
            factory.broker_addr_table = {"a": {1: "1:2"}}
        return ask(*args)
    factory.update_topic_route_info_from_name_server = lose_the_master_first
    assert producer.send(Message("T", b"x")).send_status is SendStatus.SEND_OK
    assert [sent.addr for sent in api.sent] == ["1:1", "1:2"] and factory.asked == 4


def test_send_that_starts_without_a_master_waits_for_one(make_producer):
    producer, api = make_producer()
    factory = OneBroker(producer, 3)
    route = TopicRouteData(brokerDatas=[BrokerData("c", "a", {1: "1:2"})])
    known = factory.impl.topic_publish_info_table["T"]
    factory.impl.topic_publish_info_table["T"] = TopicPublishInfo(have_topic_router_info=True, topic_route_data=route)
    ask = factory.update_topic_route_info_from_name_server

    def take_over(*args) -> bool:
        ask(*args)
        if factory.asked == 3:
            factory.impl.topic_publish_info_table["T"] = known
        return True
    factory.update_topic_route_info_from_name_server = take_over
    assert producer.send(Message("T", b"x")).send_status is SendStatus.SEND_OK
    assert [sent.addr for sent in api.sent] == ["1:2"] and factory.asked == 3


# Avoiding slow brokers.

LATENCY_QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b", "c") for number in range(2)]


@pytest.fixture
def info():
    """Two queues on each of three brokers."""
    data = [QueueData(brokerName=name, readQueueNums=2, writeQueueNums=2,
                      perm=sys_flags.PERM_READ | sys_flags.PERM_WRITE) for name in "abc"]
    return TopicPublishInfo(message_queue_list=LATENCY_QUEUES, topic_route_data=TopicRouteData(queueDatas=data))


@pytest.fixture
def strategy():
    """An enabled strategy."""
    strategy = MQFaultStrategy()
    strategy.send_latency_fault_enable = True
    return strategy


@pytest.mark.parametrize(("latency", "left_out_ms"), [
    (0, 0), (49, 0), (50, 0), (100, 0), (549, 0), (550, 30_000), (999, 30_000), (1_000, 60_000), (2_000, 120_000),
    (3_000, 180_000), (14_999, 180_000), (15_000, 600_000), (1 << 40, 600_000)])
def test_broker_is_avoided_longer_the_slower_it_answers(strategy, latency, left_out_ms, monkeypatch):
    now = util_all.monotonic_millis()
    monkeypatch.setattr(util_all, "monotonic_millis", lambda: now)
    strategy.update_fault_item("a", latency, isolation=False)
    item = strategy.latency_fault_tolerance._fault_item_table["a"]
    assert item.start_timestamp - now == left_out_ms and item.is_available() == (left_out_ms == 0)


def test_failed_broker_counts_as_thirty_seconds_slow(strategy, info):
    strategy.update_fault_item("a", 3, isolation=True)
    assert {strategy.select_one_message_queue(info).brokerName for _ in range(60)} == {"b", "c"}
    strategy.latency_fault_tolerance.remove("a")
    assert {strategy.select_one_message_queue(info).brokerName for _ in range(60)} == {"a", "b", "c"}


def test_one_of_the_better_half_is_chosen_when_all_are_slow(strategy, info):
    for name, latency in (("a", 600), ("b", 700), ("c", 800)):
        strategy.update_fault_item(name, latency, isolation=False)
    chosen = {strategy.select_one_message_queue(info) for _ in range(60)}
    assert chosen == {MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)}


def test_slow_broker_without_the_topic_is_forgotten(strategy, info):
    info.message_queue_list = [queue for queue in LATENCY_QUEUES if queue.brokerName != "a"]
    info.topic_route_data.queueDatas = [data for data in info.topic_route_data.queueDatas if data.brokerName != "a"]
    for name, latency in (("a", 600), ("b", 700), ("c", 800)):
        strategy.update_fault_item(name, latency, isolation=False)
    assert strategy.select_one_message_queue(info).brokerName in ("b", "c")
    assert strategy.latency_fault_tolerance.is_available("a")


def test_disabled_strategy_records_nothing(info):
    strategy = MQFaultStrategy()
    strategy.update_fault_item("a", 60_000, isolation=True)
    assert {strategy.select_one_message_queue(info).brokerName for _ in range(60)} == {"a", "b", "c"}
    assert {strategy.select_one_message_queue(info, "a").brokerName for _ in range(60)} == {"b", "c"}


def test_unknown_brokers_may_be_used():
    tolerance = LatencyFaultToleranceImpl()
    assert tolerance.is_available("new") and tolerance.pick_one_at_least() is None
    tolerance.remove(None)


def test_producer_avoids_a_dead_broker_from_the_second_message_on(servers, monkeypatch):
    topic = servers.unique("Latency")
    with DefaultMQProducer(servers.unique("latency"), servers.namesrv) as producer:
        producer.send_latency_fault_enable = True
        strategy, routes = (getattr(producer.default_mq_producer_impl, name)
                            for name in ("mq_fault_strategy", "routes"))
        # So that a slow machine causes no broker to be avoided.
        strategy.latency_max, strategy.not_available_duration = [15_000], [600_000]
        producer.admin.create_topic("TBW102", topic, 2)
        producer.fetch_publish_message_queues(topic)
        # The table behind it is filled again by every route update.
        find = routes.find_broker_address_in_publish
        monkeypatch.setattr(routes, "find_broker_address_in_publish",
                            lambda name: "127.0.0.1:1" if name == "broker-b" else find(name))
        brokers = [producer.send(Message(topic, b"x"), 10_000).message_queue.brokerName for _ in range(20)]
    assert set(brokers) == {"broker-a"}
    assert not strategy.latency_fault_tolerance.is_available("broker-b")


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_clock_step_neither_frees_nor_blocks_a_broker(strategy, monkeypatch, step_ms):
    real = util_all.current_time_millis
    strategy.update_fault_item("a", 1_000, isolation=False)
    monkeypatch.setattr(util_all, "current_time_millis", lambda: real() + step_ms)
    tolerance = strategy.latency_fault_tolerance
    assert not tolerance.is_available("a")
    later = util_all.monotonic_millis() + 61_000
    monkeypatch.setattr(util_all, "monotonic_millis", lambda: later)
    assert tolerance.is_available("a")
