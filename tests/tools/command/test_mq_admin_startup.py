"""mqadmin's command lines, and the input and output of sub-commands about messages, without a broker."""
import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha import __version__
from rmqha.client.exception import MQClientException
from rmqha.common.message.message import MessageClientExt, MessageExt, MessageQueue
from rmqha.common.protocol.client_bodies import Connection, ConsumerRunningInfo
from rmqha.common.protocol.topic_route_data import QueueData, TopicRouteData
from rmqha.tools.admin.default_mq_admin_ext import tools_account
from rmqha.tools.command import commons_cli, message_query, mq_admin_startup
from rmqha.tools.command.acl import UpdateAccessConfigSubCommand, plain_access_config
from rmqha.tools.command.broker import build_message
from rmqha.tools.command.commons_cli import CommandLine, NumberFormatException, ParseException, parse
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
from rmqha.tools.command.mq_admin_startup import find_sub_command, main0
from rmqha.tools.command.sub_command import Document, Heading, SubCommand, Table
from rmqha.tools.command.sub_commands import SUB_COMMANDS
from tests.tools.command.capture_command_lines import GOLDEN

# mqadmin's command lines: those captured from the real one, rmqha's own options, and random text.

ROOT = Path(__file__).resolve().parents[3]
CAPTURED = [captured for captured in json.loads(GOLDEN.read_text("utf-8"))
            # rmqha lists the commands where the original does not know the command help.
            if captured["args"] != ["help"]]
NUMBERS = Table("%-8s%4d%8.2f\n", {"name": "#Name", "count": "#N", "rate": "#Rate"})


class Printing(SubCommand):
    """Prints one part of each kind, and fails with -f."""

    command_name = "printing"
    command_desc = "prints"
    options = (commons_cli.flag("f", "fail", "fails"),)

    @classmethod
    def load(cls):
        return cls

    def execute(self, command_line, admin):
        yield "before\n"
        yield NUMBERS.heading()
        yield NUMBERS.row("a", 1, 0.5)
        yield NUMBERS.row("bb", 20, 2.345, rate="fast", more=[1])
        yield Document("{a\n}\n", {"a": 1})
        yield Heading("---\n")
        if command_line.has_option("f"):
            raise NumberFormatException("x")


class Ordered(Printing):
    """Has its own -o option."""

    command_name = "ordered"
    options = (commons_cli.option("o", "order", "order"),)


@pytest.fixture
def printing(monkeypatch):
    monkeypatch.setattr(mq_admin_startup, "SUB_COMMANDS", (Printing, Ordered))


