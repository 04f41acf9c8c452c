"""docs/how-to/messages.md: each command and output, on one master."""
import re

import pytest

from tests.pages.guided import LAPTOP, MASTER, MASTER_FILE, State, settings
from tests.pages.walk import Differs
from tests.support.tiers import in_all

pytestmark = [in_all, pytest.mark.timeout(900)]

NAMESRV = "10.0.0.1"
RATE = Differs(r"[\d,]+/s", "<rate>")
# Store times, as the third column has them.
MILLIS = Differs(r"\b\d{13}\b", "<ms>")


def test_messages(walk_of):
    walk = walk_of("messages", NAMESRV, MASTER, LAPTOP)
    state = State(walk)
    state.name_server()
    state.has_file(MASTER, MASTER_FILE, settings())
    state.broker(MASTER, MASTER_FILE)
    walk.until(LAPTOP, "NAMESRV_ADDR=10.0.0.1:9876 bin/mqadmin clusterList", "10.0.0.2:10911")
    walk.types("What you need", LAPTOP)
    sent = walk.types("Send", LAPTOP, differs=[RATE])
    (found,) = re.findall(r"broker-a:0  1  ([0-9A-F]{32})  SEND_OK", sent)
    walk.reads["C00002020DDA794B634298481B190002"] = found
    walk.types("Send", LAPTOP)
    for _step in range(2):
        walk.types("Read", LAPTOP, differs=[MILLIS])
    for _step in range(2):
        walk.types("Find", LAPTOP)
    walk.types("Copy", LAPTOP)
    walk.done()
