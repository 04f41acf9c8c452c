"""SQL92 filters and light message queues inside a broker."""
import json
import random
import threading
from pathlib import Path

import pytest

from rmqha.broker import consumer_filter_manager
from rmqha.broker.consumer_filter_manager import build
from rmqha.broker.expression_message_filter import ExpressionForRetryMessageFilter, ExpressionMessageFilter
from rmqha.broker.pull_request_hold_service import ManyPullRequest
from rmqha.common import subscriptions, sys_flags, util_all
from rmqha.common.message import message_decoder
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from rmqha.common.protocol.client_bodies import QueryConsumeQueueResponseBody
from rmqha.common.protocol.client_headers import QueryConsumeQueueRequestHeader
from rmqha.common.subscriptions import ConsumerData, ConsumeType, HeartbeatData, MessageModel
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig
from rmqha.filter.bloom_filter import BitsArray, BloomFilterData
from rmqha.remoting.protocol import remoting_serializable
from rmqha.store.broker_stats_manager import LmqBrokerStatsManager
from rmqha.store.consume_queue_ext import CqExtUnit
from tests.broker.support import bodies, new_controller, running_broker
from tests.support.wait import at_least, wait_until

# SQL92 filters inside a broker: registering, saving, pulling, and the bit maps.


@pytest.fixture
def manager(tmp_path):
    return new_controller(tmp_path).consumer_filter_manager


def subscription(topic, expression, version, kind="SQL92"):
    data = subscriptions.build(topic, expression, kind)
    data.subVersion = version
    return data


def test_expression_is_stored_with_its_bits_and_version(manager):
    manager.register("g", [subscription("T", "a > 1", 5), subscription("U", "tag", 5, "TAG")])
    data = manager.get("T", "g")
    assert (data.expression, data.expressionType, data.clientVersion, data.is_dead) == ("a > 1", "SQL92", 5, False)
    assert data.bloomFilterData == manager.bloom_filter.generate("g#T")
    assert manager.get("U", "g") is None and manager.get("T", "h") is None
    assert manager.get_by_topic("T") == manager.get_by_group("g") == [data]


def test_older_version_is_ignored_and_a_newer_one_accepted(manager):
    manager.register("g", [subscription("T", "a > 1", 5)])
    manager.register("g", [subscription("T", "a > 2", 4)])
    manager.register("g", [subscription("T", "a > 3", 5)])
    assert manager.get("T", "g").expression == "a > 1"
    first = manager.get("T", "g")
    manager.register("g", [subscription("T", "a > 1", 6)])
    assert manager.get("T", "g") is first and first.clientVersion == 6
    manager.register("g", [subscription("T", "a > 4", 7)])
    assert manager.get("T", "g").expression == "a > 4"
    manager.register("g", [subscription("T", "a >", 8)])
    assert manager.get("T", "g") is None


def test_group_without_members_is_dead_until_it_returns(manager):
    manager.register("g", [subscription("T", "a > 1", 5), subscription("U", "a > 1", 5)])
    manager.un_register("g")
    assert manager.get("T", "g").is_dead and manager.get("U", "g").is_dead
    manager.register("g", [subscription("T", "a > 1", 5)])
    assert not manager.get("T", "g").is_dead and manager.get("U", "g").is_dead


def test_file_has_the_table_and_its_entries_load_as_dead(manager, tmp_path):
    manager.register("g", [subscription("T", "a > 1", 5)])
    assert manager.persist()
    with open(manager.config_file_path(), encoding="utf-8") as file:
        kept = json.load(file)["filterDataByTopic"]["T"]
    assert kept["topic"] == "T" and kept["groupFilterData"]["g"]["bloomFilterData"] == {
        "bitNum": 112, "bitPos": manager.bloom_filter.calc_bit_positions("g#T")}
    assert "compiledExpression" not in kept["groupFilterData"]["g"]
    loaded = new_controller(tmp_path).consumer_filter_manager
    assert loaded.load() and loaded.get("T", "g").is_dead
    assert str(loaded.get("T", "g").compiled_expression) == "(a > 1)"
    other = new_controller(tmp_path, expectConsumerNumUseFilter=64).consumer_filter_manager
    # Its bits are those of another Bloom filter.
    assert other.load() and other.get("T", "g") is None


