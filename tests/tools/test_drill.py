"""`rmqha drill failover`: what it counts on a real cluster, and what it makes of losses."""
import json
from collections import Counter

import pytest
from click.testing import CliRunner

from rmqha.tools import drill
from rmqha.tools.drill import Drill, Sent, write_conf
from rmqha.tools.local_cluster.layout import ClusterError
from rmqha.tools.local_cluster.start import LocalCluster
from rmqha.tools.rmqha_command import rmqha
from tests.support.tiers import in_all


def test_a_slave_is_promoted_under_load_and_nothing_is_lost():
    result = CliRunner().invoke(rmqha, ["drill", "failover", "--seconds", "0.5", "--delay", "0.3", "-o", "json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["acknowledged"] > 0 and told["lost"] == 0 and told["failed"] > 0
    assert 0.3 <= told["secondsUntilStored"] <= told["secondsUntilAcknowledged"]
    assert told["secondsToRejoin"] > 0


@in_all
@pytest.mark.parametrize("mode", ["auto", "switch"])
def test_a_controller_acts_by_itself_and_nothing_is_lost(mode):
    result = CliRunner().invoke(rmqha, ["drill", "failover", "--mode", mode, "--seconds", "0.5", "-o", "json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["acknowledged"] > 0 and told["lost"] == 0 and told["secondsUntilActed"] is None
    assert told["secondsUntilAcknowledged"] > 0
    assert (told["secondsToRejoin"] is not None) == (mode == "auto")


def test_what_is_lost_and_doubled_is_counted(tmp_path):
    made = Drill(LocalCluster(write_conf(tmp_path / "conf", "restart"), tmp_path, 21_000), "restart", 1, 1, 1)
    made.sent = Sent({"1", "2", "3"}, last_before=10.0, first_stored=11.0, first_after=12.5)
    figures = made._figures(Counter({"1": 1, "2": 2, "4": 1}), None)
    assert (figures["lost"], figures["doubled"]) == (1, 1)
    assert (figures["secondsUntilStored"], figures["secondsUntilAcknowledged"]) == (1.0, 2.5)


def test_a_loss_is_a_failure(monkeypatch):
    monkeypatch.setattr(drill, "failover", lambda *_arguments: {"lost": 2, "acknowledged": 10})
    result = CliRunner().invoke(rmqha, ["drill", "failover"])
    assert result.exit_code == 1 and "lost          2" in result.stdout


def test_a_cluster_that_does_not_start_is_told(monkeypatch):
    def fail(*_arguments):
        raise ClusterError("broker-a ended with code 2; it printed:\nno")
    monkeypatch.setattr(drill, "failover", fail)
    result = CliRunner().invoke(rmqha, ["drill", "failover"])
    assert result.exit_code == 1 and "ended with code 2" in result.stderr and "--keep" in result.stderr
