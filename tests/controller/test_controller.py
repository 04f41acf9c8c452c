"""mqcontroller as a process, its metrics, its limits on new names, and odd requests."""
import itertools
import json
import logging
import os
import signal
import subprocess
import threading

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqha.common.protocol import request_code
from rmqha.common.texts import MAX_NAME_LENGTH
from rmqha.controller import broker_liveness
from rmqha.controller.broker_liveness import BrokerLiveInfo, BrokerLiveness, ControllerLimitError
from rmqha.controller.controller_metrics import CONTROLLER_METRICS, LEADER, REQUEST_TYPES
from rmqha.controller.local_store import LocalStore
from tests.controller.support import CLUSTER, NAME, FakeBroker, controller
from tests.support.nodes import NamesrvNode
from tests.support.ports import free_port
from tests.support.processes import ServerProcess
from tests.support.raw_remoting import RawClient, Scrape, http_get
from tests.support.sources import ROOT
from tests.support.wait import wait_until
from tests.support.watch import names_kept

# mqcontroller as a process, and a controller in a name server.

LAUNCHER = str(ROOT / "bin" / "mqcontroller")
METADATA, BROKER_CLUSTER_INFO = 1005, 106


@pytest.fixture
def run(tmp_path):
    def call(*arguments):
        env = {**os.environ, "HOME": str(tmp_path)}
        return subprocess.run([LAUNCHER, *arguments], env=env, capture_output=True, text=True, timeout=600)
    return call


@pytest.fixture
def conf(tmp_path):
    def write(**keys):
        path = tmp_path / "controller.conf"
        keys = {"controllerDLegerGroup": "group1", "controllerDLegerPeers": f"n0-127.0.0.1:{free_port()}",
                "controllerDLegerSelfId": "n0", "controllerStorePath": tmp_path / "store", **keys}
        path.write_text("".join(f"{key} = {value}\n" for key, value in keys.items()))
        return str(path)
    return write


def test_all_config_items_are_printed(run, conf):
    result = run("-c", conf(scanNotActiveBrokerInterval=77), "-p")
    assert result.returncode == 0
    assert " INFO main - scanNotActiveBrokerInterval=77\n" in result.stdout


@pytest.mark.parametrize(("keys", "problem"), [
    ({"controllerDLegerPeers": "n0"}, ":2: controllerDLegerPeers: 'n0' is not a valid id-host:port"),
    ({"controllerDLegerSelfId": "n7"}, ":3: controllerDLegerSelfId: 'n7' is not one of controllerDLegerPeers: n0"),
    ({"scanNotActiveBrokerInterval": "x"}, "scanNotActiveBrokerInterval: expected a whole number"),
])
def test_bad_config_file_exits_with_2_and_names_the_line(run, conf, keys, problem):
    result = run("-c", conf(**keys))
    assert result.returncode == 2 and problem in result.stderr


def test_damaged_store_exits_with_2_and_a_hint(run, conf, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "replicaSets.json").write_text("{")
    result = run("-c", conf())
    assert result.returncode == 2 and "replicaSets.json can't be used" in result.stderr


def test_controller_starts_logs_and_exits_on_sigterm(conf, tmp_path):
    port = free_port()
    server = ServerProcess("controller", [LAUNCHER, "-c", conf(controllerDLegerPeers=f"n0-127.0.0.1:{port}",
                                                               elephant=1)], tmp_path,
                           "The Controller Server boot success. serializeType=JSON", {"HOME": str(tmp_path)})
    try:
        server.start()
        with RawClient(f"127.0.0.1:{port}", 5) as client:
            assert client.request(METADATA).fields["isLeader"] == "true"
        assert "unknown key elephant" in server.output() and f"port {port} is open on all addresses" in server.output()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(240) == 0
        log = (tmp_path / "logs" / "rocketmqlogs" / "controller.log").read_text()
        assert "controllerDLegerGroup=group1" in log and "shutdown hook done" in log
    finally:
        server.kill()


def test_name_server_can_run_a_controller(tmp_path):
    port, http_port = free_port(), free_port()
    node = NamesrvNode("rmqha", tmp_path)
    with open(node.config_file, "a", encoding="utf-8") as file:
        file.write(f"enableControllerInNamesrv=true\ncontrollerDLegerGroup=group1\ncontrollerDLegerSelfId=n0\n"
                   f"controllerDLegerPeers=n0-127.0.0.1:{port}\ncontrollerStorePath={tmp_path}/store\n"
                   f"metricsPort={http_port}\n")
    node.ready = "The ControllerManager boot success. serializeType=JSON"
    try:
        node.start()
        with RawClient(f"127.0.0.1:{port}", 5) as client:
            assert client.request(METADATA).fields["controllerLeaderId"] == "n0"
        assert http_get(http_port, "/leader")[0] == 200
        with RawClient(node.address, 5) as client:
            assert client.request(BROKER_CLUSTER_INFO).code == 0
        assert "unknown key" not in node.output()
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(240) == 0
    finally:
        node.kill()


