"""`rmqha produce`, `consume` and `tail` against a running broker."""
import json
import os
import signal
import subprocess

import pytest

from rmqha.tools.messages import consume, produce
from rmqha.tools.terminal import counted
from tests.support import patience, start_as
from tests.support.wait import lasting, wait_until

yaml = pytest.importorskip("yaml")


def bodies(line, topic, *options):
    """Return the messages read from a topic, sorted."""
    return sorted(line.ok("consume", "-t", topic, "-f", "%s\\n", *options).stdout.splitlines())


def test_each_line_is_a_message(line):
    result = line.ok("produce", "-t", "Lines", "-v", "--tag", "a", "-k", "k1 k2", "-p", "x=1", "-p", "y=a b",
                     stdin="one\n\ntwo\nthree")
    assert [row.split()[-1] for row in result.stdout.splitlines()] == ["SEND_OK"] * 3
    assert "3 messages sent" in result.stderr and "1 empty line skipped" in result.stderr
    shown = line.ok("consume", "-t", "Lines", "-f", "%t|%k|%g|%h|%s|%S\\n").stdout.splitlines()
    assert sorted(shown) == [f"Lines|k1 k2|a|x=1,y=a b|{body}|{len(body)}" for body in ("one", "three", "two")]


@pytest.mark.parametrize("text, sent, empty", [
    ("a\n \n\t\nb\n", ["\t", " ", "a", "b"], 0), ("\n\na\n\n", ["a"], 3), ("a\r\n\r\nb", ["a\r", "b"], 1), ("", [], 0)])
def test_lines_of_blanks_are_messages_and_empty_lines_are_counted(line, text, sent, empty):
    topic = f"Blank{len(text)}"
    line.ok("produce", "-t", topic, "--queue", 0, "-m", "first")
    told = line.ok("produce", "-t", topic, stdin=text).stderr
    assert counted(len(sent), "message") + " sent" in told
    assert (counted(empty, "empty line") + " skipped" in told) if empty else "empty" not in told
    found = line.ok("consume", "-t", topic, "-o", "json").stdout.splitlines()
    assert sorted(json.loads(row)["body"] for row in found) == sorted(["first", *sent])


@pytest.mark.parametrize("value", [" ", "  ", "\t", "\u3000", "a b ", "=", ",", "a\x01b", "\x01"])
def test_properties_of_blanks_are_preserved(line, value):
    topic = f"Blanks{ord(value[0])}{len(value)}"
    line.ok("produce", "-t", topic, "--queue", 0, "-p", f"p={value}", "-m", "x")
    told = line.ok("consume", "-t", topic, "-o", "json").stdout
    line.ok("produce", "-t", topic, "-f", "json", stdin=told)
    found = [json.loads(row) for row in line.ok("consume", "-t", topic, "-o", "json").stdout.splitlines()]
    assert [each["properties"] for each in found] == [{"p": value}] * 2


def test_empty_properties_are_refused(line):
    for fields in ('{"": "x"}', '{"x": ""}'):
        result = line.run("produce", "-t", "Nothing", "-f", "json", stdin=f'{{"body": "b", "properties": {fields}}}')
        assert result.exit_code == 1 and "name and value must not be empty" in result.stderr
    assert line.run("produce", "-t", "Nothing", "-p", "x=", "-m", "b").exit_code == 2


def process_of(line, *arguments, **streams):
    """Start a command in its own process, for signals and for input that does not end."""
    words = patience.command(["-m", "rmqha.tools.rmqha_command", *arguments, "-n", line.namesrv])
    return subprocess.Popen(start_as.command(words, ctrl_c=True), stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                            **streams)


@pytest.mark.parametrize("kind, rows", [("lines", b"a\nb\n"), ("lines", b"a\n\nb\n"), ("json", b'{"body": "a"}\nx\n')])
def test_command_with_a_count_ends_without_another_line(line, kind, rows):
    with process_of(line, "produce", "-t", "Counted", "--count", 2, "-f", kind) as process:
        try:
            process.stdin.write(rows)
            process.stdin.flush()
            assert process.wait(240) == (kind == "json"), "it must end while the input is still open"
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupt_reports_the_number_of_messages_sent(line, number):
    topic = f"Interrupted{number.name}"
    line.ok("produce", "-t", topic, "-m", "first")
    with process_of(line, "produce", "-t", topic) as process:
        try:
            process.stdin.write(b"a\n\nb\n")
            process.stdin.flush()
            wait_until(lambda: len(bodies(line, topic)) == 3, 120_000, "both are sent")
            process.send_signal(number)
            assert process.wait(240) == 128 + number
            told = process.stderr.read().decode()
        finally:
            process.kill()
    assert told.startswith("2 messages sent in ") and "1 empty line skipped" in told and told.count("\n") == 2


