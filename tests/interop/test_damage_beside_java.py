"""The same damaged store given to rmqha and to the real RocketMQ: what each makes of it, seen from outside.

A few kinds of damage here; RMQHA_DAMAGE_TABLE=<file> runs all of tests/store/damages.py (several minutes) and writes
the table for docs/reference/differences.md.
"""
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.store.damages import COUNT, DAMAGES, SIZES, Place, write
from tests.support.nodes import BrokerNode
from tests.support.raw_remoting import GET_MAX_OFFSET, RawClient

FOUND, RETRY_IMMEDIATELY, OFFSET_MOVED = 0, 20, 21
NUMBER = re.compile(rb"body(\d{3})x{100}")
TABLE = "RMQHA_DAMAGE_TABLE"


def read_queue(client: RawClient, queue_id: int) -> list[int]:
    """The numbers of the messages that a queue gives out, from index 0 on; -1 for an answer that is no message."""
    end = int(client.request(GET_MAX_OFFSET, topic="T", queueId=queue_id).fields["offset"])
    numbers: list[int] = []
    offset = 0
    while offset < end:
        answer = client.pull("T", queue_id, offset)
        if answer.code == FOUND:
            numbers += [int(number) for number in NUMBER.findall(answer.body)] or [-1]
        following = int(answer.fields.get("nextBeginOffset", offset))
        if answer.code not in (FOUND, RETRY_IMMEDIATELY, OFFSET_MOVED) or following <= offset:
            break
        offset = following
    return numbers


def ranges(numbers: list[int]) -> str:
    """0-9, 12"""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{low}-{high}" if high > low else str(low) for low, high in runs) or "none"


def outcome(broker: BrokerNode) -> str:
    """Start the broker on its store, read everything, send once to each queue: in words."""
    try:
        broker.start(100_000)
    except AssertionError as error:
        code = broker.process.poll()
        if code is None:
            return f"hangs while it starts: {error}"
        return f"does not start (code {code})"
    with RawClient(broker.address) as client:
        client.create_topic("T", 2)
        read = read_queue(client, 0) + read_queue(client, 1)
        answers = [client.send_message_once("T", b"more", queue_id) for queue_id in (0, 1)]
    found = sorted(set(read))
    words = ["all read" if found == list(range(COUNT)) else
             f"first {len(found)} read" if found == list(range(len(found))) else f"read {ranges(read)}"]
    if len(read) != len(found):
        words.append("some twice")
    used = [sum(number % 2 == queue_id for number in range(len(found))) for queue_id in (0, 1)]
    for queue_id, answer in enumerate(answers):
        if answer.code not in (0, 10, 11, 12):
            words.append(f"queue {queue_id} refuses a send: code {answer.code}")
        elif int(answer.fields["queueOffset"]) != used[queue_id]:
            words.append(f"next message of queue {queue_id} gets index {answer.fields['queueOffset']}")
    return ", ".join(words)


def run(kind: str, base: Path, folder: Path, name: str, crashed: bool = False) -> str:
    """What becomes of a copy of `base` under a damage."""
    shutil.copytree(base, folder / "store")
    if crashed:
        (folder / "store" / "abort").touch()
    DAMAGES[name].do(Place(folder / "store"))
    broker = BrokerNode(kind, folder, None, **SIZES)
    try:
        return outcome(broker)
    finally:
        broker.kill()


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The store that is damaged, in copies."""
    root = tmp_path_factory.mktemp("base") / "store"
    write(root)
    return root


# damage -> what is seen of rmqha, of 4.9.7
SEEN = {
    "log: one of the last files missing":
        ("does not start (code 253)", "read 0-79, 100-119, next message of queue 0 gets index 60, next message of "
                                      "queue 1 gets index 60"),
    "log: body flipped in an earlier file": ("does not start (code 253)", "first 90 read"),
    "log: last file cut": ("first 118 read", "does not start (code 253)"),
    "queue: last file missing":
        ("all read", "read 0-79, " + ", ".join(map(str, range(81, 121, 2))) + ", next message of queue 0 gets index 40,"
                     " next message of queue 1 gets index 60"),
}


@pytest.mark.java
@pytest.mark.parametrize("name", SEEN)
def test_both_do_what_the_differences_say(base, tmp_path, name):
    seen = tuple(run(kind, base, tmp_path / kind, name) for kind in ("rmqha", "java"))
    assert seen == SEEN[name]


@pytest.mark.java
@pytest.mark.timeout(3600)
@pytest.mark.skipif(TABLE not in os.environ, reason=f"several minutes; {TABLE}=<file> runs it")
def test_damage_table(base, tmp_path):
    cases = [(name, crashed) for name in DAMAGES for crashed in (False, True)]
    kinds = os.environ.get(TABLE + "_KINDS", "rmqha java").split()

    def row(case: tuple[str, bool]) -> list[str]:
        name, crashed = case
        place = tmp_path / re.sub(r"\W+", "-", f"{name} {crashed}")
        return [run(kind, base, place / kind, name, crashed) for kind in kinds]

    with ThreadPoolExecutor(3) as pool, open(os.environ[TABLE], "w", encoding="utf-8") as table:
        for (name, crashed), seen in zip(cases, pool.map(row, cases), strict=True):
            table.write("| " + " | ".join([name + (" (crashed)" if crashed else ""), *seen]) + " |\n")
            table.flush()
