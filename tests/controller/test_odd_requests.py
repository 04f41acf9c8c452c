"""Whatever is asked, a controller answers and goes on; and what it stores can be read again."""
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqha.common.protocol import request_code
from rmqha.controller.controller_metrics import REQUEST_TYPES
from rmqha.controller.local_store import LocalStore
from tests.controller.support import controller
from tests.support.raw_remoting import RawClient

FIELDS = ("clusterName", "brokerName", "brokerId", "masterBrokerId", "masterEpoch", "appliedBrokerId",
          "registerCheckCode", "brokerAddress", "brokerAddr", "haServerAddr", "designateElect", "epoch", "maxOffset",
          "heartbeatTimeoutMills", "electionPriority", "brokerControllerIdsToClean", "isCleanLivingBroker")
NUMBERS = st.sampled_from(["0", "1", "2", "-1", str(1 << 31), str((1 << 63) - 1), str(1 << 64), "x", ""])
WORDS = st.sampled_from(["b", "c", "true", "false", "127.0.0.1:1;2", ";", "1;2", "h:1"])
VALUES = NUMBERS | WORDS | st.text(max_size=9)
BODIES = st.sampled_from([b"", b"{}", b"[]", b'["b"]', b"null", b'{"syncStateSet":[1,2],"syncStateSetEpoch":1}',
                          b'{"syncStateSet":[1],"syncStateSetEpoch":2}', b"[" * 300, b'{"syncStateSet":["x"]}',
                          b"scanNotActiveBrokerInterval=5000\n", b"\\u12"]) | st.binary(max_size=20)
CODES = sorted({*REQUEST_TYPES, 17, 0, 30002})
LAST_ID = {"appliedBrokerId": str((1 << 63) - 1), "registerCheckCode": "h"}
ASKED = st.tuples(st.sampled_from(CODES), st.dictionaries(st.sampled_from(FIELDS), VALUES), BODIES)


@pytest.fixture
def manager(tmp_path):
    made = controller(tmp_path)
    yield made
    made.shutdown()


@settings(max_examples=60)
@given(st.lists(ASKED, min_size=5, max_size=20))
@example([(request_code.CONTROLLER_APPLY_BROKER_ID, LAST_ID, b"")])
def requests(manager, asked):
    with RawClient(manager.address, 20) as client:
        client.request(request_code.CONTROLLER_APPLY_BROKER_ID, clusterName="c", brokerName="b", appliedBrokerId=1,
                       registerCheckCode="h:1;2")
        for code, fields, body in asked:
            fields = {"clusterName": "c", "brokerName": "b", **fields}
            assert isinstance(client.request(code, body, **fields).code, int)


def test_every_request_is_answered_and_the_file_stays_readable(manager, tmp_path):
    requests(manager)
    with RawClient(manager.address, 20) as client:
        names = manager.controller.store.names()
        answer = client.request(request_code.CONTROLLER_GET_SYNC_STATE_DATA, json.dumps(names or ["b"]).encode())
        assert answer.code == 0
    sets = {name: manager.controller.store.get(name).replica_set for name in names}
    manager.shutdown()
    again = LocalStore(str(tmp_path / "store"), "n0", "h:1")
    again.start()
    assert {name: again.get(name).replica_set for name in again.names()} == sets
    again.shutdown()
