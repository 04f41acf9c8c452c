"""Controllers at three members of etcd, which are killed, stopped, and unreachable."""
import os
import random
import signal
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import psutil
import pytest

from rmqha.common.protocol import request_code, response_code
from rmqha.controller.etcd_store import EtcdStore
from rmqha.controller.local_store import NotLeaderError, StoreConflictError, StoreFailedError
from rmqha.controller.replicas_info_manager import ReplicaSet
from tests.faults.link_faults import Proxy
from tests.support.etcd import (
    LEASE_S,
    LONG_LEASE_S,
    MOST_S,
    addresses,
    etcd_config,
    etcd_stores,
    leads_until_ns,
    require_etcd,
)
from tests.support.nodes import ControllerNode, EtcdNode, etcd_cluster, start_etcd
from tests.support.ports import free_port
from tests.support.raw_remoting import RawClient
from tests.support.tiers import in_long
from tests.support.wait import at_least, stays, wait_until

pytestmark = pytest.mark.etcd


# Longer than members need to elect another leader on a busy machine.
PATIENT_LEASE_S = 20
ONE = ReplicaSet("cluster", "broker-a", master_epoch=0)
MS = 1_000_000


@pytest.fixture(scope="module")
def members(tmp_path_factory, module_nodes):
    require_etcd()
    nodes = etcd_cluster(tmp_path_factory.mktemp("etcd"), 3, sync=False)
    module_nodes.extend(nodes)
    start_etcd(nodes)
    return nodes


@pytest.fixture
def cluster(members):
    """Yield the members, all of which run before and after a test."""
    yield members
    _heal(members)


def _heal(members):
    for node in members:
        if node.is_alive:
            os.kill(node.pid, signal.SIGCONT)
        else:
            node.launch()
    for node in members:
        wait_until(node.is_healthy, what=f"{node.name} is healthy")


def kill(node):
    node.kill()


def stop(node):
    os.kill(node.pid, signal.SIGSTOP)


def put(store, epoch):
    return store.put("broker-a", store.get("broker-a").version, replace(ONE, master_epoch=epoch))


def leader_of(stores):
    return wait_until(lambda: next((store for store in stores if store.leads), None), what="one leads")


@pytest.mark.parametrize("harm", [kill, stop])
@pytest.mark.parametrize("number", range(3))
def test_loss_of_one_member_changes_nothing(cluster, harm, number):
    """Even if it is the leader of etcd, or the member that is asked."""
    with etcd_stores(etcd_config(addresses(cluster), etcdLeaseSeconds=PATIENT_LEASE_S), "n0", "n1") as stores:
        leader = leader_of(stores)
        put(leader, 1)
        since_ns = leader.leads_since_ns
        harm(cluster[number])
        for epoch in range(2, 6):
            assert put(leader, epoch).replica_set.master_epoch == epoch
        wait_until(leader._leadership.keep, what="its lease is kept alive")
        assert leader.leads and leader.leads_since_ns == since_ns
        (other,) = (store for store in stores if store is not leader)
        wait_until(lambda: other.leader_id == leader.leader_id)
        leader.shutdown()
        wait_until(lambda: other.leads, what="two members are enough to elect")
        assert other.get("broker-a").replica_set.master_epoch == 5
        put(other, 6)


@pytest.mark.parametrize("harm", [kill, stop])
def test_no_controller_leads_without_a_majority_of_members(cluster, harm):
    with etcd_stores(etcd_config(addresses(cluster), etcdLeaseSeconds=LEASE_S), "n0", "n1") as stores:
        leader = leader_of(stores)
        seen = put(leader, 1)
        harm(cluster[0])
        harm(cluster[1])
        harmed_ns = time.monotonic_ns()
        with pytest.raises(StoreFailedError):
            leader.put("broker-a", seen.version, replace(ONE, master_epoch=2))
        wait_until(lambda: not leader.leads, what="it no longer leads")
        assert leads_until_ns(leader) < harmed_ns + LEASE_S * 1000 * MS
        stays(lambda: not any(store.leads for store in stores), LEASE_S * 1000)
        _heal(cluster)
        again = leader_of(stores)
        assert again.get("broker-a").replica_set.master_epoch in (1, 2)
        put(again, 3)


class Line:
    """A controller's connections to the members, each of which can be cut."""

    def __init__(self, cluster, stack):
        self.proxies = []
        for node in cluster:
            host, port = node.address.rsplit(":", 1)
            self.proxies.append(Proxy((host, int(port))))
            stack.callback(self.proxies[-1].close)
        self.addresses = [f"127.0.0.1:{proxy.port}" for proxy in self.proxies]

    def set(self, mode):
        for proxy in self.proxies:
            proxy.mode = mode


