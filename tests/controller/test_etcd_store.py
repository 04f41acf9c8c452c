"""Controllers that share a real etcd: leadership, permission to write, and parsing of anything that is read back."""
import base64
import json
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.common.filesystem import how_to_install
from rmqha.common.util_all import LONG_AGO
from rmqha.controller import etcd_store
from rmqha.controller.etcd_client import (
    EtcdClient,
    EtcdRefusedError,
    EtcdUnavailableError,
    KeyValue,
    deletion_of,
    parse_endpoints,
    parse_txn,
    put_of,
    range_of,
)
from rmqha.controller.etcd_leadership import Leader, held, held_seconds
from rmqha.controller.etcd_store import EtcdStore, decode_record, encode_record
from rmqha.controller.local_store import NotLeaderError, StoreConflictError, StoreFailedError, Versioned
from rmqha.controller.replicas_info_manager import Replica, ReplicaSet, ReplicaSetError
from tests.support.etcd import LEASE_S, LONG_LEASE_S, MOST_S, etcd_config, etcd_stores, leads_until_ns, require_etcd
from tests.support.nodes import EtcdNode
from tests.support.programs import Authority
from tests.support.wait import at_least, stays, wait_until

# Controllers that share a real etcd of one member: leadership, permission to write, unknown outcomes.

ONE = ReplicaSet("cluster", "broker-a", master_id=1, master_epoch=1)
MS = 1_000_000


@pytest.fixture(scope="module")
def etcd(tmp_path_factory, module_nodes):
    require_etcd()
    # a disk may take longer than a lease
    node = EtcdNode(tmp_path_factory.mktemp("etcd"), sync=False)
    module_nodes.append(node)
    return node.start()


@pytest.fixture
def config(etcd):
    return etcd_config([etcd.address])


def leader_of(stores):
    return wait_until(lambda: next((store for store in stores if store.leads), None), what="one leads")


def others(stores, leader):
    return [store for store in stores if store is not leader]


def put(store, epoch, name="broker-a"):
    return store.put(name, store.get(name).version, replace(ONE, broker_name=name, master_epoch=epoch))


def raw(config):
    """Return a client for changes that bypass the controllers. Its long lease gives its requests a long timeout."""
    return EtcdClient(etcd_store._settings(replace(config, etcdLeaseSeconds=LONG_LEASE_S)))


def key(config, name):
    return f"{config.etcdPrefix}/{name}".encode()


def test_one_of_three_leads_and_the_others_name_it(config):
    with etcd_stores(config, "n0", "n1", "n2") as stores:
        leader = leader_of(stores)
        assert leader.leader_address == f"127.0.0.{int(leader.leader_id[1:]) + 1}:1"
        for other in others(stores, leader):
            wait_until(lambda other=other: other.leader_id == leader.leader_id)
            assert not other.leads and other.leader_address == leader.leader_address
            for act in (other.names, lambda: other.get("broker-a"), lambda: other.put("broker-a", 0, ONE)):
                with pytest.raises(NotLeaderError, match=leader.leader_address):
                    act()


def test_leadership_is_handed_over_at_once(config):
    with etcd_stores(replace(config, etcdLeaseSeconds=LONG_LEASE_S), "n0", "n1") as stores:
        leader = leader_of(stores)
        version = put(leader, 5).version
        leader.shutdown()
        (other,) = others(stores, leader)
        wait_until(lambda: other.leads, MOST_S * 1000, "the other one leads long before the lease expires")
        assert other.leads_since_ns <= time.monotonic_ns(), "the previous leader has announced its end"
        assert other.get("broker-a") == Versioned(replace(ONE, master_epoch=5), version)
        assert not leader.leads and leader.leader_id is None


