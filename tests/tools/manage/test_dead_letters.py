"""`rmqha dlq` on two masters: listed, shown, sent again once, each failure by itself; also on RocketMQ."""
import json
import threading
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendStatus
from rmqha.common import sys_flags
from rmqha.common.message import message_decoder
from rmqha.common.message.message import Message, MessageClientExt, MessageQueue
from rmqha.common.protocol import request_code
from rmqha.common.protocol.client_headers import ConsumerSendMsgBackRequestHeader, PullMessageResponseHeader
from rmqha.common.subscriptions import ConsumeFromWhere
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin
from rmqha.tools.manage import dead_letters
from rmqha.tools.manage.dead_letters import (
    MARK_GROUP,
    RESENT_FROM,
    DeadLetter,
    Marks,
    Reading,
    Resender,
    Resent,
    Start,
    chosen,
)
from tests.support.raw_remoting import RawClient
from tests.support.tiers import drawn
from tests.support.wait import wait_until
from tests.tools.manage.two_masters import FakeServer, Line, two_masters, unreachable_master

ZLIB = sys_flags.COMPRESSED_FLAG | sys_flags.CompressionType.ZLIB.compression_flag


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster of two masters."""
    with two_masters(tmp_path_factory.mktemp("dead")) as masters:
        yield masters


def bury(cluster, group, body=b"body", broker="broker-a", properties=None, topic="Orders", sys_flag=0):
    """Send a message, and send it back as a consumer that gives up; return the response to the send."""
    harness = cluster.brokers[broker]
    sent = harness.send(topic, body, properties={"UNIQ_KEY": cluster.unique("ID"), **(properties or {})}, f=sys_flag)
    assert sent.code == 0, sent
    offset = message_decoder.decode_message_id(sent.ext_fields["msgId"]).offset
    header = ConsumerSendMsgBackRequestHeader(offset=offset, group=group, delayLevel=-1)
    assert harness.call(request_code.CONSUMER_SEND_MSG_BACK, header).code == 0
    harness.next_offset(f"%DLQ%{group}")
    return sent


def read(cluster, topic, broker="broker-a", queue_id=0):
    """Return all messages of a queue."""
    harness = cluster.brokers[broker]
    harness.next_offset(topic, queue_id)
    answer = harness.pull(topic, 0, queue_id=queue_id)
    return message_decoder.decodes(answer.body or b"")


# ---- list and show


def test_groups_with_dead_letters_are_listed(cluster):
    group = cluster.unique("listed")
    assert cluster.object("dlq", "list", f"{group}*") == []
    assert cluster.ok("dlq", "list", f"{group}*").stdout == "no dead letters\n"
    for broker, count in (("broker-a", 2), ("broker-b", 1)):
        for _ in range(count):
            bury(cluster, group, broker=broker)
    (row,) = cluster.object("dlq", "list", group)
    stored = [letter["storeTimestamp"] for letter in cluster.objects("dlq", "show", group)]
    assert (row["group"], row["dead_letters"], row["new"], row["readable"], row["brokers"]) == (
        group, 3, 3, True, ["broker-a", "broker-b"])
    assert (row["oldest_ms"], row["newest_ms"]) == (min(stored), max(stored))
    text = cluster.ok("dlq", "list", group).stdout.splitlines()
    assert text[0].split()[:3] == ["group", "dead", "letters"] and text[2].split()[:3] == [group, "3", "3"]


def test_dead_letter_is_shown_with_its_origin(cluster):
    group = cluster.unique("shown")
    sent = bury(cluster, group, b"caf\xc3\xa9 " * 100, properties={"KEYS": "k1 k2", "TAGS": "T", "colour": "red"})
    (told,) = cluster.objects("dlq", "show", f"%DLQ%{group}")
    assert (told["group"], told["originTopic"], told["originMsgId"], told["broker"], told["queue"], told["offset"]) == (
        group, "Orders", sent.ext_fields["msgId"], "broker-a", 0, 0)
    assert (told["keys"], told["tags"], told["properties"], told["reconsumeTimes"]) == (
        "k1 k2", "T", {"colour": "red"}, 1)
    assert told["msgId"].startswith("ID") and told["resentFrom"] is None and told["bornTime"] and told["storeTime"]
    assert told["body"] == {"size": 600, "text": ("café " * 43)[:213], "cut": True}
    (whole,) = cluster.objects("dlq", "show", group, "--body", "1K")
    assert whole["body"]["text"] == "café " * 100 and not whole["body"]["cut"]
    row = cluster.ok("dlq", "show", group).stdout.splitlines()[2]
    assert "broker-a:0@0  Orders" in row and "k1 k2  café café" in row and row.endswith("...")


def test_bodies_that_are_no_text_are_dumps(cluster):
    group = cluster.unique("bytes")
    bury(cluster, group, b"\x00\x01\xff")
    bury(cluster, group, zlib.compress(b"packed" * 20), sys_flag=ZLIB)
    bury(cluster, group, b"no zlib stream", sys_flag=ZLIB)
    dump, packed, broken = (letter["body"] for letter in cluster.objects("dlq", "show", group))
    assert dump["hex"].startswith("00000000  00 01 ff") and "text" not in dump
    assert packed == {"size": 120, "text": "packed" * 20, "cut": False}
    assert "not a zlib stream" in broken["error"]
    text = cluster.ok("dlq", "show", group).stdout
    assert "(3 bytes) 0001ff" in text and "(the body does not decompress: not a zlib stream" in text


def test_place_and_number_of_dead_letters_are_chosen(cluster):
    group = cluster.unique("placed")
    for number in range(5):
        bury(cluster, group, b"%d" % number)
    letters = cluster.objects("dlq", "show", group)

    def bodies(*arguments):
        return [letter["body"]["text"] for letter in cluster.objects("dlq", "show", group, *arguments)]
    assert bodies() == list("01234") and bodies("--from", 3) == list("34") and bodies("--from", -2) == list("34")
    assert bodies("--from", letters[2]["storeTimestamp"]) == [
        letter["body"]["text"] for letter in letters if letter["storeTimestamp"] >= letters[2]["storeTimestamp"]]
    assert bodies("--from", "1h") == list("01234") and bodies("--from", 99) == []
    some = cluster.ok("dlq", "show", group, "--count", 2)
    assert some.stdout.count("Orders") == 2 and "note: there are more; --count shows more than 2" in some.stderr
    assert cluster.ok("dlq", "show", group, "--count", 5).stderr == ""
    for place in ("latest", "committed", "x"):
        assert cluster.run("dlq", "show", group, "--from", place).exit_code == 2
    assert cluster.run("dlq", "show", group, "--from", 1, "--new").exit_code == 2


def test_more_dead_letters_than_one_answer_has(cluster):
    group = cluster.unique("many")
    for number in range(70):
        bury(cluster, group, b"%03d" % number, broker="broker-a" if number % 3 else "broker-b")
    told = cluster.objects("dlq", "show", group, "--count", 100)
    assert sorted(letter["body"]["text"] for letter in told) == [f"{number:03}" for number in range(70)]
    times = [letter["storeTimestamp"] for letter in told]
    assert times == sorted(times)


def test_unknown_group_is_an_error_that_names_others(cluster):
    group = cluster.unique("known")
    bury(cluster, group)
    for command in ("show", "resend"):
        result = cluster.run("dlq", command, f"{group}x", *(["--all"] if command == "resend" else []))
        assert result.exit_code == 2 and f"group '{group}x' has no dead letters" in result.output


def test_write_only_dead_letters_are_made_readable(cluster):
    group = cluster.unique("old")
    bury(cluster, group)
    bury(cluster, group, broker="broker-b")
    # As brokers before 4.9.2 create it.
    cluster.ok("topic", "alter", f"%DLQ%{group}", "--perm", "w", "-b", "broker-b")
    (row,) = cluster.object("dlq", "list", group)
    assert row["readable"] is False and row["perm"] == "-W RW" and row["dead_letters"] == 2
    assert "--make-readable" in cluster.ok("dlq", "list", group).stderr
    refused = cluster.run("dlq", "show", group)
    assert refused.exit_code == 2
    assert f"can't be read on broker-b: %DLQ%{group} is write-only there" in refused.output
    told = cluster.ok("dlq", "show", group, "--make-readable", "-o", "json")
    assert len(told.stdout.splitlines()) == 2
    assert told.stderr == f"broker-b: permission of %DLQ%{group} -W -> RW\n"
    assert cluster.object("dlq", "list", group)[0]["readable"] is True


# ---- resend


def test_only_the_group_gets_its_dead_letters_again(cluster):
    """A consumer fails on messages, and gets them again as if they had just been sent."""
    group, topic = cluster.unique("billing"), cluster.unique("Sold")
    cluster.ok("topic", "create", topic, "-q", 1)
    seen, lock, failing = [], threading.Lock(), threading.Event()
    failing.set()

    def listen(messages):
        with lock:
            seen.extend(messages)
        return ConsumeConcurrentlyStatus.RECONSUME_LATER if failing.is_set() else (
            ConsumeConcurrentlyStatus.CONSUME_SUCCESS)
    consumer = DefaultMQPushConsumer(group, cluster.namesrv, listen)
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.max_reconsume_times = 0
    consumer.subscribe(topic, "*")
    with DefaultMQProducer("p", cluster.namesrv) as producer:
        for broker in cluster.brokers:
            message = Message(topic, broker.encode() * 1000, tags="T", keys=f"k-{broker}")
            message.put_user_property("colour", "red")
            sent = producer.send(message, queue=MessageQueue(topic, broker, 0))
            assert sent.send_status is SendStatus.SEND_OK
    with consumer:
        wait_until(lambda: [row["dead_letters"] for row in cluster.object("dlq", "list", group)] == [2], 120_000,
                   "both are dead letters")
        letters = {letter["keys"]: letter for letter in cluster.objects("dlq", "show", group)}
        failing.clear()
        with lock:
            seen.clear()
        done = cluster.ok("dlq", "resend", group, "--all")
        assert done.stdout.count("SEND_OK") == 2 and done.stderr == f"2 dead letters sent to %RETRY%{group}\n"
        wait_until(lambda: len(seen) >= 2, 120_000, "the consumer has them")
    for message in seen:
        letter = letters[message.keys]
        assert (message.topic, message.tags, message.msg_id, message.reconsume_times) == (
            topic, "T", letter["msgId"], 0)
        assert message.properties["colour"] == "red" and message.properties[RESENT_FROM] == letter["deadLetterId"]
        assert message.properties["ORIGIN_MESSAGE_ID"] == letter["originMsgId"]
        assert message.body == message.keys.removeprefix("k-").encode() * 1000
        assert message.born_timestamp == letter["bornTimestamp"] and "DELAY" not in message.properties
    assert len(seen) == 2


def test_each_dead_letter_is_sent_once_with_new(cluster):
    group = cluster.unique("once")
    for number in range(3):
        bury(cluster, group, b"%d" % number)
    bury(cluster, group, b"b", broker="broker-b")
    some = cluster.objects("dlq", "resend", group, "--new", "--count", 2)
    assert [each["status"] for each in some] == ["SEND_OK"] * 2 and all(each["offsetMsgId"] for each in some)
    assert cluster.object("dlq", "list", group)[0]["new"] == 2
    assert [letter["body"]["text"] for letter in cluster.objects("dlq", "show", group, "--new")] == ["2", "b"]
    assert len(cluster.objects("dlq", "resend", group, "--new")) == 2
    assert cluster.objects("dlq", "resend", group, "--new") == []
    bury(cluster, group, b"later")
    told = cluster.ok("dlq", "resend", group, "--new")
    assert told.stderr == f"1 dead letter sent to %RETRY%{group}\n"
    assert len(cluster.objects("dlq", "resend", group, "--all")) == 5
    row = cluster.object("dlq", "list", group)[0]
    assert (row["dead_letters"], row["new"]) == (5, 0)


def test_other_choices_do_not_move_the_mark(cluster):
    group = cluster.unique("choice")
    for number in range(3):
        bury(cluster, group, b"%d" % number)
    letters = cluster.objects("dlq", "show", group)
    dry = cluster.ok("dlq", "resend", group, "--all", "--dry-run")
    assert dry.stdout.count("would be sent") == 3 and "3 dead letters would be sent to" in dry.stderr
    assert read(cluster, f"%RETRY%{group}") == []
    by_id = cluster.objects("dlq", "resend", group, "--message-id", letters[1]["msgId"].lower(),
                            "--message-id", letters[2]["deadLetterId"], "--message-id", letters[2]["originMsgId"])
    assert [each["offset"] for each in by_id] == [1, 2]
    assert [each["offset"] for each in cluster.objects("dlq", "resend", group, "--since", 2)] == [2]
    assert len(read(cluster, f"%RETRY%{group}")) == 3
    assert cluster.object("dlq", "list", group)[0]["new"] == 3
    unknown = cluster.run("dlq", "resend", group, "--message-id", "abc", "--message-id", letters[0]["msgId"])
    assert unknown.exit_code == 1 and f"no dead letter of {group} has the id abc" in unknown.output
    assert unknown.stdout.count("SEND_OK") == 1
    for arguments in ([], ["--all", "--new"], ["--since", "latest"], ["--all", "--to", f"%DLQ%{group}"],
                      ["--all", "--to", "NoSuchTopic"], ["--all", "--to", "a b"]):
        assert cluster.run("dlq", "resend", group, *arguments).exit_code == 2


def test_message_that_became_a_dead_letter_again_is_recognised(cluster):
    group = cluster.unique("again")
    bury(cluster, group, b"x")
    (first,) = cluster.objects("dlq", "show", group)
    cluster.ok("dlq", "resend", group, "--all")
    harness = cluster.brokers["broker-a"]
    (message,) = read(cluster, f"%RETRY%{group}")
    header = ConsumerSendMsgBackRequestHeader(offset=message.commit_log_offset, group=group, delayLevel=-1)
    assert harness.call(request_code.CONSUMER_SEND_MSG_BACK, header).code == 0
    harness.next_offset(f"%DLQ%{group}")
    old, new = cluster.objects("dlq", "show", group)
    assert new["resentFrom"] == old["deadLetterId"] == first["deadLetterId"] and new["msgId"] == old["msgId"]
    assert new["originMsgId"] == old["originMsgId"] and new["originTopic"] == "Orders"
    # The id of the message is that of both: the newest is sent.
    (sent,) = cluster.objects("dlq", "resend", group, "--message-id", old["msgId"])
    assert sent["deadLetterId"] == new["deadLetterId"]


def test_dead_letters_go_to_a_topic_for_all_its_groups(cluster):
    group, topic = cluster.unique("moved"), cluster.unique("Fixed")
    cluster.ok("topic", "create", topic, "-q", 1)
    for number in range(4):
        bury(cluster, group, b"%d" % number, properties={"TAGS": "T", "colour": "red", "DELAY": "0"})
    sent = cluster.objects("dlq", "resend", group, "--all", "--to", topic)
    assert {each["to"] for each in sent} == {topic} and {each["toBroker"] for each in sent} == {"broker-a", "broker-b"}
    messages = [message for broker in cluster.brokers for message in read(cluster, topic, broker)]
    assert sorted(bytes(message.body) for message in messages) == [b"0", b"1", b"2", b"3"]
    for message in messages:
        assert message.tags == "T" and message.properties["colour"] == "red" and RESENT_FROM in message.properties
        assert "RETRY_TOPIC" not in message.properties, "its retries would have another topic"
    cluster.ok("topic", "alter", topic, "--perm", "r")
    refused = cluster.run("dlq", "resend", group, "--all", "--to", topic)
    assert refused.exit_code == 2 and "can't be written on any master" in refused.output


def test_compressed_body_is_sent_as_it_is_stored(cluster):
    group = cluster.unique("packed")
    bury(cluster, group, zlib.compress(b"packed" * 1000), sys_flag=ZLIB)
    cluster.ok("dlq", "resend", group, "--all")
    (message,) = read(cluster, f"%RETRY%{group}")
    assert bytes(message.body) == b"packed" * 1000 and message.sys_flag & ZLIB == ZLIB
    assert message.store_size < 1000


def test_dead_letters_that_cannot_be_sent_do_not_stop_the_others(cluster):
    group = cluster.unique("broken")
    bury(cluster, group, b"first")
    bury(cluster, group, b"no zlib stream", sys_flag=ZLIB)
    with RawClient(cluster.brokers["broker-a"].address) as client:  # not by a broker, so without its topic
        assert client.send_message(f"%DLQ%{group}", b"strange").code == 0
    bury(cluster, group, b"last")
    done = cluster.run("dlq", "resend", group, "--new")
    assert done.exit_code == 1 and done.stdout.count("SEND_OK") == 2
    assert "FAILED: its body does not decompress: not a zlib stream" in done.stdout
    assert "FAILED: its original topic is unknown: send it to a topic with --to" in done.stdout
    assert f"2 dead letters sent to %RETRY%{group}, 2 failed" in done.stderr
    # The mark passed the body that is lost, and stopped before the one that can still be sent.
    assert cluster.object("dlq", "list", group)[0]["new"] == 2
    again = cluster.run("dlq", "resend", group, "--new", "--to", "Orders")
    assert again.exit_code == 0 and cluster.object("dlq", "list", group)[0]["new"] == 0


def test_refused_send_is_reported_with_its_reason(cluster):
    group = cluster.unique("refused")
    bury(cluster, group, properties={"x": "y"})
    (message,) = read(cluster, f"%DLQ%{group}")
    left = 32_767 - len(message_decoder.message_properties2string(message.properties))
    # With the id of the dead letter they exceed what a message may have.
    bury(cluster, group, properties={"x": "y" * (left - 8)})
    done = cluster.run("dlq", "resend", group, "--all")
    assert done.exit_code == 1 and done.stdout.count("SEND_OK") == 1
    assert "FAILED: the broker 127.0.0.1:" in done.stdout and "returned error 13" in done.stdout
    assert cluster.object("dlq", "list", group)[0]["new"] == 1


def test_masters_that_are_gone(cluster):
    group = cluster.unique("part")
    bury(cluster, group)
    with unreachable_master(cluster.namesrv, crashed=True):
        for arguments in (["list", group], ["show", group], ["resend", group, "--all"]):
            result = cluster.run("dlq", *arguments)
            assert result.exit_code == 1 and "broker-c (127.0.0.1:" in result.stderr, arguments
            assert "Error: 1 broker of 3 failed" in result.stderr
    with unreachable_master(cluster.namesrv):
        unknown = cluster.run("dlq", "show", f"{group}x")
        assert unknown.exit_code == 2 and "broker-c did not answer" in unknown.output


def test_interrupt_keeps_the_mark_and_the_summary(cluster, monkeypatch):
    group = cluster.unique("stopped")
    for number in range(5):
        bury(cluster, group, b"%d" % number)
    send, sent = Resender.send, []

    def interrupted(self, letter):
        sent.append(send(self, letter))
        if len(sent) == 2:
            raise KeyboardInterrupt
        return sent[-1]
    monkeypatch.setattr(Resender, "send", interrupted)
    done = cluster.run("dlq", "resend", group, "--new")
    assert done.exit_code == 130 and f"1 dead letter sent to %RETRY%{group}" in done.stderr
    assert cluster.object("dlq", "list", group)[0]["new"] == 4


def test_broker_that_stops_answering_is_tried_once(cluster, monkeypatch):
    group = cluster.unique("silent")
    for number in range(3):
        bury(cluster, group, b"%d" % number)
    with ClusterAdmin(cluster.namesrv, 60_000) as admin:
        brokers = [Broker("C", name, 0, each.address) for name, each in sorted(cluster.brokers.items())]
        reading = Reading(admin, brokers, group)
        resender = Resender(admin, reading)
        letters = list(reading.letters(Start()))
        closed = Broker("C", "broker-a", 0, "127.0.0.1:1")
        outcomes = [resender.send(DeadLetter(closed, letter.message)) for letter in letters]
    assert [each.is_ok for each in outcomes] == [False] * 3 and "can't be reached" in outcomes[0].error
    assert outcomes[2].error.startswith("not sent: the broker 127.0.0.1:1 can't be reached")


def test_mark_of_a_deleted_topic_does_not_count(cluster):
    group = cluster.unique("renewed")
    bury(cluster, group)
    with ClusterAdmin(cluster.namesrv, 60_000) as admin:
        admin.update_consume_offset(cluster.brokers["broker-a"].address, MARK_GROUP,
                                    MessageQueue(f"%DLQ%{group}", "broker-a", 0), 77)
    assert cluster.object("dlq", "list", group)[0]["new"] == 1


# ---- malformed answers


def letter_of(number, store_timestamp=0, unique=None, origin=None):
    """Return a dead letter of broker-a."""
    message = MessageClientExt("%DLQ%g", b"x")
    message.offset_msg_id = f"{number:032X}"
    message.queue_offset, message.store_timestamp = number, store_timestamp
    message.properties = {key: value for key, value in (("UNIQ_KEY", unique), ("ORIGIN_MESSAGE_ID", origin)) if value}
    return DeadLetter(Broker("C", "broker-a", 0, "127.0.0.1:1"), message)


def test_newest_of_equal_ids_is_chosen_and_an_exact_one_ends_the_search():
    letters = [letter_of(1, unique="U"), letter_of(2, unique="U", origin="O"), letter_of(3, unique="U")]
    found, unknown = chosen(iter(letters), ["u", " o "])
    assert {letter.message.queue_offset for letter in found} == {2, 3} and unknown == []
    source = iter(letters)
    found, unknown = chosen(source, [letters[0].dead_letter_id.lower()])
    assert [letter.message.queue_offset for letter in found] == [1] and len(list(source)) == 2
    assert chosen(iter(letters), ["Q"]) == ([], ["Q"])


def test_marks_stop_before_the_first_failure():
    stored = []

    class Admin:
        def ask_broker(self, _address, _ask, group, queue, offset):
            stored.append((group, queue.queueId, offset))

        update_consume_offset = None
    reading = type("Reading", (), {"topic": "%DLQ%g", "queues": []})()
    broker = letter_of(0).broker
    reading.queues = [dead_letters.DeadQueue(broker, dead_letters.QueueBounds("broker-a", 0, 0, 9, 0), 2)]
    marks = Marks(Admin(), reading)
    for number, status, is_lost in ((2, SendStatus.SEND_OK, False), (3, None, True)):
        marks.note(Resent(letter_of(number), "T", "broker-a", status, is_lost=is_lost))
    marks.store()
    marks.note(Resent(letter_of(4), "T", "broker-a", SendStatus.FLUSH_DISK_TIMEOUT, error="stored, but"))
    marks.note(Resent(letter_of(5), "T", "broker-a", SendStatus.SEND_OK))
    marks.store()
    assert stored == [(MARK_GROUP, 0, 4)]


CONFIGS = b'{"topicConfigTable":{"%DLQ%g":{"readQueueNums":1,"writeQueueNums":1,"perm":6}}}'
STATS = b'{"offsetTable":{{"brokerName":"broker-x","queueId":0,"topic":"%DLQ%g"}:{"maxOffset":9,"minOffset":0}}}'


def no_offset(_request):
    """Answer that a group has no offset."""
    return RemotingCommand.create_response_command(22, "not found")


ANSWERS = {request_code.GET_ALL_TOPIC_CONFIG: CONFIGS, request_code.GET_TOPIC_STATS_INFO: STATS,
           request_code.QUERY_CONSUMER_OFFSET: no_offset}


def pull_answer(following, body=b"", code=0):
    """Return a function that answers pulls."""
    def answer(_request):
        header = PullMessageResponseHeader(suggestWhichBrokerId=0, nextBeginOffset=following, minOffset=0, maxOffset=9)
        response = RemotingCommand.create_response_command(code, None)
        response.custom_header = header
        response.body = body
        return response
    return answer


@pytest.mark.parametrize(("following", "code", "text"), [
    (0, 0, "continues %DLQ%g queue 0 at offset 0 after 0"), (-7, 20, "continues %DLQ%g queue 0 at offset -7 after 0"),
    (0, 21, "continues"), (9, 77, "returned error 77")])
def test_broker_that_does_not_advance_is_left(following, code, text):
    with FakeServer({**ANSWERS, request_code.PULL_MESSAGE: pull_answer(following, code=code)}) as server:
        result = Line(server.address).run("dlq", "show", "g")
    assert result.exit_code == 2 and text in result.output


def test_deleted_offsets_are_skipped():
    message = MessageClientExt("%DLQ%g", b"x")
    message.queue_offset, message.store_host, message.born_host = 5, ("127.0.0.1", 1), ("127.0.0.1", 1)
    record = message_decoder.encode(message)

    def answer(request):
        return pull_answer(5, code=21)(request) if request.ext_fields["queueOffset"] == "0" else pull_answer(
            9, record)(request)
    with FakeServer({**ANSWERS, request_code.PULL_MESSAGE: answer}) as server:
        assert [letter["offset"] for letter in Line(server.address).objects("dlq", "show", "g")] == [5]


@settings(max_examples=drawn(60), deadline=None)
@given(st.one_of(st.binary(max_size=200), st.builds(
    lambda at, byte: _RECORD[:at] + bytes([byte]) + _RECORD[at + 1:], st.integers(0, 130), st.integers(0, 255))))
def test_malformed_records_are_errors(body):
    with FakeServer({**ANSWERS, request_code.PULL_MESSAGE: pull_answer(9, body)}) as server:
        for arguments in (["show", "g", "-o", "json"], ["resend", "g", "--all", "--dry-run"]):
            result = Line(server.address).run("dlq", *arguments)
            assert result.exit_code in (0, 1, 2) and "internal error" not in result.output, result.output


def _record():
    message = MessageClientExt("%DLQ%g", b"body")
    message.store_host, message.born_host = ("127.0.0.1", 1), ("127.0.0.1", 1)
    message.properties = {"RETRY_TOPIC": "T", "UNIQ_KEY": "U"}
    return message_decoder.encode(message)


_RECORD = _record()


@settings(max_examples=drawn(40), deadline=None)
@given(st.binary(max_size=60), st.sampled_from([
    request_code.GET_ALL_TOPIC_CONFIG, request_code.GET_TOPIC_STATS_INFO, request_code.QUERY_CONSUMER_OFFSET,
    request_code.GET_EARLIEST_MSG_STORETIME]))
def test_malformed_tables_are_errors(body, code):
    with FakeServer({**ANSWERS, code: body}) as server:
        for arguments in (["list"], ["show", "g"]):
            result = Line(server.address).run("dlq", *arguments)
            assert result.exit_code in (0, 1, 2) and "internal error" not in result.output, result.output


# ---- RocketMQ


@pytest.mark.java
def test_dead_letters_of_rocketmq(make_namesrv, make_broker):
    namesrv = make_namesrv("java").address
    brokers = {name: make_broker("java", namesrv, name, brokerName=name) for name in ("broker-a", "broker-b")}
    line = Line(namesrv)
    with ClusterAdmin(namesrv, 60_000) as admin:
        wait_until(lambda: len(admin.brokers()) == 2, 60_000, "both are registered")
    line.ok("topic", "create", "orders", "-q", 1, "--wait", 60)
    seen, failing = [], threading.Event()
    failing.set()

    def listen(messages):
        seen.extend(messages)
        return ConsumeConcurrentlyStatus.RECONSUME_LATER if failing.is_set() else (
            ConsumeConcurrentlyStatus.CONSUME_SUCCESS)
    consumer = DefaultMQPushConsumer("billing", namesrv, listen)
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.max_reconsume_times = 0
    consumer.subscribe("orders", "*")
    with DefaultMQProducer("p", namesrv) as producer:
        for broker in brokers:
            sent = producer.send(Message("orders", b"z" * 8000, tags="T", keys=broker),
                                 queue=MessageQueue("orders", broker, 0))
            assert sent.send_status is SendStatus.SEND_OK
    with consumer:
        wait_until(lambda: [row["dead_letters"] for row in line.object("dlq", "list")] == [2], 120_000,
                   "both are dead letters")
        (row,) = line.object("dlq", "list")
        assert (row["group"], row["new"], row["perm"]) == ("billing", 2, "RW") and row["oldest_ms"] > 0
        letters = line.objects("dlq", "show", "billing")
        assert {letter["keys"] for letter in letters} == set(brokers)
        assert {letter["originTopic"] for letter in letters} == {"orders"}
        failing.clear()
        seen.clear()
        done = line.objects("dlq", "resend", "billing", "--new")
        assert [each["status"] for each in done] == ["SEND_OK"] * 2
        wait_until(lambda: len(seen) >= 2, 120_000, "the consumer has them")
        assert {(message.topic, message.reconsume_times, bytes(message.body)) for message in seen} == {
            ("orders", 0, b"z" * 8000)}
        assert {message.properties[RESENT_FROM] for message in seen} == {letter["deadLetterId"] for letter in letters}
    assert line.objects("dlq", "resend", "billing", "--new") == []
    # As brokers before 4.9.2 create it.
    line.ok("topic", "alter", "%DLQ%billing", "--perm", "w")
    refused = line.run("dlq", "show", "billing")
    assert refused.exit_code == 2 and "--make-readable" in refused.output
    assert len(line.ok("dlq", "show", "billing", "--make-readable", "-o", "json").stdout.splitlines()) == 2
    line.ok("topic", "delete", "%DLQ%billing", "--yes")
    assert json.loads(line.ok("dlq", "list", "--all", "-o", "json").stdout) == []