@contextmanager
def stores_behind_proxies(cluster, *ids):
    """Yield stores, and the lines between each of them and the members."""
    config = etcd_config([], etcdLeaseSeconds=LEASE_S)
    with ExitStack() as stack:
        lines = [Line(cluster, stack) for _ in ids]
        stores = [EtcdStore(replace(config, etcdEndpoints=";".join(line.addresses)), id_, f"127.0.0.1:{ord(id_[1])}")
                  for id_, line in zip(ids, lines)]
        for store in stores:
            stack.callback(store.shutdown)
            store.start()
        yield stores, lines


@pytest.mark.parametrize("mode", ["mute", "deaf", "stall"])
def test_controller_cut_off_from_etcd_stops_leading_before_another_begins(cluster, mode):
    """The cut is in both directions, or one: requests do not arrive, or ("stall") answers do not."""
    with stores_behind_proxies(cluster, "n0", "n1") as (stores, lines):
        leader = leader_of(stores)
        number = stores.index(leader)
        other = stores[1 - number]
        put(leader, 1)
        with Watch(stores) as watch:
            lines[number].set(mode)
            wait_until(lambda: other.leads, what="the other one leads")
            seen = put(other, 2)
            assert not leader.leads
            with pytest.raises(NotLeaderError):
                leader.put("broker-a", seen.version, replace(ONE, master_epoch=9))
            lines[number].set("pass")
            wait_until(lambda: leader.leader_id == other.leader_id, what="it follows")
            put(other, 3)
        assert not watch.faults


class Watch:
    """A thread that checks all the time which stores believe that they lead: if one leads alone, the others do not."""

    def __init__(self, stores):
        self.stores, self.faults, self.looks = stores, [], 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_error):
        self._end.set()
        self._thread.join()

    def _look(self):
        while not self._end.wait(0.001):
            self.looks += 1
            # in this order: a store that led at first may have stopped since, and another one may lead by now
            leading = [(store.leader_id, store.leads_since_ns, store.leads, time.monotonic_ns())
                       for store in self.stores if store.leads]
            if len(leading) > 1 and all(leads for _, _, leads, _ in leading) and any(
                    since_ns + 5 * MS < now_ns for _, since_ns, _, now_ns in leading[1:]) and any(
                    since_ns + 5 * MS < now_ns for _, since_ns, _, now_ns in leading[:1]):
                self.faults.append(leading)


class Writer(threading.Thread):
    """A thread that adds numbers to a replica set at the controller that leads, and records each outcome."""

    def __init__(self, stores, first):
        super().__init__(daemon=True)
        self.stores, self.numbers = stores, iter(range(first, first + 100_000))
        self.done, self.never, self.unknown = set(), set(), set()
        self.end = False

    def run(self):
        while not self.end:
            for store in self.stores:
                if store.leads:
                    self._add(store, next(self.numbers))
            at_least(0.002)

    def _add(self, store, number):
        try:
            seen = store.get("broker-a")
        except NotLeaderError:
            return
        before = seen.replica_set or ONE
        try:
            store.put("broker-a", seen.version, replace(before, sync_state_set=before.sync_state_set | {number},
                                                        master_epoch=before.master_epoch + 1))
        except NotLeaderError:
            self.never.add(number)
        except StoreConflictError:
            self.unknown.add(number)
        except StoreFailedError:
            self.unknown.add(number)
        else:
            self.done.add(number)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=in_long) for seed in range(2, 12))])
def test_nothing_is_lost_in_random_faults(cluster, seed):
    """Members and lines fail and recover; no write is lost, and one controller leads alone."""
    rng = random.Random(seed)
    with stores_behind_proxies(cluster, "n0", "n1", "n2") as (stores, lines):
        leader_of(stores)
        writers = [Writer(stores, number * 100_000) for number in (1, 2)]
        with Watch(stores) as watch:
            for writer in writers:
                writer.start()
            for _ in range(4):
                _trouble(rng, cluster, lines)
                at_least(rng.uniform(0.5, LEASE_S))
                for line in lines:
                    line.set("pass")
                _heal(cluster)
            leader = leader_of(stores)
            at_least(0.5)
            for writer in writers:
                writer.end = True
            for writer in writers:
                writer.join(240)
        assert not watch.faults and watch.looks > 100
        wait_until(lambda: _is_settled(stores), what="exactly one believes that it leads")
        leader = leader_of(stores)
        found = leader.get("broker-a").replica_set
        done = writers[0].done | writers[1].done
        assert len(done) > 20 and done <= found.sync_state_set, "nothing is lost"
        assert not found.sync_state_set & (writers[0].never | writers[1].never)
        assert found.master_epoch == len(found.sync_state_set), "nothing was written twice"


def _is_settled(stores):
    leading = [store for store in stores if store.leads]
    return len(leading) == 1 and leading[0].leads_since_ns < time.monotonic_ns()


