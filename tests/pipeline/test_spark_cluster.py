"""Every job on a real standalone cluster (a master, two workers) through Spark Connect, and directly (long).

Only the session itself sets PYSPARK_PYTHON; a Connect server has its own.
"""
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message
from tests.client.conftest import servers  # noqa: F401, a fixture
from tests.store import support
from tests.support.sources import ROOT
from tests.support.spark_cluster import UNSET, ConnectServer, SparkCluster, why_no_connect
from tests.support.tiers import in_long

COUNT = 400
_TIMEOUT_S = 600


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Yield a running cluster."""
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> tuple[Path, Path]:
    """Return a master's store and a copy, which both workers see at the same path."""
    shared = tmp_path_factory.mktemp("shared")
    with support.open_store(shared / "master") as store:
        for number in range(COUNT):
            support.put(store, support.message(f"T{number % 2}", number // 2 % 2, b"body %d" % number * 20,
                                               KEYS=f"k{number}", UNIQ_KEY=f"U{number}", TAGS="a"))
        support.wait_dispatched(store)
    shutil.copytree(shared / "master", shared / "slave")
    return shared / "master", shared / "slave"


def check_all_jobs(master: str, stores: tuple[Path, Path], out: Path, name_server: str) -> dict:
    """Run every job at `master` in a separate process, and check each result."""
    with DefaultMQProducer("maker", name_server) as producer:
        before = producer.send(Message("Replayed", b"first")).queue_offset is not None
    assert before
    done = subprocess.run([*UNSET, sys.executable, "-m", "tests.pipeline.all_jobs", master, *map(str, stores), str(out),
                           name_server], cwd=ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["audit"], found["audits"]) == ([], [COUNT, COUNT])
    assert found["rebuild"] == [COUNT, []]
    assert found["read"] == found["archive"] == found["restore"] == found["report"] == COUNT
    assert (found["verify"], found["again"], found["resent"]) == ([COUNT, []], 0, {"T0": COUNT // 2})
    for path in (stores[0] / "commitlog").iterdir():
        assert (out / "restored" / "commitlog" / path.name).read_bytes() == path.read_bytes()
    assert found["replay"] == COUNT // 2 and found["live"] >= COUNT // 2 + 1
    assert found["progress"][0] == found["progress"][1] >= 1
    return found


@in_long
def test_every_job_at_a_master_with_two_workers(cluster, stores, servers, tmp_path):
    found = check_all_jobs(cluster.master, stores, tmp_path, servers.namesrv)
    assert len(found["workers"]) == 2  # both had tasks


@pytest.mark.skipif(why_no_connect() is not None, reason=str(why_no_connect()))
def test_every_job_through_spark_connect(cluster, stores, servers, tmp_path):
    with ConnectServer(tmp_path, sys.executable, cluster.master) as server:
        found = check_all_jobs(server.remote, stores, tmp_path, servers.namesrv)
        assert len(found["workers"]) == 2