def test_dead_leader_is_replaced_when_its_lease_has_expired(config):
    with etcd_stores(config, "n0", "n1") as stores:
        leader = leader_of(stores)
        put(leader, 1)
        _stop_services(leader)
        (other,) = others(stores, leader)
        wait_until(lambda: other.leads, MOST_S * 1000, "the other one leads")
        assert not leader.leads, "it stops before the other one begins"
        assert other.leads_since_ns > leader._leadership._until_ns, "the previous leader may believe that it leads"
        put(other, 2)


def _stop_services(store):
    """Make the store hang: its services do nothing."""
    leadership = store._leadership
    for service in (leadership._election, leadership._keep_alive):
        service.make_stop()
        leadership._client.interrupt()
        service.shutdown()


def test_paused_leader_writes_nothing(config):
    """Its clock stops during the pause, so it believes that it leads."""
    now = [time.monotonic_ns()]
    paused = EtcdStore(config, "n0", "127.0.0.1:1", lambda: now[0])
    try:
        paused.start()
        wait_until(lambda: paused.leads)
        seen = put(paused, 1)
        _stop_services(paused)
        with etcd_stores(config, "n1") as (other,):
            wait_until(lambda: other.leads)
            assert paused.leads, "as far as it can know"
            with pytest.raises(NotLeaderError):
                paused.put("broker-a", seen.version, replace(ONE, master_epoch=99))
            assert not paused.leads
            assert other.get("broker-a") == seen
            written = put(other, 2)
            with pytest.raises(NotLeaderError):
                paused.put("broker-a", written.version, replace(ONE, master_epoch=99))
            assert raw(config).transaction([], [range_of(key(config, "brokers/broker-a"))]).ranges[0][0] \
                .mod_revision == written.version
    finally:
        paused.shutdown()


def test_leader_whose_key_was_deleted_leads_again(config):
    with etcd_stores(config, "n0") as (store,):
        told = []
        wait_until(lambda: store.leads)
        store.on_leader_changed = lambda: told.append(store.leads)
        put(store, 1)
        since_ns = store.leads_since_ns
        raw(config).transaction([], [deletion_of(key(config, "leader"))])
        with pytest.raises((NotLeaderError, StoreConflictError)):
            while True:
                put(store, 2)
        wait_until(lambda: store.leads and told[-1:] == [True], what="it leads again")
        assert told in ([True], [False, True])
        assert store.leads_since_ns == since_ns, "no other controller has led meanwhile"
        assert put(store, 3).replica_set.master_epoch == 3


def test_decisions_of_an_earlier_leadership_are_not_written(config):
    with etcd_stores(config, "n0") as (store,):
        wait_until(lambda: store.leads)
        seen, term = put(store, 1), store.term
        raw(config).transaction([], [deletion_of(key(config, "leader"))])
        wait_until(lambda: store.leads and store.term != term)
        assert store.get("broker-a").version == seen.version, "the leader in between has written nothing"
        with pytest.raises(NotLeaderError):
            store.put("broker-a", seen.version, replace(ONE, master_epoch=2), term)
        store.put("broker-a", seen.version, replace(ONE, master_epoch=2), store.term)


def test_first_leader_waits_for_no_leases(config):
    with etcd_stores(config, "n0") as (store,):
        wait_until(lambda: store.leads)
        assert store.leads_since_ns == LONG_AGO
    with etcd_stores(config, "n0") as (store,):
        wait_until(lambda: store.leads)
        assert store.leads_since_ns > time.monotonic_ns() - 60 * 1000 * MS


