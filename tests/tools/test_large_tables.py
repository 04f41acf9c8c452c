"""The tables of topics and of the progress of groups: decoded quickly with the same result, requested in parts, and
bounded."""
import socket
import struct
import threading
from contextlib import closing, contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import request_code, table_version
from rmqha.common.protocol.table_bodies import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    TopicConfigSerializeWrapper,
)
from rmqha.common.sys_flags import TopicFilterType
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.fastjson import FastjsonError
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.tools.admin import topic_tables
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin
from rmqha.tools.admin.large_answers import MAX_ANSWER_BYTES, AnswerTooLargeError, ask_large
from rmqha.tools.admin.topic_tables import Told, ask_topics, decode_topics, settings_of
from rmqha.tools.manage.topics import configs_on
from rmqha.tools.terminal import CannotAnswerError
from rmqha.tools.view import progress as progress_module
from rmqha.tools.view import topic_lists
from rmqha.tools.view.progress import MAX_NAME, QueuePlace, ask_progress, decode_progress, progress_of
from rmqha.tools.view.topic_lists import TopicLists, TopicTable, TopicTables
from tests.remoting.support import Processor, running_client, running_server
from tests.support.tiers import drawn
from tests.tools.conftest import broker_at

# Texts as brokers write them, and such with a fault in one place.

NAMES = st.one_of(st.sampled_from(["T", "%RETRY%g", "$ref", "", 'a"b', "a\\b", "ü\u2028", "\U0001f600", "a\nb"]),
                  st.text(max_size=8))
NUMBERS = st.one_of(st.integers(-3, 20), st.sampled_from([(1 << 63) - 1, -(1 << 63), 10**18 - 1, 10**18]))
CONFIGS = st.builds(TopicConfig, NAMES, NUMBERS, NUMBERS, NUMBERS, st.sampled_from([*TopicFilterType, None]), NUMBERS,
                    st.booleans())
TABLES = st.builds(TopicConfigSerializeWrapper, st.dictionaries(NAMES, CONFIGS, max_size=4),
                   deletedTopics=st.none() | st.dictionaries(NAMES, NUMBERS, max_size=3))
QUEUES = st.builds(MessageQueue, NAMES, NAMES, NUMBERS)
STATS = st.builds(ConsumeStats, st.dictionaries(QUEUES, st.builds(OffsetWrapper, NUMBERS, NUMBERS, NUMBERS),
                                                max_size=3), st.floats(0, 1e20, allow_nan=False))
LISTS = st.builds(ConsumeStatsList, st.lists(st.dictionaries(NAMES, st.lists(STATS, max_size=2), max_size=2),
                                             max_size=3), st.none() | NAMES, NUMBERS)
FAULTS = st.sampled_from([b"", b'"', b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\x00", b"\xff", b"\xc3", b"\\",
                          b"0", b"-", b"-0", b"00", b".5", b"1e999", b"null", b"NaN", b"true", b'"$ref"', b'"x":1,',
                          b'{"$ref":"$"}', b'"attributes":{},', b'"attributes":{"perm":"9","$ref":"$.x"},',
                          b'{"attributes":{"a":"b"},', "ü".encode()])


def damaged(body: bytes, share: float, length: int, fault: bytes) -> bytes:
    """Return a text with `fault` instead of some bytes."""
    at = int(share * len(body))
    return body[:at] + fault + body[at + length:]


def result(decode, body: bytes):
    """Return what `decode` returns, in its order, or None for an error that it may raise."""
    try:
        return list(decode(body).items())
    except FastjsonError:
        return None


def plain_topics(body: bytes):
    return settings_of(remoting_serializable.from_json(TopicConfigSerializeWrapper, body).topicConfigTable or {})


def plain_progress(body: bytes):
    return progress_of(remoting_serializable.from_json(ConsumeStatsList, body))


CASES = st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from([0, 0, 1, 2, 5]), FAULTS)


@given(TABLES, CASES)
@settings(max_examples=drawn(300), deadline=None)
def test_topics_are_decoded_as_by_the_plain_way(table, case):
    body = remoting_serializable.encode(table)
    for text in (body, damaged(body, *case)):
        assert result(decode_topics, text) == result(plain_topics, text)


@given(LISTS, CASES)
@settings(max_examples=drawn(300), deadline=None)
def test_progress_is_decoded_as_by_the_plain_way(stats, case):
    body = remoting_serializable.encode(stats)
    for text in (body, damaged(body, *case)):
        assert result(decode_progress, text) == result(plain_progress, text)


