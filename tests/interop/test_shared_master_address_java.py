"""A master that registers a proxy's address (masterAddress) at RocketMQ's name server; RocketMQ's clients and mqadmin
through the proxy."""
import threading
from contextlib import ExitStack

import pytest

from rmqha.broker.broker_outer_api import Registration
from rmqha.common.mix_all import MASTER_ID
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from rmqha.tools.replication.switch import tell_role
from tests.support.java_driver import JavaDriver, Workload, assert_all_read
from tests.support.tiers import in_long
from tests.support.wait import stays, wait_until
from tests.tools.conftest import run  # noqa: F401, a fixture
from tests.tools.replication.test_shared_master_address import Replicas

pytestmark = pytest.mark.java

# A name server drops what was silent for 120 s, and looks every 10 s.
_EXPIRED_MS = 150_000


@pytest.fixture
def replicas(tmp_path, make_namesrv):
    with ExitStack() as stack:
        yield Replicas(stack, tmp_path, make_namesrv("java").address)


def promote(replicas, run, new, old_listed):
    done = run("ha", "promote", "-b", new.address, "-n", replicas.namesrv)
    assert done.exit_code == 0, done.output
    replicas.proxy.cut()
    wait_until(lambda: replicas.listed() == {0: replicas.proxy.address, **old_listed},
               what="the name server knows the roles")


def id_of(broker) -> int:
    return broker.store.auto_switch.local_broker_id


def test_java_clients_follow_the_master_through_the_proxy(replicas, run, java_driver: JavaDriver):
    one, two, proxy = replicas.one, replicas.two, replicas.proxy
    assert replicas.listed() == {0: proxy.address, 1: two.address}
    java_driver.create_topic(replicas.namesrv, proxy.address, "Through")
    first, second = (Workload("Through", 20, [100], first=at) for at in (0, 20))
    assert all(result.ok for result in java_driver.produce(replicas.namesrv, first))
    wait_until(lambda: two.controller.topic_config_manager.select_topic_config("Through"), 60_000, "the slave has it")
    promote(replicas, run, two, {id_of(one): one.address})
    assert all(result.ok for result in java_driver.produce(replicas.namesrv, second))
    assert two.store.get_max_phy_offset() > 0 and not two.controller.role.is_slave
    load = Workload("Through", 40, [100])
    assert_all_read(java_driver.consume(replicas.namesrv, load, "through-group"), load)
    listed = java_driver.admin("clusterList", "-n", replicas.namesrv)
    assert proxy.address in listed and one.address in listed and two.address not in listed


def test_old_master_removes_and_replaces_nothing(replicas, run):
    """It shuts down without knowing that it was replaced."""
    one, two, proxy = replicas.one, replicas.two, replicas.proxy
    wanted = {0: proxy.address}
    seen, stop = [], threading.Event()

    def watch():
        while not stop.is_set():
            seen.append(replicas.listed().get(MASTER_ID))
    # Only the new one is told.
    epoch = one.store.auto_switch.epoch_cache.last_epoch() + 1
    _tell(two, epoch)
    wait_until(lambda: replicas.listed() == wanted, what="it registers as the master, and no longer as a slave")
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        one.controller.shutdown()
        stays(lambda: replicas.listed() == wanted, 2000, "the new master stays registered")
    finally:
        stop.set()
        watcher.join()
    assert set(seen) == {proxy.address}, "at any moment"


def _tell(broker, epoch: int) -> None:
    """Make a broker the master, as `ha promote` does, but tell no other one."""
    with ClusterAdmin() as admin:
        tell_role(admin, broker.address, broker.address, id_of(broker), epoch)


def test_late_registration_is_repaired_by_the_next_one_of_the_new_master(replicas, run):
    one, two, proxy = replicas.one, replicas.two, replicas.proxy
    shared = one.controller.broker_outer_api.shared
    promote(replicas, run, two, {id_of(one): one.address})
    # As if the check before the request had been long ago: the name server is sent it after the new master's.
    answers, is_current = iter([True, False]), shared._is_current
    shared._is_current = lambda place: next(answers)
    config, registration = one.controller.broker_config, one.controller.registration
    everything = Registration(one.controller.topic_config_manager.changes, registration._registered_topics)
    one.controller.role.take_id(MASTER_ID)
    one.controller.broker_outer_api.register_broker_all(
        config.brokerClusterName, proxy.address, config.brokerName, MASTER_ID, one.controller.ha_server_addr,
        everything, [], False, 60_000, False, 1)
    one.controller.role.take_id(id_of(one))
    shared._is_current = is_current
    assert replicas.listed()[0] == proxy.address, "as before, but of the connection of the old one"
    two.controller.registration.register_periodically()
    # It gives the shared address up, with the connection that registered it; the new one's stays.
    registration.register_periodically()
    stays(lambda: replicas.listed() == {0: proxy.address, id_of(one): one.address}, 2000)


@in_long
def test_nothing_of_the_old_roles_is_dropped_two_minutes_later(replicas, run):
    one, two, proxy = replicas.one, replicas.two, replicas.proxy
    promote(replicas, run, two, {id_of(one): one.address})
    stays(lambda: replicas.listed() == {0: proxy.address, id_of(one): one.address}, _EXPIRED_MS)
