"""The group `rmqha pipeline`: jobs on Spark."""
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import Any

import click
from pyspark.sql import SparkSession

from rmqha.pipeline import archive as archive_job
from rmqha.pipeline import audit as audit_job
from rmqha.pipeline import rebuild as rebuild_job
from rmqha.pipeline import replay as replay_job
from rmqha.pipeline import report as report_job
from rmqha.pipeline import restore as restore_job
from rmqha.pipeline.cluster_stores import ClusterStores, find_stores
from rmqha.pipeline.options import PipelineError
from rmqha.pipeline.session import spark_session

_FOLDER = click.Path(exists=True, file_okay=False)


class PipelineGroup(click.Group):
    """Says in one line what is wrong, with exit code 2: the question could not be answered."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except PipelineError as error:
            raise _CannotAnswerError(str(error)) from error
        except Exception as error:
            told = told_by_task(error)
            if told is None:
                raise
            raise _CannotAnswerError(told) from error


class _CannotAnswerError(click.ClickException):
    exit_code = 2


def told_by_task(error: Exception) -> str | None:
    """The message of a PipelineError that was raised in a task or in a format, out of Spark's report of it."""
    for line in reversed(str(error).splitlines()):
        for name in ("PipelineError: ", "VanishedError: "):
            if name in line:
                return line.partition(name)[2]
    return None


def job_options(command: Callable[..., None]) -> Callable[..., None]:
    """--master, --memory and -o."""
    command = click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table",
                           show_default=True, help="How to print.")(command)
    command = click.option("--memory", default="2g", show_default=True, help="Of Spark's driver.")(command)
    return click.option("--master", default="local[*]", show_default=True,
                        help="Spark's master; on a cluster the files must be there on every machine.")(command)


