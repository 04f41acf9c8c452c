"""A deleted topic leaves nothing behind: what is made again under its name begins anew, whoever sends meanwhile."""
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rmqha.common import sys_flags
from rmqha.common.message import message_decoder
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmqha.common.protocol.client_headers import EndTransactionRequestHeader
from rmqha.common.topics import TopicConfig
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import BrokerHarness, running_broker
from tests.store.support import bodies, message, open_store, put
from tests.store.test_deleted_topics import Slave
from tests.support.topic_load import TopicLoad
from tests.support.wait import wait_until

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


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path, autoCreateTopicEnable=False, messageDelayLevel="2s 1h") as harness:
        create(harness)
        yield harness


def commit(broker: BrokerHarness, offset: int) -> RemotingCommand:
    return broker.call(request_code.UPDATE_CONSUMER_OFFSET,
                       UpdateConsumerOffsetRequestHeader("consumer", TOPIC, 0, offset))


def committed(broker: BrokerHarness) -> int:
    return broker.controller.consumer_offset_manager.query_offset("consumer", TOPIC, 0)


def test_held_pulls_are_told_at_once_that_the_topic_is_gone(broker):
    answers = []
    pulls = [threading.Thread(target=lambda queue_id=queue_id: answers.append(
        broker.pull(TOPIC, 0, queue_id=queue_id, suspend_ms=60_000))) for queue_id in range(3)]
    for pull in pulls:
        pull.start()
    held = broker.controller.pull_request_hold_service
    wait_until(lambda: all(held.is_waiting(TOPIC, queue_id) for queue_id in range(3)), 60_000, "held pulls")
    delete(broker)
    for pull in pulls:
        pull.join(240)
    assert [answer.code for answer in answers] == [response_code.TOPIC_NOT_EXIST] * 3


def test_pull_that_is_held_too_late_is_told_too(broker, monkeypatch):
    held = broker.controller.pull_request_hold_service
    suspend = held.suspend_pull_request

    def delete_before(topic, queue_id, pull_request):
        delete(broker)
        suspend(topic, queue_id, pull_request)

    monkeypatch.setattr(held, "suspend_pull_request", delete_before)
    with ThreadPoolExecutor() as pool:
        assert pool.submit(broker.pull, TOPIC, 0, suspend_ms=60_000).result(600).code == response_code.TOPIC_NOT_EXIST


def test_consumer_offsets_go_and_those_that_come_late_are_not_taken(broker):
    for number in range(5):
        broker.send(TOPIC, b"%d" % number)
    commit(broker, 5)
    assert committed(broker) == 5
    delete(broker)
    assert committed(broker) == -1
    commit(broker, 5)
    assert committed(broker) == -1
    create(broker)
    broker.send(TOPIC, b"new")
    assert commit(broker, 5).code == response_code.SUCCESS
    assert committed(broker) == -1
    commit(broker, 1)
    assert committed(broker) == 1
    assert read(broker, 0) == [b"new"]


def test_topic_that_can_not_be_deleted_stays(broker, monkeypatch):
    broker.send(TOPIC, b"old")

    def fail(_marks):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(broker.store.deleted_topics, "_set", fail)
    answer = broker.call(request_code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(TOPIC))
    assert answer.code == response_code.SYSTEM_ERROR and "No space" in answer.remark
    monkeypatch.undo()
    assert broker.send(TOPIC, b"next").code == response_code.SUCCESS
    assert read(broker, 0) == [b"old", b"next"]


def test_send_that_was_checked_before_is_told_that_the_topic_is_gone(broker, monkeypatch):
    put = broker.store.async_put_message

    def delete_before(message):
        monkeypatch.setattr(broker.store, "async_put_message", put)
        broker.controller.topic_deletion.delete(TOPIC)
        return put(message)

    monkeypatch.setattr(broker.store, "async_put_message", delete_before)
    answer = broker.send(TOPIC, b"late", 0, g=1)  # a time that no client writes: no send of the express lane
    assert answer.code == response_code.TOPIC_NOT_EXIST
    create(broker)
    assert broker.next_offset(TOPIC) == 0


