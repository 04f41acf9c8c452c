"""`rmqha explain`: patterns, hostile texts, summaries of logs, and the command."""
import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from rmqha.common.logs import JsonFormatter
from rmqha.tools.explain.catalog import MAX_LINE, catalog
from rmqha.tools.explain.entry import Kind
from rmqha.tools.explain.summary import MAX_UNKNOWN, LineReader, Summary
from rmqha.tools.explain.template import MAX_VALUE, Template, normal
from rmqha.tools.rmqha_command import rmqha

DISK_FULL = "2026-01-01 12:00:00 ERROR CleanCommitLogService - physic disk maybe full soon 0.91, so mark disk full"


def run(*arguments: str, stdin: bytes | None = None):
    """Run `rmqha explain`."""
    return CliRunner().invoke(rmqha, ["explain", *arguments], input=stdin)


# ---- patterns


def test_a_pattern_names_the_parts_that_differ():
    pattern = Template("file {file} is followed by {other} instead of {due}: files are missing")
    assert pattern.match("x ERROR - file /a/1 is followed by /a/3 instead of 2: files are missing or") == {
        "file": "/a/1", "other": "/a/3", "due": "2"}
    assert pattern.match("file /a/1 is followed by /a/3: files are missing") is None
    assert Template("{which} disk maybe full soon {used}, so").match(normal(DISK_FULL)) == {"which": "physic",
        "used": "0.91"}
    assert Template("see {what}").match("see the rest of it") == {"what": "the rest of it"}


@pytest.mark.parametrize("text", ["{a}{b}", "{a}", "", "{0} x", "{a!r} x{b:d}", "a{b"])
def test_patterns_that_could_match_anything_are_refused(text):
    with pytest.raises(ValueError):
        Template(text)


pieces = st.lists(st.text("ab {", min_size=1, max_size=4), min_size=1, max_size=4)


@given(pieces, st.text("ab {c", max_size=40))
@example(["a", "a"], "a")
@example(["ab", "b"], "abb")
def test_a_pattern_matches_what_a_regular_expression_matches(parts, line):
    text = "{x}".join(part.replace("{", "{{") for part in parts)
    literals = Template(text).pieces if all(normal(text).replace("{{", "{").split("{x}")) else ()
    if not literals:
        return
    expected = re.search(".*?".join(map(re.escape, literals)), normal(line)) is not None
    assert (Template(text).match(normal(line)) is not None) == expected


def test_values_are_short():
    found = Template("begin {value} end").match("begin " + "v" * 10_000 + " end")
    assert found is not None and len(found["value"]) <= MAX_VALUE + 3


# ---- lines


@pytest.mark.parametrize(("text", "first"), [
    ("SLAVE_NOT_AVAILABLE", "code.SLAVE_NOT_AVAILABLE"),
    ("11", "code.SLAVE_NOT_AVAILABLE"),
    ("310", "request.SEND_MESSAGE_V2"),
    ("code: 14", "code.SERVICE_NOT_AVAILABLE"),
    ("10005", "code.NOT_FOUND_TOPIC_EXCEPTION"),
    ("exit code 253", "code.253"),
    ("CODE: 17  DESC: No topic route info in name server for the topic: T", "server.no-route"),
    ("DIVERGED", "state.DIVERGED"),
    ("Main process exited, code=exited, status=253/n/a: exited with 253", "code.253"),
    ("RmqhaNoMaster", "alert.RmqhaNoMaster"),
    ("RemotingCommand [code=10, language=JAVA, version=1, opaque=2, flag(B)=0, remark=null", "request.SEND_MESSAGE"),
    ("RemotingCommand [code=14, language=JAVA, version=1, opaque=2, flag(B)=1, remark=null",
     "code.SERVICE_NOT_AVAILABLE"),
    ("ERROR   ports       broker-a 0 (10.0.0.1:10911): 10.0.0.1:10909, its fast port: closed", "doctor.ports"),
    ("broker-a 1 (10.0.0.2:10911) is STANDS_STILL: it is 2.0 MiB behind", "state.STANDS_STILL"),
    ("OSError: [Errno 28] No space left on device", "system.no-space"),
    ("flushDiskType=SYNC_FLUSH", "key.flushDiskType"),
    ("[REJECTREQUEST]system busy, start flow control for a while", "broker.busy-rejected"),
    ("store.torn", "store.torn"),
])
def test_lines_names_and_codes_are_found(text, first):
    answer = json.loads(run(text, "-o", "json").output)
    assert answer["known"][0]["id"] == first


def test_cause_and_effect_of_one_line_are_both_shown():
    found = catalog().line("append to the commit log failed: [Errno 28] No space left on device")
    assert [match.entry.id for match in found] == ["store.append-failed", "system.no-space"]
    assert found[0].values == {"error": "[Errno 28] No space left on device"}