def test_leadership_is_confirmed_once_for_all_waiting_calls(config, monkeypatch):
    with etcd_stores(config, "n0") as (store,):
        wait_until(lambda: store.leads)
        leadership, asked = store._leadership, []
        _stop_services(store)
        client = raw(config)
        monkeypatch.setattr(leadership._client, "transaction",
                            lambda *args: at_least(0.2) or asked.append(1) or client.transaction(*args))
        since_ns = time.monotonic_ns()
        threads = [threading.Thread(target=store.confirm, args=(since_ns,)) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
        store.confirm(since_ns)
        assert len(asked) == 1 and store.leads
        put(store, 1)
        store.confirm(since_ns)
        assert len(asked) == 2, "a change confirms it, too"
        raw(config).transaction([], [deletion_of(key(config, "leader"))])
        with pytest.raises(NotLeaderError):
            store.confirm(time.monotonic_ns())
        assert not store.leads


def test_leader_stays_the_leader_while_no_member_confirms_it(config, monkeypatch):
    with etcd_stores(config, "n0") as (store,):
        wait_until(lambda: store.leads)
        asked = []

        def transaction(*_args):
            asked.append(1)
            raise EtcdUnavailableError("no member answers")
        _stop_services(store)
        monkeypatch.setattr(store._leadership._client, "transaction", transaction)
        since_ns = time.monotonic_ns()
        for _ in range(2):
            with pytest.raises(StoreFailedError, match="does not name the leader"):
                store.confirm(since_ns)
        assert len(asked) == 1 and store.leads, "it may still lead: the state is unknown"


def test_external_change_is_a_conflict_once(config):
    with etcd_stores(config, "n0") as (store,):
        wait_until(lambda: store.leads)
        seen = put(store, 1)
        raw(config).transaction([], [put_of(key(config, "brokers/broker-a"),
                                            b"by hand\n" + replace(ONE, master_epoch=50).encode())])
        with pytest.raises(StoreConflictError):
            store.put("broker-a", seen.version, replace(ONE, master_epoch=2))
        assert store.get("broker-a").replica_set.master_epoch == 50
        assert put(store, 51).replica_set.master_epoch == 51
        raw(config).transaction([], [deletion_of(key(config, "brokers/broker-a"))])
        with pytest.raises(StoreConflictError):
            put(store, 52)
        assert store.get("broker-a") == Versioned(None, 0) and put(store, 53).version


def test_damaged_document_stops_only_its_name_until_it_is_repaired(config):
    raw(config).transaction([], [put_of(key(config, "brokers/broker-a"), b"damaged"),
                                 put_of(key(config, "brokers/") + b"\xff\xfe", b"no name"),
                                 put_of(key(config, "brokers/broker-b"), b"t\n" + ONE.encode())])
    with etcd_stores(config, "n0") as (store,):
        wait_until(lambda: store.leads)
        assert store.names() == ["broker-b"] and store.get("broker-b").replica_set == ONE
        for _ in range(2):
            with pytest.raises(ReplicaSetError, match="damaged"):
                store.get("broker-a")
        raw(config).transaction([], [put_of(key(config, "brokers/broker-a"), b"mended\n" + ONE.encode())])
        assert store.get("broker-a").replica_set == ONE and store.names() == ["broker-a", "broker-b"]
        put(store, 2)


def test_leader_key_without_a_lease_blocks_leadership(config):
    raw(config).transaction([], [put_of(key(config, "leader"), b"somebody")])
    with etcd_stores(replace(config, etcdLeaseSeconds=LONG_LEASE_S), "n0") as (store,):
        stays(lambda: not store.leads and store.leader_id is None, 300)
        raw(config).transaction([], [deletion_of(key(config, "leader"))])
        wait_until(lambda: store.leads, MOST_S * 1000)


# ---- lost answers


def _unheard(monkeypatch, store, times, is_done=lambda number: True):
    """Lose the answers of the next `times` transactions that put."""
    left, real = [times], store._client.transaction

    def transaction(compare, success, failure=None):
        if left[0] and any("request_put" in act for act in success):
            left[0] -= 1
            if is_done(times - left[0]):
                real(compare, success, failure)
            raise EtcdUnavailableError("lost on purpose")
        return real(compare, success, failure)
    monkeypatch.setattr(store._client, "transaction", transaction)


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("times", [1, 5])
def test_put_without_an_answer_is_checked(config, monkeypatch, times, is_done):
    with etcd_stores(config, "n0") as (store,):
        wait_until(lambda: store.leads)
        seen = put(store, 1)
        _unheard(monkeypatch, store, times, lambda number: is_done)
        written = put(store, 2)
        assert written.version > seen.version and store.get("broker-a") == written
        assert put(store, 3).version > written.version


def test_put_with_an_unknown_outcome_ends_the_leadership(config, monkeypatch):
    with etcd_stores(config, "n0") as (store,):
        wait_until(lambda: store.leads)
        seen = put(store, 1)
        real = store._client.transaction
        held_up = []

        def transaction(compare, success, failure=None):
            if any("request_put" in act for act in success):
                held_up.append((compare, success, failure))
                raise EtcdUnavailableError("held up on purpose")
            return real(compare, success, failure)
        monkeypatch.setattr(store._client, "transaction", transaction)
        with pytest.raises(StoreFailedError):
            put(store, 2)
        assert not store.leads
        ours = [asked for asked in held_up if b"brokers" in key_of(asked)]
        monkeypatch.undo()
        wait_until(lambda: store.leads, what="it leads again")
        for asked in ours:
            assert not real(*asked).succeeded, "a late request has no effect"
        assert store.get("broker-a") == seen
        put(store, 3)


def key_of(asked):
    return base64.b64decode(asked[1][0].get("request_put", {"key": ""})["key"])


def test_callbacks_may_be_slow_and_fail(config):
    with etcd_stores(config, "n0") as (store,):
        wait_until(lambda: store.leads)
        began = threading.Event()

        def slow():
            began.set()
            at_least(LEASE_S * 1.5)
            raise RuntimeError("planted")
        store.on_leader_changed = slow
        put(store, 1)
        raw(config).transaction([], [deletion_of(key(config, "leader"))])
        wait_until(began.is_set)
        wait_until(lambda: store.leads, what="it leads again")
        stays(lambda: store.leads, LEASE_S * 1000, "its lease is kept alive during a slow callback")
        store.on_leader_changed = None


# ---- restarts of etcd, user and password, TLS


def test_leadership_ends_with_etcd_and_returns_with_it(tmp_path, nodes):
    require_etcd()
    etcd = EtcdNode(tmp_path)
    nodes.append(etcd.start())
    config = etcd_config([etcd.address])
    with etcd_stores(config, "n0", "n1") as stores:
        leader = leader_of(stores)
        seen = put(leader, 1)
        wait_until(lambda: all(store.leader_id for store in stores))
        etcd.kill()
        killed_ns = time.monotonic_ns()
        with pytest.raises(StoreFailedError):
            leader.put("broker-a", seen.version, replace(ONE, master_epoch=2))
        wait_until(lambda: not leader.leads, what="its lease has expired")
        assert leads_until_ns(leader) < killed_ns + LEASE_S * 1000 * MS
        wait_until(lambda: all(store.leader_id is None for store in stores), what="no leader is known")
        etcd.start()
        again = leader_of(stores)
        assert again.get("broker-a").replica_set.master_epoch in (1, 2)
        put(again, 3)


def test_controller_waits_for_an_etcd_that_is_not_running_yet(tmp_path, nodes):
    require_etcd()
    etcd = EtcdNode(tmp_path)
    with etcd_stores(etcd_config([etcd.address]), "n0") as (store,):
        stays(lambda: not store.leads and store.leader_id is None, 200)
        nodes.append(etcd.start())
        wait_until(lambda: store.leads)


def _gateway(etcd, path, body=None):
    """Send one request to the member's gateway."""
    request = urllib.request.Request(f"http://{etcd.address}/v3/{path}", json.dumps(body or {}).encode())
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.loads(answer.read())


@pytest.fixture
def guarded_etcd(tmp_path, nodes):
    """Return an etcd with root, and a user with read and write permission below one prefix."""
    require_etcd()
    etcd = EtcdNode(tmp_path)
    nodes.append(etcd.start())
    for name in ("root", "rmqha"):
        _gateway(etcd, "auth/user/add", {"name": name, "password": f"{name}-secret"})
        _gateway(etcd, "auth/role/add", {"name": name})
        _gateway(etcd, "auth/user/grant", {"user": name, "role": name})
    begin, end = (base64.b64encode(text).decode() for text in (b"/rmqha/", b"/rmqha0"))
    _gateway(etcd, "auth/role/grant", {"name": "rmqha", "perm": {"permType": "READWRITE", "key": begin,
                                                                 "range_end": end}})
    _gateway(etcd, "auth/enable")
    return etcd


def guarded(etcd, **keys):
    return etcd_config([etcd.address], **{"etcdPrefix": "/rmqha/test", "etcdUser": "rmqha",
                                          "etcdPassword": "rmqha-secret", **keys})


def test_user_and_password(guarded_etcd):
    config = guarded(guarded_etcd)
    with etcd_stores(config, "n0", "n1") as stores:
        leader = leader_of(stores)
        put(leader, 1)
        # tokens do not survive a restart of the member
        guarded_etcd.kill()
        guarded_etcd.start()
        again = leader_of(stores)
        wait_until(lambda: again.leads)
        assert put(again, 2).replica_set.master_epoch == 2
        leader = leader_of(stores)
        leader.shutdown()
        wait_until(lambda: others(stores, leader)[0].leads, what="the leadership is handed over with a user, too")


@pytest.mark.parametrize("keys, words", [
    ({"etcdPassword": "wrong"}, "authentication failed"),
    ({"etcdUser": None, "etcdPassword": None}, "user name is empty"),
    ({"etcdPrefix": "/other"}, "permission denied")])
def test_refused_controller_reports_the_reason(guarded_etcd, keys, words):
    store = EtcdStore(guarded(guarded_etcd, **keys), "n0", "127.0.0.1:1")
    try:
        with pytest.raises(OSError, match=f"etcd refuses this controller: .*{words}"):
            store.start()
    finally:
        store.shutdown()


def test_leader_that_is_refused_later_no_longer_leads(guarded_etcd, monkeypatch):
    with etcd_stores(guarded(guarded_etcd), "n0") as (store,):
        wait_until(lambda: store.leads)
        seen = put(store, 1)
        monkeypatch.setattr(store._client, "transaction",
                            lambda *args: (_ for _ in ()).throw(EtcdRefusedError("permission denied")))
        with pytest.raises(StoreFailedError, match="permission denied"):
            store.put("broker-a", seen.version, ONE)
        assert not store.leads


def test_tls_with_certificates_on_both_sides(tmp_path, nodes):
    require_etcd()
    authority, stranger = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    server, client = authority.sign("etcd", "IP:127.0.0.1"), authority.sign("controller")
    etcd = EtcdNode(tmp_path, extra=["--cert-file", str(server.certificate), "--key-file", str(server.key),
                                     "--client-cert-auth", "--trusted-ca-file", str(authority.certificate)])
    nodes.append(etcd)
    etcd.launch()
    keys = {"etcdCaFile": str(authority.certificate), "etcdCertFile": str(client.certificate),
            "etcdKeyFile": str(client.key)}
    with etcd_stores(etcd_config([etcd.address], **keys, etcdLeaseSeconds=LONG_LEASE_S), "n0", "n1") as stores:
        leader = leader_of(stores)
        assert put(leader, 1).replica_set.master_epoch == 1
        leader.shutdown()
        wait_until(lambda: others(stores, leader)[0].leads, MOST_S * 1000, "a watch works over TLS")
    for wrong in ({"etcdCertFile": None, "etcdKeyFile": None}, {"etcdCaFile": str(stranger.certificate)}):
        with etcd_stores(etcd_config([etcd.address], **{**keys, **wrong}), "n2") as (store,):
            stays(lambda store=store: not store.leads and store.leader_id is None, 300)


def test_invalid_tls_files_are_refused(tmp_path):
    require_etcd()
    authority = Authority(tmp_path / "ca")
    one, other = authority.sign("one"), authority.sign("other")
    (tmp_path / "text").write_text("text")
    for keys, words in (
            ({"etcdCaFile": str(tmp_path / "missing")}, "etcdCaFile"),
            ({"etcdCaFile": str(tmp_path / "text")}, "etcdCaFile"),
            ({"etcdCertFile": str(one.certificate)}, "must be set together"),
            ({"etcdCertFile": str(one.certificate), "etcdKeyFile": str(other.key)}, "etcdCertFile"),
            ({"etcdPassword": "alone"}, "without etcdUser"), ({"etcdPrefix": "/"}, "etcdPrefix is empty")):
        with pytest.raises(ValueError, match=words):
            EtcdStore(etcd_config(["127.0.0.1:1"], **keys), "n0", "127.0.0.1:1")


def test_missing_extra_is_reported_with_the_command_to_install_it():
    code = ("import sys; sys.modules['etcd3gw'] = None\n"
            "from rmqha.controller.etcd_store import EtcdStore\n"
            "from rmqha.common.controller_config import ControllerConfig\n"
            "try: EtcdStore(ControllerConfig(etcdEndpoints='a:1'), 'n0', 'n0:1')\n"
            "except OSError as error: print(error)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert f"controllerStore=etcd needs etcd3gw: {how_to_install('etcd')}" in done.stdout


def test_read_only_transactions_ask_a_majority_of_members(config):
    """A transaction without a range would be answered even by a member that lags behind."""
    asked = []
    with etcd_stores(config, "n0") as (store,):
        real = store._client._ask
        store._client._ask = lambda path, body, parse: asked.append((path, body)) or real(path, body, parse)
        wait_until(lambda: len(asked) > 8)
    for path, body in asked:
        if path == "/kv/txn" and not any("request_put" in act for act in body["success"]):
            assert any("request_range" in act and not act["request_range"].get("serializable")
                       for act in [*body["success"], *body["failure"]])


# Data read back from etcd may be anything: it is parsed, or refused with one kind of error.

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
WHOLE = st.integers(0, (1 << 63) - 1)
SETS = st.builds(ReplicaSet, TEXT, TEXT, st.dictionaries(WHOLE, st.builds(Replica, TEXT, TEXT), max_size=4), WHOLE,
                 st.none() | WHOLE, WHOLE, st.frozensets(WHOLE, max_size=4), WHOLE)
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
                    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
                    max_leaves=12)


@given(SETS, st.from_regex(r"[0-9a-f]+-\d+", fullmatch=True))
def test_record_is_read_as_it_was_written(replica_set, token):
    assert decode_record(encode_record(token, replica_set)) == replica_set
    assert decode_record(encode_record(token, None)) is None
    assert encode_record(token, replica_set) != encode_record(token + "1", replica_set)


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused(data):
    _refused_or_read(data)
    _refused_or_read(b"token\n" + data)


def _refused_or_read(data):
    try:
        found = decode_record(data)
    except ReplicaSetError:
        return
    assert found is None or isinstance(found, ReplicaSet)


@given(SETS, st.data())
def test_damaged_record_is_parsed_or_refused(replica_set, data):
    value = bytearray(encode_record("t-1", replica_set))
    place = data.draw(st.integers(0, len(value) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "twice"]))
    if kind == "flip":
        value[place] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del value[place:]
    else:
        value[place:place] = value[place:]
    _refused_or_read(bytes(value))


