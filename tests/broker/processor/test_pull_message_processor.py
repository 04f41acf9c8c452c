"""Pulling: which pulls find messages, are refused or are held; and queries by key."""
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common import mix_all, sys_flags
from rmqha.common.message import message_decoder
from rmqha.common.message.message import Message
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.client_bodies import OffsetMovedEvent
from rmqha.common.protocol.client_headers import PullMessageResponseHeader, QueryMessageRequestHeader
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.header_codec import SerializeType
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import bodies, running_broker
from tests.support.in_process import gathering
from tests.support.wait import wait_until

# Pulling: which pulls find messages, are refused or are held.


def offsets_of(response):
    header = response.decode_command_custom_header(PullMessageResponseHeader)
    return header.nextBeginOffset, header.minOffset, header.maxOffset


@pytest.fixture(scope="module")
def stocked(shared_broker):
    """A queue of five messages with the tags a b a b a."""
    for index in range(5):
        shared_broker.send("Stock", f"m{index}".encode(), properties={"TAGS": "ab"[index % 2]})
    assert shared_broker.next_offset("Stock") == 5
    return shared_broker


def test_pull_returns_the_records_as_stored(stocked):
    response = stocked.pull("Stock", 1)
    assert (response.code, response.remark) == (response_code.SUCCESS, "FOUND")
    assert offsets_of(response) == (5, 0, 5) and response.ext_fields["suggestWhichBrokerId"] == "0"
    message = message_decoder.decodes(response.body)[0]
    with stocked.store.select_one_message_by_offset(message.commit_log_offset) as record:
        assert bytes(response.body[:message.store_size]) == bytes(record.buffer)
    assert bodies(response) == [b"m1", b"m2", b"m3", b"m4"]


def test_pull_returns_no_more_than_requested(stocked):
    assert bodies(stocked.pull("Stock", 0, maxMsgNums=2)) == [b"m0", b"m1"]


def test_tags_filter_on_the_broker(stocked):
    assert bodies(stocked.pull("Stock", 0, expression="b")) == [b"m1", b"m3"]
    assert bodies(stocked.pull("Stock", 0, expression="x || a")) == [b"m0", b"m2", b"m4"]


