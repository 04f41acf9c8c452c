"""Settings, validators, exceptions and counters."""
import threading
from dataclasses import fields
from typing import get_type_hints

import pytest

from rmqha import DefaultLitePullConsumer, DefaultMQProducer, TransactionMQProducer
from rmqha import DefaultMQPushConsumer as SettingsDefaultMQPushConsumer
from rmqha.client import exception
from rmqha.client.client_config import ClientConfig
from rmqha.client.consumer.consumer_config import PullConsumerSettings, PushConsumerSettings
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.consumer.default_mq_push_consumer_impl import check_push_config
from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl
from rmqha.client.life import ThreadLocalIndex
from rmqha.client.producer.producer_config import ProducerSettings, TransactionProducerSettings
from rmqha.client.producer.request_response_future import select_message_queue_by_hash
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.message.message_layout import MessageDecodeError
from rmqha.common.protocol import response_code
from rmqha.remoting.protocol.remoting_command import RemotingCommand

# Validators, exceptions, settings, counters.


@pytest.mark.parametrize("group, says", [
    (None, "blank"), ("  ", "blank"), ("g" * 256, "longer"), ("a/b", "illegal characters"), ("../g", "illegal")])
def test_invalid_group_is_refused(group, says):
    with pytest.raises(MQClientException, match=says):
        exception.check_group(group)


@pytest.mark.parametrize("topic, says", [
    (None, "blank"), ("", "blank"), ("t" * 128, "longer"), ("../etc", "illegal characters"),
    ("SCHEDULE_TOPIC_XXXX", "forbidden")])
def test_message_with_an_invalid_topic_is_refused(topic, says):
    with pytest.raises(MQClientException, match=says):
        exception.check_message(Message(topic or "T", b"x") if topic else _without_topic(topic), 100)


def _without_topic(topic):
    message = Message("T", b"x")
    message.topic = topic
    return message


@pytest.mark.parametrize("body, says", [(None, "body is null"), (b"", "length is zero"), (b"x" * 101, "MAX: 100")])
def test_message_with_an_invalid_body_is_illegal(body, says):
    message = Message("T")
    message.body = body
    with pytest.raises(MQClientException, match=says) as failure:
        exception.check_message(message, 100)
    assert failure.value.response_code == response_code.MESSAGE_ILLEGAL


def test_valid_names_pass():
    exception.check_group("%RETRY%a-b_C9")
    exception.check_message(Message("t" * 127, b"x" * 100), 100)
    with pytest.raises(MQClientException, match="system topic"):
        exception.is_system_topic("TBW102")


def test_exceptions_contain_code_text_and_broker():
    assert "CODE: 17  DESC: no route" in str(MQClientException("no route", 17))
    assert str(MQClientException("plain")).startswith("plain")
    error = MQBrokerException(2, "busy", "127.0.0.1:10911")
    assert "CODE: 2  DESC: busy BROKER: 127.0.0.1:10911" in str(error)
    assert (error.response_code, error.error_message, error.broker_addr) == (2, "busy", "127.0.0.1:10911")


def test_client_id_contains_host_and_instance():
    config = ClientConfig(client_ip="10.0.0.1")
    assert config.build_mq_client_id() == "10.0.0.1@DEFAULT"
    config.unit_name = "u1"
    config.change_instance_name_to_pid()
    ip, instance, unit = config.build_mq_client_id().split("@")
    assert ip == "10.0.0.1" and "#" in instance and unit == "u1"
    config.instance_name = "mine"
    config.change_instance_name_to_pid()
    assert config.instance_name == "mine", "an instance name set by the user should stay"
    assert config.clone_client_config() == config


def test_name_server_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.9:9876")
    assert ClientConfig().namesrv_addr == "10.0.0.9:9876"
    assert DefaultMQPushConsumer("g", "1.2.3.4:1").namesrv_addr == "1.2.3.4:1"


