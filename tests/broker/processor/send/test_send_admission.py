"""The checks of sends are one list: one that is added to it reaches every send, whichever way it comes."""
import copy
from collections.abc import Callable

import pytest

from rmqha.broker.processor.send_admission import SendAdmission
from rmqha.broker.processor.send_message_processor import SendMessageProcessor
from rmqha.common.message import message_decoder
from rmqha.common.message.message import Message
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.client_headers import SendMessageRequestHeader
from rmqha.remoting.exception import RequestDeniedException
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.broker.processor.send.test_express_send import TOPICS, Wire, header, request, text
from tests.broker.support import running_broker

PLANTED = "a planted check"


@pytest.fixture
def wire(tmp_path):
    """A broker with two topics, which no send has come to yet."""
    with running_broker(tmp_path) as broker:
        topics = broker.controller.topic_config_manager
        for topic in TOPICS:
            config = copy.copy(topics.select_topic_config("TBW102"))
            config.topicName, config.writeQueueNums, config.readQueueNums = topic, 4, 4
            topics.update_topic_config(config)
        yield Wire(broker)


def plant(monkeypatch, refuses: Callable[[SendMessageRequestHeader], bool]) -> None:
    """One more check: it refuses the sends of which `refuses(header)`."""
    check = SendAdmission.msg_check

    def planted(self, channel, header, response):
        if refuses(header):
            response.code, response.remark = response_code.NO_PERMISSION, PLANTED
            return None
        return check(self, channel, header, response)
    monkeypatch.setattr(SendAdmission, "msg_check", planted)


def long_send(opaque: int, topic: str, queue_id: int) -> bytes:
    """A send with the long header."""
    command = RemotingCommand.create_request_command(request_code.SEND_MESSAGE, SendMessageRequestHeader(
        "producer", topic, "TBW102", 4, queue_id, 0, 5, 0, ""))
    command.opaque, command.body = opaque, b"long"
    return command.encode()


def batch(opaque: int, topic: str, queue_id: int) -> bytes:
    """A batch."""
    command = RemotingCommand.create_request_command(request_code.SEND_BATCH_MESSAGE,
                                                     header(topic, queue_id, m=True))
    command.opaque, command.body = opaque, message_decoder.encode_messages([Message(None, b"one")])
    return command.encode()


def send_all_ways(wire: Wire, topic: str = "Plain", queue_id: int = 0) -> tuple[set, int, int]:
    """Two simple sends and one of each other kind to a queue: what they were answered, how many went the express lane,
    and the bytes that were stored."""
    taken, end = wire.taken, wire.broker.store.get_max_phy_offset()
    answers = wire.exchange([
        request(1, header(topic, queue_id)), request(2, header(topic, queue_id)), long_send(3, topic, queue_id),
        request(4, header(topic, queue_id, text(WAIT="false"))), batch(5, topic, queue_id)], 5)
    stored = wire.broker.store.get_max_phy_offset() - end
    return {(answer.code, answer.remark) for answer in answers.values()}, wire.taken - taken, stored


def assert_refused(outcome: tuple[set, int, int], code: int = response_code.NO_PERMISSION,
                   remark: str = PLANTED) -> None:
    (answer,), taken, stored = outcome
    assert (answer[0], taken, stored) == (code, 0, 0) and remark in answer[1]


def assert_taken(outcome: tuple[set, int, int]) -> None:
    answers, taken, stored = outcome
    assert answers == {(response_code.SUCCESS, None)} and taken == 2 and stored > 0


CHECKS = {
    "topic": lambda header: header.topic == "Plain",
    "more than a route tells": lambda header: header.topic == "Plain" and header.producerGroup == "producer",
    "queue": lambda header: header.topic == "Plain" and header.queueId <= 0,
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
@pytest.mark.parametrize("is_known", [False, True], ids=["before the first send", "to a known topic"])
def test_new_check_reaches_all_sends(wire, monkeypatch, check, is_known):
    if is_known:
        assert_taken(send_all_ways(wire))
    plant(monkeypatch, check)
    for _ in range(2):
        assert_refused(send_all_ways(wire))
    assert_taken(send_all_ways(wire, "Other"))
    monkeypatch.undo()
    assert_taken(send_all_ways(wire))


def test_new_check_may_raise(wire, monkeypatch):
    def refuses(header: SendMessageRequestHeader) -> bool:
        if header.topic == "Plain":
            raise RequestDeniedException(PLANTED)
        return False
    assert_taken(send_all_ways(wire))
    plant(monkeypatch, refuses)
    assert_refused(send_all_ways(wire), response_code.SYSTEM_ERROR)
    assert_taken(send_all_ways(wire, "Other"))


def test_new_check_of_a_queue_is_asked_for_each_queue_of_a_topic_that_is_new_or_changed(wire, monkeypatch):
    plant(monkeypatch, lambda header: header.topic == "Plain" and header.queueId == 2)
    assert_taken(send_all_ways(wire, queue_id=1))
    assert_refused(send_all_ways(wire, queue_id=2))
    answers, taken, _stored = send_all_ways(wire, queue_id=3)  # behind one that is refused: not by the express lane
    assert answers == {(response_code.SUCCESS, None)} and taken == 0
    monkeypatch.undo()
    topics = wire.broker.controller.topic_config_manager
    topics.update_topic_config(copy.copy(topics.select_topic_config("Plain")))
    assert_taken(send_all_ways(wire, queue_id=1))  # drops the route of the old one
    assert_taken(send_all_ways(wire, queue_id=2))


def test_new_reason_to_reject_requests_reaches_all_sends(wire, monkeypatch):
    assert_taken(send_all_ways(wire))
    monkeypatch.setattr(SendMessageProcessor, "reject_request", lambda self: True)
    assert_refused(send_all_ways(wire), response_code.SYSTEM_BUSY, "[REJECTREQUEST]")
    monkeypatch.undo()
    assert_taken(send_all_ways(wire))


def test_sends_are_taken_again_when_the_broker_accepts_them(wire):
    config = wire.broker.controller.broker_config
    config.startAcceptSendRequestTimeStamp = 1 << 50
    assert_refused(send_all_ways(wire), response_code.SYSTEM_ERROR, "broker unable to service, until")
    config.startAcceptSendRequestTimeStamp = 1  # long ago
    assert_taken(send_all_ways(wire))


def test_broker_without_write_permission_refuses_ordered_topics_alone(wire):
    broker, topic = wire.broker.controller, "Plain"
    assert_taken(send_all_ways(wire))
    broker.broker_config.brokerPermission = 4
    assert_taken(send_all_ways(wire))
    broker.topic_config_manager.select_topic_config(topic).order = True
    assert_refused(send_all_ways(wire), remark="sending message is forbidden")
    assert_taken(send_all_ways(wire, "Other"))
