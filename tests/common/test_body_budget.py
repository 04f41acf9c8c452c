"""Bodies of one answer together: bounded memory, and one that is too large is an error in its row."""
import pickle
import tracemalloc

import pytest

from rmqha.client.impl.consumer.pulling import PullAPIWrapper
from rmqha.client.impl.mq_admin_impl import MQAdminImpl
from rmqha.client.results import PullResultExt, PullStatus
from rmqha.common import compression, sys_flags
from rmqha.common.compression import BodyBudget, CompressionError, MissingBody, TooLargeError
from rmqha.common.message import message_decoder
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.message.message_decoder import BodyDecodeError, BodyTooLargeError
from rmqha.common.subscriptions import SubscriptionData
from rmqha.common.sys_flags import CompressionType
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.tools.messages.produce import as_object
from rmqha.tools.view.questions import message_json
from tests.common.test_compression import INSTALLED

MIB = 1 << 20
TOPIC, KEY = "T", "key"
PACKED = sys_flags.COMPRESSED_FLAG


def record(offset, size, kind=CompressionType.ZLIB, damage=False):
    """A record whose body of `size` zeros is compressed."""
    message = MessageExt(TOPIC)
    message.body = compression.get_compressor(kind).compress(bytes(size), 9)
    if damage:
        message.body = b"\xff" + message.body[1:]
    message.sys_flag = PACKED | kind.compression_flag
    message.queue_offset, message.commit_log_offset = offset, offset * 1000
    message.born_host = message.store_host = ("127.0.0.1", 1)
    message.properties = {"KEYS": KEY, "UNIQ_KEY": f"{offset:032X}"}
    return message_decoder.encode(message)


def peak(work):
    """(what `work` gives, the most memory that it had)."""
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", INSTALLED, ids=lambda kind: kind.name)
def test_all_bodies_share_the_budget_and_one_that_is_too_large_leaves_room_for_the_others(kind):
    budget, flag = BodyBudget(1000, 500), PACKED | kind.compression_flag
    pack = compression.get_compressor(kind).compress
    assert budget.plain(pack(bytes(300), 5), flag) == bytes(300) and budget.left == 700
    with pytest.raises(TooLargeError, match="more than 500 bytes"):
        budget.plain(pack(bytes(100_000), 5), flag)
    assert budget.left == 200, "the work that it made counts"
    assert budget.plain(pack(bytes(150), 5), flag) == bytes(150)
    with pytest.raises(TooLargeError, match="one answer"):
        budget.plain(pack(bytes(51), 5), flag)
    with pytest.raises(TooLargeError, match="one answer"):
        budget.plain(pack(b"x", 5), flag)
    assert budget.plain(b"as it is" * 1000, 0) == b"as it is" * 1000, "it is there already"


@pytest.mark.parametrize("kind", INSTALLED, ids=lambda kind: kind.name)
def test_damage_is_not_taken_for_too_large(kind):
    packed = compression.get_compressor(kind).compress(bytes(range(256)) * 20, 5)
    with pytest.raises(CompressionError) as caught:
        BodyBudget().plain(packed[:-1], PACKED | kind.compression_flag)
    assert not isinstance(caught.value, TooLargeError)


def test_a_missing_body_is_empty_bytes_that_say_why():
    body = MissingBody("too large")
    assert body == b"" and isinstance(body, bytes) and body.reason == "too large" and "too large" in repr(body)
    assert pickle.loads(pickle.dumps(body)).reason == "too large"


def test_decodes_is_bounded_over_all_messages_not_for_each(monkeypatch):
    monkeypatch.setattr(message_decoder, "_alone", lambda: BodyBudget(4 * MIB, 4 * MIB))
    answer = b"".join(record(number, MIB) for number in range(32))

    def decode():
        with pytest.raises(BodyTooLargeError, match="one answer"):
            message_decoder.decodes(answer)
    assert peak(decode)[1] < 8 * MIB


def test_with_keep_bad_a_row_is_an_error_and_the_rest_is_there():
    answer = record(0, 100) + record(1, 10 * MIB) + record(2, 200, damage=True) + record(3, 300)
    found = message_decoder.decodes(answer, budget=BodyBudget(8 * MIB, 2 * MIB), keep_bad=True)
    assert [len(message.body) for message in found] == [100, 0, 0, 300]
    assert [isinstance(message.body, MissingBody) for message in found] == [False, True, True, False]
    assert "more than 2097152 bytes" in found[1].body.reason and "zlib" in found[2].body.reason
    assert [message.queue_offset for message in found] == [0, 1, 2, 3] and found[1].keys == KEY
    with pytest.raises(BodyDecodeError):
        message_decoder.decodes(record(2, 200, damage=True))


