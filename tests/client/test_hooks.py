"""What users can hang into sends, pulls and calls of a listener."""
import pytest

from rmqha.client.client_config import ClientConfig
from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus as Status
from rmqha.client.consumer.listeners import MessageQueueListener
from rmqha.client.consumer.mq_pull_consumer_schedule_service import MQPullConsumerScheduleService
from rmqha.client.exception import MQClientException
from rmqha.client.hooks import CheckForbiddenHook, ConsumeMessageHook, FilterMessageHook, SendMessageHook
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import CommunicationMode, SendCallback
from rmqha.common.message.message import Message, MessageType
from rmqha.common.subscriptions import ConsumeFromWhere
from rmqha.remoting.exception import RemotingTimeoutException
from tests.support.wait import wait_until


class Sends(SendMessageHook):
    """Notes sends, and fails at each."""

    def __init__(self):
        self.before, self.after = [], []

    def hook_name(self):
        return "sends"

    def send_message_before(self, context):
        self.before.append(context)
        raise RuntimeError("a hook's fault is nobody else's")

    def send_message_after(self, context):
        self.after.append((context.send_result, context.exception))


class Forbids(CheckForbiddenHook):
    """Forbids bodies that say so."""

    def hook_name(self):
        return "forbids"

    def check_forbidden(self, context):
        if context.message.body == b"forbidden":
            raise MQClientException("not this one")


def test_send_hooks_see_each_kind_of_send(servers):
    topic, hook, results = servers.unique("Hooked"), Sends(), []
    producer = DefaultMQProducer(servers.unique("hooked"), servers.namesrv)
    producer.register_send_message_hook(hook)
    with producer:
        first = producer.send(Message(topic, b"x"))
        producer.send_oneway(Message(topic, b"x"))
        delayed = Message(topic, b"x")
        delayed.delay_time_level = 1
        producer.send_async(delayed, SendCallback(results.append))
        wait_until(lambda: results and len(hook.after) == 3, 60_000, "the asynchronous answer")
    assert [context.communication_mode for context in hook.before] == [
        CommunicationMode.SYNC, CommunicationMode.ONEWAY, CommunicationMode.ASYNC]
    assert [context.msg_type for context in hook.before] == [
        MessageType.Normal_Msg, MessageType.Normal_Msg, MessageType.Delay_Msg]
    assert hook.after == [(first, None), (None, None), (results[0], None)]


def test_a_hook_can_forbid_a_send(servers):
    topic = servers.unique("Hooked")
    producer = DefaultMQProducer(servers.unique("hooked"), servers.namesrv)
    producer.register_check_forbidden_hook(Forbids())
    with producer:
        producer.send(Message(topic, b"allowed"))
        with pytest.raises(MQClientException) as raised:
            producer.send(Message(topic, b"forbidden"))
    assert "not this one" in str(raised.value.__cause__)


def test_consume_hooks_see_outcomes_and_filter_hooks_take_messages_out(servers):
    topic, got, outcomes = servers.unique("Hooked"), [], []

    class Consumes(ConsumeMessageHook):
        def hook_name(self):
            return "consumes"

        def consume_message_after(self, context):
            outcomes.append((bytes(context.msg_list[0].body), context.success, context.props["ConsumeContextType"]))

    class Filters(FilterMessageHook):
        def hook_name(self):
            return "filters"

        def filter_message(self, context):
            context.msg_list[:] = [msg for msg in context.msg_list if msg.body != b"secret"]

    def listener(messages):
        body = bytes(messages[0].body)
        got.append(body)
        if body == b"raise":
            raise ValueError("the user's fault")
        return {b"null": None, b"later": Status.RECONSUME_LATER}.get(body, Status.CONSUME_SUCCESS)

    with DefaultMQProducer(servers.unique("hooked"), servers.namesrv) as producer:
        for body in (b"secret", b"fine", b"raise", b"null", b"later"):
            producer.send(Message(topic, body))
    consumer = DefaultMQPushConsumer(servers.unique("hooked"), servers.namesrv, listener)
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.register_consume_message_hook(Consumes())
    consumer.register_filter_message_hook(Filters())
    consumer.subscribe(topic)
    with consumer:
        wait_until(lambda: len(set(outcomes)) >= 4, 60_000, "four outcomes")
    assert set(outcomes) == {(b"fine", True, "SUCCESS"), (b"raise", False, "EXCEPTION"), (b"null", False, "RETURNNULL"),
                             (b"later", False, "FAILED")}
    assert b"secret" not in got


