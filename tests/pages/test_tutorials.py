"""The tutorials, run as they are."""
import re

import pytest

from tests.pages.walk import CHOSEN_PORT, Differs, Scenario, Walk, wrong_with
from tests.support.tiers import in_all

pytestmark = [in_all, pytest.mark.timeout(1200)]


def test_quickstart(machine, fresh):
    def kept(walk):
        return re.search(r"^kept: ([^;]+);", dict(walk.ran)["bin/quickstart --keep"].output, re.M)[1]

    scenario = Scenario(
        replace={"FOLDER": kept},
        # The probes of a slave that is being awaited.
        differs=[CHOSEN_PORT, Differs(r"\b10\d,\d{3}\b", "<end of the log>"),
                 Differs(r"to broker-b(; \d+ FLUSH_SLAVE_TIMEOUT, replicated a moment later)?", "to broker-b")])
    walk = Walk("docs/tutorials/quickstart.md", machine, scenario)
    first_run = [block for block in walk.page.blocks if block.language == "text"][0]
    walk.run()
    assert wrong_with(first_run.text, fresh.first_run, scenario.differs) is None, "in the run that created .venv"
    assert fresh.first_run_errors.startswith("creating .venv with Python 3."), fresh.first_run_errors
    walk.check_that_nothing_runs()


def test_your_first_producer(machine):
    walk = Walk("docs/tutorials/first-producer.md", machine).run()
    walk.check_that_nothing_runs()


def test_replication_you_can_watch(machine):
    walk = Walk("docs/tutorials/replication-you-can-watch.md", machine, Scenario(
        fails={"bin/rmqha check ha": 2},
        differs=[Differs("(?:everything|nothing) compared(?: yet)?$", "<compared>"),  # of an empty log
                 Differs(r"\bqueue \d\b", "queue <any>"),  # the client starts with any of them
                 Differs(r"\bWatched +\d +(?=\d)", "Watched <any> "),
                 Differs(r"^order-\d: \d kg of", "order-<any>: <any> kg of")])).run()
    walk.check_that_nothing_runs()
