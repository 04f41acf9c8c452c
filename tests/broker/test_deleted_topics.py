"""A deleted topic leaves nothing behind: what is made again under its name begins anew, whoever sends meanwhile."""
import pytest

from rmqha.common.message import message_decoder
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.header.admin_headers import CreateTopicRequestHeader, DeleteTopicRequestHeader
from tests.broker.support import BrokerHarness, running_broker
from tests.support.topic_load import TopicLoad

TOPIC = "Again"


def create(broker: BrokerHarness, queues: int = 4, topic: str = TOPIC) -> None:
    header = CreateTopicRequestHeader(topic, "TBW102", queues, queues, 6, "SINGLE_TAG", 0, False)
    answer = broker.call(request_code.UPDATE_AND_CREATE_TOPIC, header)
    assert answer.code == response_code.SUCCESS, answer.remark


def delete(broker: BrokerHarness, topic: str = TOPIC) -> None:
    answer = broker.call(request_code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic))
    assert answer.code == response_code.SUCCESS, answer.remark


def read(broker: BrokerHarness, queue_id: int, topic: str = TOPIC) -> list[bytes]:
    """The bodies of a queue from its first offset on, which has to be 0 and to be followed by all others."""
    found = []
    end = broker.next_offset(topic, queue_id)
    while len(found) < end:
        answer = broker.pull(topic, len(found), queue_id=queue_id)
        assert answer.code == response_code.SUCCESS, (answer.code, answer.remark)
        messages = message_decoder.decodes(answer.body)
        assert [message.queue_offset for message in messages] == list(range(len(found), len(found) + len(messages)))
        found += [message.body for message in messages]
    return found


@pytest.mark.parametrize("auto_create", [False, True], ids=["made by an operator", "made by the next send"])
def test_topic_made_again_under_load_has_all_that_it_acknowledged(tmp_path, auto_create):
    with running_broker(tmp_path, autoCreateTopicEnable=auto_create) as broker:
        create(broker)
        with TopicLoad(broker.address, TOPIC, 4) as load:
            for queues in (4, 2, 5, 1, 8, 3, 3, 6, 4, 4):
                load.wait_for_more(300)
                delete(broker)
                load.queues = queues
                if not auto_create:
                    create(broker, queues)
                load.generation += 1
                load.wait_for_more(300)
        table = {queue_id: read(broker, queue_id) for queue_id in range(4 if auto_create else queues)}
        lost = [sent for sent in load.of_generation(load.generation)
                if table.get(sent.queue_id, [])[sent.queue_offset:sent.queue_offset + 1] != [sent.body]]
        assert not lost, f"{len(lost)} of {len(load.of_generation(load.generation))}: {lost[:3]}"
        known = {sent.body for sent in load.acknowledged}
        assert all(body in known for queue in table.values() for body in queue)
