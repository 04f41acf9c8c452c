"""The measurement of what clients feel: its figures, its rules, and one short run with each client.

The long runs are `python -m tests.faults.felt`.
"""
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.failover import cluster
from tests.faults.felt import check, figures, run, ways
from tests.faults.felt.figures import Figures, Window
from tests.faults.felt.programs import ORDERED, PROGRAMS, TRANSACTIONS, Client, Pace, Program
from tests.faults.felt.run import Result, Run, Task
from tests.faults.felt.system import Setup
from tests.support import tiers
from tests.support.sources import ROOT

MS = 1000  # us
JAVA = PROGRAMS["java4"]


def _sent(number: int, begin_ms: int, took_ms: int = 1, **outcome: object) -> dict:
    return {"send": number, "at": begin_ms * MS, "us": took_ms * MS, "tries": 1, "status": "SEND_OK", "id": "x",
            **outcome}


def _got(number: int, at_ms: int, **fields: object) -> dict:
    return {"got": number, "at": at_ms * MS, "queue": 0, "offset": number, **fields}


def _client(folder: Path, program: Program, *records: dict) -> Client:
    client = Client(program, folder, "127.0.0.1:9876", Pace())
    client.records.file.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    client.records.update()
    return client


# Figures.


def test_figures_of_an_event(tmp_path):
    window = Window(1, "kill", "", 100 * MS, 1000 * MS)
    client = _client(
        tmp_path, JAVA, _sent(0, 50), _sent(1, 99, 400, tries=2), _sent(2, 500, 3, status="", error="CODE: 14"),
        _sent(3, 520, status="FLUSH_SLAVE_TIMEOUT"), _sent(4, 600), _sent(5, 1100),
        _got(0, 52), _got(1, 800), _got(1, 900), _got(5, 1102))
    assert figures.figures_of(JAVA, client.records, window) == Figures(
        failed=1, other=1, retried=1, gap_ms=499.0 + 1, longest_send_ms=400.0, late_ms=701.0, missing=1, twice=1)


def test_gap_reaches_over_both_ends_of_a_window(tmp_path):
    client = _client(tmp_path, JAVA, _sent(0, 50), _sent(1, 2000))
    found = figures.figures_of(JAVA, client.records, Window(1, "kill", "", 100 * MS, 1000 * MS))
    assert found.gap_ms == 1950


def test_attempts_are_unknown_without_their_number(tmp_path):
    program = PROGRAMS["go"]
    client = _client(tmp_path, program, {key: value for key, value in _sent(0, 150).items() if key != "tries"})
    assert figures.figures_of(program, client.records, Window(1, "kill", "", 0, 1000 * MS)).retried is None


def test_lines_that_are_being_written_are_read_when_they_are_complete(tmp_path):
    client = _client(tmp_path, JAVA, _sent(0, 50))
    line = json.dumps(_got(0, 60)) + "\n"
    with open(client.records.file, "a", encoding="utf-8") as file:
        file.write(line[:10])
        file.flush()
        assert not client.records.update().got
        file.write(line[10:])
    assert client.records.update().receptions == {0: [60 * MS]}


def test_table_has_each_event_its_median_and_its_maximum():
    table = [(Window(number, "kill", "of b0", 0, 1, routed_ms=70), {"go": Figures(number, 0, None, 10 * number, 1, 1, 0,
                                                                                 0)}) for number in (1, 2, 6)]
    lines = figures.text_of(table).splitlines()
    assert [line.split() for line in lines if line.startswith("go")][3:] == [
        ["go", "2", "0", "-", "20", "1", "1", "0", "0"], ["go", "6", "0", "-", "60", "1", "1", "0", "0"]]


def test_errors_are_counted_without_their_details(tmp_path):
    texts = [f"org.apache.rocketmq.client.exception.MQClientException: Send [3] times, still failed, cost [{n}]ms, "
             f"Topic: t, BrokersSent: [a, a, null]" for n in (1, 22)]
    client = _client(tmp_path, JAVA, *(_sent(number, 10, status="", error=text) for number, text in enumerate(texts)))
    found = figures.errors_of(client.records.sends, Window(1, "kill", "", 0, 1000 * MS))
    assert found == {"MQClientException: Send [3] times, still failed, Topic: t": 2}


