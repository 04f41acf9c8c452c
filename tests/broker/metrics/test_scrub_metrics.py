"""What a slave tells of scrubbing and verifying."""
import json

import pytest

from rmqha.broker.metrics.broker_metrics import BrokerMetrics
from rmqha.store.ha import scrub_state
from rmqha.store.ha.scrub_state import Difference, ScrubState
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import running_broker
from tests.support.scrape import Scrape, metrics_port

SCRUB = "rmqha_slave_scrub_"


class Slave:
    """A slave whose scrubbing is played, with a clock of the test's; `scrape` tells what it tells then."""

    def __init__(self, broker, port, path):
        self.now_ms = 1_000_000
        self.client = broker.store.ha_service.ha_client
        self.state = ScrubState(str(path), lambda: self.now_ms)
        self._port = port

    def scrape(self):
        return Scrape(self._port)


@pytest.fixture
def slave(tmp_path, monkeypatch):
    with running_broker(tmp_path, brokerRole=BrokerRole.SLAVE, brokerId=1, haScrubPromise=90_000) as broker, \
            metrics_port(BrokerMetrics(broker.controller)) as port:
        made = Slave(broker, port, tmp_path / "played.json")
        monkeypatch.setattr(broker.store.ha_service.scrub_service, "state", made.state)
        yield made


def test_a_round_is_told_as_far_as_it_has_come(slave):
    scrub = slave.state
    scrub.state = scrub_state.RUNNING
    told = slave.scrape()
    assert not told.all("rmqha_slave_unscrubbed_seconds"), "not known before the first look"
    assert told.value(SCRUB + "promised_seconds", broker_id="1") == 90
    scrub.log_is(0, 5000)
    scrub.begin_round(0)
    scrub.compared(1200, 1200)
    slave.now_ms += 2_500
    told = slave.scrape()
    assert [(each.labels["state"], each.value) for each in told.all(SCRUB + "state")] == [
        ("OFF", 0), ("WAITING", 0), ("RUNNING", 1), ("CANT", 0)]
    assert told.value(SCRUB + "offset") == 1200 == told.value(SCRUB + "compared_bytes_total")
    assert told.value("rmqha_slave_unscrubbed_seconds") == 2.5 and told.value(SCRUB + "rounds_total") == 0
    scrub.compared(5000, 3800)
    told = slave.scrape()
    assert told.value("rmqha_slave_unscrubbed_seconds") == 0 and told.value(SCRUB + "rounds_total") == 1
    assert told.value(SCRUB + "compared_bytes_total") == 5000


def test_differences_are_told_also_when_scrubbing_is_off(slave):
    scrub = slave.state
    assert slave.scrape().value(SCRUB + "differences") == 0
    for offset in (300, 100):
        scrub.differs(Difference(offset, 100, "its body", scrub_state.SLAVE))
    scrub.state = scrub_state.OFF
    told = slave.scrape()
    assert told.value(SCRUB + "differences") == 2 and told.value(SCRUB + "state", state="OFF") == 1
    # nobody is to be alarmed by the age of what is not compared on purpose
    assert not told.all(SCRUB + "offset") and not told.all("rmqha_slave_unscrubbed_seconds")
    scrub.keep(())
    assert slave.scrape().value(SCRUB + "differences") == 0


def test_records_that_were_refused_are_counted(slave):
    slave.client.verified_bytes, slave.client.verify_failures = 7000, 3
    told = slave.scrape()
    assert told.value("rmqha_slave_verified_bytes_total", cluster="DefaultCluster", broker="broker-a") == 7000
    assert told.value("rmqha_slave_verify_failures_total") == 3


def test_a_master_tells_none_of_it(tmp_path):
    with running_broker(tmp_path) as broker, metrics_port(BrokerMetrics(broker.controller)) as port:
        told = json.dumps([each.name for each in Scrape(port).samples])
        assert "rmqha_slaves" in told and "scrub" not in told and "verif" not in told