def committed(line, group, topic):
    """Return the sum of the group's committed offsets over all queues."""
    offsets = line.broker.controller.consumer_offset_manager
    return sum(max(offsets.query_offset(group, topic, number), 0) for number in range(2))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", [("tail",), ("consume", "--timeout", "100")], ids=lambda each: each[0])
def test_printed_messages_of_a_group_are_committed_however_it_ends(line, command, number, tmp_path):
    topic = f"Ended{command[0]}{number.name}"
    line.ok("produce", "-t", topic, "-m", "x", "--count", 4)
    with open(tmp_path / "out", "wb") as out, process_of(
            line, *command, "-t", topic, "-g", f"G{topic}", "--from", "earliest", "-f", "%s\\n", stdout=out) as process:
        try:
            for round_ in range(1, 4):
                wait_until(lambda: (tmp_path / "out").read_bytes() == b"x\n" * 4 * round_, 120_000, "they are printed")
                if round_ < 3:
                    line.ok("produce", "-t", topic, "-m", "x", "--count", 4)
            process.send_signal(number)
            assert process.wait(240) == 128 + number
        finally:
            process.kill()
    assert committed(line, f"G{topic}", topic) == 12


def test_interrupt_between_printing_and_committing_is_deferred(line, monkeypatch):
    line.ok("produce", "-t", "Between", "--queue", 0, "-m", "x", "--count", 4)
    flush = consume.MessagePrinter.flush

    def interrupted(printer):
        flush(printer)
        signal.raise_signal(signal.SIGINT)
    monkeypatch.setattr(consume.MessagePrinter, "flush", interrupted)
    # SIGINT may be ignored where the tests run.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = line.run("consume", "-t", "Between", "-g", "GBetween", "-f", "%s")
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.exit_code != 0 and result.stdout.startswith("xxxx")
    assert committed(line, "GBetween", "Between") == 4