# A controller's metrics for Prometheus.


def test_elections_requests_replicas_and_health(tmp_path):
    port = free_port()
    manager = controller(tmp_path, metricsPort=port)
    brokers = [FakeBroker(manager, id_) for id_ in (1, 2)]
    try:
        for broker in brokers:
            broker.register()
        brokers[0].elect()
        brokers[1].elect()
        scrape = Scrape(port)
        owner = {"address": manager.address, "group": "group1", "peer_id": "n0"}
        assert scrape.value("role", **owner) == LEADER
        of = {"cluster": CLUSTER, "broker_set": NAME}
        assert scrape.value("active_broker_num", **owner, **of) == 2
        for result in ("new_master_elected", "keep_current_master"):
            assert scrape.value("election_total", **owner, broker_set=NAME, election_result=result) == 1
        assert scrape.value("request_total", **owner, request_type="CONTROLLER_BROKER_HEARTBEAT",
                            request_handle_status="success") == 2
        assert scrape.value("rmqha_controller_master_broker_id", **of) == 1
        assert scrape.value("rmqha_controller_in_sync_replicas", **of) == 1
        assert scrape.value("rmqha_controller_replicas", **of) == 2
        assert scrape.value("rmqha_controller_store_total", result="success") == 3
        told = {name + ("_total" if family.type == "counter" else "") for name, family in scrape.families.items()}
        assert {metric.name for metric in CONTROLLER_METRICS} <= told
        assert http_get(port, "/readyz")[0] == 200
        status, body, _headers = http_get(port, "/leader")
        assert status == 200 and json.loads(body) == {
            "state": "running", "role": "leader", "id": "n0", "leaderId": "n0", "leaderAddress": manager.address,
            "reasons": []}
        manager.controller.store.shutdown()
        assert http_get(port, "/readyz")[:2] == (503, b"no controller is known to lead\n")
        status, body, _headers = http_get(port, "/leader")
        assert status == 503 and json.loads(body) == {
            "state": "running", "role": "follower", "id": "n0", "leaderId": None, "leaderAddress": None,
            "reasons": ["no controller is known to lead"]}
        assert Scrape(port).value("role", **owner) != LEADER
        manager.remoting_server.io.shutdown()
        assert http_get(port, "/healthz")[:2] == (503, b"the thread of its port has ended\n")
    finally:
        for broker in brokers:
            broker.die()
        manager.shutdown()
    assert manager.metrics().why_not_ready() == ["it is starting, or going down"]


# Every request code of a controller with many new names: kept state is limited, and heartbeats end with their
# connection.

NAMES, LIMIT = 60, 20
# The mark of all new names, which no other text has.
MARK = f"-new{LIMIT}-"
LONG = "n" * (MAX_NAME_LENGTH + 1)


@pytest.fixture
def manager(tmp_path, monkeypatch):
    for name in ("MAX_BROKER_NAMES", "MAX_BROKERS_OF_CHANNEL", "MAX_REPLICAS"):
        monkeypatch.setattr(broker_liveness, name, LIMIT)
    monkeypatch.setattr(broker_liveness, "MAX_BROKERS_HEARD", 2 * LIMIT)
    made = controller(tmp_path)
    logging.disable(logging.CRITICAL)  # pytest keeps every line
    yield made
    logging.disable(logging.NOTSET)
    made.shutdown()


def flood(manager, code: int) -> int:
    """Send a request with a new name for each number, on one connection; return how many were refused."""
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
def test_new_names_leave_only_limited_state(manager, code):
    refused = flood(manager, code)
    wait_until(lambda: not manager.liveness.all(), what="the heartbeats to be removed with their connection")
    if code == request_code.CONTROLLER_APPLY_BROKER_ID:
        assert refused == NAMES - LIMIT and len(manager.controller.store.names()) == LIMIT
    elif code == request_code.BROKER_HEARTBEAT:
        assert refused == NAMES - LIMIT
        # the leadership that a broker follows is kept after its connection ends, for at most the limit of brokers
        assert len({name for name in names_kept(MARK, manager) if name.startswith("b")}) <= LIMIT
    else:
        wait_until(lambda: not names_kept(MARK, manager), what="new names to be removed")


