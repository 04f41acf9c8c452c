"""A few rounds of a topic that is deleted and created again; the long campaign is deleted_topics.py itself."""

from tests.faults.deleted_topics import DeletedTopics
from tests.support.tiers import in_all

pytestmark = in_all


def test_recreated_topic_keeps_all_acknowledged_messages_on_master_and_slave(tmp_path):
    with DeletedTopics(tmp_path, seed=5) as life:
        for number in range(1, 4):
            life.run(deep=number == 3)
    assert life.checked >= 3 * 200 and life.faults.keys() - {"nothing"}
