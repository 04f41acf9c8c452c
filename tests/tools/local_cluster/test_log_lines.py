"""Lines of log files: entries, levels, the last ones, those that come."""
import logging

import pytest

from rmqha.common.logs import JavaLevelFormatter, OtherDaysFileHandler
from rmqha.tools.local_cluster.layout import NAMESRV, Node
from rmqha.tools.local_cluster.log_lines import EntryReader, Follower, end_of_logs, last_entries, log_files


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path, "broker-a", "SYNC_MASTER", 21_000)
    made.log_folder.mkdir(parents=True)
    return made


def lines(entries):
    return [line for entry in entries for line in entry.lines]


def write(node, name, *texts):
    (node.log_folder / f"{name}.log").write_text("".join(text + "\n" for text in texts))


def test_traceback_belongs_to_the_line_before_it():
    reader = EntryReader("n")
    text = ["rest of a line", "2026-01-01 10:00:00 ERROR t - bad", "Traceback", "  File", "2026-01-01 10:00:01 - bare"]
    entries = [*reader.feed(text), *reader.flush()]
    assert [entry.level for entry in entries] == [None, "ERROR", None]
    assert entries[1].lines == text[1:4] and entries[1].time == "2026-01-01 10:00:00"


def test_lines_in_json_have_a_level_too():
    reader = EntryReader("n")
    entries = [*reader.feed(['{"time": "2026-01-01T10:00:00.5", "level": "WARN", "message": "m"}', "{no json"]),
               *reader.flush()]
    assert [(entry.level, entry.time) for entry in entries] == [("WARN", "2026-01-01T10:00:00.5")]


def test_last_entries_are_chosen_by_level_and_put_in_order_over_files(node):
    write(node, "broker", "2026-01-01 10:00:00 INFO t - a", "2026-01-01 10:00:03 WARN t - d", "2026-01-01 10:00:04 - e")
    write(node, "store", "2026-01-01 10:00:01 ERROR t - b", "2026-01-01 10:00:02 INFO t - c")
    write(node, "stats", "2026-01-01 10:00:09 INFO - counts")
    assert [line[-1] for line in lines(last_entries(node, (), None, 4))] == list("bcde")
    assert [line[-1] for line in lines(last_entries(node, (), "WARN", 9))] == list("bd")
    assert [line[-1] for line in lines(last_entries(node, ("store",), "INFO", 1))] == ["c"]
    assert [file.stem for file in log_files(node, ())] == ["broker", "store"]
    assert lines(last_entries(node, ("stats",), None, 9)) == ["2026-01-01 10:00:09 INFO - counts"]
    node.output_file.write_text("oops\n")
    assert lines(last_entries(node, ("out",), None, 9)) == ["oops"]
    assert last_entries(node, ("none",), None, 9) == []
    assert end_of_logs(node).splitlines()[:2] == [f"--- {node.output_file}", "oops"]


def test_end_of_a_server_that_has_written_nothing(tmp_path):
    node = Node(tmp_path, "namesrv", NAMESRV, 21_000)
    assert end_of_logs(node) == f"--- {node.output_file}"


def test_nothing_that_comes_is_lost_when_a_file_appears_grows_and_is_rolled(node):
    path = node.log_folder / "broker.log"
    follower = Follower(node, path)
    assert follower.poll() == []
    handler = OtherDaysFileHandler(str(path), max_bytes=100, max_index=3)
    handler.setFormatter(JavaLevelFormatter())
    logger = logging.Logger("followed")
    logger.addHandler(handler)
    seen = []
    for number in range(10):
        logger.warning("line %d", number)
        if number % 2:
            seen += follower.poll()
    handler.close()
    assert [line.rpartition(" ")[2] for line in lines(seen)] == [str(number) for number in range(10)]
    assert {entry.level for entry in seen} == {"WARN"}
    with open(path, "ab") as opened:
        opened.write(b"half a l")
        opened.flush()
        assert follower.poll() == []
        opened.write(b"ine\n")
    assert lines(follower.poll()) == ["half a line"]
    follower.close()


def test_follower_begins_at_the_end(node):
    write(node, "broker", "2026-01-01 10:00:00 INFO t - old")
    follower = Follower(node, node.log_folder / "broker.log")
    assert follower.poll() == []
    follower.close()