@pytest.mark.parametrize("kind", ["lines", "whole"])
def test_message_that_is_too_long_is_reported_and_the_next_is_sent(line, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(produce, "LONGEST_SENT", 1000)
    topic = f"TooLong{kind}"
    files = [tmp_path / "long", tmp_path / "next"]
    files[0].write_text("x" * 100_000)
    files[1].write_text("y" * 1000)
    result = line.run("produce", "-t", topic, "-f", kind, *files)
    assert result.exit_code == 1 and "1 message sent" in result.stderr and "1 failed" in result.stderr
    assert f"{files[0]}" in result.stderr.splitlines()[0] and "1,000 bytes" in result.stderr.splitlines()[0]
    assert bodies(line, topic) == ["y" * 1000]


def test_bytes_from_the_shell_are_sent_unchanged(line):
    line.ok("produce", "-t", "Bytes", "-m", os.fsdecode(b"\xff\x80"))
    assert line.ok("consume", "-t", "Bytes", "-f", "%s").stdout_bytes == b"\xff\x80"


def test_output_of_consume_is_input_for_produce(line):
    line.ok("produce", "-t", "Json", "--queue", 1, "-p", "p=ü", "-m", "text", "-m", "二")
    told = line.ok("consume", "-t", "Json", "-o", "json").stdout
    again = line.ok("produce", "-t", "Json", "-f", "json", "-o", "json", stdin=told)
    assert [json.loads(row)["offset"] for row in again.stdout.splitlines()] == [2, 3]
    seen = [json.loads(row) for row in line.ok("consume", "-t", "Json", "-o", "json").stdout.splitlines()]
    assert [(each["queue"], each["body"], each["properties"]) for each in seen] == [
        (1, body, {"p": "ü"}) for body in ("text", "二", "text", "二")]
    documents = list(yaml.safe_load_all(line.ok("consume", "-t", "Json", "-o", "yaml").stdout))
    assert documents == seen and all(each["storeTimestamp"] for each in seen)


def test_output_of_store_dump_is_input_for_produce(line):
    root = line.broker.store.message_store_config.storePathRootDir
    line.ok("produce", "-t", "Dumped", "-k", "k1 k2", "--tag", "a", "-p", "p=ü", "-m", "text", "-m", b"\xff".decode(
        errors="surrogateescape"), "-m", "z" * 8000)
    line.ok("produce", "-t", "Dumped", "-f", "json", stdin='{"body": "plain", "flag": 7}')
    dumped = line.ok("store", "dump", root, "-t", "Dumped", "-o", "json").stdout
    assert "\n4 messages sent" in line.ok("produce", "-t", "FromDump", "-f", "json", stdin=dumped).stderr

    def read(topic):
        rows = map(json.loads, line.ok("consume", "-t", topic, "-o", "json").stdout.splitlines())
        return sorted(([row.get(name) for name in ("body", "bodyBase64", "keys", "tags", "properties", "flag")]
                       for row in rows), key=str)
    assert read("FromDump") == read("Dumped") and len(read("Dumped")) == 4


def test_damaged_message_of_a_dump_is_not_sent(line):
    fields = json.dumps({"commitLogOffset": 0, "body": "x", "damage": "the CRC of the body is wrong"})
    result = line.run("produce", "-t", "Damaged", "-f", "json", stdin=fields)
    assert result.exit_code == 1 and "the message is damaged: 'the CRC of the body is wrong'" in result.stderr


def test_binary_bodies_are_preserved(line, tmp_path):
    body = bytes(range(256))
    (tmp_path / "body").write_bytes(body)
    line.ok("produce", "-t", "Binary", "-f", "whole", tmp_path / "body")
    assert line.ok("consume", "-t", "Binary", "-f", "%s").stdout_bytes == body
    told = json.loads(line.ok("consume", "-t", "Binary", "-o", "json").stdout)
    line.ok("produce", "-t", "Binary", "-f", "json", stdin=json.dumps({"bodyBase64": told["bodyBase64"]}))
    assert line.ok("consume", "-t", "Binary", "-f", "%s").stdout_bytes == body * 2


def test_start_of_reading_can_be_chosen(line):
    line.ok("produce", "-t", "From", "--queue", 0, *(word for n in range(5) for word in ("-m", n)))
    times = [int(text) for text in line.ok("consume", "-t", "From", "-f", "%T\\n").stdout.split()]
    assert bodies(line, "From", "--from", 3) == ["3", "4"]
    assert bodies(line, "From", "--from", "-2") == ["3", "4"]
    assert bodies(line, "From", "--from", "latest") == []
    assert bodies(line, "From", "--from", "earliest", "--count", 1) == ["0"]
    assert bodies(line, "From", "--from", "1h") == list("01234")
    assert bodies(line, "From", "--from", times[-1] + 1) == []
    assert len(bodies(line, "From", "--from", times[-1])) == times.count(times[-1])
    for text in ("soon", "9" * 14 + "x", "2024-13-01", "9" * 30, "9" * 5000):
        assert line.run("consume", "-t", "From", "--from", text).exit_code == 2


def test_fewer_messages_than_requested_is_a_failure(line):
    line.ok("produce", "-t", "Few", "-m", "1")
    result = line.run("consume", "-t", "Few", "--count", 2)
    assert result.exit_code == 1 and "received only 1 message of 2" in result.stderr


def test_group_resumes_where_it_left_off(line):
    line.ok("produce", "-t", "Group", "-m", "x", "--count", 40)
    assert len(bodies(line, "Group", "-g", "G", "--count", 7)) == 7
    assert len(bodies(line, "Group", "-g", "G")) == 33
    assert bodies(line, "Group", "-g", "G") == []
    assert len(bodies(line, "Group", "-g", "G", "--from", "earliest")) == 40
    assert len(bodies(line, "Group")) == 40  # without a group


def test_consumers_of_a_group_share_its_queues(line, tmp_path):
    line.ok("produce", "-t", "Share", "-m", "first")
    line.ok("consume", "-t", "Share", "-g", "Shared", "--count", 1)
    command = patience.command(["-m", "rmqha.tools.rmqha_command", "consume", "-t", "Share", "-g", "Shared",
                                "--timeout", 600, "-f", "%s\\n", "-n", line.namesrv])
    outputs = [tmp_path / "one", tmp_path / "other"]
    both = []
    for output in outputs:
        with open(output, "wb") as stream:
            both.append(subprocess.Popen(start_as.command(command, ctrl_c=True), stdout=stream))
    rounds = 0

    def is_shared_out() -> bool:
        """Send a round of messages; return whether each consumer prints some of it, and no message is printed twice."""
        nonlocal rounds
        rounds += 1
        line.ok("produce", "-t", "Share", "-m", f"x{rounds}", "--count", 8)

        def printed() -> list[int]:
            return [output.read_text().splitlines().count(f"x{rounds}") for output in outputs]
        wait_until(lambda: sum(printed()) >= 8, what="all of it")
        return all(printed()) and sum(printed()) == 8
    try:
        wait_until(is_shared_out, what="each takes its share")
        for process in both:
            process.send_signal(signal.SIGTERM)
            process.wait(240)
    finally:
        for process in both:
            process.kill()
    assert bodies(line, "Share", "-g", "Shared") == [], "each consumer must have committed what it printed"


def test_filters(line):
    for tag, x in (("a", 1), ("b", 2), ("c", 3)):
        line.ok("produce", "-t", "Filter", "--tag", tag, "-p", f"x={x}", "-m", tag)
    assert bodies(line, "Filter", "--tag", "a || c") == ["a", "c"]
    assert bodies(line, "Filter", "--sql", "x IN ('2', '3')") == ["b", "c"]
    refused = line.run("consume", "-t", "Filter", "--sql", "x =")
    assert refused.exit_code == 2 and "code 23" in refused.stderr
    assert line.run("consume", "-t", "Filter", "--sql", "x = 1", "--tag", "a").exit_code == 2


def test_invalid_lines_are_reported_and_the_others_sent(line):
    lines = ['{"body": "good"}', "no json", '{"body": "x", "bodyBase64": "eA=="}', '{"body": "x", "color": 1}',
             '{"body": "last", "properties": {"KEYS": "x"}}', '{"body": "last"}']
    result = line.run("produce", "-t", "Wrong", "-f", "json", stdin="\n".join(lines))
    assert result.exit_code == 1 and "2 messages sent" in result.stderr and "4 failed" in result.stderr
    assert [row.partition(":")[2].partition(":")[0] for row in result.stderr.splitlines()[1:5]] == ["2", "3", "4", "5"]
    assert bodies(line, "Wrong") == ["good", "last"]


@pytest.mark.parametrize("fields, said", [
    ("[]", "not a JSON object"), ('{"body": 1}', "expected a text"), ('{"body": "x", "queue": true}', "whole number"),
    ('{"body": "x", "queue": 99}', "queue 99"), ('{"body": "x", "broker": "other"}', "broker 'other'"),
    ('{"body": "x", "properties": {"a": 1}}', "property a"), ('{"body": "x", "keys": [1]}', "keys"),
    ('{"body": "x", "delay": -1}', "below 0"), ('{"bodyBase64": "?"}', "bodyBase64"), ("{}", "either `body` or"),
    ('{"body": "x", "properties": {"a": "b\\u0002c"}}', "separate properties"), ('{"body": ""}', "length is zero")])
def test_error_in_a_line_is_described(line, fields, said):
    line.ok("produce", "-t", "Fields", "-m", "x")
    result = line.run("produce", "-t", "Fields", "-f", "json", stdin=fields)
    assert result.exit_code == 1 and said in result.stderr and "stdin:1" in result.stderr


def test_five_failures_in_a_row_stop_produce(line):
    result = line.run("produce", "-t", "Stop", "-f", "json", stdin="x\n" * 100)
    assert result.exit_code == 1 and "5 failed" in result.stderr and "not sending the rest" in result.stderr


def test_delay_and_rate(line):
    with lasting(1):
        with lasting(0.2):
            line.ok("produce", "-t", "Delay", "--delay", 1, "-m", "later", "--count", 3, "--rate", 10)
        said = line.ok("consume", "-t", "Delay", "--timeout", 120, "--count", 3, "-f", "%s\\n").stdout
    assert said.split() == ["later"] * 3


def test_waiting_ends_when_no_message_arrives(line):
    line.ok("produce", "-t", "Wait", "-m", "x")
    with lasting(0.5):
        assert bodies(line, "Wait", "--from", "latest", "--timeout", 0.5) == []
    held = line.broker.controller.pull_request_hold_service
    wait_until(lambda: not any(held.is_waiting("Wait", queue) for queue in range(16)), what="the end of the polls")


def test_tail_follows_until_it_is_interrupted(line, tmp_path):
    line.ok("produce", "-t", "Tail", "-m", "before")
    out = tmp_path / "out"
    with open(out, "wb") as stream, subprocess.Popen(
            start_as.command(patience.command(["-m", "rmqha.tools.rmqha_command", "tail", "-t", "Tail", "--from", "-1",
                                               "-f", "%s\\n", "-n", line.namesrv]), ctrl_c=True),
            stdout=stream, stderr=subprocess.PIPE, env={**os.environ}) as process:
        try:
            wait_until(lambda: out.read_text() == "before\n", 60_000, "what was there")
            line.ok("produce", "-t", "Tail", "-m", "after")
            wait_until(lambda: out.read_text() == "before\nafter\n", 60_000, "what came")
            process.send_signal(signal.SIGINT)
            assert process.wait(240) == 130 and process.stderr.read() == b"interrupted\n"
        finally:
            process.kill()


def test_missing_topic_is_an_error(line):
    line.ok("produce", "-t", "orders", "-m", "x")
    result = line.run("consume", "-t", "order")
    assert result.exit_code == 2 and result.stderr == (
        "Error: no topic 'order' at the name server; did you mean orders?\n")
    assert line.run("consume", "-t", "orders", "--queue", 77).exit_code == 2
    assert line.run("consume", "-t", "orders", "-b", "broker-x").exit_code == 2


@pytest.mark.parametrize("text, said", [("%z", "unknown field %z;"), ("%", "unknown field %;"),
                                        ("\\q", "unknown escape \\q;"), ("\\", "unknown escape \\;")])
def test_unknown_format_strings_are_refused(line, text, said):
    result = line.run("consume", "-t", "orders", "-f", text)
    assert result.exit_code == 2 and said in result.stderr


def test_table_shows_times_in_both_forms(line):
    line.ok("produce", "-t", "Table", "-k", "键", "-m", "a\x1b[0m")
    heading, row = line.ok("consume", "-t", "Table").stdout.splitlines()
    assert heading.split() == ["stored", "ms", "queue", "offset", "tag", "keys", "body"]
    assert row.endswith("a\\u001b[0m") and len(row.split()[2]) == 13


def test_queue_that_cannot_be_read_is_a_failure(line, monkeypatch):
    line.ok("produce", "-t", "Down", "-m", "x")
    monkeypatch.setattr(consume, "_RETRY_S", 0.01)
    consumer = "rmqha.client.consumer.default_mq_pull_consumer.DefaultMQPullConsumer.pull_block_if_not_found_async"

    def refuse(*_arguments):
        raise consume.CLIENT_ERRORS[2]("connection lost")
    monkeypatch.setattr(consumer, refuse)
    result = line.run("consume", "-t", "Down")
    assert result.exit_code == 1 and "from offset 0: no answer: connection lost" in result.stderr


# The topic: as an argument, several of them, none, or a new one.


def test_topic_may_be_an_argument(line):
    line.ok("produce", "-t", "Argument", "-m", "x", "--count", 2)
    for arguments in (("Argument",), ("-t", "Argument"), ("Argument", "-t", "Argument")):
        assert line.ok("consume", *arguments, "-f", "%s").stdout == "xx"
    for command in ("consume", "tail"):
        result = line.run(command)
        assert result.exit_code == 2 and f"give a topic: rmqha {command} orders" in result.stderr


@pytest.mark.parametrize("arguments", [("Both1", "Both2"), ("-t", "Both1", "-t", "Both2"), ("Both1", "-t", "Both2")])
def test_several_topics_are_read_together(line, arguments):
    for topic in ("Both1", "Both2"):
        line.ok("produce", "-t", topic, "-m", topic)
    rows = line.ok("consume", *arguments, "--from", "-1").stdout.splitlines()
    assert rows[0].split() == ["stored", "ms", "topic", "queue", "offset", "tag", "keys", "body"]
    assert {(row.split()[3], row.split()[-1]) for row in rows[1:]} == {("Both1", "Both1"), ("Both2", "Both2")}
    assert {row.index("Both") for row in rows[1:]} == {rows[0].index("topic")}
    assert line.run("consume", "Both1", "Bth2").stderr.startswith("Error: no topic 'Bth2' at the name server; did you ")


def test_group_reads_its_share_of_several_topics(line):
    for topic in ("Shared1", "Shared2"):
        line.ok("produce", "-t", topic, "-m", topic, "--count", 4)
    told = line.ok("consume", "Shared1", "Shared2", "-g", "GShared", "-f", "%t\\n").stdout.split()
    assert sorted(told) == ["Shared1"] * 4 + ["Shared2"] * 4
    assert committed(line, "GShared", "Shared1") == committed(line, "GShared", "Shared2") == 4
    assert line.ok("consume", "Shared2", "-g", "GShared", "-f", "%t").stdout == ""


@pytest.mark.parametrize("arguments", [
    ("produce", "-m", "x"), ("bench", "produce"), ("bench", "consume"), ("bench", "e2e"), ("import", __file__)])
def test_second_topic_is_refused_where_only_one_is_possible(line, arguments):
    result = line.run(*arguments, "-t", "One", "-t", "Other")
    assert result.exit_code == 2 and "only one can be given, not 2: One, Other" in result.stderr


def test_topic_that_a_send_creates_is_reported(line):
    line.ok("produce", "-t", "invoices", "-m", "x")
    told = line.ok("produce", "-t", "invoces", "-m", "x", "-m", "y").stderr.splitlines()
    assert told[0] == "note: the broker created topic 'invoces'; did you mean 'invoices'?"
    assert len(told) == 2 and told[1].startswith("2 messages sent in ")
    told = line.ok("produce", "-t", "Zq1Xw", "-f", "json", stdin='{"body": "x", "queue": 0}').stderr
    assert told.startswith("note: the broker created topic 'Zq1Xw'\n1 message sent")
    assert line.ok("produce", "-t", "invoces", "-m", "x").stderr.startswith("1 message sent in ")
    # It is printed only when the topic is there.
    assert "created" not in line.run("produce", "-t", "no topic", "-m", "x").stderr


def test_topic_that_is_taken_for_a_file_is_explained(line, tmp_path):
    for arguments in (("orders",), ("orders", "-m", "x")):
        result = line.run("produce", *arguments)
        assert result.exit_code == 2 and result.stderr.endswith("Error: give the topic with -t orders\n")
    assert "File 'orders' does not exist" in line.run("produce", "-t", "T", "orders").stderr
    (tmp_path / "there").write_text("x\n")
    for arguments in ((), ("-m", "x"), (tmp_path / "there",), ("-",)):
        assert "Missing option '-t' / '--topic'" in line.run("produce", *arguments).stderr
    assert "No such option '--zzz'" in line.run("produce", "--zzz").stderr
    assert "No such option '--zzz'" in line.run("produce", "orders", "--zzz").stderr


@pytest.mark.parametrize("command", ["consume", "tail"])
def test_sql_that_the_broker_does_not_support_is_refused_at_once(line, command, monkeypatch):
    line.ok("produce", "-t", "NoSql", "-m", "x")
    monkeypatch.setattr(line.broker.controller.broker_config, "enablePropertyFilter", False)
    refused = []
    failed = consume.QueueFeed._failed
    monkeypatch.setattr(consume.QueueFeed, "_failed", lambda feed, place, error: (
        refused.append(error), failed(feed, place, error)))
    result = line.run(command, "NoSql", "--sql", "a = 1")
    # The client may have to wait for its first heartbeat, which tells it the broker's version.
    assert [type(error).__name__ for error in refused].count("MQBrokerException") == 1
    assert result.exit_code == 2 and result.stderr.endswith(
        ": set enablePropertyFilter=true (rmqha cluster config set enablePropertyFilter=true)\n")
    assert "NoSql" in result.stderr and "does not support consumer to filter message by SQL92" in result.stderr
