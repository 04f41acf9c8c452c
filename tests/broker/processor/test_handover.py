"""A master is asked to hand its mastership over, and producers are told why it takes nothing meanwhile."""
import pytest

from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import HandoverMasterRequestHeader, HandoverMasterResponseHeader
from rmqha.store.message_store_config import BrokerRole
from tests.support.in_process import running_name_server
from tests.support.wait import wait_until
from tests.tools.conftest import broker_at

KEYS = {"brokerClusterName": "C", "enableAutoSwitchHA": True, "allAckInSyncStateSet": True}
WAIT_MS = 60_000


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    with running_name_server(folder) as namesrv, \
            broker_at(folder / "master", namesrv, brokerRole=BrokerRole.SYNC_MASTER, **KEYS) as master, \
            broker_at(folder / "slave", namesrv, brokerRole=BrokerRole.SLAVE, brokerId=1, **KEYS) as slave:
        wait_until(lambda: len(master.store.ha_service.sync_state_set.members) == 2, WAIT_MS, "both in sync")
        yield master, slave


def test_a_master_that_is_handed_over_refuses_with_the_reason_until_its_second_is_over(pair):
    master, _slave = pair
    assert master.send("T").code == response_code.SUCCESS
    answer = master.call(request_code.HANDOVER_MASTER, HandoverMasterRequestHeader(1, 10_000))
    assert answer.code == response_code.SUCCESS, answer.remark
    end = answer.decode_command_custom_header(HandoverMasterResponseHeader).maxOffset
    assert end == master.store.get_max_phy_offset() > 0
    refused = master.send("T")
    assert refused.code == response_code.SERVICE_NOT_AVAILABLE
    assert "the master is handed over to broker 1; this is automatic and soon over" in refused.remark
    wait_until(lambda: master.send("T").code == response_code.SUCCESS, WAIT_MS, "taken again")


def test_who_is_not_in_sync_inherits_nothing(pair):
    master, slave = pair
    for broker, heir, reason in ((master, 7, "broker 7 is not in sync"), (master, 1000, "broker 1000 is the master"),
                                 (slave, 1000, "this broker is not the master")):
        answer = broker.call(request_code.HANDOVER_MASTER, HandoverMasterRequestHeader(heir, 100))
        assert answer.code == response_code.SYSTEM_ERROR and reason in answer.remark
    assert master.send("T").code == response_code.SUCCESS


def test_a_broker_whose_role_does_not_change_hands_nothing_over(broker):
    answer = broker.call(request_code.HANDOVER_MASTER, HandoverMasterRequestHeader(1, 100))
    assert answer.code == response_code.SYSTEM_ERROR and "enableAutoSwitchHA=true" in answer.remark