def test_a_pasted_stack_trace_is_searched_line_by_line():
    text = ("org.apache.rocketmq.client.exception.MQClientException: Send [3] times, still failed, cost [18]ms, "
        "Topic: T, "
            "BrokersSent: [broker-a]\n\tat "
            "org.apache.rocketmq.client.impl.producer.DefaultMQProducerImpl.send(D.java:684)\n"
            "Caused by: org.apache.rocketmq.client.exception.MQBrokerException: CODE: 2  DESC: [TIMEOUT_CLEAN_QUEUE]"
            "broker busy, start flow control for a while, period in queue: 208ms, size of queue: 8")
    assert {"client.send-failed", "broker.busy-timeout", "code.SYSTEM_BUSY"} <= {
        match.entry.id for match in catalog().explain(text)}


def test_an_unknown_text_gets_the_nearest_entries():
    result = run("the disk of this poor broker is nearly full soon")
    assert result.exit_code == 1
    assert result.output.startswith("Nothing is known about this text. The nearest entries:")
    assert "store." in result.output
    assert run("zyx").output == "Nothing is known about this text.\n"


@given(st.text(max_size=300))
@example("CODE: " + "9" * 9)
@example("RemotingCommand [code=1, flag(B)=")
@example("\x1b[31m\x00 {a} %s \ud800".encode("utf-8", "replace").decode())
def test_any_text_is_explained_or_not_without_an_error(text):
    catalog().explain(text)
    catalog().nearest(text)


@pytest.mark.parametrize("line", [
    "a" * 3_000_000, "CODE: " * 500_000, "RemotingCommand [code=1, " * 100_000, "{" * 1_000_000, " is A" * 500_000,
    " ".join({word for each in catalog().entries.values() for pattern in each.patterns for word in pattern.words()}),
    "slave[" * 300_000, "] has reconnected, from ; closing " * 50_000, "\n" * 1_000_000], ids=range(9))
def test_long_and_hostile_lines_cost_only_their_beginning(line):
    """No pattern backtracks, and a line is cut: otherwise this test would not end."""
    catalog().explain(line)
    catalog().nearest(line)
    summary = Summary(catalog())
    summary.feed(line)
    assert all(len(seen.example) <= MAX_VALUE for seen in (*summary.known.values(), *summary.unknown.values()))


# ---- logs


class Blocks:
    """A stream of `count` equal blocks, which are not held in memory."""

    def __init__(self, block: bytes, count: int) -> None:
        self._block, self._count = block, count

    def read(self, _size: int) -> bytes:
        self._count -= 1
        return self._block if self._count >= 0 else b""


def test_a_line_of_a_gibibyte_takes_little_memory():
    reader = LineReader(Blocks(b"x" * (1 << 20), 1024))
    assert [len(line) for line in reader] == [MAX_LINE]
    assert reader.cut == 1


@given(st.lists(st.binary(max_size=50).filter(lambda line: b"\n" not in line), max_size=20), st.integers(1, 7))
def test_lines_are_read_as_they_are_however_the_stream_is_cut(lines, size):
    data = b"\n".join(lines)
    stream = io.BytesIO(data)
    read = list(LineReader(type("Cut", (), {"read": staticmethod(lambda _size: stream.read(size))})()))
    expected = [line.decode("utf-8", "replace").rstrip("\r") for line in data.split(b"\n")]
    assert read == (expected[:-1] if expected[-1] == "" else expected)


def summary_of(lines: Iterator[str] | list[str]) -> Summary:
    """Return the summary of lines."""
    summary = Summary(catalog())
    for line in lines:
        summary.feed(line)
    return summary


def test_a_log_is_summarised_with_counts_and_times():
    log = [DISK_FULL, "2026-01-01 12:00:05 INFO x - physic disk maybe full soon 0.91, so mark disk full",
           "2026-01-01 12:01:00 WARN T1 - invokeSync: wait response timeout exception, the channel[10.0.0.1:10911]",
           "Traceback (most recent call last):", '  File "x.py", line 3, in f', "OSError: [Errno 28] No space left "
           "on device",
           DISK_FULL.replace("12:00:00", "12:02:30"), "2026-01-01 12:03:00 WARN T1 - 17 zebras", "",
           "2026-01-01 12:03:01 WARN T1 - 18 zebras"]
    summary = summary_of(log)
    assert (summary.lines, summary.troubles, summary.unknown_count) == (10, 5, 2)
    seen = summary.known["store.disk-full"]
    assert (seen.count, seen.first, seen.last) == (2, "2026-01-01 12:00:00", "2026-01-01 12:02:30")
    assert summary.known["system.no-space"].first == "2026-01-01 12:01:00"
    assert [(each.count, each.example) for each in summary.ranked_unknown()] == [(2, "T1 - 17 zebras")]
    assert [entry.id for entry, _seen in summary.ranked()][0] == "store.disk-full"


