"""An audit and a count in a separate process, with rmqha sent to the executors; prints the tasks' environment as JSON.

    python -m tests.pipeline.packed_job MASTER STORE NAME=VALUE ...     # settings of Spark
"""
import json
import logging
import sys

from rmqha.pipeline.jobs.audit import audit
from rmqha.pipeline.progress import run_tasks
from rmqha.pipeline.session import spark_session
from tests.support.spark_cluster import CONFIG


def where(number: int) -> tuple[str, str, str]:
    """Return rmqha's place in a task, the Python there, and which of the kernels are compiled."""
    import rmqha
    from rmqha.native import kernels
    return rmqha.__file__, sys.executable, kernels.told()


def main(master: str, store: str, *settings: str) -> None:
    """Run the job."""
    warnings: list[str] = []

    class _Kept(logging.Handler):
        def emit(self, record):
            warnings.append(record.getMessage())
    logging.getLogger("RocketmqPipeline").addHandler(_Kept(logging.WARNING))
    spark = spark_session(master, "packed", **{**CONFIG, **dict(setting.split("=", 1) for setting in settings)})
    place, python, told = run_tasks(spark, where, [0])[0]
    problems = audit(spark, store, store).problems
    rows = spark.read.format("rocketmq-commitlog").load(store).count()
    spark.stop()
    print(json.dumps({"place": place, "python": python, "kernels": told, "problems": problems, "rows": rows,
                      "warnings": warnings}))


if __name__ == "__main__":
    main(*sys.argv[1:])
