"""A few rounds with two hundred queues; the long campaign is many_queues.py itself."""
import pytest

from tests.faults.many_queues import ManyQueues
from tests.support.tiers import in_all

pytestmark = in_all


def test_acknowledged_messages_of_all_queues_survive_kills(tmp_path):
    with ManyQueues(tmp_path, 50, 4, seed=3) as life:
        for _ in range(2):
            life.run()
        assert life.end() >= len(life.load.acknowledged) > 1000


def test_missing_message_is_found(tmp_path):
    with ManyQueues(tmp_path, 5, 4, seed=1) as life:
        life.load.pause()
        life.master.wait_until_dispatched()
        life.check(life.master, life.load.acknowledged)
        one = life.load.acknowledged[3]
        for other in (one._replace(body=b"another"), one._replace(queue_offset=1 << 40)):
            with pytest.raises(AssertionError, match="1 acknowledged messages can't be read from the master"):
                life.check(life.master, [other])
