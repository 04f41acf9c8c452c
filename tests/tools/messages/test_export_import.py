"""A topic that is exported and imported has the same messages in the same queues, in the same order."""
import gzip
import json

import pytest

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message
from rmqha.common.message.message_queue import MessageQueue
from rmqha.tools.dialect.exit_codes import CannotAnswerError
from rmqha.tools.messages.export_file import NOT_CARRIED
from rmqha.tools.messages.import_ import target_queues
from tests.store.support import wait_dispatched
from tests.support.in_process import running_name_server
from tests.tools.conftest import broker_at
from tests.tools.messages.conftest import Line

TOPIC = "Carried"


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Another cluster, whose broker has another name."""
    folder = tmp_path_factory.mktemp("other")
    with running_name_server(folder) as namesrv, broker_at(folder / "b", namesrv, brokerName="broker-z") as broker:
        yield Line(namesrv, broker)


@pytest.fixture(scope="module")
def source(line):
    """A topic of two queues with every kind of message; one queue has more than a pull gives."""
    with DefaultMQProducer("P", line.namesrv) as producer:
        producer.admin.create_topic("TBW102", TOPIC, 2)
        queues = sorted(producer.fetch_publish_message_queues(TOPIC))
        for number in range(90):
            message = Message(TOPIC, b"%d" % number, tags="a" if number % 2 else "", keys=f"k{number} all", flag=number)
            message.put_property("empty", "")
            message.put_property("text", "a=b;ü\n二")
            producer.send(message, queue=queues[number % 3 == 0])
        producer.send(Message(TOPIC, bytes(range(256)) * 50), queue=queues[0])  # compressed on its way
        producer.send_batch([Message(TOPIC, b"\xff" * 3), Message(TOPIC, b"x")], queue=queues[1])
    wait_dispatched(line.broker.store)
    return TOPIC


def everything(namesrv: str, topic: str) -> list[list[tuple]]:
    """What each queue holds: body, flag and the properties that are carried."""
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


def test_an_import_goes_on_where_it_stopped(line, other, source, tmp_path):
    file, cut = tmp_path / "whole", tmp_path / "cut"
    line.ok("export", "-t", source, file)
    lines = file.read_text("utf-8").splitlines(keepends=True)
    cut.write_text("".join(lines[:51]), "utf-8")
    result = other.run("import", "-t", "Again", cut)
    assert result.exit_code == 1 and "cut off behind line 51" in result.stderr and "--skip 50" in result.stderr
    assert sum(map(len, everything(other.namesrv, "Again"))) == 50
    other.ok("import", "-t", "Again", "--skip", 50, file)
    assert everything(other.namesrv, "Again") == everything(line.namesrv, source)


def test_all_own_topics(line, other, source, tmp_path):
    file = tmp_path / "all"
    line.ok("produce", "-t", "Second", "-m", "x")
    line.ok("consume", "-t", "Second", "-g", "G")  # makes a retry topic
    line.ok("export", "--all", file)
    topics = json.loads(file.read_text("utf-8").splitlines()[0])["topics"]
    assert topics[source] == {"broker-a": 2} and "Second" in topics
    assert not [topic for topic in topics if topic.startswith(("%", "TBW102", "SCHEDULE", "broker-a", "RMQ_SYS"))]
    other.ok("import", file)
    assert everything(other.namesrv, source) == everything(line.namesrv, source)
    assert other.run("import", "-t", "One", file).exit_code == 2


def test_what_is_imported_twice_has_its_ids_twice(line, source, tmp_path):
    file = tmp_path / "twice"
    line.ok("export", "-t", source, file)
    line.ok("import", "-t", "Twice", file)
    line.ok("import", "-t", "Twice", file)
    assert everything(line.namesrv, "Twice") == [queue * 2 for queue in everything(line.namesrv, source)]


def test_export_to_standard_output_is_what_a_file_has(line, source, tmp_path):
    line.ok("export", "-t", source, tmp_path / "file")
    printed = line.ok("export", "-t", source, "-").stdout.splitlines()
    assert printed[1:] == (tmp_path / "file").read_text("utf-8").splitlines()[1:]
    assert json.loads(printed[-1]) == {"end": True, "messages": 93}


def test_a_file_is_not_written_over(line, source, tmp_path):
    (tmp_path / "file").write_text("precious")
    assert line.run("export", "-t", source, tmp_path / "file").exit_code == 2
    assert (tmp_path / "file").read_text() == "precious"
    line.ok("export", "-t", source, "--force", tmp_path / "file")


def test_an_export_that_fails_leaves_no_file(line, tmp_path):
    assert line.run("export", "-t", "NoSuchTopic", tmp_path / "file").exit_code == 2
    assert not list(tmp_path.iterdir())


HEADER = '{"rmqhaExport": 1, "topics": {"T": {"b": 1}}}\n'
GOOD = {"topic": "T", "broker": "b", "queue": 0, "body": "x", "flag": 0, "keys": None, "tags": None, "properties": {},
        "system": {}}


@pytest.mark.parametrize("text, code, said", [
    ("", 2, ":1: Expecting value"), ("{}\n", 2, "no export of rmqha"), ('{"rmqhaExport": 2}', 2, "of a newer one"),
    ("[]\n", 2, "not a JSON object"), (HEADER, 1, "cut off behind line 1"),
    (HEADER + '{"end": true, "messages": 5}', 1, "written were 5 messages"),
    (HEADER + "{}\n", 1, ":2: topic is missing"),
    (HEADER + json.dumps({**GOOD, "queue": 1}) + "\n", 1, "queue 1 of 'T' at 'b'"),
    (HEADER + json.dumps({**GOOD, "properties": {"a": 1}}) + "\n", 1, "property a"),
    (HEADER + json.dumps({**GOOD, "flag": "x"}) + "\n", 1, "flag"),
    (HEADER + json.dumps({key: value for key, value in GOOD.items() if key != "body"}) + "\n", 1, "give `body`")])
def test_files_that_are_no_exports(line, tmp_path, text, code, said):
    (tmp_path / "file").write_text(text)
    result = line.run("import", tmp_path / "file")
    assert result.exit_code == code and said in result.stderr, result.stderr


def test_a_compressed_file_that_is_damaged(line, source, tmp_path):
    file = tmp_path / "file.gz"
    line.ok("export", "-t", source, file)
    file.write_bytes(file.read_bytes()[:-20])
    result = line.run("import", "-t", "Damaged", file)
    assert result.exit_code == 1 and "damaged behind line" in result.stderr
    file.write_bytes(gzip.compress(b"\xff"))
    assert line.run("import", file).exit_code == 2


def test_queues_go_to_those_of_their_names_or_ranks():
    source = [("a", 0), ("a", 1), ("b", 0)]
    same = [MessageQueue("T", *name) for name in [*source, ("c", 0)]]
    assert target_queues(source, same, False) == dict(zip(source, same))
    others = [MessageQueue("T", "z", number) for number in range(3)]
    assert target_queues(source, others, False) == dict(zip(source, others))
    with pytest.raises(CannotAnswerError, match="has 2 queues that can be sent to, and had 3"):
        target_queues(source, others[:2], False)
    assert target_queues(source, others[:2], True)["b", 0] == others[0]
