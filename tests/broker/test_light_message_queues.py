"""Light message queues (enableLmq, enableMultiDispatch) as clients see them."""
import json
import threading

import pytest

from rmqha.broker.pull_request_hold_service import ManyPullRequest
from rmqha.common.message import message_decoder
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig
from rmqha.store.broker_stats_manager import LmqBrokerStatsManager
from tests.broker.support import bodies, new_controller, running_broker
from tests.support.wait import wait_until

LMQ = {"enableLmq": True, "enableMultiDispatch": True}
A, B, GROUP = "%LMQ%a", "%LMQ%b", "%LMQ%reader"


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path, **LMQ) as harness:
        yield harness


def send(broker, body: bytes, *queues: str, queue_id: int = 0) -> None:
    """One message to T and to further queues."""
    properties = {"INNER_MULTI_DISPATCH": ",".join(queues)} if queues else {}
    assert broker.send("T", body, queue_id, properties).code == response_code.SUCCESS


def commit(broker, group: str, topic: str, offset: int, queue_id: int = 0) -> None:
    header = UpdateConsumerOffsetRequestHeader(group, topic, queue_id, offset)
    assert broker.call(request_code.UPDATE_CONSUMER_OFFSET, header).code == response_code.SUCCESS


def committed(broker, group: str, topic: str) -> str | None:
    answer = broker.call(request_code.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader(group, topic, 0))
    return answer.ext_fields["offset"] if answer.code == response_code.SUCCESS else None


def test_message_is_pulled_from_each_light_queue_it_names(broker):
    send(broker, b"1", A, B)
    send(broker, b"2", B, queue_id=3)
    send(broker, b"3")
    assert (broker.next_offset(A), broker.next_offset(B), broker.next_offset("T", 3)) == (1, 2, 1)
    assert bodies(broker.pull(A, 0, group=GROUP)) == [b"1"]
    answer = broker.pull(B, 0, group=GROUP)
    assert bodies(answer) == [b"1", b"2"]
    assert [message.properties["INNER_MULTI_QUEUE_OFFSET"] for message in message_decoder.decodes(answer.body)] == [
        "0,0", "1"]


def test_light_queues_have_one_queue_and_are_in_no_table(broker):
    send(broker, b"1", A)
    broker.next_offset(A)
    assert bodies(broker.pull(A, 0, group=GROUP)) == [b"1"]
    assert broker.pull(A, 0, group=GROUP, queue_id=1).code == response_code.SYSTEM_ERROR
    controller = broker.controller
    controller.topic_config_manager.update_topic_config(TopicConfig(A, 8, 8, 6))
    controller.subscription_group_manager.update_subscription_group_config(SubscriptionGroupConfig(groupName=GROUP))
    for table in (controller.topic_config_manager.topic_config_table,
                  controller.subscription_group_manager.subscription_group_table):
        assert not [name for name in table if name.startswith("%LMQ%")]
    assert controller.topic_config_manager.select_topic_config(A).readQueueNums == 1
    assert controller.subscription_group_manager.find_subscription_group_config(GROUP).groupName == GROUP


def test_groups_that_are_not_made_by_themselves_may_still_be_light(tmp_path):
    with running_broker(tmp_path, autoCreateSubscriptionGroup=False, **LMQ) as broker:
        send(broker, b"1", A)
        broker.next_offset(A)
        assert bodies(broker.pull(A, 0, group=GROUP)) == [b"1"]
        assert broker.pull(A, 0, group="ordinary").code == response_code.SUBSCRIPTION_GROUP_NOT_EXIST


def test_held_pull_of_a_light_queue_is_woken_by_its_message(broker):
    send(broker, b"1", A)
    broker.next_offset(A)
    answers = []
    puller = threading.Thread(target=lambda: answers.append(
        broker.pull(A, 1, group=GROUP, suspend_ms=90_000, timeout_ms=120_000)))
    puller.start()
    wait_until(lambda: broker.controller.pull_request_hold_service.is_waiting(A, 0), 60_000)
    send(broker, b"to B alone", B)
    send(broker, b"2", A, B)
    puller.join(240)
    assert bodies(answers[0]) == [b"2"]


def test_lists_of_held_pulls_that_nobody_is_in_are_forgotten(broker):
    service = broker.controller.pull_request_hold_service
    for topic in (A, "T"):
        service._list_of((topic, 0))
    service.check_hold_request()
    assert not service.pull_request_table


def test_list_that_is_forgotten_takes_nobody_and_one_in_use_stays():
    many = ManyPullRequest()
    assert many.add_pull_request("pull") and not many.close_if_empty()
    assert many.take(lambda pull: True) == ["pull"]
    assert many.close_if_empty() and not many.add_pull_request("late")


