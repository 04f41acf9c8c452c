"""Each request code of a controller asked with many new names: what stays is limited, and heartbeats with their
connection."""
import itertools
import json
import logging
import threading

import pytest

from rmqha.common.protocol import request_code
from rmqha.common.texts import MAX_NAME_LENGTH
from rmqha.controller import broker_liveness
from rmqha.controller.broker_liveness import BrokerLiveInfo, BrokerLiveness, ControllerLimitError
from rmqha.controller.controller_metrics import REQUEST_TYPES
from tests.controller.support import controller
from tests.support.kept import names_kept
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until

NAMES, LIMIT = 60, 20
MARK = f"-new{LIMIT}-"  # in all new names, and in no text else
LONG = "n" * (MAX_NAME_LENGTH + 1)


@pytest.fixture
def manager(tmp_path, monkeypatch):
    for name in ("MAX_BROKER_NAMES", "MAX_BROKERS_OF_CHANNEL", "MAX_REPLICAS"):
        monkeypatch.setattr(broker_liveness, name, LIMIT)
    monkeypatch.setattr(broker_liveness, "MAX_BROKERS_HEARD", 2 * LIMIT)
    made = controller(tmp_path)
    logging.disable(logging.CRITICAL)  # pytest keeps each line
    yield made
    logging.disable(logging.NOTSET)
    made.shutdown()


def flood(manager, code: int) -> int:
    """Ask with a new name for each number, on one connection that ends then; how many were refused."""
    refused = 0
    with RawClient(manager.address, 20) as client:
        for number in range(NAMES):
            name = f"b{MARK}{number}"
            bodies = {request_code.CONTROLLER_ALTER_SYNC_STATE_SET: b'{"syncStateSet":[1],"syncStateSetEpoch":1}',
                      request_code.CONTROLLER_GET_SYNC_STATE_DATA: json.dumps([name]).encode(),
                      request_code.UPDATE_CONTROLLER_CONFIG: f"key{MARK}{number}=1\n".encode()}
            refused += client.request(
                code, bodies.get(code, b""), clusterName=f"c{MARK}{number}", brokerName=name, brokerId=1,
                brokerAddr=f"h{MARK}{number}:1", brokerAddress=f"h{MARK}{number}:1", haServerAddr=f"h{MARK}{number}:2",
                leaderTerm=number + 1, appliedBrokerId=1, registerCheckCode=f"h{MARK}{number}:1;2", masterBrokerId=1,
                masterEpoch=1, designateElect="false", isCleanLivingBroker="false").code != 0
    return refused


@pytest.mark.parametrize("code", sorted(REQUEST_TYPES), ids=lambda code: REQUEST_TYPES[code])
def test_new_names_leave_nothing_but_what_is_limited(manager, code):
    refused = flood(manager, code)
    wait_until(lambda: not manager.liveness.all(), what="the heartbeats to go with their connection")
    if code == request_code.CONTROLLER_APPLY_BROKER_ID:
        assert refused == NAMES - LIMIT and len(manager.controller.store.names()) == LIMIT
    elif code == request_code.BROKER_HEARTBEAT:
        assert refused == NAMES - LIMIT
        # which leadership a broker follows is known behind its connection's end; for no more than may be heard
        assert len({name for name in names_kept(MARK, manager) if name.startswith("b")}) <= LIMIT
    else:
        wait_until(lambda: not names_kept(MARK, manager), what="new names to be gone")


def test_names_repeated_in_one_request_are_looked_up_once_and_a_bystander_is_answered_meanwhile(manager, monkeypatch):
    with RawClient(manager.address, 60) as client:
        for name in ("a", "b"):
            assert client.request(request_code.CONTROLLER_APPLY_BROKER_ID, clusterName="c", brokerName=name,
                                  appliedBrokerId=1, registerCheckCode=f"{name}:1;2").code == 0
    store, real, asked, may_answer = manager.controller.store, manager.controller.store.get, [], threading.Event()

    def get(name):
        if threading.current_thread() is not threading.main_thread():
            asked.append(name)
            if name == "a":
                assert may_answer.wait(300)
        return real(name)
    monkeypatch.setattr(store, "get", get)
    answers = []

    def ask() -> None:
        with RawClient(manager.address, 300) as client:
            answers.append(client.request(request_code.CONTROLLER_GET_SYNC_STATE_DATA,
                                          json.dumps(["a", "b", "nobody"] * 3000).encode()))
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        wait_until(lambda: asked, 120_000, "the first name is looked up")
        with RawClient(manager.address, 60) as bystander:
            assert bystander.request(request_code.CONTROLLER_GET_METADATA_INFO).code == 0
            assert bystander.request(request_code.BROKER_HEARTBEAT, clusterName="c", brokerName="b", brokerId=1,
                                     brokerAddr="h:1", haServerAddr="h:2").code == 0
            assert bystander.request(request_code.CONTROLLER_GET_SYNC_STATE_DATA, b'["b"]').code == 0
        assert asked.count("a") == 1 and not answers
    finally:
        may_answer.set()
        asking.join()
    assert asked.count("a") == asked.count("nobody") == 1
    assert sorted(json.loads(answers[0].body)["replicasInfoTable"]) == ["a", "b"]