def test_pull_without_a_match_asks_the_client_to_continue(stocked):
    response = stocked.pull("Stock", 0, expression="nobody")
    assert (response.code, response.remark) == (response_code.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert offsets_of(response)[0] == 5


def test_pull_that_must_not_wait_finds_acknowledged_messages(shared_broker):
    with gathering(shared_broker.store):
        shared_broker.send("Gathered", b"one")
        assert shared_broker.store.get_max_offset_in_queue("Gathered", 0) == 0
        assert bodies(shared_broker.pull("Gathered", 0)) == [b"one"]
        assert shared_broker.pull("Gathered", 1).code == response_code.PULL_NOT_FOUND


@pytest.mark.parametrize("offset, found", [(0, [b"one", b"two"]), (1, [b"two"]), (2, [])])
def test_message_dispatched_while_a_pull_looks_is_found(shared_broker, monkeypatch, offset, found):
    """The pull looks first; the dispatch then happens, and nothing is left to wait for."""
    store, topic = shared_broker.store, f"Meanwhile{offset}"
    look = store.get_message

    def look_and_dispatch(*arguments):
        result = look(*arguments)
        monkeypatch.setattr(store, "get_message", look)
        done = threading.Event()
        assert result.max_offset == 0 and store.call_when_dispatched(done.set) and done.wait(240)
        return result

    with gathering(store):
        shared_broker.send(topic, b"one")
        shared_broker.send(topic, b"two")
        monkeypatch.setattr(store, "get_message", look_and_dispatch)
        answer = shared_broker.pull(topic, offset)
    assert bodies(answer) == found and offsets_of(answer) == (2, 0, 2)
    assert answer.code == (response_code.SUCCESS if found else response_code.PULL_NOT_FOUND)


def test_offset_returned_to_a_send_is_not_moved(shared_broker):
    with gathering(shared_broker.store):
        shared_broker.send("Sought", b"one")
        shared_broker.send("Sought", b"two")
        assert shared_broker.store.get_max_offset_in_queue("Sought", 0) == 0
        assert shared_broker.pull("Sought", 2).code == response_code.PULL_NOT_FOUND
        shared_broker.send("Sought", b"three")
        shared_broker.send("Sought", b"four")
        assert bodies(shared_broker.pull("Sought", 3)) == [b"four"]


OFFSETS = {
    "at the end": (5, response_code.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 5),
    "one beyond": (6, response_code.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 5),
    "far beyond": (2**63 - 1, response_code.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 5),
    "negative": (-1, response_code.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
    "very negative": (-(2**63), response_code.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
}


@pytest.mark.parametrize("case", OFFSETS, ids=str)
def test_offset_outside_the_queue_gets_its_code(stocked, case):
    offset, code, remark, next_offset = OFFSETS[case]
    response = stocked.pull("Stock", offset)
    assert (response.code, response.remark, offsets_of(response)[0]) == (code, remark, next_offset)
    assert not response.body


@pytest.mark.parametrize("offset, code", [(0, response_code.PULL_NOT_FOUND), (3, response_code.PULL_OFFSET_MOVED)])
def test_empty_queue(stocked, offset, code):
    response = stocked.pull("Stock", offset, queue_id=3)
    assert response.code == code and offsets_of(response)[0] == 0


def test_moved_offset_is_reported_in_its_topic(broker):
    broker.send("Moved")
    broker.next_offset("Moved")
    broker.pull("Moved", 77)
    wait_until(lambda: broker.next_offset("OFFSET_MOVED_EVENT"), 60_000, "the event")
    message = message_decoder.decodes(broker.pull("OFFSET_MOVED_EVENT", 0).body)[0]
    event = remoting_serializable.from_json(OffsetMovedEvent, message.body)
    assert (event.consumerGroup, event.offsetRequest, event.offsetNew) == ("consumer", 77, 1)
    assert (event.messageQueue.topic, event.messageQueue.brokerName) == ("Moved", "broker-a")
    assert message.tags == message.keys == "consumer"


@pytest.fixture(scope="module")
def shortened(tmp_path_factory):
    """A broker, and the first offset of a queue of twelve messages whose beginning is deleted."""
    with running_broker(tmp_path_factory.mktemp("shortened")) as broker:
        for index in range(12):
            broker.send("Short", b"%d" % index + b"-" * 200_000)
        assert broker.next_offset("Short") == 12
        broker.store.commit_log.delete_expired_file(0, 0, 0, True)
        queue = broker.store.get_consume_queue("Short", 0)
        queue.correct_min_offset(broker.store.commit_log.get_min_offset())
        first = queue.get_min_offset_in_queue()
        assert 1 < first < 12
        yield broker, first


# A pull that is held this long fails by its own timeout.
HELD_MS = 600_000


@pytest.mark.parametrize("before_first", [None, 1, 2])
def test_endless_pull_at_a_deleted_offset_continues_at_once(shortened, before_first):
    broker, first = shortened
    offset = 0 if before_first is None else first - before_first
    response = broker.pull("Short", offset, suspend_ms=HELD_MS, maxMsgNums=1)
    assert (response.code, response.remark) == (response_code.PULL_RETRY_IMMEDIATELY, "OFFSET_TOO_SMALL")
    assert offsets_of(response) == (first, first, 12) and not response.body
    following = broker.pull("Short", offsets_of(response)[0], suspend_ms=HELD_MS, maxMsgNums=1)
    assert following.code == response_code.SUCCESS and bodies(following)[0].startswith(b"%d-" % first)


def test_single_pull_at_a_deleted_offset_reports_that_messages_are_gone(shortened):
    broker, first = shortened
    for offset in (0, first - 1):
        response = broker.pull("Short", offset)
        assert (response.code, offsets_of(response)[0]) == (response_code.PULL_OFFSET_MOVED, first)


@pytest.mark.parametrize("offset", [-1, -(2**63), 13, 2**63 - 1])
def test_endless_pull_at_an_offset_that_never_existed_is_moved(shortened, offset):
    broker, first = shortened
    response = broker.pull("Short", offset, suspend_ms=HELD_MS)
    assert (response.code, offsets_of(response)[0]) == (
        response_code.PULL_OFFSET_MOVED, first if offset < 0 else 12)


def test_deleted_offset_is_reported_although_the_pull_continues(shortened):
    broker, _first = shortened
    before = broker.next_offset("OFFSET_MOVED_EVENT")
    broker.pull("Short", 1, suspend_ms=HELD_MS, group="late")
    wait_until(lambda: broker.next_offset("OFFSET_MOVED_EVENT") > before, 60_000, "the event")


def test_slave_does_not_move_offsets(tmp_path):
    with running_broker(tmp_path, brokerRole=BrokerRole.SLAVE, brokerId=1) as broker:
        response = broker.pull("BenchmarkTest", 77)
        assert response.code == response_code.PULL_RETRY_IMMEDIATELY


REFUSED = {
    "unknown topic": ({"topic": "Nowhere"}, response_code.TOPIC_NOT_EXIST, "topic[Nowhere] not exist"),
    "queue too high": ({"queueId": 4}, response_code.SYSTEM_ERROR, "queueId[4] is illegal"),
    "queue negative": ({"queueId": -1}, response_code.SYSTEM_ERROR, "queueId[-1] is illegal"),
    "sql": ({"expressionType": "SQL92", "subscription": "a > 1"}, response_code.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by SQL92"),
    "only separators": ({"subscription": "||"}, response_code.SUBSCRIPTION_PARSE_FAILED,
                        "parse the consumer's subscription failed"),
    "unknown group": ({"sysFlag": 0, "consumerGroup": "offline"}, response_code.SUBSCRIPTION_NOT_EXIST,
                      "the consumer's group info not exist"),
    "no topic": ({"topic": None}, response_code.SYSTEM_ERROR, "<topic> is null"),
    "too many messages": ({"maxMsgNums": 2**31}, response_code.SYSTEM_ERROR, "<maxMsgNums>"),
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_invalid_pull_gets_a_typed_answer(stocked, case):
    fields, code, remark = REFUSED[case]
    response = stocked.call(request_code.PULL_MESSAGE, stocked.pull_header("Stock", 0, **fields))
    assert response.code == code and remark in response.remark and not response.body


@pytest.mark.parametrize("number", [-1, 0, -(2**31), 2**31 - 1])
def test_any_message_limit_gives_bounded_bytes(stocked, number):
    response = stocked.pull("Stock", 0, maxMsgNums=number)
    assert response.code in (response_code.SUCCESS, response_code.PULL_RETRY_IMMEDIATELY)
    assert len(response.body or b"") < 1 << 20


def test_subscription_of_the_heartbeat_is_used(stocked):
    stocked.heartbeat("beating", "Stock", expression="b", sub_version=10)
    assert bodies(stocked.pull("Stock", 0, group="beating", sysFlag=0, subVersion=10)) == [b"m1", b"m3"]
    response = stocked.pull("Stock", 0, group="beating", sysFlag=0, subVersion=11)
    assert response.code == response_code.SUBSCRIPTION_NOT_LATEST
    response = stocked.pull("BenchmarkTest", 0, group="beating", sysFlag=0)
    assert response.code == response_code.SUBSCRIPTION_NOT_EXIST


def test_group_without_read_permission_is_refused(broker):
    broker.send("Stock")
    config = broker.controller.subscription_group_manager.find_subscription_group_config("stopped")
    config.consumeEnable = False
    response = broker.pull("Stock", 0, group="stopped")
    assert response.code == response_code.NO_PERMISSION
    assert response.remark == "subscription group no permission, stopped"


def test_unknown_group_is_refused_when_group_creation_is_off(tmp_path):
    with running_broker(tmp_path, autoCreateSubscriptionGroup=False) as broker:
        response = broker.pull("BenchmarkTest", 0)
        assert response.code == response_code.SUBSCRIPTION_GROUP_NOT_EXIST


def test_new_group_is_created_and_saved(broker):
    broker.send("Stock")
    broker.next_offset("Stock")
    assert broker.pull("Stock", 0, group="brand-new").code == response_code.SUCCESS
    with open(broker.controller.subscription_group_manager.config_file_path(), encoding="utf-8") as file:
        assert '"brand-new":{' in file.read()


def test_unreadable_broker_and_topic_refuse_pulls(broker):
    broker.send("Stock")
    broker.controller.topic_config_manager.select_topic_config("Stock").perm = 2
    assert broker.pull("Stock", 0).remark == "the topic[Stock] pulling message is forbidden"
    broker.controller.broker_config.brokerPermission = 2
    assert broker.pull("Stock", 0).remark == "the broker[127.0.0.1] pulling message is forbidden"


def test_offset_in_the_request_is_committed(stocked):
    flag = sys_flags.build_pull_sys_flag(True, False, True, False)
    stocked.pull("Stock", 3, group="committer", sysFlag=flag, commitOffset=3)
    assert stocked.controller.consumer_offset_manager.query_offset("committer", "Stock", 0) == 3


def test_pull_is_counted_in_the_statistics(stocked):
    stocked.pull("Stock", 0, group="counted")
    stats = stocked.controller.broker_stats_manager
    assert stats.get_stats_item("GROUP_GET_NUMS", "Stock@counted").value == 5
    assert "0@Stock@counted" in stats.moment_stats_item_set_fall_time.stats_item_table


@settings(max_examples=60, deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(0, 31),
       st.text(max_size=6))
def test_any_numbers_get_an_answer(stocked, offset, number, flags, expression):
    flags &= ~sys_flags.FLAG_SUSPEND
    response = stocked.pull("Stock", offset, maxMsgNums=number, sysFlag=flags, expression=expression)
    assert response.code in (0, 1, 19, 20, 21, 23, 24)


class Waiting:
    """A pull in flight."""

    def __init__(self, broker, topic, offset, serialize_type=SerializeType.JSON, **fields):
        self.response = None
        self.done = threading.Event()
        self._broker = broker
        before = self.held()
        request = RemotingCommand.create_request_command(request_code.PULL_MESSAGE,
                                                         broker.pull_header(topic, offset, suspend_ms=90_000, **fields))
        request.serialize_type = serialize_type
        broker.client.invoke_async(broker.address, request, 120_000, self._answered)
        wait_until(lambda: self.held() > before or self.done.is_set(), 60_000, "held or answered")

    def held(self):
        table = self._broker.controller.pull_request_hold_service.pull_request_table
        return sum(len(many._pull_request_list) for many in table.values())

    def _answered(self, future):
        self.response = future.response_command
        self.done.set()

    def get(self):
        assert self.done.wait(240)
        return self.response


@pytest.mark.parametrize("serialize_type", SerializeType)
def test_held_pull_is_answered_when_a_message_arrives(broker, serialize_type):
    broker.send("Held")
    broker.next_offset("Held")
    waiting = Waiting(broker, "Held", 1, serialize_type)
    assert not waiting.done.is_set()
    broker.send("Held", b"fresh")
    assert bodies(waiting.get()) == [b"fresh"]
    assert waiting.response.serialize_type == serialize_type
    assert waiting.held() == 0


def test_batch_wakes_a_held_pull_once_with_all_its_messages(broker):
    broker.send("Held")
    broker.next_offset("Held")
    waiting = Waiting(broker, "Held", 1)
    body = message_decoder.encode_messages([Message(None, b"%d" % index) for index in range(9)])
    broker.call(request_code.SEND_BATCH_MESSAGE, broker.send_header("Held", m=True), body)
    assert len(bodies(waiting.get())) == 9


def test_message_with_another_tag_leaves_the_pull_held(broker):
    broker.send("Held")
    broker.next_offset("Held")
    waiting = Waiting(broker, "Held", 1, expression="wanted")
    broker.send("Held", b"no", properties={"TAGS": "other"})
    broker.next_offset("Held")
    assert waiting.held() == 1 and not waiting.done.is_set()
    broker.send("Held", b"yes", properties={"TAGS": "wanted"})
    assert bodies(waiting.get()) == [b"yes"]


def test_message_arriving_between_the_look_and_the_hold_is_not_missed(broker, monkeypatch):
    broker.send("Race")
    broker.next_offset("Race")
    service = broker.controller.pull_request_hold_service
    hold = service.suspend_pull_request

    def send_then_hold(topic, queue_id, pull_request):
        broker.controller.message_store.put_message(copy_of_race_message(broker))
        broker.next_offset("Race")
        hold(topic, queue_id, pull_request)

    monkeypatch.setattr(service, "suspend_pull_request", send_then_hold)
    assert bodies(Waiting(broker, "Race", 1).get()) == [b"race"]


def copy_of_race_message(broker):
    message = MessageExtBrokerInner("Race", b"race")
    message.born_host = message.store_host = broker.controller.addresses.store_host
    message.properties_string = ""
    return message


def test_held_pull_is_answered_when_it_times_out(tmp_path):
    with running_broker(tmp_path, longPollingEnable=False, shortPollingTimeMills=50) as broker:
        broker.send("Short")
        broker.next_offset("Short")
        response = Waiting(broker, "Short", 1).get()
        assert (response.code, response.remark) == (response_code.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")


def test_all_held_pulls_of_a_queue_are_woken(broker):
    broker.send("Many")
    broker.next_offset("Many")
    waiting = [Waiting(broker, "Many", 1, group=f"group{index}") for index in range(5)]
    broker.send("Many", b"all")
    assert [bodies(one.get()) for one in waiting] == [[b"all"]] * 5


def test_broker_that_shuts_down_answers_the_pulls_that_it_holds(broker):
    """Without an answer a client of 4.9 that does not notice the end of its connection waits for 30 s."""
    broker.send("Ending")
    broker.next_offset("Ending")
    waiting = [Waiting(broker, "Ending", 1, group=f"group{index}") for index in range(3)]
    broker.controller.shutdown()
    for one in waiting:
        assert (one.get().code, one.response.remark) == (response_code.SERVICE_NOT_AVAILABLE,
                                                         "the broker is shutting down")


def test_pulls_in_a_shutdown_find_messages_but_are_not_held(broker):
    broker.send("Ending", b"one")
    broker.next_offset("Ending")
    broker.controller.pull_request_hold_service.end_holding()
    assert bodies(broker.pull("Ending", 0, suspend_ms=90_000)) == [b"one"]
    assert broker.pull("Ending", 1, suspend_ms=90_000).code == response_code.SERVICE_NOT_AVAILABLE
    assert broker.pull("Ending", 1).code == response_code.PULL_NOT_FOUND


def test_pull_that_a_shutdown_overtakes_is_answered(broker, monkeypatch):
    """The shutdown begins after the pull was found to have to wait, and before it is held."""
    broker.send("Ending")
    broker.next_offset("Ending")
    service = broker.controller.pull_request_hold_service
    hold = service.suspend_pull_request

    def end_then_hold(topic, queue_id, pull_request):
        service.end_holding()
        return hold(topic, queue_id, pull_request)

    monkeypatch.setattr(service, "suspend_pull_request", end_then_hold)
    assert Waiting(broker, "Ending", 1).get().code == response_code.SERVICE_NOT_AVAILABLE


# Queries by key.


def test_query_by_unique_key_has_its_own_limit_of_answers(tmp_path):
    with running_broker(tmp_path, defaultQueryMaxNum=2) as broker:
        for _ in range(5):
            broker.send("T", properties={"UNIQ_KEY": "K"})
        assert broker.next_offset("T") == 5
        header = QueryMessageRequestHeader("T", "K", 4, 0, 1 << 62)
        found = {}
        for flag in (None, "false", "true"):
            request = RemotingCommand.create_request_command(request_code.QUERY_MESSAGE, header)
            if flag is not None:
                request.ext_fields = {mix_all.UNIQUE_MSG_QUERY_FLAG: flag}
            answer = broker.client.invoke_sync(broker.address, request, 5000)
            found[flag] = len(message_decoder.decodes(answer.body))
        assert found == {None: 4, "false": 4, "true": 2}
