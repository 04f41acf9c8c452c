"""docs/how-to/failover-with-relays.md as its operator follows it, on a laptop."""
import re

import pytest

from tests.pages.guided import LAPTOP
from tests.pages.walk import Differs
from tests.support.tiers import in_all

pytestmark = [in_all, pytest.mark.timeout(900)]

COUNT = Differs(r"acknowledged +[\d,]+", "acknowledged <count>")
SECONDS = Differs(r"(?P<name>seconds\w+|oldClientSeconds) +\d+\.\d+", r"\g<name> <seconds>")


def test_failover_with_relays(walk_of):
    walk = walk_of("failover-with-relays", LAPTOP)
    told = walk.types("See it", LAPTOP, differs=[COUNT, SECONDS])
    assert re.search(r"oldClientFailed +0\n", told), told
    walk.done()
