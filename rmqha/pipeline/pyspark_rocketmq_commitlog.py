"""Installed as a top-level module, because Spark looks for formats in modules named `pyspark_*`."""
from rmqha.pipeline.log.commit_log_source import CommitLogDataSource as DefaultSource

__all__ = ["DefaultSource"]
