"""One Spark session for all tests of this folder. They are skipped, with the reason, if Spark can't run."""
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@lru_cache(maxsize=1)
def why_unavailable() -> str | None:
    """Return why Spark can't run here, or None if it can or must."""
    if os.environ.get("RMQHA_REQUIRE_JAVA") == "1":
        return None
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        return f"{missing[0]} is missing: pip install -e '.[spark]'"
    java = shutil.which("java")
    if java is None:
        return "java is not on PATH; Spark needs 17 or later"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=600).stderr
    version = said.partition('version "')[2].partition(".")[0]
    new_enough = version.isdecimal() and int(version) >= 17
    return None if new_enough else f"Spark needs Java 17 or later, there is {said[:40]!r}"


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call() -> Iterator[None]:
    """Let pyspark's loggers propagate again after each test.

    pytest adds its log handlers to loggers that do not propagate. Those of pyspark, created at the first error of
    Spark, would give them a JSON format for all later tests.
    """
    try:
        return (yield)
    finally:
        for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
            if name in logging.root.manager.loggerDict:
                logging.getLogger(name).propagate = True


class _Skipped(pytest.Module):
    """A module that is not even imported."""

    def collect(self):
        pytest.skip(why_unavailable(), allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Skip the modules of this folder if Spark is missing."""
    if module_path.is_relative_to(FOLDER) and why_unavailable():
        return _Skipped.from_parent(parent, path=module_path)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(1200))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """Yield a session at local[2], which finds the formats without registering them."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(FOLDER.parents[1]), path)))  # for its daemons
    from pyspark.sql import SparkSession
    folder = tmp_path_factory.mktemp("spark")
    session = (SparkSession.builder.master("local[2]").appName("rmqha-tests").config("spark.ui.enabled", "false")
               .config("spark.driver.memory", "1g").config("spark.driver.host", "127.0.0.1")
               .config("spark.driver.bindAddress", "127.0.0.1").config("spark.sql.shuffle.partitions", "2")
               .config("spark.sql.session.timeZone", "UTC").config("spark.ui.showConsoleProgress", "false")
               .config("spark.sql.warehouse.dir", str(folder / "warehouse")).config("spark.local.dir", str(folder))
               .config("spark.sql.python.filterPushdown.enabled", "true")
               # A busy machine must not fail a test.
               .config("spark.python.authenticate.socketTimeout", "300s").config("spark.network.timeout", "600s")
               .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
               .config("spark.python.daemon.module", "tests.pipeline.warm_daemon")
               .config("spark.sql.codegen.wholeStage", "false").getOrCreate())
    if path is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = path
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