# ---- pulls


def pulled(wrapper, answer, begin, end, topic=TOPIC):
    result = PullResultExt(PullStatus.FOUND, end, 0, end, message_binary=answer)
    return wrapper.process_pull_result(MessageQueue(topic, "b", 0), result, SubscriptionData(topic, "*"))


@pytest.fixture
def wrapper(monkeypatch):
    monkeypatch.setattr("rmqha.client.impl.consumer.pulling.BodyBudget",
                        lambda most_each: BodyBudget(3 * MIB, 3 * MIB))
    monkeypatch.setattr(message_decoder, "_alone", lambda: BodyBudget(3 * MIB, 3 * MIB))
    return PullAPIWrapper(None, None, "g", False)


def test_a_pull_goes_on_at_the_first_message_whose_body_had_no_room(wrapper):
    records = [record(number, MIB) for number in range(10)]
    at, seen = 0, []

    def pull_all():
        nonlocal at
        while at < 10:
            result = pulled(wrapper, b"".join(records[at:]), at, 10)
            assert 0 < len(result.msg_found_list) <= 3
            seen.extend(message.queue_offset for message in result.msg_found_list)
            at = result.next_begin_offset
            assert at == seen[-1] + 1
    assert peak(pull_all)[1] < 9 * MIB
    assert seen == list(range(10))


def test_a_message_that_is_too_large_alone_is_an_error_or_with_keep_bad_bodies_a_row(wrapper):
    answer = record(7, 10 * MIB) + record(8, 10) + record(9, 10, damage=True)
    with pytest.raises(BodyTooLargeError):
        pulled(wrapper, answer, 7, 10)
    wrapper.keep_bad_bodies = True
    result = pulled(wrapper, answer, 7, 10)
    assert [message.queue_offset for message in result.msg_found_list] == [7] and result.next_begin_offset == 8
    row = as_object(result.msg_found_list[0])
    assert "bytes" in row["bodyError"] and "body" not in row and "bodyBase64" not in row
    rest = pulled(wrapper, answer[int.from_bytes(answer[:4], "big"):], 8, 10)
    assert [bytes(message.body) for message in rest.msg_found_list] == [bytes(10), b""]
    assert isinstance(rest.msg_found_list[1].body, MissingBody) and rest.next_begin_offset == 10


def test_in_a_queue_of_copies_offsets_of_their_own_queue_lead_nowhere(wrapper):
    answer = b"".join(record(number, MIB) for number in range(5))
    with pytest.raises(BodyTooLargeError):
        pulled(wrapper, answer, 100, 105, "%LMQ%light")
    wrapper.keep_bad_bodies = True
    result = pulled(wrapper, answer, 100, 105, "%LMQ%light")
    assert len(result.msg_found_list) == 5 and result.next_begin_offset == 105


# ---- look-ups by key


class Api:
    """Answers each look-up with the same records."""

    def __init__(self, body):
        self.body = body

    def query_message(self, _addr, _header, _timeout, _is_uniq_key):
        response = RemotingCommand.create_response_command(0, None)
        response.ext_fields = {"indexLastUpdateTimestamp": "1", "indexLastUpdatePhyoffset": "1"}
        response.body = self.body
        return response


class Routes:
    """Two brokers that know the topic."""

    def get_an_exist_topic_route_data(self, _topic):
        class Data:
            def select_broker_addr(self):
                return "127.0.0.1:1"

        class Route:
            brokerDatas = [Data(), Data()]
        return Route()


def test_a_look_up_by_key_is_bounded_over_all_brokers(monkeypatch):
    monkeypatch.setattr("rmqha.client.impl.mq_admin_impl.BodyBudget", lambda: BodyBudget(8 * MIB, 2 * MIB))
    admin = MQAdminImpl(Api(b"".join(record(number, MIB) for number in range(32))), Routes())
    found, most = peak(lambda: admin.query_message(TOPIC, KEY, 64, 0, 1 << 62).message_list)
    assert len(found) == 64 and most < 14 * MIB
    assert sum(len(message.body) for message in found) == 8 * MIB
    rows = [message_json(message, 256)["body"] for message in found]
    assert [bool(row["error"]) for row in rows] == [False] * 8 + [True] * 56
    assert "ask for it alone" in rows[-1]["error"] and rows[-1]["text"] is None


def test_the_usual_budget_holds_what_one_message_may_have():
    assert BodyBudget().most == compression.MOST_IN_ALL == compression.MAX_DECOMPRESSED_SIZE
