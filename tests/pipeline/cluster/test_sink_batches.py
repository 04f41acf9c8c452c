"""What the sink sends together: as much as a broker takes, and no message that would spoil the others."""
import itertools

import pytest

from rmqha.client.results import SendResult, SendStatus
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.message.message_decoder import MessageBatch
from rmqha.pipeline.cluster.cluster_sink import MessageSender

STORED = SendResult(SendStatus.SEND_OK, "0" * 32, MessageQueue("T", "b", 0), 0)


class Kept:
    """A producer that keeps what it is given."""

    def __init__(self):
        self.requests = []

    def send(self, message):
        self.requests.append([message])
        return STORED

    def send_batch(self, messages):
        self.requests.append(messages)
        return STORED


@pytest.mark.parametrize("wide", [20_000, 31_690, 31_760, 32_600, 32_700])
def test_a_batch_has_room_for_what_brokers_add(wide):
    producer = Kept()
    sender = MessageSender(producer, 50, None)
    for number in range(120):
        message = Message("TU"[number % 2], b"%d" % number + b"x" * (0 if number % 5 else 100_000))
        if number % 7 == 0:
            message.put_property("p", "v" * wide)
        if number % 11 == 0:
            message.delay_time_level = 1
        sender.put(message)
    sent = sender.finish()
    assert (sent.messages, sent.requests) == (120, len(producer.requests)) and sent.requests < 80
    for topic in "TU":
        numbers = [int(each.body.rstrip(b"x")) for each in itertools.chain(*producer.requests)
                   if each.topic == topic and not each.delay_time_level]
        assert numbers == sorted(numbers) and numbers
    for batch in (each for each in producer.requests if len(each) > 1):
        for message in batch:
            message.put_property(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, "0" * 32)
        assert len(MessageBatch.generate_from_list(batch).encode()) <= 1 << 20
        for message in batch:
            stored = {**message.properties, "CLUSTER": "c" * 200}
            assert len(message_decoder.message_properties2string(stored)) <= layout.MAX_PROPERTIES_LENGTH
