"""A Spark session that knows the formats and runs its tasks in this Python."""
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from rmqha.pipeline.cluster.cluster_source import ClusterDataSource
from rmqha.pipeline.format_options import PipelineError
from rmqha.pipeline.log.commit_log_source import CommitLogDataSource

_FAST = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    # Connects the JVM and Python on one host: a scan takes a quarter less time than over TCP.
    "spark.python.unix.domain.socket.enabled": "true",
}
# Arrow checks each access of the JVM against the bounds of its buffer, which takes a tenth of a scan of all columns.
# The buffers come from PyArrow; =false in the environment enables the checks again.
_BOUNDS = "ARROW_ENABLE_UNSAFE_MEMORY_ACCESS"
_CONNECT = "sc://"
_PYTHON = "PYSPARK_PYTHON"
# Spark's messages if its Python does not have rmqha installed, or does not exist.
_OF_PYTHON = ("No module named 'rmqha", "No module named 'pyspark", "No module named 'pyarrow",
              "No module named 'numpy", "PYTHON_VERSION_MISMATCH", "Cannot run program", "[DATA_SOURCE_NOT_FOUND]")


def is_connect(spark: SparkSession) -> bool:
    """Return whether this is a Spark Connect session, which has no JVM here."""
    return not hasattr(spark, "_jsparkSession")


def use_this_python(spark: SparkSession) -> None:
    """Let tasks run in this interpreter, unless PYSPARK_PYTHON or spark.pyspark.python is set: Spark's default, the
    first python3 on PATH, seldom has rmqha. With Spark Connect the server decides.
    """
    if is_connect(spark):
        return
    context = spark.sparkContext
    if _PYTHON not in os.environ and context.getConf().get("spark.pyspark.python") is None:
        context.pythonExec = sys.executable


@contextmanager
def blame_python() -> Iterator[None]:
    """Raise a PipelineError that names PYSPARK_PYTHON for errors that only a wrong Python can cause."""
    try:
        yield
    except Exception as error:
        said = next((line.strip() for line in str(error).splitlines()
                     if any(part in line for part in _OF_PYTHON)), None)
        if said is None:
            raise
        raise PipelineError(
            f"Spark's tasks need a Python in which rmqha is installed, of this version "
            f"({sys.version_info.major}.{sys.version_info.minor}), at the same path on every machine: set {_PYTHON} to "
            f"it before the session is created (here it is {sys.executable}; with Spark Connect, where the server "
            f"starts). Spark reported: {said}") from error


def register(spark: SparkSession) -> SparkSession:
    """Register the formats with a session that did not find them automatically, because the Python that Spark starts
    does not have rmqha installed (see PYSPARK_PYTHON) or does not have it on its path.
    """
    use_this_python(spark)
    known = None if is_connect(spark) else spark._jsparkSession.sessionState().dataSourceManager()
    for source in (CommitLogDataSource, ClusterDataSource):
        if known is None or not known.dataSourceExists(source.name()):
            spark.dataSource.register(source)
    return spark


def spark_session(master: str = "local[*]", name: str = "rmqha", **config: str) -> SparkSession:
    """Return a session with the formats and with filter pushdown; an existing session is used as it is. `master` may
    be a Spark Connect server, sc://host:port.

    Spark's workers run in this interpreter, unless PYSPARK_PYTHON is set.
    """
    os.environ.setdefault(_PYTHON, sys.executable)
    if master.startswith(_CONNECT):
        builder = SparkSession.builder.remote(master)
        config = {key: value for key, value in {**_FAST, **config}.items() if key.startswith("spark.sql.")}
    else:
        builder = SparkSession.builder.master(master).appName(name)
        unchecked = os.environ.setdefault(_BOUNDS, "true")
        config = {**_FAST, f"spark.executorEnv.{_BOUNDS}": unchecked, **config}
    for key, value in config.items():
        builder = builder.config(key, value)
    return register(builder.getOrCreate())
