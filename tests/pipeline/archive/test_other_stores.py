"""Archives on an object store (S3), and as Iceberg tables, each in a process that starts real servers for itself."""
import importlib.util
import json
import subprocess
import sys

import pytest

from tests.pipeline.archive.logs import log_of, put
from tests.support import spark_jars
from tests.support.sources import ROOT


@pytest.mark.skipif(importlib.util.find_spec("moto") is None, reason="moto is missing: pip install -e '.[lake]'")
@pytest.mark.skipif(spark_jars.why_unavailable() is not None, reason=str(spark_jars.why_unavailable()))
def test_an_archive_on_s3_is_verified_and_restored_byte_for_byte(tmp_path):
    put(tmp_path / "store", 0, 90)
    command = [sys.executable, "-m", "tests.pipeline.archive.on_s3", str(tmp_path / "store"), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["first"], found["second"], found["verified"], found["restored"]) == (50, 40, [90, []], 90)
    assert found["locked"].startswith("s3a://archives/broker-a is being written by process 1 on elsewhere")
    assert found["keys"] == {"_manifest": 2, "data": 2} and found["one"] == 30
    assert log_of(tmp_path / "out") == log_of(tmp_path / "store")