def test_delayed_message_goes_with_its_topic(broker):
    assert broker.send(TOPIC, b"old", 0, {"DELAY": "1"}).code == response_code.SUCCESS
    delete(broker)
    create(broker)
    assert broker.send(TOPIC, b"new", 0, {"DELAY": "1"}).code == response_code.SUCCESS
    wait_until(lambda: broker.next_offset(TOPIC), 60_000, "the new one")
    assert read(broker, 0) == [b"new"]


def test_half_message_goes_with_its_topic(broker):
    def prepare(body: bytes) -> EndTransactionRequestHeader:
        answer = broker.send(TOPIC, body, 0, {"TRAN_MSG": "true", "PGROUP": "producer", "UNIQ_KEY": "u"},
                             f=sys_flags.TRANSACTION_PREPARED_TYPE)
        assert answer.code == response_code.SUCCESS
        offset = int(answer.ext_fields["msgId"][-16:], 16)
        return EndTransactionRequestHeader("producer", int(answer.ext_fields["queueOffset"]), offset,
                                           sys_flags.TRANSACTION_COMMIT_TYPE, False, "u", "u")

    old = prepare(b"old")
    delete(broker)
    create(broker)
    new = prepare(b"new")
    for header in (old, new):
        assert broker.call(request_code.END_TRANSACTION, header).code == response_code.SUCCESS
    assert read(broker, 0) == [b"new"]


def test_other_topics_and_what_nobody_has_in_a_table_stay(broker):
    create(broker, 1, "Other")
    broker.send("Other", b"other")
    broker.send(TOPIC, b"half", 0, {"TRAN_MSG": "true", "PGROUP": "producer"},
                f=sys_flags.TRANSACTION_PREPARED_TYPE)
    delete(broker)
    assert read(broker, 0, "Other") == [b"other"]
    assert broker.next_offset("RMQ_SYS_TRANS_HALF_TOPIC") == 1


def test_cleaning_unused_topics_spares_one_that_is_made_meanwhile(broker, monkeypatch):
    for topic in ("Known", "Unknown"):
        create(broker, 1, topic)
        broker.send(topic, b"1")
        broker.next_offset(topic)
    table = broker.controller.topic_config_manager.topic_config_table
    config, _ = table.pop("Known"), table.pop("Unknown")
    real = broker.store.queue_removal.unused_topics

    def made_meanwhile(topics):
        found = real(topics)
        table["Known"] = config
        return found

    monkeypatch.setattr(broker.store.queue_removal, "unused_topics", made_meanwhile)
    assert broker.call(request_code.CLEAN_UNUSED_TOPIC).code == response_code.SUCCESS
    assert broker.next_offset("Known") == 1 and "Unknown" not in broker.store.consume_queue_table


def test_slave_that_cleans_unused_topics_asks_its_master_first(tmp_path, monkeypatch):
    with open_store(tmp_path / "master", mappedFileSizeCommitLog=1 << 20) as master, \
            running_broker(tmp_path / "slave", brokerRole=BrokerRole.SLAVE, brokerId=1) as broker:
        slave = Slave(broker.store, master)
        put(master, message("Gone"), message("New"))
        slave.follow()
        assert broker.call(request_code.CLEAN_UNUSED_TOPIC).code != response_code.SUCCESS  # there is no master
        assert {"Gone", "New"} <= set(broker.store.consume_queue_table)
        table = broker.controller.topic_config_manager.topic_config_table
        monkeypatch.setattr(broker.controller.slave_synchronize, "take_topics",
                            lambda: table.update(New=TopicConfig("New", 1, 1)))
        assert broker.call(request_code.CLEAN_UNUSED_TOPIC).code == response_code.SUCCESS
        assert "Gone" not in broker.store.consume_queue_table and bodies(broker.store, "New")


def test_slaves_are_told_of_deleted_topics_and_4_9_of_nothing_new(broker):
    def topics() -> dict:
        return json.loads(broker.call(request_code.GET_ALL_TOPIC_CONFIG).body)

    assert set(topics()) == {"dataVersion", "topicConfigTable"}
    broker.send(TOPIC, b"old")
    delete(broker)
    assert topics()["deletedTopics"] == {TOPIC: broker.store.get_max_phy_offset()}
    assert set(json.loads(broker.controller.topic_config_manager.encode())) == {"dataVersion", "topicConfigTable"}
