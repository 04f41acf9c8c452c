"""Installed as a top-level module, because Spark looks for formats in modules named `pyspark_*`."""
from rmqha.pipeline.cluster.cluster_source import ClusterDataSource as DefaultSource

__all__ = ["DefaultSource"]
