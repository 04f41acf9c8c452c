"""pyspark.daemon with everything imported before it forks its workers, which saves half a second of CPU for each of
hundreds."""
import runpy

import numpy  # noqa: F401
import pandas  # noqa: F401
import pyarrow  # noqa: F401
import pyspark.sql.worker.plan_data_source_read  # noqa: F401

import rmqha.pipeline.cluster.cluster_source
import rmqha.pipeline.log.commit_log_source  # noqa: F401

if __name__ == "__main__":
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
