"""Requests and their replies with rmqha's own servers in this process."""
import threading

import pytest

from rmqha.client import results
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus, MessageListenerConcurrently
from rmqha.client.exception import MQClientException, RequestTimeoutException
from rmqha.client.impl.mq_client_manager import MQClientManager
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.producer.request_response_future import RequestCallback
from rmqha.common.message.message import Message
from tests.client.test_client_with_servers import consuming, make_topic, producer  # noqa: F401
from tests.support.wait import wait_until

LONG_MS = 60_000


class Replier(MessageListenerConcurrently):
    """Replies to each request with its body turned round; is silent when the body says so."""

    def __init__(self, sender):
        self._sender = sender

    def consume_message(self, msgs, context):
        for msg in msgs:
            if msg.body != b"silence":
                self._sender.send(results.create_reply_message(msg, msg.body[::-1]))
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


@pytest.fixture
def replied(servers, make_topic, producer):
    """(topic with a consumer that replies, a producer of requests on an instance of its own)."""
    topic = make_topic("Requests")
    with consuming(servers, servers.unique("repliers"), topic, Replier(producer)):
        with DefaultMQProducer(servers.unique("requests"), servers.namesrv, client_manager=MQClientManager()) as sender:
            yield topic, sender


def test_reply_comes_to_who_asked(replied):
    topic, sender = replied
    for body in (b"abc", b"x" * 20_000):
        reply = sender.request(Message(topic, body), LONG_MS)
        assert (reply.body, reply.topic) == (body[::-1], "DefaultCluster_REPLY_TOPIC")
        assert int(reply.get_property("ARRIVE_TIME")) >= int(reply.get_property("PUSH_REPLY_TIME")) > 0


def test_callback_gets_the_reply_or_the_timeout(replied):
    topic, sender = replied
    got, done = [], threading.Semaphore(0)

    def note(what):
        got.append(what)
        done.release()

    sender.request_async(Message(topic, b"abc"), RequestCallback(note, note), LONG_MS)
    assert done.acquire(timeout=LONG_MS / 1000) and got[0].body == b"cba"
    sender.request_async(Message(topic, b"silence"), RequestCallback(note, note), 2000)
    assert done.acquire(timeout=LONG_MS / 1000) and isinstance(got[1], RequestTimeoutException)
    wait_until(lambda: not sender.default_mq_producer_impl._requests, LONG_MS, "no request left")


def test_request_without_reply_times_out(replied):
    topic, sender = replied
    with pytest.raises(RequestTimeoutException, match="wait reply message timeout, 2000 ms"):
        sender.request(Message(topic, b"silence"), 2000)


def test_request_that_can_not_be_sent_says_why(replied):
    _topic, sender = replied
    with pytest.raises(MQClientException, match="send request message to <.*> fail") as error:
        sender.request(Message("bad topic!", b"x"), LONG_MS)
    assert "contains illegal characters" in str(error.value.__cause__)


def test_message_that_is_no_request_has_no_reply():
    with pytest.raises(MQClientException, match=r"property\[CLUSTER\] is null"):
        results.create_reply_message(Message("Any", b"x"), b"y")
