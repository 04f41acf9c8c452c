"""The tutorials, as they stand."""
import pytest

from tests.pages.walk import Scenario, Walk

pytestmark = pytest.mark.timeout(1200)


def test_your_first_producer(machine):
    walk = Walk("docs/tutorials/first-producer.md", machine).run()
    walk.check_that_nothing_runs()


def test_replication_you_can_watch(machine):
    walk = Walk("docs/tutorials/replication-you-can-watch.md", machine, Scenario(
        fails={"bin/rmqha check ha": 2})).run()
    walk.check_that_nothing_runs()
