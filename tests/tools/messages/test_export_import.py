"""An exported and imported topic is the same; whatever an export contains, memory is bounded."""
import gzip
import json
import os
import random
import stat
import subprocess
import threading
import tracemalloc
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message import message_decoder
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.message.message_decoder import MessageBatch
from rmqha.common.program import Terminated
from rmqha.tools.messages import export_file
from rmqha.tools.messages.export_file import NOT_CARRIED, Exported, ExportReader, runs, target_queues
from rmqha.tools.terminal import CannotAnswerError, WorkFailedError
from tests.store.support import wait_dispatched
from tests.support import patience
from tests.support.in_process import running_name_server
from tests.tools.conftest import broker_at
from tests.tools.messages.conftest import Line

# A topic that is exported and imported has the same messages in the same queues, in the same order.

TOPIC = "Carried"


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A second cluster, whose broker has another name."""
    folder = tmp_path_factory.mktemp("other")
    with running_name_server(folder) as namesrv, broker_at(folder / "b", namesrv, brokerName="broker-z") as broker:
        yield Line(namesrv, broker)


@pytest.fixture(scope="module")
def source(line):
    """A topic of two queues with every kind of message; one queue has more messages than one pull returns."""
    with DefaultMQProducer("P", line.namesrv) as producer:
        producer.admin.create_topic("TBW102", TOPIC, 2)
        queues = sorted(producer.fetch_publish_message_queues(TOPIC))
        for number in range(90):
            message = Message(TOPIC, b"%d" % number, tags="a" if number % 2 else "", keys=f"k{number} all", flag=number)
            message.put_property("empty", "")
            message.put_property("text", "a=b;ü\n二")
            producer.send(message, queue=queues[number % 3 == 0])
        producer.send(Message(TOPIC, bytes(range(256)) * 50), queue=queues[0])  # sent compressed
        producer.send_batch([Message(TOPIC, b"\xff" * 3), Message(TOPIC, b"x")], queue=queues[1])
    wait_dispatched(line.broker.store)
    return TOPIC


def everything(namesrv: str, topic: str) -> list[list[tuple]]:
    """Return the content of each queue: body, flag and the properties that are exported."""
    found = []
    with DefaultMQPullConsumer("check", namesrv) as consumer:
        for queue in sorted(consumer.fetch_subscribe_message_queues(topic)):
            offset, messages = 0, []
            while offset < consumer.admin.max_offset(queue):
                result = consumer.pull(queue, "*", offset, 32)
                messages += result.msg_found_list
                offset = result.next_begin_offset
            found.append([(bytes(each.body), each.flag, {name: value for name, value in each.properties.items()
                                                         if name not in NOT_CARRIED}) for each in messages])
    return found


@pytest.mark.parametrize("name", ["topic.jsonl", "topic.jsonl.gz"])
def test_round_trip_into_another_cluster(line, other, source, tmp_path, name):
    file, topic = tmp_path / name, f"Copy{len(name)}"
    assert "93 messages of 1 topic exported" in line.ok("export", "-t", source, file).stderr
    assert "93 messages imported" in other.ok("import", "-t", topic, file).stderr
    before, after = everything(line.namesrv, source), everything(other.namesrv, topic)
    assert [len(queue) for queue in before] == [61, 32]
    for sent, came in zip(before, after, strict=True):
        assert came == sent


def test_import_resumes_where_it_stopped(line, other, source, tmp_path):
    file, cut = tmp_path / "whole", tmp_path / "cut"
    line.ok("export", "-t", source, file)
    lines = file.read_text("utf-8").splitlines(keepends=True)
    cut.write_text("".join(lines[:51]), "utf-8")
    result = other.run("import", "-t", "Again", cut)
    assert result.exit_code == 1 and "truncated after line 51" in result.stderr and "--skip 50" in result.stderr
    assert sum(map(len, everything(other.namesrv, "Again"))) == 50
    other.ok("import", "-t", "Again", "--skip", 50, file)
    assert everything(other.namesrv, "Again") == everything(line.namesrv, source)


def test_all_user_topics_are_exported(line, other, source, tmp_path):
    file = tmp_path / "all"
    line.ok("produce", "-t", "Second", "-m", "x")
    line.ok("consume", "-t", "Second", "-g", "G")  # creates a retry topic
    line.ok("export", "--all", file)
    topics = json.loads(file.read_text("utf-8").splitlines()[0])["topics"]
    assert topics[source] == {"broker-a": 2} and "Second" in topics
    assert not [topic for topic in topics if topic.startswith(("%", "TBW102", "SCHEDULE", "broker-a", "RMQ_SYS"))]
    other.ok("import", file)
    assert everything(other.namesrv, source) == everything(line.namesrv, source)
    assert other.run("import", "-t", "One", file).exit_code == 2


def test_messages_imported_twice_have_duplicate_ids(line, source, tmp_path):
    file = tmp_path / "twice"
    line.ok("export", "-t", source, file)
    line.ok("import", "-t", "Twice", file)
    line.ok("import", "-t", "Twice", file)
    assert everything(line.namesrv, "Twice") == [queue * 2 for queue in everything(line.namesrv, source)]


def test_export_to_standard_output_equals_a_file(line, source, tmp_path):
    line.ok("export", "-t", source, tmp_path / "file")
    printed = line.ok("export", "-t", source, "-").stdout.splitlines()
    assert printed[1:] == (tmp_path / "file").read_text("utf-8").splitlines()[1:]
    assert json.loads(printed[-1]) == {"end": True, "messages": 93}


def test_file_is_not_overwritten(line, source, tmp_path):
    (tmp_path / "file").write_text("precious")
    assert line.run("export", "-t", source, tmp_path / "file").exit_code == 2
    assert (tmp_path / "file").read_text() == "precious"
    line.ok("export", "-t", source, "--force", tmp_path / "file")


def test_failed_export_leaves_no_file(line, tmp_path):
    assert line.run("export", "-t", "NoSuchTopic", tmp_path / "file").exit_code == 2
    assert not list(tmp_path.iterdir())


HEADER = '{"rmqhaExport": 1, "topics": {"T": {"b": 1}}}\n'
GOOD = {"topic": "T", "broker": "b", "queue": 0, "body": "x", "flag": 0, "keys": None, "tags": None, "properties": {},
        "system": {}}


@pytest.mark.parametrize("text, code, said", [
    ("", 2, ":1: Expecting value"), ("{}\n", 2, "not an export of rmqha"),
    ('{"rmqhaExport": 2}', 2, "one of a newer version"),
    ("[]\n", 2, "not a JSON object"), (HEADER, 1, "truncated after line 1"),
    (HEADER + '{"end": true, "messages": 5}', 1, "the export contains 5 messages, but the file has 0"),
    (HEADER + "{}\n", 1, ":2: topic is missing"),
    (HEADER + json.dumps({**GOOD, "queue": 1}) + "\n", 1, "queue 1 of 'T' at 'b'"),
    (HEADER + json.dumps({**GOOD, "properties": {"a": 1}}) + "\n", 1, "property a"),
    (HEADER + json.dumps({**GOOD, "flag": "x"}) + "\n", 1, "flag"),
    (HEADER + json.dumps({key: value for key, value in GOOD.items() if key != "body"}) + "\n", 1, "either `body` or")])
def test_files_that_are_not_exports_are_refused(line, tmp_path, text, code, said):
    (tmp_path / "file").write_text(text)
    result = line.run("import", tmp_path / "file")
    assert result.exit_code == code and said in result.stderr, result.stderr


def test_damaged_compressed_file_is_refused(line, source, tmp_path):
    file = tmp_path / "file.gz"
    line.ok("export", "-t", source, file)
    file.write_bytes(file.read_bytes()[:-20])
    result = line.run("import", "-t", "Damaged", file)
    assert result.exit_code == 1 and "damaged after line" in result.stderr
    file.write_bytes(gzip.compress(b"\xff"))
    assert line.run("import", file).exit_code == 2


def test_queues_are_mapped_by_name_or_by_rank():
    source = [("a", 0), ("a", 1), ("b", 0)]
    same = [MessageQueue("T", *name) for name in [*source, ("c", 0)]]
    assert target_queues(source, same, False) == dict(zip(source, same))
    others = [MessageQueue("T", "z", number) for number in range(3)]
    assert target_queues(source, others, False) == dict(zip(source, others))
    with pytest.raises(CannotAnswerError, match="has only 2 queues to send to, the export 3"):
        target_queues(source, others[:2], False)
    assert target_queues(source, others[:2], True)["b", 0] == others[0]


@contextmanager
def sending(line, topic):
    """A producer for a topic of two queues that accepts larger messages than producers send by default."""
    with DefaultMQProducer("P", line.namesrv) as producer:
        producer.max_message_size = 64 << 20
        producer.admin.create_topic("TBW102", topic, 2)
        yield producer, sorted(producer.fetch_publish_message_queues(topic))


def carried(line, other, topic, tmp_path, copy):
    """Export a topic and import it elsewhere; both must contain the same messages."""
    wait_dispatched(line.broker.store)
    line.ok("export", "-t", topic, tmp_path / "file")
    other.ok("import", "-t", copy, tmp_path / "file")
    assert everything(other.namesrv, copy) == everything(line.namesrv, topic)


def test_long_bodies_are_preserved(line, other, tmp_path):
    bodies = [b"x" * ((4 << 20) + 1), b"x" * (4 << 20), bytes(9 << 20), b"last"]  # short when compressed
    with sending(line, "Long") as (producer, queues):
        for body in bodies:
            producer.send(Message("Long", body), queue=queues[0])
    carried(line, other, "Long", tmp_path, "LongCopy")
    assert [body for body, _flag, _properties in everything(other.namesrv, "LongCopy")[0]] == bodies
    told = line.ok("consume", "-t", "Long", "-o", "json").stdout
    line.ok("produce", "-t", "LongAgain", "-f", "json", stdin=told)
    assert [body for body, *_ in everything(line.namesrv, "LongAgain")[0]] == bodies


# CLUSTER, which both brokers add, and UNIQ_KEY take a part of the 32767 bytes.
ROOM = 32767 - len("CLUSTER\x01DefaultCluster\x02") - len("UNIQ_KEY\x01\x02") - 32 - len("p\x01\x02")


@pytest.mark.parametrize("size", [ROOM, ROOM - 1, ROOM - 17, ROOM - 100, ROOM - 1000, 20_000, 3_000])
def test_properties_of_any_length_are_preserved(line, other, tmp_path, size):
    topic = f"Wide{size}"
    with sending(line, topic) as (producer, queues):
        for number in range(9):
            message = Message(topic, b"%d" % number)
            if number in (2, 3, 6):
                message.put_property("p", "v" * size)
            producer.send(message, queue=queues[0])
    carried(line, other, topic, tmp_path, f"{topic}Copy")
    assert len(everything(other.namesrv, f"{topic}Copy")[0]) == 9


def exported(*sizes, key=True):
    """Yield messages as a reader does, with bodies and properties of the given sizes."""
    for number, (body, properties) in enumerate(sizes):
        message = Message("T", b"x" * body)
        message.put_property("p", "v" * properties)
        if key:
            message.put_property("UNIQ_KEY", f"{number:032}")
        yield Exported(number, "T", ("b", 0), message)


@pytest.mark.parametrize("key", [True, False])
def test_batches_remain_within_the_brokers_limits(key):
    rng, cluster = random.Random(7), {"CLUSTER": "c" * 200, "WAIT": "true"}
    for _ in range(30):
        sizes = [(rng.choice((0, 1, 5_000, 300_000)), rng.choice((1, 5_000, 31_000, 31_700, 32_600, 32_700)))
                 for _ in range(40)]
        found = list(runs(exported(*sizes, key=key)))
        assert [each.line for run in found for each in run] == list(range(40)), "every message once, in order"
        for run in (run for run in found if len(run) > 1):
            for each in run:
                each.message.put_property("UNIQ_KEY", "0" * 32)
            batch = MessageBatch.generate_from_list([each.message for each in run]).encode()
            assert len(batch) <= 256 * 1024 and len(run) <= 64
            for flag_body_properties in layout.iterate_batch(batch):
                whole = message_decoder.message_properties2string(
                    {**message_decoder.string2message_properties(bytes(flag_body_properties.properties).decode()),
                     **cluster})
                assert len(whole) < 32_767
        assert len(found) < 40, "some messages have to share a batch"


def file_of(tmp_path, *messages):
    """Return the path of an export of some messages of queue 0."""
    rows = [HEADER, *(json.dumps({**GOOD, **each}) + "\n" for each in messages),
            json.dumps({"end": True, "messages": len(messages)}) + "\n"]
    (tmp_path / "file").write_text("".join(rows))
    return tmp_path / "file"


@pytest.mark.parametrize("refused", [
    {"properties": {"p": "v" * 32_740}}, {"properties": {"p": "v" * 32_760}}, {"properties": {"p": "v" * 40_000}},
    {"body": "z", "bodyBase64": "eA=="}, {"flag": 1 << 31}, {"queue": 5}], ids=lambda each: str(each)[:40])
def test_message_that_cannot_be_imported_is_named_and_skipped(other, tmp_path, refused):
    topic = f"Left{len(str(refused))}{next(iter(refused))}"
    file = file_of(tmp_path, *({"body": str(number), **(refused if number == 4 else {})} for number in range(9)))
    for skip in (0, 4):
        result = other.run("import", "-t", topic, "--skip", skip, file)
        assert result.exit_code == 1 and f"{file}:6: " in result.stderr and "internal error" not in result.stderr
        assert ("the first 4 messages of the file were imported; continue with --skip 4; "
                "--skip 5 skips this one") in result.stderr
    other.ok("import", "-t", topic, "--skip", 5, file)
    assert [body for queue in everything(other.namesrv, topic) for body, *_ in queue] == [
        b"%d" % number for number in range(9) if number != 4]


def test_first_message_that_cannot_be_imported_is_reported(other, tmp_path):
    file = file_of(tmp_path, {"flag": "x"}, {"body": "second"})
    result = other.run("import", "-t", "First", file)
    assert result.exit_code == 1 and "nothing was imported; --skip 1 skips this one" in result.stderr
    other.ok("import", "-t", "First", "--skip", 1, file)
    assert [body for queue in everything(other.namesrv, "First") for body, *_ in queue] == [b"second"]


def test_empty_bodies_are_preserved(other, tmp_path):
    other.ok("import", "-t", "Empty", file_of(tmp_path, {"body": ""}, {"body": "x"}, {"body": ""}))
    other.ok("import", "-t", "Empty", file_of(tmp_path, {"body": ""}))
    assert [body for queue in everything(other.namesrv, "Empty") for body, *_ in queue] == [b"", b"x", b"", b""]


@pytest.mark.parametrize("interrupt, code", [(KeyboardInterrupt, 130), (lambda: Terminated(15), 143)])
def test_interrupted_import_reports_its_progress(other, tmp_path, monkeypatch, interrupt, code):
    file = file_of(tmp_path, *({"body": str(number), "properties": {"p": "v" * 32_000}} for number in range(9)))
    send, sent = DefaultMQProducer.send, []

    def interrupted(producer, message, *arguments, **named):
        if len(sent) == 3:
            raise interrupt()
        sent.append(message.body)
        return send(producer, message, *arguments, **named)
    monkeypatch.setattr(DefaultMQProducer, "send", interrupted)
    result = other.run("import", "-t", f"Interrupted{code}", file)
    assert result.exit_code == code and (
        "the first 3 messages of the file were imported; continue with --skip 3") in result.stderr


def test_export_is_written_to_the_target_of_a_link_and_to_a_pipe(line, source, tmp_path):
    line.ok("export", "-t", source, tmp_path / "file")
    whole = (tmp_path / "file").read_text("utf-8").splitlines()[1:]
    os.mkfifo(tmp_path / "pipe")
    came = []
    reader = threading.Thread(target=lambda: came.extend((tmp_path / "pipe").read_text("utf-8").splitlines()[1:]))
    reader.start()
    line.ok("export", "-t", source, "--force", tmp_path / "pipe")
    reader.join(240)
    assert came == whole and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    (tmp_path / "link").symlink_to("file")
    assert line.run("export", "-t", source, tmp_path / "link").exit_code == 2
    line.ok("export", "-t", source, "--force", tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text("utf-8").splitlines()[1:] == whole
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "link", "pipe"]


def test_export_to_the_output_of_a_process(line, source, tmp_path):
    """Use a link like /dev/stdout; not /dev/stdout itself, which a bug would replace for all processes when root
    runs the test."""
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    with open(tmp_path / "log", "a") as log:
        print("before", file=log, flush=True)
        subprocess.run(patience.command(["-m", "rmqha.tools.rmqha_command", "export", "-t", source, "--force",
                                         tmp_path / "stdout", "-n", line.namesrv]), stdout=log, check=True, timeout=600)
    rows = (tmp_path / "log").read_text("utf-8").splitlines()
    assert (tmp_path / "stdout").is_symlink() and rows[0] == "before" and len(rows) == 96
    assert json.loads(rows[-1]) == {"end": True, "messages": 93}


def test_import_from_standard_input(line, other, source, tmp_path):
    line.ok("export", "-t", source, tmp_path / "file")
    data = (tmp_path / "file").read_bytes()
    other.ok("import", "-t", "FromInput", "-", stdin=data)
    assert everything(other.namesrv, "FromInput") == everything(line.namesrv, source)
    for damaged, said in ((data[:2000], "-:"), (b"\xff" + data, "-:1: not UTF-8 at byte 0"),
                          (b"", "-:1: Expecting value")):
        result = other.run("import", "-t", "FromInput2", "-", stdin=damaged)
        assert result.exit_code in (1, 2) and said in result.stderr and "internal error in rmqha" not in result.stderr


# Invalid content in an export is an error that names its line, within bounded memory.

HOSTILE_HEADER = {"rmqhaExport": 1, "topics": {"T": {"b": 2}}}
LINE = {"topic": "T", "broker": "b", "queue": 1, "body": "x", "flag": 0, "keys": None, "tags": "a",
        "properties": {"p": "1"}, "system": {"UNIQ_KEY": "U"}}
END = {"end": True, "messages": 1}
ODD = [None, True, -1, 0, 1 << 31, 1 << 70, 1e30, float("inf"), 0.5, "", "x", [], [1], {}, {"a": 1}, {"a": "\x01"},
       "\x02"]
_JSON = st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
                     lambda inner: st.one_of(st.lists(inner, max_size=3),
                                             st.dictionaries(st.text(max_size=5), inner, max_size=3)), max_leaves=6)


def written(path, *lines):
    """Write a file of these lines, compressed when its name says so."""
    data = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def messages(path):
    """Return all messages of a file."""
    with ExportReader(path) as reader:
        return list(reader.messages())


def test_unmodified_file_is_valid(tmp_path):
    found = messages(written(tmp_path / "e.gz", HOSTILE_HEADER, LINE, END))
    assert [(each.queue, each.message.body, each.message.tags) for each in found] == [(("b", 1), b"x", "a")]


@pytest.mark.parametrize("topics", [
    5, [], "T", None, {"T": None}, {"T": {}}, {"T": {"b": 0}}, {"T": {"b": -1}}, {"T": {"b": 1e30}}, {"T": {"b": True}},
    {"T": {"b": 10 ** 9}}, {"T": {"b": "2"}}, {"../T": {"b": 1}}, {"": {"b": 1}}, {"n" * 200: {"b": 1}},
    {f"T{number}": {"b": 65_536} for number in range(20)}])
def test_invalid_topics_in_the_first_line_are_refused(tmp_path, topics):
    path = written(tmp_path / "e", {**HOSTILE_HEADER, "topics": topics}, END)
    with pytest.raises(CannotAnswerError, match=":1: "):
        messages(path)


@pytest.mark.parametrize("name", sorted(LINE))
def test_invalid_fields_are_refused_or_harmless(tmp_path, name):
    for value in ODD:
        path = written(tmp_path / "e", HOSTILE_HEADER, {**LINE, name: value}, END)
        try:
            (found,) = messages(path)
        except WorkFailedError as error:
            assert error.message.startswith(f"{path}:2: "), value
            continue
        message = found.message
        assert isinstance(message.body, bytes) and -(1 << 31) <= message.flag < 1 << 31 and type(found.queue[1]) is int
        assert all("\x01" not in property_name and "\x02" not in property_name + text
                   for property_name, text in message.properties.items())


@settings(max_examples=60)
@given(_JSON, st.sampled_from(["header", "line", "topics"]))
def test_any_json_is_an_error_that_names_its_line(tmp_path_factory, value, place):
    path = tmp_path_factory.mktemp("e") / "e"
    lines = {"header": [value], "line": [HOSTILE_HEADER, value, END],
             "topics": [{**HOSTILE_HEADER, "topics": value}, END]}[place]
    try:
        messages(written(path, *lines))
    except (CannotAnswerError, WorkFailedError) as error:
        assert error.message.startswith(f"{path}:")
    else:
        assert place == "topics" and value == {}


@pytest.mark.parametrize("line", ["[" * 200_000, "{" * 9, "9" * 9000, '"\ud800', "\0"])
def test_malformed_line_is_an_error_that_names_it(tmp_path, line):
    path = tmp_path / "e"
    path.write_bytes(json.dumps(HOSTILE_HEADER).encode() + b"\n" + line.encode("utf-8", "replace") + b"\n")
    with pytest.raises(WorkFailedError, match=":2: "):
        messages(str(path))


@pytest.mark.parametrize("at", range(2, 60, 3))
def test_damaged_compressed_files_are_reported(tmp_path, at):
    path = tmp_path / "e.gz"
    data = bytearray(gzip.compress(("\n".join(map(json.dumps, (HOSTILE_HEADER, LINE, END))) + "\n").encode(), mtime=0))
    data[at] ^= 0xFF
    path.write_bytes(data)
    try:
        messages(str(path))
    except (CannotAnswerError, WorkFailedError) as error:
        assert error.message.startswith(str(path))


@pytest.mark.parametrize("where", ["header", "line"])
def test_line_that_unpacks_to_a_huge_size_is_refused_in_bounded_memory(tmp_path, monkeypatch, where):
    monkeypatch.setattr(export_file, "LONGEST_LINE", 1 << 20)
    monkeypatch.setattr(export_file, "_LONGEST_HEADER", 1 << 20)
    path = tmp_path / "e.gz"
    with gzip.open(path, "wb") as file:
        file.write(json.dumps(HOSTILE_HEADER).encode() + b"\n" if where == "line" else b"")
        for _ in range(64):
            file.write(b" " * (1 << 20))
    assert path.stat().st_size < 1 << 20
    tracemalloc.start()
    try:
        number = 1 if where == "header" else 2
        with pytest.raises((CannotAnswerError, WorkFailedError), match=f":{number}: .*longer than"):
            messages(str(path))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
