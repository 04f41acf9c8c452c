"""What sub-commands about messages read from the command line and write about messages, without a broker."""
import json
import os
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.client.exception import MQClientException
from rmqha.common.message.message import MessageClientExt, MessageExt, MessageQueue
from rmqha.common.protocol.client_bodies import Connection, ConsumerRunningInfo
from rmqha.common.protocol.topic_route_data import QueueData, TopicRouteData
from rmqha.tools.command import message_query
from rmqha.tools.command.acl import UpdateAccessConfigSubCommand, plain_access_config
from rmqha.tools.command.broker import build_message
from rmqha.tools.command.commons_cli import NumberFormatException, parse
from rmqha.tools.command.consumer import UpdateSubGroupSubCommand, subscription_group_config, write_info
from rmqha.tools.command.message_print import (
    ConsumeMessageCommand,
    TimestampError,
    Wanted,
    host_text,
    in_java_order,
    message_fields,
    message_text,
    timestamp_format,
    wanted_messages,
)
from rmqha.tools.command.message_query import split_ids
from rmqha.tools.command.message_send import ResponseTimes

MOMENTS = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1))
LONGS = st.integers(-1 << 63, (1 << 63) - 1)
HOSTS = st.one_of(st.ip_addresses().map(str)).flatmap(lambda host: st.tuples(st.just(host), st.integers(0, 65535)))


@given(LONGS)
def test_milliseconds_are_taken_as_they_are(millis):
    assert timestamp_format(str(millis)) == millis


@given(MOMENTS, st.integers(0, 999))
def test_dates_are_moments_of_local_time(moment, millis):
    moment = moment.replace(microsecond=0, fold=0)
    text = moment.strftime("%Y-%m-%d#%H:%M:%S") + f":{millis:03d}"
    assert timestamp_format(text) == int(moment.timestamp()) * 1000 + millis


@given(st.one_of(st.text(), st.from_regex(r"[0-9]{1,5}-[0-9]{1,3}-[0-9]{1,3}#[0-9:]{1,12}", fullmatch=True)))
def test_any_other_text_is_told_to_be_no_moment(text):
    try:
        assert -1 << 63 <= timestamp_format(text) < 1 << 63
    except TimestampError as error:
        assert repr(text) in str(error)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-45#00:00:00:000", "2026-01-01 00:00:00:000", "1e3", "٣",
                                  "2026-02-30#00:00:00:000", "99999999999999999999", "2026-01-01#00:00:00:0000"])
def test_no_moments(text):
    with pytest.raises(TimestampError):
        timestamp_format(text)


@given(st.lists(st.text("0123456789ABCDEF", min_size=1)), st.text(" ,", max_size=3))
def test_ids_stand_between_commas(ids, filling):
    assert split_ids(f" {filling},".join(ids) + filling) == ids


@given(st.sets(st.builds(MessageQueue, st.text(max_size=5), st.text(max_size=5), st.integers(0, 50)), max_size=40))
def test_queues_in_javas_order_are_the_same_queues_whatever_order_they_came_in(queues):
    ordered = in_java_order(queues, TopicRouteData())
    assert sorted(ordered) == sorted(queues)
    assert in_java_order(reversed(ordered), TopicRouteData()) == ordered


def test_queues_are_listed_as_javas_mqadmin_lists_them():
    # as allocateMQ printed the queues of a topic on two brokers, whose route named broker-b first
    queues = [MessageQueue("Orders", f"broker-{broker}", number) for broker in "ab" for number in range(4)]
    route = TopicRouteData(queueDatas=[QueueData("broker-b"), QueueData("broker-a")])
    assert [(queue.brokerName[-1], queue.queueId) for queue in in_java_order(queues, route)] == [
        ("a", 3), ("b", 3), ("a", 2), ("b", 0), ("b", 2), ("a", 1), ("b", 1), ("a", 0)]


def message(kind=MessageExt, **fields):
    msg = kind()
    for name, value in {"topic": "T", "born_host": ("1.2.3.4", 5), "store_host": ("1.2.3.4", 10911), **fields}.items():
        setattr(msg, name, value)
    return msg