def test_usual_texts_take_the_quick_way(monkeypatch):
    def refuse(*_arguments):
        raise AssertionError("decoded in the plain way")
    names = ["orders", "%RETRY%g", "größe"]
    topics = remoting_serializable.encode(TopicConfigSerializeWrapper(
        {name: TopicConfig(name, 2, 3, order=True) for name in names}, deletedTopics={"gone": 5, "too": 6}))
    stats = remoting_serializable.encode(ConsumeStatsList([{"g": [ConsumeStats(
        {MessageQueue("T", "b", number): OffsetWrapper(9, number, 5) for number in range(2)}, 1.5),
        ConsumeStats()]}, {"idle": []}], "10.0.0.1:10911", 3))
    for module in (topic_tables, progress_module):
        monkeypatch.setattr(module.remoting_serializable, "from_json", refuse)
    assert [(name, each.read_queues, each.order) for name, each in decode_topics(topics).items()] == [
        (name, 2, True) for name in names]
    for attributes in (b"{}", b'{"message.type":"NORMAL","perm":"9"}'):
        assert decode_topics(topics.replace(b'{"order"', b'{"attributes":%s,"order"' % attributes)) == decode_topics(
            topics)
    found = decode_progress(stats)
    assert found["g"].places == [QueuePlace("T", "b", 0, 9, 0, 5), QueuePlace("T", "b", 1, 9, 1, 5)]
    assert (found["g"].tps, found["idle"].places) == (1.5, [])


def test_topics_with_the_same_settings_share_them():
    body = remoting_serializable.encode(TopicConfigSerializeWrapper({name: TopicConfig(name) for name in "ab"}))
    topics = decode_topics(body)
    assert topics["a"] is topics["b"] and topics["a"].config("a") == TopicConfig("a")


@pytest.mark.parametrize("escaped", ["", "\\n"], ids=["quick", "plain"])
def test_names_that_no_broker_accepts_are_left_out(escaped, caplog):
    long = "x" * 10_000 + escaped
    topics = decode_topics(remoting_serializable.encode(TopicConfigSerializeWrapper(
        {name: TopicConfig(name) for name in ("T", long)})))
    assert list(topics) == ["T"]
    stats = ConsumeStats({MessageQueue(topic, "b", 0): OffsetWrapper(1, 1, 1) for topic in ("T", long)})
    found = decode_progress(remoting_serializable.encode(ConsumeStatsList([{"g": [stats]}, {long: [stats]}])))
    assert list(found) == ["g"] and [place.topic for place in found["g"].places] == ["T"]
    assert caplog.text.count(f"more than {MAX_NAME} characters") == 2


# Answers larger than a frame usually is.