def test_index_counts_per_thread_and_never_goes_below_zero():
    index, first = ThreadLocalIndex(), []
    begin = index.increment_and_get()
    thread = threading.Thread(target=lambda: first.append(index.increment_and_get()))
    thread.start()
    thread.join()
    assert index.increment_and_get() == (begin + 1) & 0x7FFFFFFF and first[0] >= 0
    index._local.index = 0x7FFFFFFF
    assert index.increment_and_get() == 0


@pytest.mark.parametrize("arg, queue", [("a", 97 % 4), ("polygenelubricants", 0), (-3, 3), (6, 2)])
def test_hash_selector_chooses_as_java(arg, queue):
    queues = [MessageQueue("T", "b", number) for number in range(4)]
    assert select_message_queue_by_hash(queues, Message("T", b"x"), arg).queueId == queue


@pytest.mark.parametrize("setting, value, says", [
    ("consumer_group", "DEFAULT_CONSUMER", "can not equal"), ("message_listener", None, "messageListener is null"),
    ("consume_timestamp", "yesterday", "consumeTimestamp is invalid"), ("pull_batch_size", 0, "pullBatchSize Out of"),
    ("pull_threshold_for_topic", 0, "pullThresholdForTopic Out of"), ("consume_thread_max", 5, "is larger than"),
    ("consume_message_batch_max_size", 1025, "consumeMessageBatchMaxSize Out of range")])
def test_invalid_consumer_setting_is_refused(setting, value, says):
    consumer = DefaultMQPushConsumer("g", "127.0.0.1:1", lambda messages: None)
    check_push_config(consumer)
    setattr(consumer, setting, value)
    with pytest.raises(MQClientException, match=says):
        check_push_config(consumer)


def test_any_number_of_queues_disables_the_threshold():
    consumer = DefaultMQPushConsumer("g", "127.0.0.1:1", lambda messages: None)
    consumer.pull_threshold_for_topic = consumer.pull_threshold_size_for_topic = -1
    check_push_config(consumer)


def test_answer_without_a_body_is_a_clear_error():
    api = MQClientAPIImpl.__new__(MQClientAPIImpl)
    api._ask = lambda *_: RemotingCommand.create_response_command(response_code.SUCCESS, None)
    with pytest.raises(MessageDecodeError, match="ends within the head"):
        api.view_message("127.0.0.1:10911", 0, 3_000)


# Settings as arguments: the same as the attributes, and no others.

KINDS = {
    DefaultMQProducer: ProducerSettings,
    TransactionMQProducer: TransactionProducerSettings,
    SettingsDefaultMQPushConsumer: PushConsumerSettings,
    DefaultLitePullConsumer: PullConsumerSettings,
}
# The constructors have these as arguments of their own, or they are not settings.
OTHERS = {"namesrv_addr", "namespace", "producer_group", "consumer_group", "default_mq_producer_impl",
          "trace_dispatcher", "default_mq_push_consumer_impl", "default_lite_pull_consumer_impl", "message_listener",
          "transaction_listener"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_attribute_is_a_setting(kind):
    names = {name for name in {*vars(kind("g")), *(item.name for item in fields(ClientConfig))} if name[0] != "_"}
    if issubclass(kind, DefaultMQProducer):
        names.add("send_latency_fault_enable")
    assert set(get_type_hints(KINDS[kind])) == names - OTHERS


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_arguments_become_attributes(kind):
    plain = kind("g")
    for name in get_type_hints(KINDS[kind]):
        old = getattr(plain, name)
        new = old + 1 if type(old) is int else not old if type(old) is bool else old
        assert getattr(kind("g", **{name: new}), name) == new


def test_unknown_setting_is_reported_with_the_nearest_name():
    with pytest.raises(TypeError, match="no setting 'send_timeout'; did you mean 'send_msg_timeout'"):
        DefaultMQProducer("g", send_timeout=1)
    with pytest.raises(TypeError, match="DefaultMQPushConsumer has no setting 'xyzzy'$"):
        SettingsDefaultMQPushConsumer("g", xyzzy=1)
