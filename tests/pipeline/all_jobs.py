"""Every job and both formats in one session, in a separate process, which prints the results as JSON.

    python -m tests.pipeline.all_jobs MASTER STORE SLAVE OUT NAMESRV

MASTER: local[2], spark://host:port or sc://host:port; the name server has a topic `Replayed`.
"""
import json
import sys
import time

from rmqha.pipeline.archive.archive import archive
from rmqha.pipeline.archive.archive_table import replay
from rmqha.pipeline.archive.restore import restore, verify
from rmqha.pipeline.jobs import rebuild as rebuilding
from rmqha.pipeline.jobs.audit import audit, audit_all
from rmqha.pipeline.jobs.report import report
from rmqha.pipeline.progress import run_tasks
from rmqha.pipeline.session import spark_session
from tests.support.spark_cluster import CONFIG


def where(number: int) -> tuple[str, bool]:
    """Return the executor's folder, and whether the kernel is compiled there. Runs in a task."""
    import os

    from rmqha.store.bulk import bulk
    time.sleep(0.5)  # so that each worker gets a task
    return os.getcwd(), bulk.is_compiled()


def main(master: str, store: str, slave: str, out: str, name_server: str) -> None:
    """Run all jobs and print their results."""
    spark = spark_session(master, "all jobs", **CONFIG)
    found = {}

    def note(name, value):
        found[name] = value
        print(f"{name}: {value}", file=sys.stderr, flush=True)

    heard = []
    note("workers", sorted({folder for folder, _ in run_tasks(
        spark, where, range(4), lambda done, total: heard.append((done, total)))}))
    note("progress", heard[-1])
    note("audit", audit(spark, store, slave, range_bytes=1 << 16).problems)
    note("audits", [each.messages for each in audit_all(spark, [(store, slave, "a"), (slave, store, "b")])])
    shape = rebuilding.Shape(rebuilding.common_queue_file_size(store), 50, 200, rebuilding.parse_delays())
    rebuilt = rebuilding.rebuild(spark, store, f"{out}/rebuilt", shape)
    note("rebuild", (rebuilt.records, rebuilt.differences + rebuilt.problems))
    note("read", spark.read.format("rocketmq-commitlog").load(store).count())
    note("archive", archive(spark, store, f"{out}/archive").rows)
    verified = verify(spark, f"{out}/archive")
    note("verify", (verified.messages, verified.problems))
    note("again", archive(spark, store, f"{out}/archive", expire_before=1).rows)
    note("restore", restore(spark, f"{out}/archive", f"{out}/restored").rows)
    note("report", report(spark, store, f"{out}/page.html", {}).messages)
    note("replay", replay(spark, store, name_server, "Replayed", {"subscribe": "T1"}, where="keys like 'k%'").messages)
    live = spark.read.format("rocketmq").options(nameServer=name_server, subscribe="Replayed").load()
    note("live", live.count())
    resent = replay(spark, f"{out}/archive", name_server, "Replayed", {"subscribe": "T0"}, dry_run=True)
    note("resent", resent.topics)
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