def _trouble(rng, cluster, lines):
    kind = rng.randrange(4)
    if kind == 0:
        rng.choice((kill, stop))(rng.choice(cluster))
    elif kind == 1:
        for node in rng.sample(cluster, 2):
            rng.choice((kill, stop))(node)
    elif kind == 2:
        rng.choice(lines).set(rng.choice(("mute", "deaf", "stall")))
    else:
        stop(rng.choice(cluster))
        rng.choice(rng.choice(lines).proxies).mode = "mute"
        rng.choice(lines).set("mute")


# Two controllers as processes, at three members of etcd.

# It expires within MOST_S, but not accidentally on a busy machine.
SHORT_LEASE_S = 10
NAME = {"clusterName": "c", "brokerName": "b"}


@pytest.fixture
def lease_s():
    return LONG_LEASE_S


@pytest.fixture
def pair(tmp_path, nodes, lease_s):
    """Return both running controllers."""
    require_etcd()
    etcd = etcd_cluster(tmp_path, 3, sync=False)
    nodes.extend(etcd)
    start_etcd(etcd)
    peers = {f"n{number}": f"127.0.0.1:{free_port()}" for number in range(2)}
    controllers = [ControllerNode("rmqha", tmp_path, id_, peers, controllerStore="etcd", etcdLeaseSeconds=lease_s,
                                  etcdEndpoints=";".join(addresses(etcd))) for id_ in peers]
    nodes.extend(controllers)
    for controller in controllers:
        controller.start()
    return controllers


def ask(controller, code, **fields):
    with RawClient(controller.address, 10) as client:
        return client.request(code, **fields)


def leader_at_etcd(controllers):
    """Return the leader that all of these name."""
    def found():
        told = {controller.leader() for controller in controllers}
        return next((one for one in controllers if told == {one.address}), None)
    return wait_until(found, what="all name the same leader")


def _is_watched(controller):
    return any(each.laddr.port == controller.port and each.status == psutil.CONN_ESTABLISHED
               for each in psutil.Process(controller.pid).net_connections("tcp"))


def apply_id(controller, broker_id):
    """Reserve a broker id; return the answer's code."""
    return ask(controller, request_code.CONTROLLER_APPLY_BROKER_ID, **NAME, appliedBrokerId=broker_id,
               registerCheckCode=f"127.0.0.1:{broker_id};1").code


def next_id(controller):
    return int(ask(controller, request_code.CONTROLLER_GET_NEXT_BROKER_ID, **NAME).fields["nextBrokerId"])


def test_one_controller_decides_and_the_other_names_it(pair):
    leader = leader_at_etcd(pair)
    (other,) = (one for one in pair if one is not leader)
    assert apply_id(leader, 1) == response_code.SUCCESS and next_id(leader) == 2
    refused = ask(other, request_code.CONTROLLER_GET_NEXT_BROKER_ID, **NAME)
    assert refused.code == response_code.CONTROLLER_NOT_LEADER and leader.address in refused.remark
    about = ask(other, request_code.CONTROLLER_GET_METADATA_INFO).fields
    assert about["controllerLeaderId"] == leader.self_id and about["isLeader"] == "false"


@pytest.mark.parametrize("number, lease_s", [
    (signal.SIGKILL, LONG_LEASE_S), (signal.SIGSTOP, SHORT_LEASE_S), (signal.SIGTERM, LONG_LEASE_S)])
def test_other_controller_continues_where_the_leader_stopped(pair, number):
    """A clean shutdown is announced, and a kill is noticed at the connection: no lease is waited for."""
    leader = leader_at_etcd(pair)
    (other,) = (one for one in pair if one is not leader)
    assert apply_id(leader, 1) == response_code.SUCCESS
    wait_until(lambda: _is_watched(leader), what="the other one is connected to it")
    os.kill(leader.pid, number)
    wait_until(lambda: other.leader() == other.address, MOST_S * 1000, "the other one leads")
    assert next_id(other) == 2 and apply_id(other, 2) == response_code.SUCCESS
    if number == signal.SIGSTOP:
        os.kill(leader.pid, signal.SIGCONT)
        assert ask(leader, request_code.CONTROLLER_GET_NEXT_BROKER_ID, **NAME).code == \
            response_code.CONTROLLER_NOT_LEADER
        assert leader_at_etcd(pair) is other
    else:
        leader.kill()
        leader.start()
        assert leader_at_etcd(pair) is other and next_id(other) == 3


def test_controller_waits_for_etcd_and_logs_it(tmp_path, nodes):
    require_etcd()
    etcd = EtcdNode(tmp_path)
    controller = ControllerNode("rmqha", tmp_path, controllerStore="etcd", etcdEndpoints=etcd.address)
    nodes.extend([etcd, controller])
    controller.start()
    assert ask(controller, request_code.CONTROLLER_GET_METADATA_INFO).fields.get("isLeader") == "false"
    etcd.start()
    wait_until(lambda: controller.leader() == controller.address)