@pytest.mark.parametrize("captured", CAPTURED, ids=lambda captured: " ".join(captured["args"]) or "nothing")
def test_exit_code_and_output_match_the_original(captured, capsys, monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    code = main0(captured["args"])
    printed = capsys.readouterr()
    assert code == captured["code"]
    if "usage:" in captured["out"] and captured["args"] != ["exportMetadata", "-n", "127.0.0.1:1"]:
        explained, own = printed.out[:len(captured["out"])], printed.out[len(captured["out"]):]
        assert explained == captured["out"]
        assert own.endswith("--output json or --json prints rows and documents as JSON, one object per line.\n")
    elif captured["args"]:
        assert printed.out == captured["out"]
    if code == 0:
        hint = "No name server: give it with -n host:port, or in NAMESRV_ADDR.\n"
        assert printed.err == captured["err"] + ("" if "-n" in captured["args"] or not captured["err"] else hint)


def test_rows_and_documents_are_json_and_the_rest_goes_to_standard_error(printing, capsys):
    for args in (["-o", "json"], ["--output", "json"], ["--output=json"], ["--json"]):
        assert main0(["printing", *args]) == 0
        printed = capsys.readouterr()
        assert [json.loads(line) for line in printed.out.splitlines()] == [
            {"name": "a", "count": 1, "rate": 0.5}, {"name": "bb", "count": 20, "rate": "fast", "more": [1]}, {"a": 1}]
        assert printed.err == "before\n"


def test_text_has_columns_formatted_like_printf(printing, capsys):
    assert main0(["printing", "-o", "text"]) == 0
    assert capsys.readouterr().out == (
        "before\n#Name     #N   #Rate\na          1    0.50\nbb        20    2.35\n{a\n}\n---\n")


def test_failed_command_has_exit_code_0_like_the_original_and_1_with_json(printing, capsys):
    told = ("org.apache.rocketmq.tools.command.SubCommandException: Printing command failed\n"
            'Caused by: java.lang.NumberFormatException: For input string: "x"\n')
    assert main0(["printing", "-f"]) == 0
    assert capsys.readouterr().err.startswith(told)
    assert main0(["printing", "-f", "--json"]) == 1
    assert told in capsys.readouterr().err


def test_command_with_its_own_o_option_keeps_it(printing, capsys):
    assert main0(["ordered", "-o", "json"]) == 0
    assert capsys.readouterr().out.startswith("before\n")
    assert main0(["ordered", "-o", "x", "--output", "json"]) == 0
    assert capsys.readouterr().out.startswith("{")


def test_unknown_output_format_is_refused(printing, capsys):
    assert main0(["printing", "-o", "yaml"]) == 1
    assert "--output yaml: must be text or json" in capsys.readouterr().err


def test_missing_option_is_named(capsys):
    assert main0(["updateTopic", "-b", "x"]) == 1
    assert capsys.readouterr().err == "Missing required option: t\n"
    assert main0(["updateTopic", "-t", "x"]) == 1
    assert capsys.readouterr().err == "Missing required option: -b | -c\n"


def test_program_logs_to_files_and_ends_when_its_reader_closes_the_pipe(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "ROCKETMQ_LOG_DIR": str(tmp_path)}
    done = subprocess.run([ROOT / "bin" / "mqadmin", "topicList", "-n", "127.0.0.1:1"], capture_output=True, text=True,
                          timeout=600, check=True, env=env)
    assert done.stdout == "" and done.stderr.startswith("org.apache.rocketmq.tools.command.SubCommandException: ")
    assert len(done.stderr.splitlines()) == 2
    assert {file.name for file in tmp_path.glob("*.log")} == {"tools.log", "tools_default.log"}
    done = subprocess.run(f"{sys.executable} -m rmqha.tools.command.mq_admin_startup | true", shell=True, text=True,
                          capture_output=True, timeout=600, check=True, env=env, cwd=ROOT)
    assert done.stderr == ""


@pytest.mark.parametrize("asked", ["help", "-h", "--help"])
def test_help_lists_the_commands_and_explains_one(asked, capsys):
    assert main0([asked]) == 0
    listed = capsys.readouterr().out
    assert main0([]) == 0 and capsys.readouterr().out == listed
    assert listed.startswith("The most commonly used mqadmin commands are:\n   updateTopic ")
    assert main0([asked, "topicRoute"]) == 0
    assert capsys.readouterr().out.startswith("usage: mqadmin topicRoute ")


def test_it_prints_its_version(capsys):
    assert main0(["--version"]) == 0 and capsys.readouterr().out == f"mqadmin {__version__}\n"


def test_commands_are_found_in_any_case_and_by_alias():
    assert find_sub_command("TOPICroute").command_name == "topicRoute"
    assert find_sub_command("deleteACCESSconfig").command_name == "deleteAclConfig"
    assert find_sub_command("topic") is None


@pytest.mark.parametrize("listed", SUB_COMMANDS, ids=lambda listed: listed.command_name)
def test_list_matches_the_descriptions_of_the_commands(listed):
    command = listed.load()
    assert (listed.command_name, listed.command_alias, listed.command_desc) == (
        command.command_name, command.command_alias, command.command_desc)


def test_no_two_options_of_a_command_share_a_name():
    for command in SUB_COMMANDS:
        options = command.load().options_to_parse()
        longs = [each.long_opt for each in options.by_key.values()]
        assert len(set(longs)) == len(longs), command


def test_page_about_mqadmin_lists_each_sub_command_once():
    table = (ROOT / "docs" / "mqadmin.md").read_text("utf-8").partition("| sub-command |")[2].partition("\n\n")[0]
    named = [name for row in table.splitlines()[2:] for name in row.split("|")[1].replace(",", " ").split()]
    assert sorted(named) == sorted(command.command_name for command in SUB_COMMANDS)


def test_credentials_come_from_tools_yml(tmp_path, monkeypatch):
    pytest.importorskip("yaml")
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    assert tools_account() is None
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text("accessKey: rocketmq2\nsecretKey: 12345678\n", encoding="ascii")
    assert tools_account() is not None


TOKENS = st.lists(st.one_of(st.text(max_size=6), st.sampled_from(
    ["-t", "-b", "-c", "--topic", "--topic=x", "-o", "--", "-", "-n", "-h", "-1", "-tb", "--json", "x"])), max_size=8)


@given(st.sampled_from(SUB_COMMANDS), TOKENS)
def test_any_command_line_is_parsed_or_refused(command, tokens):
    options = command.load().options_to_parse()
    try:
        command_line = commons_cli.parse(options, tokens)
    except ParseException as error:
        assert str(error)
        return
    for each in options.by_key.values():
        given_value = command_line.get_option_value(each.key)
        assert (given_value is None) or each.has_arg
        assert not each.required or command_line.has_option(each.key)


@given(st.text(max_size=22) | st.integers().map(str) | st.integers(-1 << 70, 1 << 70).map(lambda number: f"+{number}"))
def test_numbers_are_longs_or_refused(text):
    try:
        assert -1 << 63 <= commons_cli.parse_long(text) < 1 << 63
    except NumberFormatException as error:
        assert str(error) == f'For input string: "{text}"'


def test_values_are_read_by_short_and_long_name():
    options = find_sub_command("updateTopic").build_commandline_options()
    line: CommandLine = commons_cli.parse(options, ["-t", " x ", "-b", "a", "--order", "TRUE", "-r", "+7"])
    assert (line.text("topic"), line.text("t"), line.get_option_value("t")) == ("x", "x", " x ")
    assert line.boolean("o") and not line.boolean("u") and line.boolean("u", True)
    assert (line.integer("readQueueNums"), line.integer("w", 8)) == (7, 8)
    assert line.text("nothing") is None and not line.has_option("nothing")


# The input of sub-commands about messages, and their text for messages, without a broker.

MOMENTS = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1))
LONGS = st.integers(-1 << 63, (1 << 63) - 1)
HOSTS = st.one_of(st.ip_addresses().map(str)).flatmap(lambda host: st.tuples(st.just(host), st.integers(0, 65535)))