def test_a_pull_consumer_is_told_of_its_share_and_sends_back(servers):
    topic, group, told = servers.unique("Hooked"), servers.unique("pulling"), []

    class Listener(MessageQueueListener):
        def message_queue_changed(self, topic, mq_all, mq_divided):
            told.append((topic, mq_all == mq_divided, len(mq_divided)))

    with DefaultMQProducer(servers.unique("hooked"), servers.namesrv) as producer:
        producer.admin.create_topic("TBW102", topic, 1)
        sent = producer.send(Message(topic, b"back"))
    consumer = DefaultMQPullConsumer(group, servers.namesrv)
    consumer.register_message_queue_listener(topic, Listener())
    with consumer:
        wait_until(lambda: told, 60_000, "the share")
        assert told[0] == (topic, True, 2)
        [msg] = consumer.pull(sent.message_queue, "*", 0, 32).msg_found_list
        consumer.send_message_back(msg, 1)
        retry = f"%RETRY%{group}"

        def came_again():
            try:
                queues = consumer.fetch_subscribe_message_queues(retry)
            except MQClientException:  # not known at the name server yet
                return False
            return any(consumer.pull(queue, "*", 0, 32).msg_found_list for queue in queues)
        wait_until(came_again, 60_000, "the message in the group's retry topic")


def test_a_scheduled_function_pulls_each_queue_of_the_share(servers):
    topic, group, seen, calls = servers.unique("Scheduled"), servers.unique("scheduled"), [], []

    def pull(queue, context):
        calls.append(queue)
        if len(calls) == 1:
            raise ValueError("the user's fault; the queue comes again")
        offset = max(0, context.pull_consumer.fetch_consume_offset(queue, from_store=False))
        result = context.pull_consumer.pull(queue, "*", offset, 32)
        seen.extend(bytes(msg.body) for msg in result.msg_found_list)
        context.pull_consumer.update_consume_offset(queue, result.next_begin_offset)
        context.pull_next_delay_time_millis = 20

    with DefaultMQProducer(servers.unique("hooked"), servers.namesrv) as producer:
        producer.admin.create_topic("TBW102", topic, 2)
        for number in range(8):
            producer.send(Message(topic, b"%d" % number))
    service = MQPullConsumerScheduleService(group, servers.namesrv, pull_thread_nums=2)
    service.register_pull_task_callback(topic, pull)
    with service:
        wait_until(lambda: len(seen) >= 8, 60_000, "eight messages")
    assert sorted(seen) == [b"%d" % number for number in range(8)]
    assert len(set(calls)) == 4


@pytest.mark.own_timeouts
def test_asynchronous_sends_beyond_the_permits_are_refused(servers):
    errors, results = [], []
    with DefaultMQProducer(servers.unique("pressed"), servers.namesrv) as producer:
        topic = servers.unique("Pressed")
        producer.send(Message(topic, b"x"))
        client = producer.default_mq_producer_impl.mq_client_factory.mq_client_api_impl.remoting_client
        taken = 0
        while client.semaphore_async.acquire(blocking=False):
            taken += 1
        producer.retry_times_when_send_async_failed = 0
        producer.send_async(Message(topic, b"x"), SendCallback(results.append, errors.append), 2000)
        wait_until(lambda: errors, 60_000, "the refusal")
        client.semaphore_async.release(taken)
        producer.send_async(Message(topic, b"x"), SendCallback(results.append, errors.append))
        wait_until(lambda: results, 60_000, "the answer")
    assert len(errors) == 1 and isinstance(errors[0], RemotingTimeoutException)


@pytest.mark.parametrize(("addr", "namespace", "plain"), [
    ("127.0.0.1:9876", None, "127.0.0.1:9876"),
    ("http://MQ_INST_1_shop.example.org:80", "MQ_INST_1_shop", "MQ_INST_1_shop.example.org:80"),
    ("MQ_INST_1_shop.example.org:80", "MQ_INST_1_shop", "MQ_INST_1_shop.example.org:80"),
    ("http://example.org:80", None, "example.org:80"), ("MQ_INST_x:80", None, "MQ_INST_x:80")])
def test_an_instances_address_carries_its_namespace(addr, namespace, plain):
    config = ClientConfig(namesrv_addr=addr)
    assert (config.get_namespace(), config.get_namesrv_addr()) == (namespace, plain)
    assert ClientConfig(namesrv_addr=addr, namespace="other").get_namespace() == "other"
