"""docs/how-to/automatic-failover.md as its operator follows it, at four boxes and a laptop; and the guarantee that
it gives."""
import signal

import pytest

from rmqha.common.java import load
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
    THIRD,
    TOPIC,
    State,
)
from tests.support.guide import Section, keys_to_remove, keys_to_set, remove_keys, set_lines
from tests.support.tiers import in_all

PAGE = "how-to/automatic-failover.md"
THIRD_FILE = "/etc/rocketmq/broker-a-c.properties"
# A replica that the controller has heard from, and that is in sync.
IN_SYNC = r"\n +{} +\d +yes +yes "
pytestmark = [in_all, pytest.mark.timeout(1200)]


class Boxes(State):
    """The boxes of the page, and the guarantees that the page gives for them."""

    def sends(self, at=NAMESRV):
        """Wait until a message is acknowledged."""
        self.walk.until(at, f"bin/rmqha produce -t {TOPIC} -m again && echo acknowledged", "acknowledged")

    def has_in_sync(self, *addresses):
        """Wait until the controller lists these replicas as in sync."""
        for address in addresses:
            self.walk.until(NAMESRV, "bin/rmqha ha status", IN_SYNC.format(f"{address}:10911"))

    def setting(self, at, file, key):
        """Return a key's value in a broker's file."""
        return load(self.walk.hosts[at].path(file).read_bytes()).get(key)


def test_automatic_failover(walk_of):
    walk = walk_of("automatic-failover", NAMESRV, MASTER, SLAVE, THIRD, LAPTOP)
    boxes = Boxes(walk)
    walk.types("Try it on a laptop", LAPTOP)
    # The pair that step 1 has converted from Java.
    boxes.pair()
    boxes.send(10)
    boxes.wait_until_in_sync()
    export = walk.block("What you need", "bash")
    for address in (NAMESRV, MASTER, SLAVE, THIRD):
        walk.types_at(address, export)
    heading = "2. Start the controller"
    walk.tool(NAMESRV, "cp conf/controller/controller.conf /etc/rocketmq/")
    walk.edits(heading, NAMESRV, "/etc/rocketmq/controller.conf")
    walk.types(heading, NAMESRV, codes={"bin/rmqha check controller": 2}, again={"bin/rmqha check controller": ""})
    heading = "3. Give the master to the controller"
    walk.edits(heading, MASTER, MASTER_FILE)
    walk.types(heading, MASTER)
    boxes.sends()
    replicas(walk, boxes)
    promise_of_two_disks(walk, boxes)
    heading = "5. Rehearse it"
    walk.types(heading, MASTER)
    boxes.sends()
    # A replica that never returns.
    boxes.stop(SLAVE)
    walk.types(heading, NAMESRV)
    said = walk.until(NAMESRV, "bin/rmqha ha status", IN_SYNC.format(f"{THIRD}:10911"))
    assert f"{SLAVE}:10911" not in said.partition("controller")[2]
    boxes.sends()
    walk.types("What to monitor", NAMESRV, again={"bin/rmqha check": "OK"})
    back(walk, boxes)
    walk.done()


def replicas(walk, boxes):
    """Run step 4."""
    heading = "4. Bring the other replicas, one at a time"
    # As the page says.
    walk.hosts[THIRD].path(THIRD_FILE).write_bytes(walk.hosts[MASTER].path(MASTER_FILE).read_bytes())
    keys = walk.edits(heading, THIRD, THIRD_FILE)
    walk.types(heading, THIRD, differs=[SCRUBBING, SIZE, OFFSET])
    boxes.sends()
    walk.sets(SLAVE, SLAVE_FILE, keys)  # "set the same keys in the old slave's file"
    walk.types(heading, SLAVE, until=IN_SYNC.format(f"{SLAVE}:10911"))
    boxes.sends()
    walk.types(heading, NAMESRV, again={"bin/rmqha check ha": "OK"})
    for at, file in ((MASTER, MASTER_FILE), (SLAVE, SLAVE_FILE), (THIRD, THIRD_FILE)):
        assert boxes.setting(at, file, "minInSyncReplicas") == "2"
        assert boxes.setting(at, file, "enableAutoSwitchHA") is None


def promise_of_two_disks(walk, boxes):
    """Kill two of three: after a failover, too, nothing is acknowledged that is on one disk only; then bring all
    back."""
    boxes.stop(MASTER, number=signal.SIGKILL)
    boxes.sends()
    said = walk.until(NAMESRV, "bin/rmqha ha status", r"master: id \d at 10\.0\.0\.[34]:10911")
    master = SLAVE if f"at {SLAVE}:10911" in said else THIRD
    other, file = (THIRD, THIRD_FILE) if master == SLAVE else (SLAVE, SLAVE_FILE)
    boxes.stop(other, number=signal.SIGKILL)
    for _ in range(3):
        walk.tool(NAMESRV, f"! bin/rmqha produce -t {TOPIC} -m alone")
    boxes.broker(other, file)
    boxes.broker(MASTER, MASTER_FILE)
    boxes.has_in_sync(MASTER, SLAVE, THIRD)
    boxes.sends()


def back(walk, boxes):
    """Undo it; then neither a controller nor an epoch is needed."""
    heading, section = "How to undo it", Section(PAGE, "How to undo it")
    walk.types(heading, MASTER, again={"bin/rmqha ha switch": ""})
    assert "Stop the other replicas" in section.step(1)
    boxes.stop(THIRD)
    gone = keys_to_remove(section.step(2))
    assert {"enableControllerMode", "minInSyncReplicas", "enableAutoSwitchHA"} < set(gone)
    for at, file, step in ((MASTER, MASTER_FILE, 2), (SLAVE, SLAVE_FILE, 4)):
        remove_keys(walk.hosts[at].path(file), gone)
        set_lines(walk.hosts[at].path(file), keys_to_set(section.step(step)))
    assert "Restart the master" in section.step(3)
    boxes.stop(MASTER)
    assert "has no role yet" not in boxes.broker(MASTER, MASTER_FILE).said()
    boxes.sends()
    boxes.broker(SLAVE, SLAVE_FILE)
    boxes.wait_until_in_sync()
    assert "Stop the controller" in section.step(5)
    boxes.stop(NAMESRV, "mqcontroller")
    boxes.sends()
    walk.types_each(heading, [MASTER, SLAVE, MASTER])
    assert (boxes.setting(MASTER, MASTER_FILE, "brokerRole"), boxes.setting(SLAVE, SLAVE_FILE, "brokerRole")) == (
        "ASYNC_MASTER", "SLAVE")