@given(LONGS)
def test_milliseconds_are_taken_unchanged(millis):
    assert timestamp_format(str(millis)) == millis


@given(MOMENTS, st.integers(0, 999))
def test_dates_are_read_as_local_time(moment, millis):
    moment = moment.replace(microsecond=0, fold=0)
    text = moment.strftime("%Y-%m-%d#%H:%M:%S") + f":{millis:03d}"
    assert timestamp_format(text) == int(moment.timestamp()) * 1000 + millis


@given(st.one_of(st.text(), st.from_regex(r"[0-9]{1,5}-[0-9]{1,3}-[0-9]{1,3}#[0-9:]{1,12}", fullmatch=True)))
def test_any_other_text_is_reported_as_an_invalid_time(text):
    try:
        assert -1 << 63 <= timestamp_format(text) < 1 << 63
    except TimestampError as error:
        assert repr(text) in str(error)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-45#00:00:00:000", "2026-01-01 00:00:00:000", "1e3", "٣",
                                  "2026-02-30#00:00:00:000", "99999999999999999999", "2026-01-01#00:00:00:0000"])
def test_invalid_times(text):
    with pytest.raises(TimestampError):
        timestamp_format(text)


@given(st.lists(st.text("0123456789ABCDEF", min_size=1)), st.text(" ,", max_size=3))
def test_ids_are_separated_by_commas(ids, filling):
    assert split_ids(f" {filling},".join(ids) + filling) == ids


