"""docs/how-to/cluster-settings.md as its operator follows it, at the hosts of a master and its slave."""
import pytest

from tests.pages.guided import MASTER, MASTER_FILE, NAMESRV, SIZE, SLAVE, State
from tests.pages.walk import Differs
from tests.support.tiers import in_all

pytestmark = [in_all, pytest.mark.timeout(900)]

DISK = Differs(r"\d+ % used at broker-a \d", "<disk>")
SHARE = Differs(r" \d+ %", " <disk>")


def test_settings_of_running_brokers(walk_of):
    walk = walk_of("cluster-settings", NAMESRV, MASTER, SLAVE)
    state = State(walk)
    state.pair()
    state.send(6)
    state.wait_until_in_sync()
    walk.types("What you need", MASTER)
    walk.types("1. Look at the cluster", MASTER, differs=[DISK, SHARE, SIZE])
    walk.types("2. Read settings", MASTER)
    walk.types("3. Change a setting", MASTER)
    walk.types("3. Change a setting", MASTER)
    walk.types("4. Find differences", MASTER)
    walk.types("4. Find differences", MASTER)
    walk.edits("4. Find differences", MASTER, MASTER_FILE)
    walk.types("4. Find differences", MASTER)
    walk.types("Undo it", MASTER)
    walk.done()