@contextmanager
def announcing(length: int, body: bytes = b""):
    """Run a server that answers the first bytes with the length of a frame and a part of it; yield its address."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(struct.pack(">i", length) + body)
                connection.recv(1)  # until the client closes it
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(60)


def test_answer_that_is_too_large_is_refused_before_it_arrives():
    with announcing(100 << 20) as address, running_client() as client:
        with pytest.raises(AnswerTooLargeError, match=f"104,857,600 bytes; at most {MAX_ANSWER_BYTES:,} are read"):
            ask_large(client, address, RemotingCommand.create_request_command(1), 60_000)


def test_too_large_table_is_an_error_for_users():
    with announcing(100 << 20) as address, ClusterAdmin("127.0.0.1:1", 60_000) as admin:
        with pytest.raises(CannotAnswerError, match=r"sent an answer that can't be read: it has 104,857,600 bytes"):
            configs_on(admin, Broker("C", "b", 0, address))


def test_connection_that_breaks_is_not_called_too_large():
    with announcing(0) as address, ClusterAdmin("127.0.0.1:1", 60_000) as admin:
        with pytest.raises(CannotAnswerError, match="did not answer"):
            configs_on(admin, Broker("C", "b", 0, address))


def test_table_larger_than_a_frame_is_read():
    name = "x" * 100
    entry = remoting_serializable.encode(TopicConfigSerializeWrapper({name: TopicConfig(name)}))
    begin, end = entry.index(b'"xxx'), entry.rindex(b"}}")
    body = entry[:begin] + b",".join(entry[begin:end].replace(b"x" * 100, b"%0100d" % number)
                                     for number in range(55_000)) + entry[end:]
    assert len(body) > 16 << 20

    def serve(_channel, _request):
        response = RemotingCommand.create_response_command(0, None)
        response.body = body
        return response
    with running_server() as server, ClusterAdmin("127.0.0.1:1", 60_000) as admin:
        server.register_processor(request_code.GET_ALL_TOPIC_CONFIG, Processor(serve))
        told = ask_topics(admin, f"127.0.0.1:{server.local_listen_port}", 60_000)
    assert len(told.topics) == 55_000


@pytest.mark.parametrize("decode", [decode_topics, decode_progress])
def test_large_answer_in_an_unusual_form_is_not_parsed(decode):
    with pytest.raises(AnswerTooLargeError, match="in an unusual form, of which at most 8,388,608 are read"):
        decode(b'{"topicConfigTable":{"T":{}},"consumeStatsList":[' + b"{}," * (3 << 20) + b"{}]}")


@pytest.mark.parametrize("groups", [[{f"g{number}": []} for number in range(4)],
                                    [{f"g{number}": [] for number in range(4)}]], ids=["quick", "plain"])
def test_number_of_groups_is_bounded(groups, monkeypatch):
    body = remoting_serializable.encode(ConsumeStatsList(groups))
    assert len(decode_progress(body)) == 4
    monkeypatch.setattr(progress_module, "MAX_GROUPS", 3)
    with pytest.raises(AnswerTooLargeError, match="it has more than 3 groups"):
        decode_progress(body)


# Only what has changed is requested.


def test_broker_sends_only_the_topics_that_have_changed(tmp_path):
    with broker_at(tmp_path, None) as broker, ClusterAdmin("127.0.0.1:1", 60_000) as admin:
        tables = TopicTables(admin, 60_000)
        manager = broker.controller.topic_config_manager
        manager.update_topic_config(TopicConfig("first", 1, 1))
        first = tables.ask(broker.address)
        assert first.topics["first"].read_queues == 1
        assert tables.ask(broker.address) is first
        manager.update_topic_config(TopicConfig("second", 2, 2))
        told = ask_topics(admin, broker.address, 60_000, first.state)
        assert told.only_changes and list(told.topics) == ["second"]
        second = tables.ask(broker.address)
        assert second.topics.keys() == first.topics.keys() | {"second"} and "second" not in first.topics
        manager.delete_topic_config("first")
        assert "first" not in tables.ask(broker.address).topics
        tables.keep(set())
        assert tables.ask(broker.address).topics.keys() == second.topics.keys() - {"first"}


def test_changes_without_end_are_refused(monkeypatch):
    monkeypatch.setattr(topic_lists, "MAX_TOPICS", 5)
    count = 0

    def serve(_channel, _request):
        nonlocal count
        count += 1
        names = [f"T{count}-{number}" for number in range(2)]
        response = RemotingCommand.create_response_command(0, None)
        response.body = remoting_serializable.encode(TopicConfigSerializeWrapper(
            {name: TopicConfig(name) for name in names}))
        response.add_ext_field(table_version.TOLD, f"life.{count}")
        response.add_ext_field(table_version.CHANGES, "true")
        return response
    with running_server() as server, ClusterAdmin("127.0.0.1:1", 60_000) as admin:
        server.register_processor(request_code.GET_ALL_TOPIC_CONFIG, Processor(serve))
        address = f"127.0.0.1:{server.local_listen_port}"
        tables = TopicTables(admin, 60_000)
        assert [len(tables.ask(address).topics) for _ in range(2)] == [2, 4]
        with pytest.raises(ValueError, match="has 6 topics; at most 5 can be shown"):
            tables.ask(address)


def test_listing_is_made_again_only_when_a_table_changes():
    def table(*names: str) -> TopicTable:
        return TopicTable(settings_of({name: TopicConfig(name, 2, 2) for name in names}))
    lists, first, second = TopicLists(), table("B", "A", "%DLQ%g", "broker-a"), table("A", "%RETRY%g")
    own = {"broker-a", "broker-b", "C"}
    made = lists.listing([("broker-a", first), ("broker-b", second)], own)
    assert [row.name for row in made.rows] == ["%DLQ%g", "%RETRY%g", "A", "B", "broker-a"]
    assert made.kinds == {"dead letter": 1, "retry": 1, "user": 2, "system": 1}
    assert [(row.brokers, row.read_queues) for row in made.of_kind("user")] == [
        (("broker-a", "broker-b"), 4), (("broker-a",), 2)]
    assert made.of_kind("all") is made.rows and made.of_kind("odd") == ()
    assert lists.listing([("broker-a", first), ("broker-b", second)], own) is made
    assert lists.listing([("broker-a", first), ("broker-b", table("C"))], own).kinds["system"] == 2


# RocketMQ


@pytest.mark.java
def test_tables_of_rocketmq_take_the_quick_way(make_namesrv, make_broker, monkeypatch):
    namesrv = make_namesrv("java").address
    broker = make_broker("java", namesrv)
    with ClusterAdmin(namesrv, 60_000) as admin:
        for name in ("first", "%RETRY%readers"):
            admin.create_and_update_topic_config(broker.address, TopicConfig(name, 2, 3))
        admin.create_and_update_subscription_group_config(broker.address, SubscriptionGroupConfig("readers"))
        admin.update_consume_offset(broker.address, "readers", MessageQueue("first", "broker-a", 1), 0)
        api = admin.api
        topics = settings_of(api.get_all_topic_config(broker.address, 60_000).topicConfigTable)
        progress = progress_of(api.fetch_consume_stats_in_broker(broker.address, False, 60_000))

        def refuse(*_arguments):
            raise AssertionError("decoded in the plain way")
        for module in (topic_tables, progress_module):
            monkeypatch.setattr(module.remoting_serializable, "from_json", refuse)
        told = ask_topics(admin, broker.address, 60_000)
        assert told == Told(topics) and topics["first"].write_queues == 3
        assert ask_progress(admin, broker.address, 60_000) == progress and len(progress["readers"].places) == 3