def test_json_lines_are_read_too():
    record = logging.LogRecord("RocketmqStore", logging.ERROR, "x.py", 1, "%s disk maybe full soon %s, so mark disk "
        "full",
                               ("physic", 0.91), None)
    summary = summary_of([JsonFormatter().format(record), '{"level": "WARN"}', '{"message": 1}', "{" * 500])
    assert [entry.id for entry, _seen in summary.ranked()] == ["store.disk-full"]
    assert summary.troubles == 1


def test_unknown_lines_take_bounded_memory():
    words = ("".join(chr(ord("a") + (number >> 4 * place & 15)) for place in range(4)) for number in range(3000))
    summary = summary_of(f"2026-01-01 12:00:00 ERROR t - {word} zz" for word in words)
    assert len(summary.unknown) == MAX_UNKNOWN and summary.unknown_count == 3000


@given(st.lists(st.one_of(st.text(max_size=80), st.sampled_from([DISK_FULL, "{}", "[]",
    '{"message": "x", "time": []}'])),
                max_size=8))
def test_any_log_is_summarised(lines):
    assert summary_of(lines).lines == len(lines)


# ---- the command


def test_the_command_prints_meaning_advice_and_page():
    result = run(DISK_FULL)
    assert result.exit_code == 0
    assert result.output.splitlines()[:2] == ["store.disk-full  (log line or error)",
        "  where  which=physic, used=0.91"]
    assert "docs/how-to/troubleshooting.md#disk" in result.output and "fileReservedTime" in result.output


@pytest.mark.parametrize("text", [
    "No acl config for billing", "the broker 127.0.0.1:1 refused the request, no permission: x"])
def test_advice_about_accounts_names_a_context_before_the_file_of_mqadmin(text):
    told = " ".join(CliRunner().invoke(rmqha, ["explain", text]).output.split())
    assert "for rmqha: `rmqha context add NAME -n ... --access-key KEY`; for mqadmin: conf/tools.yml" in told


def test_the_command_reads_a_log_from_the_standard_input():
    log = "\n".join([DISK_FULL, DISK_FULL, "2026-01-01 12:00:00 ERROR t - zebras \x1b[31m"]).encode()
    result = run("-", stdin=log)
    assert result.exit_code == 0 and "\x1b" not in result.output
    assert result.output.startswith("3 lines, 3 of them at WARN or above, 1 of these unknown\n")
    assert re.search(r"^ +2  2026-01-01 12:00:00  2026-01-01 12:00:00  store.disk-full$", result.output, re.MULTILINE)
    answer = json.loads(run("-", "-o", "json", stdin=log).output)
    assert [(each["id"], each["count"]) for each in answer["known"]] == [("store.disk-full", 2)]
    assert yaml.safe_load(run("-", "-o", "yaml", stdin=log).output) == answer
    assert run("-", stdin=b"").output == "0 lines, 0 of them at WARN or above, 0 of these unknown\n"


def test_the_command_lists_all_and_refuses_nothing():
    listed = json.loads(run("--list", "-o", "json").output)
    assert {each["id"] for each in listed} == catalog().entries.keys()
    assert len(run("--list").output.splitlines()) == len(listed) + 2
    assert run().exit_code == 2


def test_all_shows_more_matches():
    text = "CODE: 14 SLAVE_NOT_AVAILABLE FLUSH_DISK_TIMEOUT MESSAGE_ILLEGAL"
    assert run(text).output.endswith("1 more; --all shows them\n")
    assert len(re.findall(r"^code\.", run(text, "--all").output, re.MULTILINE)) == 4


def test_names_are_completed():
    result = CliRunner().invoke(rmqha, [], prog_name="rmqha", env={
        "_RMQHA_COMPLETE": "bash_complete", "COMP_WORDS": "rmqha explain SLAVE_NOT", "COMP_CWORD": "2"})
    assert "SLAVE_NOT_AVAILABLE" in result.output


# ---- lines of running servers


def test_what_running_servers_log_is_known(cluster, caplog):
    """Make a master log warnings, and look each of them up."""
    caplog.set_level(logging.WARNING)
    master = cluster.master
    assert master.send("T", b"x" * (master.store.message_store_config.maxMessageSize + 1)).code != 0
    assert master.send("no/such%topic", b"x").code != 0
    assert master.send("T", b"x", queue_id=99).code != 0
    records = [each for each in caplog.records if each.levelno >= logging.WARNING and each.name.startswith("Rocketmq")]
    unknown = [record.getMessage() for record in records
               if not any(match.entry.kind is Kind.LINE for match in catalog().line(record.getMessage()))]
    assert records and not unknown