# Rules.


def _found(client: Client, copies: dict[int, int]) -> list[str]:
    return check.violations([client], {client.program.topic: Counter(copies)})


@pytest.mark.parametrize("program, records, copies, rule", [
    (JAVA, [_sent(0, 1), _got(0, 2)], {}, "1 acknowledged and lost: [0]"),
    (JAVA, [_sent(0, 1)], {0: 1}, "1 acknowledged and not received: [0]"),
    (JAVA, [_sent(0, 1), _got(0, 2)], {0: 2}, "1 stored more often than sent: [0]"),
    (PROGRAMS["go"], [_sent(0, 1), _got(0, 2)], {0: 5}, "1 stored more often than sent: [0]"),
    (ORDERED, [_sent(0, 1), _sent(1, 2), _got(1, 2), _got(0, 3)], {0: 1, 1: 1}, "1 received after a later one: [0]"),
    (TRANSACTIONS, [_sent(6, 1), _got(6, 2)], {6: 1}, "1 rolled back and received: [6]"),
    (TRANSACTIONS, [_sent(7, 1)], {7: 1}, "1 acknowledged and not received: [7]"),
])
def test_violation_is_found(program, records, copies, rule, tmp_path):
    found = _found(_client(tmp_path, program, *records), copies)
    assert f"{program.name}: {rule}" in found


@pytest.mark.parametrize("program, records, copies", [
    (JAVA, [_sent(0, 1, tries=2), _got(0, 2), _got(0, 3)], {0: 2}),
    (JAVA, [_sent(0, 1, status="", error="no answer"), _got(0, 2)], {0: 1}),
    (JAVA, [_sent(0, 1, status="", error="no answer")], {}),
    (ORDERED, [_sent(0, 1), _sent(1, 2), _got(0, 2), _got(1, 3), _got(0, 4)], {0: 1, 1: 1}),
    (TRANSACTIONS, [_sent(6, 1), _sent(9, 1), _sent(0, 1), _got(0, 2), {"check": 9, "at": 5}], {0: 1}),
])
def test_nothing_is_found_where_all_holds(program, records, copies, tmp_path):
    assert _found(_client(tmp_path, program, *records), copies) == []


# A short run.


@pytest.fixture(scope="module")
def short_run(tmp_path_factory) -> tuple[Task, Result]:
    """One planned switch, felt by all clients that can run here."""
    programs = tuple(program for program in PROGRAMS.values() if program.why_unavailable() is None)
    task = Task(Setup(), ("switch",), 1, programs, tmp_path_factory.mktemp("felt"), settle_s=1.0)
    return task, Run(task).run()


# The first test waits for the run.
@tiers.in_all
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.java if program.language == "java" else ())
                                  for name, program in PROGRAMS.items()])
def test_client_loses_nothing_in_a_switch(name, request):
    reason = PROGRAMS[name].why_unavailable()
    if reason:
        pytest.skip(reason)
    task, result = request.getfixturevalue("short_run")
    assert not [text for text in result.violations if text.startswith(f"{name}:")]
    ((_window, felt),) = result.table
    assert result.sends[name] > 50 and felt[name].gap_ms > 0 and not felt[name].missing
    assert f"{name} " in run.text_of(task, result)


# The other ways: they need a network of their own, so they run in a process of their own.


@tiers.in_all
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ways.WAYS)
def test_switch_behind_one_address_loses_nothing(way, tmp_path):
    reason = ways.why_not(way) or cluster.why_not()
    if reason:
        pytest.skip(reason)
    figures_file = tmp_path / "felt.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.felt", "--way", way, "--rounds", "1", "--settle", "3",
         "--clients", "rmqha", "--folder", str(tmp_path / "files"), "--json", str(figures_file)],
        cwd=ROOT, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    result = json.loads(figures_file.read_text("utf-8"))
    assert result["sends"]["rmqha"] > 50 and not result["violations"] and result["setup"]["way"] == way
    print(f"{way}: {result['table'][0]['clients']['rmqha']}")