@given(SETS, st.data())
def test_record_with_another_value_is_parsed_or_refused(replica_set, data):
    document = json.loads(replica_set.encode())
    document[data.draw(st.sampled_from(sorted(document)))] = data.draw(JSON)
    _refused_or_read(b"token\n" + json.dumps(document).encode())


@pytest.mark.parametrize("document", [b"[" * 200_000, b"1" * 5000, b'{"replicas": {"%s": 1}}' % (b"9" * 5000), b"NaN"])
def test_malicious_documents_are_refused(document):
    with pytest.raises(ReplicaSetError):
        decode_record(b"token\n" + document)
    assert Leader.decode(document) is None and held_seconds(document, 7) == 7


@given(TEXT, TEXT, TEXT)
def test_leader_is_read_as_it_was_written(id_, address, nonce):
    leader = Leader(id_, address, nonce)
    assert Leader.decode(leader.encode()) == leader


@given(st.binary(max_size=100) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_leader_and_term_are_parsed_or_unknown(data):
    found = Leader.decode(data)
    assert found is None or Leader.decode(found.encode()) == found
    assert held_seconds(data, 9) == 9 or held_seconds(data, 9) >= 0


def test_terms_are_parsed():
    assert held_seconds(held(3), 9) == 3 and held_seconds(b'{"state": "free"}', 9) == 0
    assert held_seconds(b'{"state": "held", "seconds": -1}', 9) == 9
    assert held_seconds(b'{"state": "held", "seconds": "3"}', 9) == 9


ANSWER = {"header": {"revision": "17"}, "succeeded": True, "responses": [
    {"response_put": {"header": {"revision": "17"}}},
    {"response_range": {"kvs": [{"key": "aw==", "value": "dg==", "create_revision": "3", "mod_revision": "16",
                                 "version": "4", "lease": "9"}], "count": "1"}},
    {"response_range": {}}]}


def test_answer_to_a_transaction_is_parsed():
    answer = parse_txn(ANSWER)
    assert (answer.succeeded, answer.revision) == (True, 17)
    assert answer.ranges == ((KeyValue(b"k", b"v", 3, 16),), ())
    assert not parse_txn({"header": {"revision": 1}}).succeeded


@given(JSON, st.data())
def test_any_answer_is_parsed_or_refused(anything, data):
    _answer_or_refused(anything)
    damaged = json.loads(json.dumps(ANSWER))
    place = damaged
    for key in data.draw(st.sampled_from([["header"], ["header", "revision"], ["responses"], ["responses", 1],
                                          ["responses", 1, "response_range"], ["succeeded"],
                                          ["responses", 1, "response_range", "kvs"],
                                          ["responses", 1, "response_range", "kvs", 0],
                                          ["responses", 1, "response_range", "kvs", 0, "value"],
                                          ["responses", 1, "response_range", "kvs", 0, "mod_revision"]])):
        parent, place = place, place[key]
    parent[key] = anything
    _answer_or_refused(damaged)


def _answer_or_refused(answer):
    try:
        parsed = parse_txn(answer)
    except ValueError:
        return
    assert isinstance(parsed.revision, int) and all(isinstance(kv, KeyValue) for keys in parsed.ranges for kv in keys)


@pytest.mark.parametrize("text, endpoints", [
    ("127.0.0.1:2379", (("http", "127.0.0.1", 2379),)),
    ("https://etcd-1.example:2379/;b:1; [::1]:65535 ;",
     (("https", "etcd-1.example", 2379), ("http", "b", 1), ("http", "::1", 65535)))])
def test_valid_endpoints_are_parsed(text, endpoints):
    assert parse_endpoints(text) == endpoints


@pytest.mark.parametrize("text", ["", ";", "host", "host:0", "host:65536", "ftp://host:1", "a:1,b:2", "http://a:1/path",
                                  "a b:1", "[::1:1", "user:secret@host:1"])
def test_invalid_endpoints_are_refused(text):
    with pytest.raises(ValueError, match="etcdEndpoints"):
        parse_endpoints(text)