def test_names_that_are_there_go_on_when_no_more_are_taken(manager):
    flood(manager, request_code.CONTROLLER_APPLY_BROKER_ID)
    with RawClient(manager.address, 20) as client:
        def apply(name: str, id_: int) -> int:
            return client.request(request_code.CONTROLLER_APPLY_BROKER_ID, clusterName="c", brokerName=name,
                                  appliedBrokerId=id_, registerCheckCode=f"h:{id_};1")

        known = f"b{MARK}0"
        assert [apply(known, id_).code for id_ in range(2, LIMIT + 1)] == [0] * (LIMIT - 1)
        refused = apply(known, LIMIT + 1)
        assert refused.code != 0 and f"{known} has {LIMIT} replicas already" in refused.remark
        assert client.request(request_code.CLEAN_BROKER_DATA, clusterName=f"c{MARK}0", brokerName=known,
                              isCleanLivingBroker="true").code == 0
        refused = apply("another", 1)
        assert refused.code != 0 and f"there are {LIMIT} broker names already" in refused.remark
        assert apply(known, 1).code == 0


@pytest.mark.parametrize("code, field", [
    (request_code.CONTROLLER_APPLY_BROKER_ID, "brokerName"), (request_code.CONTROLLER_APPLY_BROKER_ID, "clusterName"),
    (request_code.CONTROLLER_APPLY_BROKER_ID, "registerCheckCode"),
    (request_code.CONTROLLER_REGISTER_BROKER, "brokerAddress"), (request_code.BROKER_HEARTBEAT, "brokerName"),
    (request_code.BROKER_HEARTBEAT, "clusterName"), (request_code.BROKER_HEARTBEAT, "brokerAddr"),
    (request_code.BROKER_HEARTBEAT, "haServerAddr")])
def test_texts_have_a_length(manager, code, field):
    fields = {"clusterName": "c", "brokerName": "b", "brokerId": 1, "brokerAddr": "h:1", "brokerAddress": "h:1",
              "appliedBrokerId": 1, "registerCheckCode": "h:1;2"}
    with RawClient(manager.address, 20) as client:
        refused = client.request(code, **{**fields, field: LONG})
        assert refused.code != 0 and "256 characters" in refused.remark
        assert not manager.liveness.all() and not manager.controller.store.names()
        client.request(request_code.CONTROLLER_APPLY_BROKER_ID, **fields)
        assert client.request(code, **fields).code == 0


def heard(number: int, channel: object, term: int = 0) -> BrokerLiveInfo:
    return BrokerLiveInfo(("c", f"b{number}", 1), "h:1", 0, 1000, channel, "h:2", leader_term=term)


def test_all_connections_together_tell_of_a_number_of_brokers_and_ends_make_room(monkeypatch):
    monkeypatch.setattr(broker_liveness, "MAX_BROKERS_HEARD", LIMIT)
    liveness, channels = BrokerLiveness(1000, lambda: 0), [object() for _number in range(LIMIT)]
    for number, channel in enumerate(channels):
        liveness.heartbeat(heard(number, channel))
    with pytest.raises(ControllerLimitError, match=f"{LIMIT} brokers are heard"):
        liveness.heartbeat(heard(LIMIT, object()))
    liveness.heartbeat(heard(0, channels[1]))  # a known one over another connection
    assert liveness.closed(channels[2]) == [("c", "b2", 1)]
    liveness.heartbeat(heard(LIMIT, object()))
    assert liveness.closed(channels[0]) == []
    assert sorted(liveness.closed(channels[1])) == [("c", "b0", 1), ("c", "b1", 1)]


def test_which_leadership_is_followed_is_forgotten_of_those_that_told_it_first(monkeypatch):
    monkeypatch.setattr(broker_liveness, "MAX_BROKERS_HEARD", LIMIT)
    liveness = BrokerLiveness(1000, lambda: 1)
    for number in itertools.chain(range(LIMIT), [0], range(LIMIT, 2 * LIMIT - 1)):
        channel = object()
        liveness.heartbeat(heard(number, channel, term=7))
        liveness.closed(channel)
    followers = [number for number in range(2 * LIMIT) if liveness.may_replace(("c", f"b{number}", 1), 1, 7)]
    assert followers == [0, *range(LIMIT, 2 * LIMIT - 1)]
