"""Settings as arguments: the same as the attributes, and no others."""
from dataclasses import fields
from typing import get_type_hints

import pytest

from rmqha import DefaultLitePullConsumer, DefaultMQProducer, DefaultMQPushConsumer, TransactionMQProducer
from rmqha.client.client_config import ClientConfig
from rmqha.client.consumer.consumer_config import PullConsumerSettings, PushConsumerSettings
from rmqha.client.producer.producer_config import ProducerSettings, TransactionProducerSettings

KINDS = {
    DefaultMQProducer: ProducerSettings,
    TransactionMQProducer: TransactionProducerSettings,
    DefaultMQPushConsumer: PushConsumerSettings,
    DefaultLitePullConsumer: PullConsumerSettings,
}
# What the constructors have as arguments of their own, or is no setting.
OTHERS = {"namesrv_addr", "namespace", "producer_group", "consumer_group", "default_mq_producer_impl",
          "trace_dispatcher", "default_mq_push_consumer_impl", "default_lite_pull_consumer_impl", "message_listener",
          "transaction_listener"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_attribute_is_a_setting(kind):
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


def test_an_unknown_one_is_told_with_the_nearest_name():
    with pytest.raises(TypeError, match="no setting 'send_timeout'; did you mean 'send_msg_timeout'"):
        DefaultMQProducer("g", send_timeout=1)
    with pytest.raises(TypeError, match="DefaultMQPushConsumer has no setting 'xyzzy'$"):
        DefaultMQPushConsumer("g", xyzzy=1)
