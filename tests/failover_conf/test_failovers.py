"""The files of conf/failover with the real HAProxy and keepalived: what a producer sees when the master's host is gone.

Each test prints how long no message was acknowledged. That depends on the machine, so it is not checked.
"""
import signal
import sys

import pytest

from tests.failover_conf.cluster import FILES, NAMESRV, PORT, REPLICAS, SHARED, Cluster, why_not
from tests.support.tiers import in_all
from tests.support.wait import at_least, wait_until

pytestmark = [in_all, pytest.mark.timeout(900)]

VIP = f"{FILES}/vip.sh {SHARED}/24 eth0"
# Without it, each replica passes requests on to the master, and hides what the files here do.
ALONE = {"relayToMaster": "false"}


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skip without these programs."""
    reason = why_not(*programs)
    return pytest.mark.skipif(reason is not None, reason=str(reason))


def others(*addresses: str) -> list[str]:
    """Return the other replicas."""
    return [address for address in REPLICAS if address not in addresses]


def take_away(cluster: Cluster, how: str) -> str:
    """Take the master's host away, and wait until another master acknowledges. Return its address."""
    old = cluster.master()
    assert old is not None
    cluster.goes_on_after(f"{how}: the host of the master is gone", cluster.hosts[old].unplug,
                          lambda: cluster.master() not in (old, None))
    cluster.wait_in_sync(*others(old))
    return old


def bring_back(cluster: Cluster, address: str) -> None:
    """Bring a host back, whose broker becomes a slave."""
    cluster.hosts[address].plug_in()
    cluster.wait_in_sync(*REPLICAS)
    assert cluster.master() != address


@needs("haproxy")
def test_haproxy(tmp_path):
    with Cluster(tmp_path, proxy=True, **ALONE) as cluster:
        cluster.copy(SHARED, "haproxy.cfg")
        proxy = cluster.start(SHARED, "haproxy", "haproxy", "-db", "-f", f"{FILES}/haproxy.cfg")
        cluster.produce()
        old = take_away(cluster, "haproxy")
        bring_back(cluster, old)
        master = cluster.master()
        slave = others(old, master)[0]
        cluster.goes_on_after("haproxy: the host of a slave is gone", cluster.hosts[slave].unplug)
        cluster.wait_in_sync(old, master)
        bring_back(cluster, slave)
        cluster.goes_on_after("haproxy: the master is killed", lambda: cluster.brokers[master].end(signal.SIGKILL),
                              lambda: cluster.master() not in (master, None))
        cluster.start_broker(master)
        cluster.wait_in_sync(*REPLICAS)
        new = others(cluster.master())[0]
        cluster.goes_on_after("haproxy: a planned switch", lambda: switch(cluster, new),
                              lambda: cluster.master() == new)
        assert proxy.is_alive
        cluster.judge(*REPLICAS)


def switch(cluster: Cluster, address: str) -> None:
    """Make another replica the master."""
    cluster.run(NAMESRV, "env", f"NAMESRV_ADDR={NAMESRV}:9876", sys.executable, "-m", "rmqha.tools.rmqha_command",
                "ha", "switch", f"{address}:{PORT}")


@needs("arping")
def test_vip_script(tmp_path):
    with Cluster(tmp_path, onRoleChange=VIP, **ALONE) as cluster:
        wait_until(lambda: cluster.holders() == {cluster.master()})
        cluster.produce()
        old = take_away(cluster, "vip.sh")
        # Nobody tells it that another broker is the master; its own lease has ended.
        wait_until(lambda: old not in cluster.holders())
        bring_back(cluster, old)
        wait_until(lambda: cluster.holders() == {cluster.master()})
        new = others(cluster.master())[0]
        cluster.goes_on_after("vip.sh: a planned switch", lambda: switch(cluster, new),
                              lambda: cluster.master() == new)
        wait_until(lambda: cluster.holders() == {new})
        # Nothing removes the address of a broker that is killed, until it starts again. Its script announces it for
        # three seconds.
        at_least(4)
        cluster.goes_on_after("vip.sh: the master is killed", lambda: cluster.brokers[new].end(signal.SIGKILL),
                              lambda: cluster.master() not in (new, None))
        wait_until(lambda: cluster.holders() == {new, cluster.master()})
        cluster.start_broker(new)
        wait_until(lambda: cluster.holders() == {cluster.master()})
        cluster.wait_in_sync(*REPLICAS)
        stopped = cluster.master()
        cluster.goes_on_after("vip.sh: the master is stopped", lambda: cluster.brokers[stopped].end(),
                              lambda: cluster.master() not in (stopped, None))
        wait_until(lambda: cluster.holders() == {cluster.master()})
        cluster.start_broker(stopped)
        cluster.judge(*REPLICAS)


@needs("arping")
def test_address_at_two_hosts_loses_nothing(tmp_path):
    """The old master is cut off from the controller only, its script cannot remove the address, and it draws the
    clients to itself again and again."""
    with Cluster(tmp_path, onRoleChange=VIP, **ALONE) as cluster:
        cluster.produce()
        old = cluster.master()
        cluster.hosts[old].path(f"{FILES}/vip.sh").write_text("#!/bin/sh\nexit 1\n")
        cluster.run(old, "ip", "route", "add", "blackhole", NAMESRV)
        wait_until(lambda: cluster.master() not in (old, None))
        wait_until(lambda: cluster.holders() == {old, cluster.master()})
        cluster.wait_for_more(50)
        for _ in range(3):
            before = len(cluster.attempts())

            def has_answered(before: int = before) -> bool:
                announce(cluster, old)
                # The old master answers, but does not acknowledge.
                return any("CODE: " in each.said for each in cluster.attempts()[before:])
            wait_until(has_answered, what=f"the old master is reached: {cluster.refusals(0)}")
            announce(cluster, str(cluster.master()))
            cluster.wait_for_more(20)
        cluster.run(old, "ip", "route", "del", "blackhole", NAMESRV)
        cluster.wait_in_sync(*REPLICAS)
        cluster.run(old, "ip", "address", "del", f"{SHARED}/24", "dev", "eth0")
        cluster.wait_for_more(50)
        cluster.judge(*REPLICAS)


def announce(cluster: Cluster, address: str) -> None:
    """Draw the clients of the floating address to a host."""
    cluster.run(address, "arping", "-q", "-U", "-c", "1", "-I", "eth0", SHARED)


@needs("keepalived", "curl")
def test_keepalived(tmp_path):
    with Cluster(tmp_path, **ALONE) as cluster:
        for address in REPLICAS:
            cluster.start(address, "keepalived", "keepalived", "-n", "-l", "-P", "-f", f"{FILES}/keepalived.conf", "-p",
                          "/data/keepalived.pid", "-r", "/data/vrrp.pid")
        wait_until(lambda: cluster.holders() == {cluster.master()})
        cluster.produce()
        old = take_away(cluster, "keepalived")
        bring_back(cluster, old)
        wait_until(lambda: cluster.holders() == {cluster.master()})
        new = others(cluster.master())[0]
        cluster.goes_on_after("keepalived: a planned switch", lambda: switch(cluster, new),
                              lambda: cluster.holders() == {new})
        cluster.goes_on_after("keepalived: the master is killed", lambda: cluster.brokers[new].end(signal.SIGKILL),
                              lambda: cluster.master() not in (new, None))
        wait_until(lambda: cluster.holders() == {cluster.master()})
        cluster.start_broker(new)
        cluster.judge(*REPLICAS)
