"""A Spark session in which the formats are known."""
import os
import sys

from pyspark.sql import SparkSession

from rmqha.pipeline.cluster_source import ClusterDataSource
from rmqha.pipeline.commit_log_source import CommitLogDataSource

_FAST = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}


def register(spark: SparkSession) -> SparkSession:
    """Make the formats known to a session that did not find them by itself: when the Python that Spark starts is not
    the one in which rmqha is installed (see PYSPARK_PYTHON), or when rmqha lies on no path of it.
    """
    known = spark._jsparkSession.sessionState().dataSourceManager()
    for source in (CommitLogDataSource, ClusterDataSource):
        if not known.dataSourceExists(source.name()):
            spark.dataSource.register(source)
    return spark


def spark_session(master: str = "local[*]", name: str = "rmqha", **config: str) -> SparkSession:
    """A session with the formats and with filters pushed down; an existing one is used as it is.

    Spark's workers run in this interpreter, unless PYSPARK_PYTHON says otherwise.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**_FAST, **config}.items():
        builder = builder.config(key, value)
    return register(builder.getOrCreate())
