"""rmqha that is not installed on the machines of a cluster: as a zip (--py-files), which is slower, or in a packed
environment."""
import json
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.store import support
from tests.support.sources import ROOT
from tests.support.spark_cluster import UNSET, SparkCluster
from tests.support.tiers import in_long

pytestmark = in_long
COUNT = 300


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """Return a store with some messages."""
    root = tmp_path_factory.mktemp("packed") / "store"
    with support.open_store(root) as running:
        support.put(running, *[support.message(body=b"x" * 100, KEYS=f"k{number}") for number in range(COUNT)])
    return root


def run(master: str, store: Path, *settings: str, folder: Path = ROOT, **env: str) -> dict:
    """Run the job in a driver that has rmqha from this checkout."""
    done = subprocess.run([*UNSET, *(f"{name}={value}" for name, value in env.items()), f"PYTHONPATH={ROOT}",
                           sys.executable, "-m", "tests.pipeline.packed_job", master, str(store), *settings],
                          cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["problems"], found["rows"]) == ([], COUNT)
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Yield a cluster of one worker, whose Python does not find rmqha on its own."""
    with SparkCluster(tmp_path_factory.mktemp("cluster"), workers=1, env={"PYTHONPATH": ""}) as running:
        yield running


def test_zip_works_and_is_reported_as_slower(cluster, store, tmp_path):
    with zipfile.ZipFile(tmp_path / "rmqha.zip", "w") as archive:
        for path in (ROOT / "rmqha").rglob("*.py"):
            archive.write(path, path.relative_to(ROOT))
    found = run(cluster.master, store, f"spark.submit.pyFiles={tmp_path / 'rmqha.zip'}")
    assert "rmqha.zip" in found["place"] and "is in a zip file" in found["kernels"]
    assert any("several times slower" in warning for warning in found["warnings"])


def test_packed_environment_has_the_compiled_parts(cluster, store, tmp_path):
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    packages = next(environment.glob("lib/python*/site-packages"))
    # pyarrow and the like, which take long to copy.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    for path in (ROOT / "rmqha").rglob("*"):
        if path.suffix in (".py", ".so"):
            target = packages / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz") as archive:
        archive.add(environment, ".")
    found = run(cluster.master, store, f"spark.archives={tmp_path / 'environment.tar.gz'}#environment", folder=tmp_path,
                PYSPARK_PYTHON="./environment/bin/python", PYSPARK_DRIVER_PYTHON=sys.executable)
    assert "/environment/" in found["place"] and not found["place"].startswith(str(tmp_path))
    assert found["warnings"] == [] and ": pure Python" not in found["kernels"]