def test_offsets_of_light_groups_have_their_own_table_in_their_own_file(tmp_path):
    with running_broker(tmp_path, **LMQ) as broker:
        broker.send("T")
        commit(broker, GROUP, A, 5)
        commit(broker, "ordinary", "T", 7, 0)
        assert (committed(broker, GROUP, A), committed(broker, "ordinary", "T")) == ("5", "7")
        manager = broker.controller.consumer_offset_manager
        assert manager.query_offsets(GROUP, A) == {0: 5} and manager.query_offsets(GROUP, B) == {}
        assert manager.query_offset(GROUP, B, 0) == -1
        assert manager.query_offsets("ordinary", "T") == {0: 7}
        folder = tmp_path / "store" / "config"
    text = (folder / "lmqConsumerOffset.json").read_text("utf-8")
    assert json.loads(text.replace("{0:", '{"0":')) == {
        "lmqOffsetTable": {f"{A}@{GROUP}": 5}, "offsetTable": {"T@ordinary": {"0": 7}}}
    assert not (folder / "consumerOffset.json").exists()
    with running_broker(tmp_path, **LMQ) as broker:
        assert (committed(broker, GROUP, A), committed(broker, "ordinary", "T")) == ("5", "7")


def test_offsets_from_before_light_queues_are_not_forgotten(tmp_path):
    with running_broker(tmp_path) as broker:
        broker.send("T")
        commit(broker, "ordinary", "T", 7)
    with running_broker(tmp_path, **LMQ) as broker:
        assert committed(broker, "ordinary", "T") == "7"
        commit(broker, "ordinary", "T", 8)
    with running_broker(tmp_path, **LMQ) as broker:
        assert committed(broker, "ordinary", "T") == "8"


@pytest.mark.parametrize("text", ["{", '{"lmqOffsetTable":[]}', '{"offsetTable":{"a@b":7}}', "[]", "\0"])
def test_offsets_that_can_not_be_read_stop_the_start(tmp_path, text):
    folder = tmp_path / "store" / "config"
    folder.mkdir(parents=True)
    (folder / "lmqConsumerOffset.json").write_text(text)
    controller = new_controller(tmp_path, **LMQ)
    assert not controller.initialize()
    controller.shutdown()
    assert (folder / "lmqConsumerOffset.json").read_text() == text


def test_what_is_read_from_light_queues_counts_under_one_name(broker):
    send(broker, b"1", A, B)
    broker.next_offset(B)
    for topic in (A, B):
        assert bodies(broker.pull(topic, 0, group=GROUP)) == [b"1"]
    stats = broker.controller.broker_stats_manager
    assert isinstance(stats, LmqBrokerStatsManager)
    for name in ("GROUP_GET_NUMS", "GROUP_GET_SIZE", "GROUP_GET_LATENCY"):
        keys = list(stats.stats_table[name]._stats_item_table)
        assert keys and all("%LMQ%@%LMQ%" in key for key in keys), (name, keys)
    stats.inc_send_back_nums(GROUP, A)
    assert list(stats.stats_table["SNDBCK_PUT_NUMS"]._stats_item_table) == ["%LMQ%@%LMQ%"]
    stats.record_disk_fall_behind_time(GROUP, A, 0, 1)
    assert "0@%LMQ%@%LMQ%" in stats.moment_stats_item_set_fall_time.stats_item_table
    assert stats.tps_group_get_nums("%LMQ%other", "%LMQ%any") == stats.tps_group_get_nums(GROUP, A)


def test_too_many_light_queues_are_refused(tmp_path):
    with running_broker(tmp_path, maxLmqConsumeQueueNum=1, **LMQ) as broker:
        send(broker, b"1", A, B)
        broker.next_offset(B)
        refused = broker.send("T", b"2", 0, {"INNER_MULTI_DISPATCH": A})
        assert refused.code != response_code.SUCCESS and "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]" in refused.remark
        send(broker, b"3")


def test_queues_of_a_restarted_broker_go_on(tmp_path):
    with running_broker(tmp_path, **LMQ) as broker:
        for number in range(5):
            send(broker, b"%d" % number, A, "other", queue_id=1)
    with running_broker(tmp_path, **LMQ) as broker:
        send(broker, b"5", A, "other", queue_id=1)
        assert (broker.next_offset(A), broker.next_offset("other", 1)) == (6, 6)
        assert bodies(broker.pull(A, 0, group=GROUP)) == [b"%d" % number for number in range(6)]


def test_slave_takes_the_ordinary_offsets_of_a_master_with_light_queues(broker):
    commit(broker, GROUP, A, 5)
    broker.send("T")
    commit(broker, "ordinary", "T", 7)
    api = broker.controller.broker_outer_api
    assert api.get_all_consumer_offset(broker.address, "")[0].offsetTable == {"T@ordinary": {0: 7}}