def test_a_message_is_written_as_javas_to_string_writes_it():
    msg = message(MessageClientExt, broker_name="b", queue_id=1, store_size=2, queue_offset=3, sys_flag=4,
                  born_timestamp=5, store_timestamp=6, offset_msg_id="AB", commit_log_offset=7, body_crc=8,
                  reconsume_times=9, prepared_transaction_offset=10, flag=11, body=b"a\xff",
                  properties={"UNIQ_KEY": "U", "TAGS": "x"})
    assert message_text(msg) == (
        "MessageExt [brokerName=b, queueId=1, storeSize=2, queueOffset=3, sysFlag=4, bornTimestamp=5, "
        "bornHost=/1.2.3.4:5, storeTimestamp=6, storeHost=/1.2.3.4:10911, msgId=AB, commitLogOffset=7, bodyCRC=8, "
        "reconsumeTimes=9, preparedTransactionOffset=10, toString()=Message{topic='T', flag=11, "
        "properties={UNIQ_KEY=U, TAGS=x}, body=[97, -1], transactionId='null'}]")
    assert msg.msg_id == "U"


@given(st.binary(max_size=20), st.dictionaries(st.text(), st.text()), HOSTS, LONGS)
def test_any_message_has_a_text_and_fields(body, properties, host, number):
    msg = message(body=body, properties=properties, born_host=host, store_timestamp=number)
    text = message_text(msg)
    assert f"storeTimestamp={number}," in text and "body=" in text
    assert json.loads(json.dumps(message_fields(msg)))["properties"] == properties


@pytest.mark.parametrize(("host", "text"), [
    (("10.0.0.1", 9), "/10.0.0.1:9"), (("::1", 9), "/[0:0:0:0:0:0:0:1]:9"), (None, "null"),
    (("fe80::a0:1", 65535), "/[fe80:0:0:0:0:0:a0:1]:65535")])
def test_hosts_are_written_as_java_writes_them(host, text):
    assert host_text(host) == text


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "..", ".", "", "a\0b", "a/b"])
def test_an_id_that_leads_elsewhere_does_not_name_the_bodys_file(name, tmp_path, monkeypatch):
    monkeypatch.setattr(message_query, "BODY_FOLDER", tmp_path / "bodies")
    msg = message(MessageClientExt, offset_msg_id="ABCD", body=b"body", properties={"UNIQ_KEY": name})
    assert message_query.create_body_file(msg) == tmp_path / "bodies" / "ABCD"
    assert [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()] == [b"body"]


@pytest.mark.parametrize("what", ["a link to a file", "a link to nothing", "a hard link", "a pipe", "a file"])
def test_a_body_is_not_written_into_what_has_its_name(what, tmp_path, monkeypatch):
    folder, other = tmp_path / "bodies", tmp_path / "other"
    monkeypatch.setattr(message_query, "BODY_FOLDER", folder)
    folder.mkdir()
    other.write_bytes(b"precious")
    {"a link to a file": lambda: (folder / "U").symlink_to(other),
     "a link to nothing": lambda: (folder / "U").symlink_to(tmp_path / "none"),
     "a hard link": lambda: (folder / "U").hardlink_to(other),
     "a pipe": lambda: os.mkfifo(folder / "U"),
     "a file": lambda: (folder / "U").write_bytes(b"of before")}[what]()
    msg = message(MessageClientExt, offset_msg_id="ABCD", body=b"body", properties={"UNIQ_KEY": "U"})
    path = message_query.create_body_file(msg)
    assert path == folder / "U" and path.read_bytes() == b"body" and not path.is_symlink()
    assert other.read_bytes() == b"precious" and not (tmp_path / "none").exists()
    assert [each.name for each in folder.iterdir()] == ["U"]


@pytest.mark.parametrize("uid, is_refused", [(12345, True), (None, False), (0, False)])
def test_a_folder_that_another_user_has_linked_is_not_followed(uid, is_refused, tmp_path, monkeypatch):
    real = os.lstat
    folder = tmp_path / "rocketmq"
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(message_query, "BODY_FOLDER", folder / "bodies")

    def lstat(path):
        found = real(path)
        return found if uid is None or str(path) != str(folder) else \
            SimpleNamespace(st_mode=found.st_mode, st_uid=uid)
    monkeypatch.setattr(message_query.os, "lstat", lstat)
    msg = message(MessageClientExt, offset_msg_id="ABCD", body=b"body", properties={"UNIQ_KEY": "U"})
    if is_refused:
        with pytest.raises(OSError, match="link of user 12345"):
            message_query.create_body_file(msg)
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    else:
        assert message_query.create_body_file(msg).read_bytes() == b"body"