def test_entry_dead_for_too_long_is_removed(tmp_path):
    manager = new_controller(tmp_path, filterDataCleanTimeSpan=0).consumer_filter_manager
    manager.register("g", [subscription("T", "a > 1", 5)])
    manager.un_register("g")
    assert json.loads(manager.encode()) == {"filterDataByTopic": {}}


@pytest.mark.parametrize("seed", range(8))
def test_file_is_written_only_when_something_changed(tmp_path, monkeypatch, seed):
    pick, now = random.Random(seed), [1_700_000_000_000]
    monkeypatch.setattr(util_all, "current_time_millis", lambda: now[0])
    manager = new_controller(tmp_path, filterDataCleanTimeSpan=20).consumer_filter_manager
    versions = iter(range(1, 1000))
    steps = [
        lambda: manager.register(pick.choice("gh"), [
            subscription(topic, pick.choice(["a > 1", "b < 2", "a >"]), next(versions))
            for topic in pick.sample("TUV", pick.randrange(1, 3))]),
        lambda: manager.un_register(pick.choice("gh")), lambda: manager.remove_topic(pick.choice("TUV"))]
    file, backup = (Path(manager.config_file_path() + end) for end in ("", ".bak"))
    for _ in range(60):
        now[0] += pick.randrange(10)
        for _step in range(pick.randrange(3)):
            pick.choice(steps)()
        manager.persist_changes()
        assert file.read_text("utf-8") == manager.encode(True)
    manager.persist_changes()
    assert backup.read_text("utf-8") == file.read_text("utf-8")
    for one in (file, backup):
        one.unlink()
    manager.persist_changes()
    # A consumer repeats this with every heartbeat.
    for data in manager.get_by_group("g"):
        if not data.is_dead:
            manager.register("g", [subscription(one.topic, one.expression, one.clientVersion)
                                   for one in manager.get_by_group("g") if not one.is_dead])
    manager.persist_changes()
    assert not file.exists() and not backup.exists()


def test_expressions_share_a_limit_of_characters_and_release_their_part(tmp_path, monkeypatch):
    monkeypatch.setattr(consumer_filter_manager, "MAX_CHARACTERS", 10 * 1700)
    manager = new_controller(tmp_path, filterDataCleanTimeSpan=0).consumer_filter_manager
    for number in range(50):
        manager.register(f"g{number}", [subscription(f"T{number}", "a > 1", 5)])
    assert len(manager.filter_data_by_topic) == 10
    manager.register("g0", [subscription("T0", "a > 2", 6)])
    assert manager.get("T0", "g0").expression == "a > 2"
    for number in range(50):
        manager.un_register(f"g{number}")
    manager.encode()
    assert not manager.filter_data_by_topic and manager._characters == 0
    manager.register("late", [subscription("T", "a > 1", 5)])
    assert manager.get("T", "late") is not None


def test_invalid_or_overlong_expression_leaves_no_topic(manager):
    manager.register("g", [subscription("T", "a >", 5), subscription("U", "a > 1 OR " * 9000 + "TRUE", 5)])
    assert not manager.filter_data_by_topic


def bit_map(manager, *groups):
    bits = BitsArray.create(manager.bloom_filter.m)
    for group in groups:
        manager.bloom_filter.hash_to(manager.bloom_filter.generate(f"{group}#T"), bits)
    return bytes(bits.bytes)


def test_bit_map_decides_for_messages_newer_than_the_filter(manager):
    manager.register("g", [subscription("T", "a > 1", 5)])
    data = manager.get("T", "g")
    message_filter = ExpressionMessageFilter(subscription("T", "a > 1", 5), data, manager)
    matches, later = message_filter.is_matched_by_consume_queue, data.bornTime + 1
    assert matches(0, CqExtUnit(0, later, bit_map(manager, "g", "h")))
    assert not matches(0, CqExtUnit(0, later, bit_map(manager)))
    assert matches(0, CqExtUnit(0, data.bornTime, bit_map(manager)))  # older: unknown
    assert matches(0, None) and matches(0, CqExtUnit(0, later, None)) and matches(0, CqExtUnit(0, later, b"\0"))
    data.bloomFilterData = BloomFilterData(8, [1])
    assert matches(0, CqExtUnit(0, later, bit_map(manager)))


