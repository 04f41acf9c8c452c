"""The how-to guides as their operator follows them: every command, edit and output of the page, host by host."""
import re
import signal
from pathlib import Path

import pytest

from tests.pages import walk as page
from tests.pages.guided import (
    LAPTOP,
    MASTER,
    MASTER_FILE,
    NAMESRV,
    OFFSET,
    SCRUBBING,
    SIZE,
    SLAVE,
    SLAVE_FILE,
    STORE,
    TOPIC,
    State,
    migrate,
)
from tests.pages.walk import Differs
from tests.support.tiers import in_all

pytestmark = [in_all, pytest.mark.timeout(900)]

# The queue that a producer starts with varies.
QUEUE = Differs(r"queue [01], queue offset", "queue <one>, queue offset")
STAMP = Differs(r"\d{20}\.\d{17}", "<offset and time>")


def test_each_guide_is_run():
    tests = "".join(file.read_text("utf-8") for file in Path(__file__).parent.glob("test_*.py"))
    names = [Path(name).stem for name in page.pages("docs/how-to")]
    assert len(names) >= 9
    assert [name for name in names if f'walk_of("{name}"' not in tests] == [], "no scenario takes these guides"


def test_fail_over_by_hand(walk_of):
    walk = walk_of("failover-by-hand", NAMESRV, MASTER, SLAVE)
    state = State(walk)
    state.pair()
    state.send(9)
    state.wait_until_in_sync()
    with walk.hosts[SLAVE].unplugged():
        # The messages that the slave never gets.
        state.send(3)
        state.crash(MASTER)
    walk.types("1. Decide whether it is needed", SLAVE, codes={"bin/rmqha ha status": 2},
               again={"bin/rmqha ha status": ""}, differs=[SCRUBBING, OFFSET])
    walk.edits("2. Make the slave the master", SLAVE, SLAVE_FILE)
    walk.types("2. Make the slave the master", SLAVE, codes={"bin/rmqha doctor": 1})
    state.send(4)
    heading = "3. Bring the old master back as a slave"
    walk.edits(heading, MASTER, MASTER_FILE)
    walk.types(heading, MASTER, again={"bin/rmqha ha status": ""}, differs=[SCRUBBING, SIZE, OFFSET])
    said = walk.types(heading, MASTER, differs=[STAMP, OFFSET])
    walk.reads[walk.page_has(STAMP.pattern)] = re.search(STAMP.pattern, said)[0]
    assert walk.types(heading, MASTER).count(TOPIC) == 3, "the messages that never reached the slave"
    assert "3 messages sent" in walk.types(heading, MASTER)
    walk.done()


def test_back_up_and_restore(walk_of):
    walk = walk_of("backup-and-restore", NAMESRV, MASTER, SLAVE)
    state = State(walk)
    state.pair()
    state.send(28)
    state.consume(10)
    state.wait_until_in_sync()
    walk.types("While the master runs: receive its log", SLAVE)
    walk.types("While the master runs: receive its log", SLAVE)
    # The copy is reached by another path to the same folder.
    walk.tool(SLAVE, "mv /backup/broker-a /backup/received")
    walk.types("Or copy a slave that is stopped", SLAVE)
    walk.tool(SLAVE, "bin/rmqha store verify /backup/broker-a && mv /backup/broker-a /backup/copied")
    walk.tool(SLAVE, "mv /backup/received /backup/broker-a")
    walk.types("Prove it", SLAVE, differs=[OFFSET])
    state.send(5)
    assert walk.runs_script("Every night", SLAVE).rstrip().endswith("clean")
    state.stop(MASTER, number=signal.SIGKILL)
    walk.types("Restore", MASTER, again={"bin/mqadmin topicStatus": ""})
    state.send(1)
    state.consume(24)
    state.wait_until_in_sync()
    walk.done()


def test_monitoring(walk_of):
    walk = walk_of("monitoring", NAMESRV, MASTER, SLAVE)
    state = State(walk)
    state.controller()
    state.pair(enableControllerMode="true", controllerAddr=f"{NAMESRV}:9878")
    state.send(6)
    state.consume(4)
    walk.types("Does replication work? (every minute)", MASTER, again={"bin/rmqha check ha": "OK"})
    walk.types("Does replication work? (every minute)", MASTER)
    walk.types("Is anything else wrong? (daily, and after each change)", MASTER)
    walk.types("Do consumers keep up?", MASTER, codes={"bin/rmqha check group": 2},
               differs=[Differs(r"(?<='age'=)[\d.]+(?=s;;900;0)", "<age>")])
    walk.types("Do consumers keep up?", MASTER)
    walk.done()


def test_repair_a_slave(walk_of):
    walk = walk_of("repair-a-slave", NAMESRV, MASTER, SLAVE)
    state = State(walk)
    state.pair()
    state.send(12, size=3000)
    state.wait_until_in_sync()
    log = walk.hosts[SLAVE].path(f"{STORE}/commitlog/00000000000000000000")
    data = log.read_bytes()
    bodies = [f"{number:03000}".encode() for number in range(12)]
    # As a failing disk does.
    with open(log, "r+b") as file:
        file.seek(data.index(bodies[3]) + 60)
        file.write(b"x")
        file.seek(data.index(b"KEYS", data.index(bodies[7])) + 5)
        file.write(b"x")
    scrubbed = Differs(r"2 records of its log are not its master's[^;]*; broker-a's slave 10\.0\.0\.3:10911: ", "")
    walk.types("1. Find the damage", SLAVE, codes={"bin/rmqha check ha": 2}, differs=[QUEUE, scrubbed])
    walk.types("2. Stop the slave, and look", SLAVE, codes={"bin/rmqha store repair": 1}, differs=[QUEUE])
    walk.types("3. Repair, and start", SLAVE, again={"bin/rmqha check ha": "OK"})
    assert log.read_bytes()[:len(data)] == data
    heading = "Set a slave up again"
    walk.edits(heading, SLAVE, SLAVE_FILE)
    walk.types(heading, SLAVE, again={"bin/rmqha check ha": "OK"})
    assert log.read_bytes()[:len(data)] == data
    walk.done()


def test_troubleshooting(walk_of):
    walk = walk_of("troubleshooting", NAMESRV, MASTER, SLAVE)
    state = State(walk)
    state.pair()
    state.send(4)
    state.wait_until_in_sync()
    walk.types("Begin here", MASTER, again={"bin/rmqha check ha": "OK"})
    walk.types("Begin here", MASTER)
    walk.types("Begin here", MASTER)
    walk.types("Send a problem to a maintainer", MASTER)
    walk.done()


def test_migrate(walk_of):
    migrate(walk_of("migrate", NAMESRV, MASTER, SLAVE, LAPTOP), "rmqha")