def test_bodies_of_messages_with_one_id_are_numbered(tmp_path, monkeypatch):
    monkeypatch.setattr(message_query, "BODY_FOLDER", tmp_path)
    msg = message(MessageClientExt, offset_msg_id="ABCD", body=b"body", properties={"UNIQ_KEY": "U"})
    assert [message_query.create_body_file(msg, number).name for number in range(3)] == ["U", "U_1", "U_2"]


@pytest.mark.parametrize(("client_id", "name"), [
    ("10.0.0.1@9", "10.0.0.1@9"), ("../../x", ".._.._x"), ("..", "_.."), ("a/b", "a_b")])
def test_a_clients_file_stays_in_its_folder(client_id, name, tmp_path):
    file = write_info(tmp_path / "1", Connection(client_id), ConsumerRunningInfo())
    assert Path(file) == tmp_path / "1" / name
    assert "#Consumer Properties#" in Path(file).read_text("utf-8")


def command_line(command, *args):
    return parse(command.options_to_parse(), args)


def test_a_group_gets_defaults_for_what_is_not_given():
    config = subscription_group_config(command_line(UpdateSubGroupSubCommand, "-g", " mine "))
    assert (config.groupName, config.consumeEnable, config.consumeFromMinEnable, config.consumeBroadcastEnable,
            config.retryMaxTimes) == ("mine", True, False, False, 16)


@given(st.lists(st.sampled_from(["-s", "-m", "-d", "-q", "-r", "-i", "-w", "-a"]), unique=True), st.text())
def test_any_group_is_described_or_refused_as_no_number(names, text):
    args = [part for name in names for part in (name, f"={text}")]
    try:
        config = subscription_group_config(command_line(UpdateSubGroupSubCommand, "-g", "g", *args))
    except NumberFormatException:
        assert {"-q", "-r", "-i", "-w"} & set(names)
    else:
        assert config.consumeEnable is ("-s" not in names)


def test_permissions_of_an_account_are_lists_and_its_text_has_no_secret():
    config = plain_access_config(command_line(
        UpdateAccessConfigSubCommand, "-b", "b:1", "-a", "key", "-s", "secret", "-t", "A=DENY,B=PUB|SUB", "-m", "TRUE"))
    assert (config.topicPerms, config.groupPerms, config.admin) == (["A=DENY", "B=PUB|SUB"], None, True)
    assert "secret" not in str(config)


@pytest.mark.parametrize(("args", "answer"), [
    (["-c", "0"], "Please input a positive messageNumber!"),
    (["-c", "-1"], "Please input a positive messageNumber!"),
    (["-i", "1"], "Please set the brokerName before queueId!"),
    (["-o", "1"], "Please set queueId before offset!"),
    (["-s", "9999999999999"], "Please set the beginTimestamp before now!"),
    (["-e", "9999999999999"], "Please set the endTimestamp before now!"),
    (["-s", "2", "-e", "1"], "Please make sure that the beginTimestamp is less than or equal to the endTimestamp"),
    ([], Wanted("T", 128, None, 0, 0, 0)),
    (["-b", "b", "-i", "2", "-o", "3", "-c", "4", "-s", "1", "-e", "2"],
     Wanted("T", 4, MessageQueue("T", "b", 2), 3, 1, 2))])
def test_what_to_consume(args, answer):
    assert wanted_messages(command_line(ConsumeMessageCommand, "-t", "T", *args)) == answer


@pytest.mark.parametrize(("size", "length"), [(0, 0), (1, 11), (11, 11), (12, 22), (128, 132)])
def test_messages_to_a_broker_are_whole_pieces(size, length):
    assert len(build_message("broker-a", size).body) == length


def test_the_first_send_does_not_count_for_the_average_and_failures_are_counted():
    times = ResponseTimes([1000, 2, 5], [True, True, True])
    assert (times.average(), times.average_text()) == (3.5, "3.50")

    def fail():
        raise MQClientException("no")
    times.measure(fail)
    assert times.succeeded == [True, True, True, False]
    assert (ResponseTimes([7], [True]).average(), ResponseTimes([7], [True]).average_text()) == (None, "NaN")