def test_properties_decide_in_the_end(manager):
    data = build("T", "g", "a > 1", "SQL92", 1)
    matches = ExpressionMessageFilter(subscription("T", "a > 1", 5), data, manager).is_matched_by_commit_log
    assert matches(None, {"a": "2"}) and not matches(None, {"a": "1"}) and not matches(None, {"a": "x"})
    assert not matches(None, {}) and not matches(None, None)
    assert build("T", "g", "a >", "SQL92", 1) is None and build("T", "g", "a", "TAG", 1) is None


def test_retried_message_is_filtered_by_its_first_topic(manager):
    manager.register("g", [subscription("T", "a > 1", 5)])
    matches = ExpressionForRetryMessageFilter(
        subscription("%RETRY%g", "*", 5, "TAG"), None, manager).is_matched_by_commit_log
    assert matches(None, {"RETRY_TOPIC": "T", "a": "2"}) and not matches(None, {"RETRY_TOPIC": "T", "a": "1"})
    assert matches(None, {"RETRY_TOPIC": "Other"}) and matches(None, {})
    plain = ExpressionForRetryMessageFilter(subscription("T", "a > 1", 5), manager.get("T", "g"), manager)
    assert plain.is_matched_by_commit_log(None, {"a": "2"}) and not plain.is_matched_by_commit_log(None, {"a": "1"})


@pytest.fixture(scope="module")
def filtering(tmp_path_factory):
    """A broker that filters, with bit maps."""
    with running_broker(tmp_path_factory.mktemp("filtering"), enablePropertyFilter=True, enableConsumeQueueExt=True,
                        enableCalcFilterBitMap=True) as harness:
        yield harness


def announce(harness, group, topic, expression, version):
    """Send the heartbeat of a consumer with an expression."""
    data = ConsumerData(groupName=group, consumeType=ConsumeType.CONSUME_PASSIVELY,
                        messageModel=MessageModel.CLUSTERING,
                        subscriptionDataSet={subscription(topic, expression, version)})
    assert harness.call(request_code.HEART_BEAT, body=HeartbeatData("client", set(), {data})).code == 0


def pull(harness, topic, group, version, **fields):
    """Pull with the registered subscription."""
    return harness.pull(topic, 0, group=group, subVersion=version, sysFlag=fields.pop("sysFlag", 0), **fields)


def test_pulls_return_messages_that_match_the_registered_expression(filtering):
    for number in range(6):
        filtering.send("Numbers", b"%d" % number, properties={"n": str(number)})
    filtering.next_offset("Numbers")
    announce(filtering, "odd", "Numbers", "n IN ('1', '3', '5')", 10)
    assert bodies(pull(filtering, "Numbers", "odd", 10)) == [b"1", b"3", b"5"]
    # Only messages stored in a later millisecond than the expression arrived have bit maps.
    at_least(0.002)
    for number in range(6, 10):
        filtering.send("Numbers", b"%d" % number, properties={"n": str(number % 4)})
    end = filtering.next_offset("Numbers")
    assert bodies(pull(filtering, "Numbers", "odd", 10)) == [b"1", b"3", b"5", b"7", b"9"]
    header = QueryConsumeQueueRequestHeader(topic="Numbers", queueId=0, index=6, count=10, consumerGroup="odd")
    answer = filtering.call(request_code.QUERY_CONSUME_QUEUE, header)
    body = remoting_serializable.from_json(QueryConsumeQueueResponseBody, answer.body)
    assert [unit.eval for unit in body.queueData] == [False, True, False, True] and end == 10
    assert all(unit.bitMap and '"filterBitMap"' in unit.extendDataJson for unit in body.queueData)
    assert '"expression":"n IN' in body.filterData.replace("\n", "").replace("\t", "")


def test_held_pull_wakes_for_a_matching_message(filtering):
    filtering.send("Held", b"first", properties={"n": "0"})
    start = filtering.next_offset("Held")
    announce(filtering, "ones", "Held", "n = 1", 10)
    answers = []
    flags = sys_flags.build_pull_sys_flag(False, True, False, False)
    header = filtering.pull_header("Held", start, group="ones", suspend_ms=90_000, subVersion=10)
    header.sysFlag = flags
    waiting = threading.Thread(target=lambda: answers.append(
        filtering.call(request_code.PULL_MESSAGE, header, timeout_ms=120_000)))
    waiting.start()
    service = filtering.controller.pull_request_hold_service
    wait_until(lambda: service.is_waiting("Held", 0), 60_000, "the held pull")
    filtering.send("Held", b"second", properties={"n": "2"})
    filtering.next_offset("Held")
    wait_until(lambda: service.is_waiting("Held", 0), 60_000, "the pull is held again")
    assert not answers
    filtering.send("Held", b"third", properties={"n": "1"})
    waiting.join(240)
    assert [bodies(answer) for answer in answers] == [[b"third"]]