@given(st.sets(st.builds(MessageQueue, st.text(max_size=5), st.text(max_size=5), st.integers(0, 50)), max_size=40))
def test_javas_order_of_queues_does_not_depend_on_the_input_order(queues):
    ordered = in_java_order(queues, TopicRouteData())
    assert sorted(ordered) == sorted(queues)
    assert in_java_order(reversed(ordered), TopicRouteData()) == ordered


def test_queues_are_listed_in_the_order_of_javas_mqadmin():
    # The output of allocateMQ for a topic on two brokers, whose route named broker-b first.
    queues = [MessageQueue("Orders", f"broker-{broker}", number) for broker in "ab" for number in range(4)]
    route = TopicRouteData(queueDatas=[QueueData("broker-b"), QueueData("broker-a")])
    assert [(queue.brokerName[-1], queue.queueId) for queue in in_java_order(queues, route)] == [
        ("a", 3), ("b", 3), ("a", 2), ("b", 0), ("b", 2), ("a", 1), ("b", 1), ("a", 0)]


def message(kind=MessageExt, **fields):
    msg = kind()
    for name, value in {"topic": "T", "born_host": ("1.2.3.4", 5), "store_host": ("1.2.3.4", 10911), **fields}.items():
        setattr(msg, name, value)
    return msg


def test_message_is_formatted_like_javas_to_string():
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
def test_hosts_are_formatted_like_javas(host, text):
    assert host_text(host) == text


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "..", ".", "", "a\0b", "a/b"])
def test_id_with_a_path_does_not_name_the_bodys_file(name, tmp_path, monkeypatch):
    monkeypatch.setattr(message_query, "BODY_FOLDER", tmp_path / "bodies")
    msg = message(MessageClientExt, offset_msg_id="ABCD", body=b"body", properties={"UNIQ_KEY": name})
    assert message_query.create_body_file(msg) == tmp_path / "bodies" / "ABCD"
    assert [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()] == [b"body"]


@pytest.mark.parametrize("what", ["a link to a file", "a link to nothing", "a hard link", "a pipe", "a file"])
def test_body_replaces_an_existing_file_or_link_of_its_name(what, tmp_path, monkeypatch):
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
def test_folder_linked_by_another_user_is_not_followed(uid, is_refused, tmp_path, monkeypatch):
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
def test_clients_file_stays_in_its_folder(client_id, name, tmp_path):
    file = write_info(tmp_path / "1", Connection(client_id), ConsumerRunningInfo())
    assert Path(file) == tmp_path / "1" / name
    assert "#Consumer Properties#" in Path(file).read_text("utf-8")


def command_line(command, *args):
    return parse(command.options_to_parse(), args)


def test_missing_group_settings_get_defaults():
    config = subscription_group_config(command_line(UpdateSubGroupSubCommand, "-g", " mine "))
    assert (config.groupName, config.consumeEnable, config.consumeFromMinEnable, config.consumeBroadcastEnable,
            config.retryMaxTimes) == ("mine", True, False, False, 16)


@given(st.lists(st.sampled_from(["-s", "-m", "-d", "-q", "-r", "-i", "-w", "-a"]), unique=True), st.text())
def test_any_group_is_described_or_its_invalid_number_refused(names, text):
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
def test_range_to_consume_is_parsed(args, answer):
    assert wanted_messages(command_line(ConsumeMessageCommand, "-t", "T", *args)) == answer


@pytest.mark.parametrize(("size", "length"), [(0, 0), (1, 11), (11, 11), (12, 22), (128, 132)])
def test_messages_to_a_broker_consist_of_whole_pieces(size, length):
    assert len(build_message("broker-a", size).body) == length


def test_average_leaves_out_the_first_send_and_failures_are_counted():
    times = ResponseTimes([1000, 2, 5], [True, True, True])
    assert (times.average(), times.average_text()) == (3.5, "3.50")

    def fail():
        raise MQClientException("no")
    times.measure(fail)
    assert times.succeeded == [True, True, True, False]
    assert (ResponseTimes([7], [True]).average(), ResponseTimes([7], [True]).average_text()) == (None, "NaN")