def test_repeated_names_are_looked_up_once_and_do_not_delay_others(manager, monkeypatch):
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


def test_known_names_still_work_when_new_names_are_refused(manager):
    flood(manager, request_code.CONTROLLER_APPLY_BROKER_ID)
    with RawClient(manager.address, 20) as client:
        def apply(name: str, id_: int) -> int:
            return client.request(request_code.CONTROLLER_APPLY_BROKER_ID, clusterName="c", brokerName=name,
                                  appliedBrokerId=id_, registerCheckCode=f"h:{id_};1")

        known = f"b{MARK}0"
        assert [apply(known, id_).code for id_ in range(2, LIMIT + 1)] == [0] * (LIMIT - 1)
        refused = apply(known, LIMIT + 1)
        assert refused.code != 0 and f"{known} already has {LIMIT} replicas" in refused.remark
        assert client.request(request_code.CLEAN_BROKER_DATA, clusterName=f"c{MARK}0", brokerName=known,
                              isCleanLivingBroker="true").code == 0
        refused = apply("another", 1)
        assert refused.code != 0 and f"there are already {LIMIT} broker names" in refused.remark
        assert apply(known, 1).code == 0


@pytest.mark.parametrize("code, field", [
    (request_code.CONTROLLER_APPLY_BROKER_ID, "brokerName"), (request_code.CONTROLLER_APPLY_BROKER_ID, "clusterName"),
    (request_code.CONTROLLER_APPLY_BROKER_ID, "registerCheckCode"),
    (request_code.CONTROLLER_REGISTER_BROKER, "brokerAddress"), (request_code.BROKER_HEARTBEAT, "brokerName"),
    (request_code.BROKER_HEARTBEAT, "clusterName"), (request_code.BROKER_HEARTBEAT, "brokerAddr"),
    (request_code.BROKER_HEARTBEAT, "haServerAddr")])
def test_length_of_texts_is_limited(manager, code, field):
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


def test_brokers_of_all_connections_are_limited_and_closing_frees_places(monkeypatch):
    monkeypatch.setattr(broker_liveness, "MAX_BROKERS_HEARD", LIMIT)
    liveness, channels = BrokerLiveness(1000, lambda: 0), [object() for _number in range(LIMIT)]
    for number, channel in enumerate(channels):
        liveness.heartbeat(heard(number, channel))
    with pytest.raises(ControllerLimitError, match=f"{LIMIT} brokers are already heard"):
        liveness.heartbeat(heard(LIMIT, object()))
    # A known broker over another connection.
    liveness.heartbeat(heard(0, channels[1]))
    assert liveness.closed(channels[2]) == [("c", "b2", 1)]
    liveness.heartbeat(heard(LIMIT, object()))
    assert liveness.closed(channels[0]) == []
    assert sorted(liveness.closed(channels[1])) == [("c", "b0", 1), ("c", "b1", 1)]


def test_oldest_followed_leaderships_are_forgotten_first(monkeypatch):
    monkeypatch.setattr(broker_liveness, "MAX_BROKERS_HEARD", LIMIT)
    liveness = BrokerLiveness(1000, lambda: 1)
    for number in itertools.chain(range(LIMIT), [0], range(LIMIT, 2 * LIMIT - 1)):
        channel = object()
        liveness.heartbeat(heard(number, channel, term=7))
        liveness.closed(channel)
    followers = [number for number in range(2 * LIMIT) if liveness.may_replace(("c", f"b{number}", 1), 1, 7)]
    assert followers == [0, *range(LIMIT, 2 * LIMIT - 1)]


# A controller answers any request and keeps running; and its file can be read again.

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
def odd_requests_manager(tmp_path):
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


def test_every_request_is_answered_and_the_file_stays_readable(odd_requests_manager, tmp_path):
    requests(odd_requests_manager)
    with RawClient(odd_requests_manager.address, 20) as client:
        names = odd_requests_manager.controller.store.names()
        answer = client.request(request_code.CONTROLLER_GET_SYNC_STATE_DATA, json.dumps(names or ["b"]).encode())
        assert answer.code == 0
    sets = {name: odd_requests_manager.controller.store.get(name).replica_set for name in names}
    odd_requests_manager.shutdown()
    again = LocalStore(str(tmp_path / "store"), "n0", "h:1")
    again.start()
    assert {name: again.get(name).replica_set for name in again.names()} == sets
    again.shutdown()
