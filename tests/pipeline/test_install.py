"""Spark finds the formats by itself: their modules are installed at the top level, where its search looks."""
import shutil
import zipfile

import pytest

from tests.native.test_install import build, checkout, names  # noqa: F401, a fixture
from tests.support.sources import ROOT

MODULES = {"pyspark_rocketmq.py", "pyspark_rocketmq_commitlog.py"}


@pytest.mark.parametrize("hook", ["build_wheel", "build_editable"])
def test_the_modules_are_at_the_top_of_the_wheel_and_in_its_record(checkout, hook):
    shutil.copytree(ROOT / "rmqha" / "pipeline", checkout / "rmqha" / "pipeline")
    wheel = build(checkout, hook, "/bin/false")
    assert MODULES < set(names(wheel))
    with zipfile.ZipFile(wheel) as archive:
        record = next(name for name in archive.namelist() if name.endswith("/RECORD"))
        listed = [line.split(",")[0] for line in archive.read(record).decode().splitlines()]
    assert sorted(listed) == sorted(names(wheel))
