"""The cluster of conf/kubernetes as containers: it becomes ready, fails over, and loses no acknowledged message."""
import json
import re
from pathlib import Path

import pytest

from tests.containers.cluster import Cluster, started
from tests.containers.engine import Podman
from tests.containers.manifests import Pod
from tests.support.tiers import in_all
from tests.support.wait import wait_until

pytestmark = [in_all, pytest.mark.timeout(1800), pytest.mark.xdist_group("containers")]

NAMESRV = "rmqha-namesrv-0.rmqha-namesrv.rmqha.svc:9876;rmqha-namesrv-1.rmqha-namesrv.rmqha.svc:9876"
CONTROLLERS = ";".join(f"rmqha-controller-{number}.rmqha-controller:9878" for number in range(3))
BROKERS = "rmqha-broker-a"
MORE = 200
# Sends until it is ended, and prints the number of each message, with its status or the reason why it was refused.
PRODUCER = """
import itertools, sys, time
from rmqha import Message, Producer
producer = Producer("drill", namesrv_addr=sys.argv[1])
producer.start()
for number in itertools.count():
    try:
        print(number, producer.send(Message("Orders", f"order {number}".encode())).send_status.name, flush=True)
    except Exception as error:
        print(number, "refused:", repr(error), flush=True)
    time.sleep(0.002)
"""


class Traffic:
    """A producer in a container of the cluster's network."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        (folder / "producer.py").write_text(PRODUCER)
        self.cluster = cluster
        self.name = cluster.podman.start(
            f"{cluster.podman.name}-producer", "--network", cluster.network, "--no-healthcheck",
            "-v", f"{folder / 'producer.py'}:/producer.py:ro", "--entrypoint", "/opt/rmqha/bin/python",
            cluster.images["rmqha:latest"], "/producer.py", NAMESRV)

    def acknowledged(self) -> set[str]:
        """Return the bodies of the messages that were acknowledged with SEND_OK so far."""
        printed = self.cluster.podman.logs(self.name)
        return {f"order {number}" for number in re.findall(r"^(\d+) SEND_OK$", printed, re.MULTILINE)}

    def wait_for_more(self) -> None:
        """Wait until MORE messages than now are acknowledged."""
        wanted = len(self.acknowledged()) + MORE
        wait_until(lambda: len(self.acknowledged()) >= wanted,
                   what=f"more messages: {self.cluster.podman.logs(self.name)[-2000:]}")


def master(cluster: Cluster) -> Pod:
    """Return the pod that the name servers list as the master of broker-a, by its DNS name."""
    shown = cluster.run("mqadmin", "clusterList", "-n", NAMESRV, "--output", "json", check=False)
    rows = [json.loads(line) for line in shown.splitlines()]
    [name] = [row["brokerAddr"].partition(".")[0] for row in rows if row["brokerId"] == 0] or [""]
    return cluster.pods.get(name, cluster.pods[f"{BROKERS}-0"])


def wait_until_whole(cluster: Cluster) -> None:
    """Wait until all pods are ready, all controllers answer, and all replicas are in sync."""
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        cluster.wait_until(kind, *cluster.pods.values())
    words = ("check", "controller", "-a", CONTROLLERS, "-n", NAMESRV, "-b", "broker-a")
    wait_until(lambda: cluster.run("rmqha", *words, check=False).startswith("CONTROLLER OK"),
               what=f"whole: {cluster.run('rmqha', *words, check=False)}")


def wait_for_another_master(cluster: Cluster, old: Pod) -> None:
    wait_until(lambda: master(cluster) is not old, what=f"a master other than {old.name}")


def replace(cluster: Cluster, *gone: Pod) -> None:
    """Start pods again that ended, as their StatefulSets do: with their names and volumes, at new addresses."""
    for pod in gone:
        cluster.start(pod)
    wait_until_whole(cluster)


def test_no_acknowledged_message_is_lost(podman: Podman, image: str, etcd_image: str, tmp_path: Path):
    with started(podman, image, etcd_image, tmp_path) as cluster:
        wait_until_whole(cluster)
        traffic = Traffic(cluster, tmp_path)
        traffic.wait_for_more()

        # The node of the master fails.
        old = master(cluster)
        cluster.kill(old)
        traffic.wait_for_more()
        wait_for_another_master(cluster, old)
        replace(cluster, old)

        # The master's node is drained.
        old = master(cluster)
        assert cluster.evict(old) == 0
        assert not (tmp_path / f"data-{old.name}" / "store" / "abort").exists()
        wait_for_another_master(cluster, old)
        traffic.wait_for_more()
        replace(cluster, old)

        # One pod of each other set fails, one of them with the leading controller.
        leader = re.search(r"rmqha-controller-\d", cluster.run("rmqha", "ha", "status", "-n", NAMESRV))
        assert leader is not None
        gone = [cluster.pods[name] for name in (leader[0], "rmqha-etcd-0", "rmqha-namesrv-0")]
        for pod in gone:
            cluster.kill(pod)
        traffic.wait_for_more()
        replace(cluster, *gone)

        # The master hangs: its probes fail, and another one replaces it.
        old = master(cluster)
        podman("pause", old.name)
        traffic.wait_for_more()
        wait_for_another_master(cluster, old)
        podman("unpause", old.name)
        wait_until_whole(cluster)

        podman("stop", traffic.name)
        acknowledged = traffic.acknowledged()
        assert len(acknowledged) >= 5 * MORE
        consumed = cluster.run("rmqha", "consume", "-n", NAMESRV, "-t", "Orders", "-f", r"%s\n").splitlines()
        assert acknowledged - set(consumed) == set()
        assert cluster.run("rmqha", "check", "ha", "-n", NAMESRV, "--deep", "--range", "0:").startswith("HA OK")

        # The last replica lives, but clients can't send to it.
        last = master(cluster)
        for pod in cluster.named(BROKERS):
            if pod is not last:
                cluster.kill(pod)
        wait_until(lambda: not cluster.probe(last, "readinessProbe"), what=f"{last.name} is not ready")
        assert cluster.probe(last, "livenessProbe")