@contextmanager
def session(master: str, memory: str) -> Iterator[SparkSession]:
    """A session for one job."""
    spark = spark_session(master, "rmqha pipeline", **{"spark.driver.memory": memory, "spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error when that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return

    def come_to(done: int, total: int) -> None:
        filled = 30 * done // max(total, 1)
        click.echo(f"\r{label}  [{'#' * filled}{'-' * (30 - filled)}]  {done}/{total}", nl=done == total, err=True)
    yield come_to


def put(result: Any, output: str, lines: list[str]) -> None:
    """Print a result: as JSON, or the lines."""
    if output != "table":
        plain = [asdict(each) for each in result] if isinstance(result, list) else asdict(result)
        assert is_dataclass(result) or isinstance(result, list)
        lines = [json.dumps(plain, ensure_ascii=False)] if output == "json" else [
            "---", json.dumps(plain, ensure_ascii=False, indent=2)]  # JSON is YAML too
    for line in lines:
        click.echo(line.encode("utf-8", "replace").decode())


@click.group("pipeline", cls=PipelineGroup)
def pipeline_group() -> None:
    """Jobs on Spark: audit, rebuild, archive, restore, report, replay."""


@pipeline_group.command("audit")
@click.argument("master_store", type=_FOLDER, required=False)
@click.argument("slave_store", type=_FOLDER, required=False)
@click.option("--pair", nargs=2, multiple=True, type=_FOLDER, help="Another master and slave; once for each pair.")
@click.option("-n", "--namesrv", "--name-server", "name_server", envvar="NAMESRV_ADDR",
              help="Without stores: compare all masters that this name server knows with all their slaves.")
@click.option("-c", "--cluster", help="With -n: only this cluster.")
@click.option("-b", "--broker", help="With -n: only the brokers of this name.")
@click.option("--mounted", metavar="PATTERN",
              help="With -n: where a store is seen from here, such as '/mnt/{brokerName}-{brokerId}'; also {cluster}, "
                   "{host}, {port} and {path}, which is where the broker has its commit log and the default.")
@job_options
def audit_command(master_store: str | None, slave_store: str | None, pair: tuple[tuple[str, str], ...],
                  name_server: str | None, cluster: str | None, broker: str | None, mounted: str | None, master: str,
                  memory: str, output: str) -> None:
    """Compare the commit log of MASTER_STORE with that of SLAVE_STORE, or those of a whole cluster (-n), byte by byte:
    exit code 1 when a slave is no true copy. The brokers may be running.
    """
    stores = ClusterStores([(one, other, "") for one, other in pair])
    if master_store is not None:
        if slave_store is None:
            raise click.UsageError("give MASTER_STORE and SLAVE_STORE, or only --name-server")
        stores.pairs.insert(0, (master_store, slave_store, ""))
    if not stores.pairs:
        if name_server is None:
            raise click.UsageError("give MASTER_STORE and SLAVE_STORE, or --name-server")
        stores = find_stores(name_server, cluster=cluster, broker=broker, mounted=mounted)
    with session(master, memory) as spark, progress("audit") as come_to:
        found = audit_job.audit_all(spark, stores.pairs, come_to)
    lines = [f"note {note}" for note in stores.notes]
    for note in lines if output != "table" else ():
        click.echo(note, err=True)
    for each in found:
        name = f"{each.broker}: " if each.broker else ""
        lines.append(f"{name}{each.slave} against {each.master}: offsets {each.common[0]} to {each.common[1]}, "
                     f"{each.compared} bytes and {each.messages} messages compared")
        lines += [f"  note {note}" for note in each.notes] + [f"  PROBLEM {problem}" for problem in each.problems]
        lines += [] if each.problems else ["  equal"]
    put(found, output, lines)
    if not all(each.equal for each in found):
        raise SystemExit(1)


@pipeline_group.command("rebuild")
@click.argument("root", type=_FOLDER)
@click.option("--out", required=True, type=click.Path(file_okay=False), help="Build OUT/consumequeue and OUT/index.")
@click.option("--no-compare", is_flag=True, help="Do not compare with what ROOT has.")
@click.option("--consume-queue-file-size", type=click.IntRange(20),
              help="The broker's mappedFileSizeConsumeQueue; by default the size of the files that are there.")
@click.option("--index-slots", type=click.IntRange(1), default=rebuild_job.DEFAULT_SLOTS, show_default=True,
              help="The broker's maxHashSlotNum.")
@click.option("--index-entries", type=click.IntRange(2), default=rebuild_job.DEFAULT_ENTRIES, show_default=True,
              help="The broker's maxIndexNum.")
@click.option("--delay-levels", help="The broker's messageDelayLevel, if it was changed.")
@job_options
def rebuild_command(root: str, out: str, no_compare: bool, consume_queue_file_size: int | None, index_slots: int,
                    index_entries: int, delay_levels: str | None, master: str, memory: str, output: str) -> None:
    """Build the consume queues and the index of the store at ROOT anew from its commit log, and compare them with those
    that are there: exit code 1 when they differ. ROOT is not changed.
    """
    shape = rebuild_job.Shape(consume_queue_file_size or rebuild_job.common_queue_file_size(root), index_slots,
                              index_entries, rebuild_job.parse_delays(delay_levels))
    with session(master, memory) as spark, progress("rebuild") as come_to:
        found = rebuild_job.rebuild(spark, root, out, shape, come_to, compare=not no_compare)
    lines = [f"{found.records} records up to offset {found.endOffset}: {found.units} units in {found.queueFiles} files "
             f"of {found.queues} queues, {found.keys} keys in {found.indexFiles} index files, in {out}"]
    lines += [f"PROBLEM {problem}" for problem in found.problems]
    lines += [f"DIFFERENT {difference}" for difference in found.differences]
    lines += ["what the store has is equal"] if found.equal else []
    put(found, output, lines)
    if found.problems or found.equal is False:
        raise SystemExit(1)


@pipeline_group.command("archive")
@click.argument("store", type=click.Path(exists=True))
@click.argument("archive", type=click.Path(file_okay=False))
@click.option("--allow-data-loss", is_flag=True,
              help="Go on behind messages that were deleted before they were archived.")
@job_options
def archive_command(store: str, archive: str, allow_data_loss: bool, master: str, memory: str, output: str) -> None:
    """Add what is new in the log of STORE to the Parquet files of ARCHIVE, by topic and day."""
    with session(master, memory) as spark, progress("archive") as come_to:
        found = archive_job.archive(spark, store, archive, come_to, fail_on_data_loss=not allow_data_loss)
    share = f", {100 * found.archiveBytes / found.logBytes:.1f} %" if found.logBytes else ""
    put(found, output, [f"note {note}" for note in found.notes] + [
        f"{found.rows} messages, offsets {found.begin} to {found.end}: {found.logBytes} bytes of log became "
        f"{found.archiveBytes} bytes{share}" if found.ranges else f"nothing new since offset {found.begin}"])


@pipeline_group.command("restore")
@click.argument("archive", type=_FOLDER)
@click.argument("out", type=click.Path(file_okay=False))
@job_options
def restore_command(archive: str, out: str, master: str, memory: str, output: str) -> None:
    """Make OUT/commitlog from ARCHIVE, byte for byte as it was."""
    with session(master, memory) as spark, progress("restore") as come_to:
        found = restore_job.restore(spark, archive, out, come_to)
    put(found, output, [f"{found.rows} messages, offsets {found.begin} to {found.end}, in {len(found.files)} files of "
                        f"{out}/commitlog; every CRC is as the manifests say"])


@pipeline_group.command("report")
@click.argument("store", type=click.Path(exists=True))
@click.argument("page", type=click.Path(dir_okay=False))
@click.option("--subscribe", help="Topics, with commas between them; all by default.")
@click.option("--since", type=click.IntRange(0), help="Store time in ms from which on messages count.")
@job_options
def report_command(store: str, page: str, subscribe: str | None, since: int | None, master: str, memory: str,
                   output: str) -> None:
    """Write an HTML page about what is in STORE: rates, sizes, latency from client to store, backlog by group, hottest
    keys.
    """
    options = {name: str(value) for name, value in (("subscribe", subscribe), ("startingTimestamp", since))
               if value is not None}
    with session(master, memory) as spark, progress("report") as come_to:
        found = report_job.report(spark, store, page, options, come_to)
    put(found, output, [f"{found.messages} messages of {len(found.topics)} topics: {page}"])


@pipeline_group.command("replay")
@click.argument("store", type=_FOLDER)
@click.option("-n", "--namesrv", "--name-server", "name_server", envvar="NAMESRV_ADDR", required=True,
              help="Address of the cluster to send to.")
@click.option("--to", "target", help="Topic to send to; by default each message goes to the topic it came from.")
@click.option("--subscribe", help="Topics to take, with commas between them.")
@click.option("--from-time", type=click.IntRange(0), help="Store time in ms, from this on.")
@click.option("--to-time", type=click.IntRange(0), help="Store time in ms, before this.")
@click.option("--from-offset", type=click.IntRange(0), help="Offset of the log, from this on.")
@click.option("--to-offset", type=click.IntRange(0), help="Offset of the log, before this.")
@click.option("--where", help="An SQL condition, such as \"tags = 'a' and keys like 'order-%'\".")
@click.option("--idempotent", is_flag=True, help="Unique keys are made of topic and key, so repeats can be told.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@job_options
def replay_command(store: str, name_server: str, target: str | None, subscribe: str | None, from_time: int | None,
                   to_time: int | None, from_offset: int | None, to_offset: int | None, where: str | None,
                   idempotent: bool, dry_run: bool, master: str, memory: str, output: str) -> None:
    """Send messages of STORE again."""
    given = {"subscribe": subscribe, "startingTimestamp": from_time, "endingTimestamp": to_time,
             "startingOffsets": from_offset, "endingOffsets": to_offset}
    options = {name: str(value) for name, value in given.items() if value is not None}
    with session(master, memory) as spark, progress("replay") as come_to:
        found = replay_job.replay(spark, store, name_server, target, options, where=where, idempotent=idempotent,
                                  dry_run=dry_run, come_to=come_to)
    put(found, output, [f"{topic}: {count}" for topic, count in sorted(found.topics.items())]
        + [f"{found.messages} messages {'sent' if found.sent else 'chosen, nothing sent'}"])