@pytest.mark.parametrize("group, version, code, remark", [
    ("behind", 11, response_code.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"),
    ("broken", 10, response_code.FILTER_DATA_NOT_EXIST,
     "The broker's consumer filter data is not exist!Your expression may be wrong!"),
])
def test_pull_without_a_usable_expression_is_refused(filtering, group, version, code, remark):
    filtering.send("Refused")
    announce(filtering, "behind", "Refused", "n = 1", 10)
    announce(filtering, "broken", "Refused", "n = ", 10)
    response = pull(filtering, "Refused", group, version)
    assert (response.code, response.remark) == (code, remark)


def test_pull_with_an_invalid_expression_is_refused(filtering):
    filtering.send("Brought", properties={"n": "1"})
    filtering.next_offset("Brought")
    good = filtering.pull("Brought", 0, group="bringer", subscription="n = 1", expressionType="SQL92")
    assert bodies(good) == [b"body"]
    bad = filtering.pull("Brought", 0, group="bringer", subscription="n = ", expressionType="SQL92")
    assert (bad.code, bad.remark) == (response_code.SUBSCRIPTION_PARSE_FAILED,
                                      "parse the consumer's subscription failed")


def test_broker_without_property_filter_reports_it(broker):
    broker.send("Unfiltered")
    response = broker.pull("Unfiltered", 0, subscription="n = 1", expressionType="SQL92")
    assert (response.code, response.remark) == (
        response_code.SYSTEM_ERROR, "The broker does not support consumer to filter message by SQL92")


# Light message queues (enableLmq, enableMultiDispatch) as clients see them.

LMQ = {"enableLmq": True, "enableMultiDispatch": True}
A, B, GROUP = "%LMQ%a", "%LMQ%b", "%LMQ%reader"


@pytest.fixture
def lmq_broker(tmp_path):
    with running_broker(tmp_path, **LMQ) as harness:
        yield harness


def send(broker, body: bytes, *queues: str, queue_id: int = 0) -> None:
    """Send one message to T and to further queues."""
    properties = {"INNER_MULTI_DISPATCH": ",".join(queues)} if queues else {}
    assert broker.send("T", body, queue_id, properties).code == response_code.SUCCESS


def commit(broker, group: str, topic: str, offset: int, queue_id: int = 0) -> None:
    header = UpdateConsumerOffsetRequestHeader(group, topic, queue_id, offset)
    assert broker.call(request_code.UPDATE_CONSUMER_OFFSET, header).code == response_code.SUCCESS


def committed(broker, group: str, topic: str) -> str | None:
    answer = broker.call(request_code.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader(group, topic, 0))
    return answer.ext_fields["offset"] if answer.code == response_code.SUCCESS else None


def test_message_is_pulled_from_each_light_queue_it_names(lmq_broker):
    send(lmq_broker, b"1", A, B)
    send(lmq_broker, b"2", B, queue_id=3)
    send(lmq_broker, b"3")
    assert (lmq_broker.next_offset(A), lmq_broker.next_offset(B), lmq_broker.next_offset("T", 3)) == (1, 2, 1)
    assert bodies(lmq_broker.pull(A, 0, group=GROUP)) == [b"1"]
    answer = lmq_broker.pull(B, 0, group=GROUP)
    assert bodies(answer) == [b"1", b"2"]
    assert [message.properties["INNER_MULTI_QUEUE_OFFSET"] for message in message_decoder.decodes(answer.body)] == [
        "0,0", "1"]


def test_light_queues_have_one_queue_and_appear_in_no_table(lmq_broker):
    send(lmq_broker, b"1", A)
    lmq_broker.next_offset(A)
    assert bodies(lmq_broker.pull(A, 0, group=GROUP)) == [b"1"]
    assert lmq_broker.pull(A, 0, group=GROUP, queue_id=1).code == response_code.SYSTEM_ERROR
    controller = lmq_broker.controller
    controller.topic_config_manager.update_topic_config(TopicConfig(A, 8, 8, 6))
    controller.subscription_group_manager.update_subscription_group_config(SubscriptionGroupConfig(groupName=GROUP))
    for table in (controller.topic_config_manager.topic_config_table,
                  controller.subscription_group_manager.subscription_group_table):
        assert not [name for name in table if name.startswith("%LMQ%")]
    assert controller.topic_config_manager.select_topic_config(A).readQueueNums == 1
    assert controller.subscription_group_manager.find_subscription_group_config(GROUP).groupName == GROUP


def test_light_groups_work_when_group_creation_is_off(tmp_path):
    with running_broker(tmp_path, autoCreateSubscriptionGroup=False, **LMQ) as broker:
        send(broker, b"1", A)
        broker.next_offset(A)
        assert bodies(broker.pull(A, 0, group=GROUP)) == [b"1"]
        assert broker.pull(A, 0, group="ordinary").code == response_code.SUBSCRIPTION_GROUP_NOT_EXIST


def test_held_pull_of_a_light_queue_is_woken_by_its_message(lmq_broker):
    send(lmq_broker, b"1", A)
    lmq_broker.next_offset(A)
    answers = []
    puller = threading.Thread(target=lambda: answers.append(
        lmq_broker.pull(A, 1, group=GROUP, suspend_ms=90_000, timeout_ms=120_000)))
    puller.start()
    wait_until(lambda: lmq_broker.controller.pull_request_hold_service.is_waiting(A, 0), 60_000)
    send(lmq_broker, b"to B alone", B)
    send(lmq_broker, b"2", A, B)
    puller.join(240)
    assert bodies(answers[0]) == [b"2"]


def test_empty_lists_of_held_pulls_are_removed(lmq_broker):
    service = lmq_broker.controller.pull_request_hold_service
    for topic in (A, "T"):
        service._list_of((topic, 0))
    service.check_hold_request()
    assert not service.pull_request_table


def test_removed_list_accepts_no_pull_and_one_in_use_stays():
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


def test_offsets_from_before_light_queues_were_enabled_are_kept(tmp_path):
    with running_broker(tmp_path) as broker:
        broker.send("T")
        commit(broker, "ordinary", "T", 7)
    with running_broker(tmp_path, **LMQ) as broker:
        assert committed(broker, "ordinary", "T") == "7"
        commit(broker, "ordinary", "T", 8)
    with running_broker(tmp_path, **LMQ) as broker:
        assert committed(broker, "ordinary", "T") == "8"


@pytest.mark.parametrize("text", ["{", '{"lmqOffsetTable":[]}', '{"offsetTable":{"a@b":7}}', "[]", "\0"])
def test_unreadable_offsets_stop_the_start(tmp_path, text):
    folder = tmp_path / "store" / "config"
    folder.mkdir(parents=True)
    (folder / "lmqConsumerOffset.json").write_text(text)
    controller = new_controller(tmp_path, **LMQ)
    assert not controller.initialize()
    controller.shutdown()
    assert (folder / "lmqConsumerOffset.json").read_text() == text


def test_reads_from_light_queues_are_counted_under_one_name(lmq_broker):
    send(lmq_broker, b"1", A, B)
    lmq_broker.next_offset(B)
    for topic in (A, B):
        assert bodies(lmq_broker.pull(topic, 0, group=GROUP)) == [b"1"]
    stats = lmq_broker.controller.broker_stats_manager
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


def test_light_queues_continue_after_a_restart(tmp_path):
    with running_broker(tmp_path, **LMQ) as broker:
        for number in range(5):
            send(broker, b"%d" % number, A, "other", queue_id=1)
    with running_broker(tmp_path, **LMQ) as broker:
        send(broker, b"5", A, "other", queue_id=1)
        assert (broker.next_offset(A), broker.next_offset("other", 1)) == (6, 6)
        assert bodies(broker.pull(A, 0, group=GROUP)) == [b"%d" % number for number in range(6)]


def test_slave_copies_the_ordinary_offsets_of_a_master_with_light_queues(lmq_broker):
    commit(lmq_broker, GROUP, A, 5)
    lmq_broker.send("T")
    commit(lmq_broker, "ordinary", "T", 7)
    api = lmq_broker.controller.broker_outer_api
    assert api.get_all_consumer_offset(lmq_broker.address, "")[0].offsetTable == {"T@ordinary": {0: 7}}
