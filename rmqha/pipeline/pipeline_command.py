"""The command group `rmqha pipeline`: jobs on Spark. Each job imports pyspark only when it runs, so that --help and
usage errors work without it.
"""
import click

from rmqha.common.program import examples
from rmqha.pipeline.format_options import check_file, check_folder
from rmqha.pipeline.job_command import (
    MOMENTS,
    PipelineGroup,
    client_settings,
    job_options,
    moment,
    name_server_option,
    progress,
    put,
    queue_file_size,
    session,
    with_context,
)

_FOLDER = click.Path(exists=True, file_okay=False)


@click.group("pipeline", cls=PipelineGroup)
def pipeline_group() -> None:
    """Jobs on Spark: audit, rebuild, archive, verify, restore, report, replay."""


@pipeline_group.command("audit", short_help="Compare the logs of masters and slaves byte by byte.", epilog=examples(
    "rmqha pipeline audit /mnt/master/store /mnt/slave/store",
    "rmqha pipeline audit -n 127.0.0.1:9876 --mounted '/mnt/{brokerName}'"))
@click.argument("master_store", type=_FOLDER, required=False)
@click.argument("slave_store", type=_FOLDER, required=False)
@click.option("--pair", nargs=2, multiple=True, type=_FOLDER, help="Another master and slave; repeat for each pair.")
@name_server_option("Without stores: compare all masters that this name server knows with their slaves.")
@click.option("-c", "--cluster", help="With -n: only this cluster.")
@click.option("-b", "--broker", help="With -n: only brokers with this name.")
@click.option("--mounted", metavar="PATTERN",
              help="With -n: where a store is mounted on this host, such as '/mnt/{brokerName}-{brokerId}'. {cluster}, "
                   "{host}, {port} and {path} also work; {path}, the default, is the broker's own path of its log.")
@client_settings
@job_options
def audit_command(master_store: str | None, slave_store: str | None, pair: tuple[tuple[str, str], ...],
                  name_server: str | None, cluster: str | None, broker: str | None, mounted: str | None,
                  client: dict[str, str], master: str, memory: str, output: str) -> None:
    """Compare the commit log of MASTER_STORE with that of SLAVE_STORE, or those of a whole cluster (-n), byte by byte.
    The exit code is 1 if a slave differs from its master. The brokers may be running.
    """
    from rmqha.pipeline.cluster.cluster_client import ClusterStores, find_stores
    from rmqha.pipeline.jobs import audit as audit_job
    stores = ClusterStores([(one, other, "") for one, other in pair])
    if master_store is not None:
        if slave_store is None:
            raise click.UsageError("give MASTER_STORE and SLAVE_STORE, or only --name-server")
        stores.pairs.insert(0, (master_store, slave_store, ""))
    if not stores.pairs:
        if name_server is None:
            raise click.UsageError("give MASTER_STORE and SLAVE_STORE, or --name-server")
        stores = find_stores(name_server, cluster=cluster, broker=broker, mounted=mounted,
                             client=with_context(client))
    with session(master, memory) as spark, progress("audit") as come_to:
        found = audit_job.audit_all(spark, stores.pairs, come_to)
    lines = [f"note {note}" for note in stores.notes]
    for note in lines if output != "table" else ():
        click.echo(note, err=True)
    for each in found:
        name = f"{each.broker}: " if each.broker else ""
        lines.append(f"{name}{each.slave} compared with {each.master}: offsets {each.common[0]} to {each.common[1]}, "
                                  f"{each.compared} bytes and {each.messages} messages")
        lines += [f"  note {note}" for note in each.notes] + [f"  PROBLEM {problem}" for problem in each.problems]
        lines += [] if each.problems else ["  equal"]
    put(found, output, lines)
    if not all(each.equal for each in found):
        raise SystemExit(1)


@pipeline_group.command("rebuild", short_help="Build consume queues and index from a log, and compare.",
               epilog=examples(
    "rmqha pipeline rebuild ~/store --out /tmp/rebuilt"))
@click.argument("root", type=_FOLDER)
@click.option("--out", required=True, type=click.Path(file_okay=False), help="Build OUT/consumequeue and OUT/index.")
@click.option("--no-compare", is_flag=True, help="Do not compare with the queues and index of ROOT.")
@click.option("--consume-queue-file-size", metavar="SIZE", callback=queue_file_size,
              help="The broker's mappedFileSizeConsumeQueue; by default the size of the existing files.")
@click.option("--index-slots", type=click.IntRange(1),
              help="The broker's maxHashSlotNum; by default that of the existing index files, or 5000000.")
@click.option("--index-entries", type=click.IntRange(2),
              help="The broker's maxIndexNum; by default that of the existing index files, or 20000000.")
@click.option("--delay-levels", help="The broker's messageDelayLevel, if it is not the default.")
@job_options
def rebuild_command(root: str, out: str, no_compare: bool, consume_queue_file_size: int | None, index_slots: int | None,
                    index_entries: int | None, delay_levels: str | None, master: str, memory: str, output: str) -> None:
    """Build the consume queues and the index of the store at ROOT from its commit log, and compare them with the
    existing ones. The exit code is 1 if they differ. ROOT is not changed.
    """
    from rmqha.pipeline.jobs import rebuild as rebuild_job
    from rmqha.store.index.index_file import USUAL, index_shape
    check_folder(out)
    there = index_shape(root) or USUAL
    shape = rebuild_job.Shape(consume_queue_file_size or rebuild_job.common_queue_file_size(root),
                              index_slots or there.slots, index_entries or there.entries,
                              rebuild_job.parse_delays(delay_levels))
    with session(master, memory) as spark, progress("rebuild") as come_to:
        found = rebuild_job.rebuild(spark, root, out, shape, come_to, compare=not no_compare)
    lines = [f"{found.records} records up to offset {found.endOffset}: {found.units} entries in {found.queueFiles} "
             f"files of {found.queues} queues, {found.keys} keys in {found.indexFiles} index files, in {out}"]
    lines += [f"PROBLEM {problem}" for problem in found.problems]
    lines += [f"DIFFERENT {difference}" for difference in found.differences]
    lines += ["the store's queues and index are equal"] if found.equal else []
    put(found, output, lines)
    if found.problems or found.equal is False:
        raise SystemExit(1)


@pipeline_group.command("archive", short_help="Append the new part of a log to a Parquet archive.", epilog=examples(
    "rmqha pipeline archive ~/store /archive/broker-a",
    "rmqha pipeline archive ~/store s3a://archive/broker-a --expire 90d"))
@click.argument("store", type=click.Path(exists=True))
@click.argument("archive")
@click.option("--allow-data-loss", is_flag=True,
              help="Continue after messages that were deleted before they were archived.")
@click.option("--expire", "expire_before", metavar="TIME", callback=moment,
              help=f"Afterwards remove the runs whose messages were all stored before TIME: {MOMENTS}.")
@click.option("--table", metavar="CATALOG.NAMESPACE.TABLE", help="Also commit the files to this Iceberg table.")
@click.option("--break-lock", is_flag=True, help="Remove the lock of another writer that has certainly ended.")
@job_options
def archive_command(store: str, archive: str, allow_data_loss: bool, expire_before: int | None, table: str | None,
                    break_lock: bool, master: str, memory: str, output: str) -> None:
    """Append the new part of STORE's log to the Parquet files of ARCHIVE, by day. ARCHIVE is a folder, or a URI of a
    file system that Spark supports (hdfs:, s3a:, viewfs:).
    """
    from rmqha.pipeline.archive import archive as archive_job
    check_folder(archive)
    with session(master, memory) as spark, progress("archive") as come_to:
        found = archive_job.archive(spark, store, archive, come_to, fail_on_data_loss=not allow_data_loss,
                                    expire_before=expire_before, table=table, break_lock=break_lock)
    share = f", {100 * found.archiveBytes / found.logBytes:.1f} %" if found.logBytes else ""
    put(found, output, [f"note {note}" for note in found.notes] + [
        f"{found.rows} messages, offsets {found.begin} to {found.end}: {found.logBytes} bytes of log became "
        f"{found.archiveBytes} bytes in {found.files} files{share}" if found.ranges
        else f"nothing new since offset {found.begin}"] + [f"expired {name}" for name in found.expired])


@pipeline_group.command("verify", short_help="Prove that an archive restores the log byte for byte.", epilog=examples(
    "rmqha pipeline verify /archive/broker-a"))
@click.argument("archive")
@click.option("--table", metavar="CATALOG.NAMESPACE.TABLE", help="Read the messages from this Iceberg table.")
@job_options
def verify_command(archive: str, table: str | None, master: str, memory: str, output: str) -> None:
    """Prove that ARCHIVE gives the log byte for byte, without writing it. The exit code is 1 if it does not."""
    from rmqha.pipeline.archive import restore as restore_job
    with session(master, memory) as spark, progress("verify") as come_to:
        found = restore_job.verify(spark, archive, come_to, table=table)
    put(found, output, [f"{found.runs} runs, offsets {found.begin} to {found.end}: {found.messages} messages and "
                        f"{found.bytes} bytes of log were rebuilt and compared with the manifests' CRCs"]
        + [f"note {note}" for note in found.notes] + [f"PROBLEM {problem}" for problem in found.problems]
        + ([] if found.problems else ["the archive is complete"]))
    if found.problems:
        raise SystemExit(1)


@pipeline_group.command("restore", short_help="Restore a log, or send a topic again, from an archive.", epilog=examples(
    "rmqha pipeline restore /archive/broker-a /tmp/store --until 2026-05-31"))
@click.argument("archive")
@click.argument("out", type=click.Path(file_okay=False), required=False)
@click.option("--until", metavar="TIME", callback=moment,
              help=f"End the log before the first message that was stored at TIME or later: {MOMENTS}.")
@click.option("--table", metavar="CATALOG.NAMESPACE.TABLE", help="Read the messages from this Iceberg table.")
@click.option("--topic", help="Send the messages of this topic again, with --name-server, instead of making a log.")
@click.option("--to", "target", help="With --topic: the topic to send to; by default the same.")
@name_server_option("With --topic: address of the cluster to send to.")
@client_settings
@job_options
def restore_command(archive: str, out: str | None, until: int | None, table: str | None, topic: str | None,
                    target: str | None, name_server: str | None, client: dict[str, str], master: str, memory: str,
                    output: str) -> None:
    """Make OUT/commitlog from ARCHIVE, byte for byte as it was; or send one topic again (--topic), without OUT."""
    if topic is not None:
        if out is not None or name_server is None or table is not None:
            raise click.UsageError("--topic sends messages: give --name-server, and neither OUT nor --table")
        options = {"subscribe": topic, **({} if until is None else {"endingTimestamp": str(until)})}
        _replay(archive, name_server, target, options, master, memory, output, client=client)
        return
    if out is None or target is not None:
        raise click.UsageError("give OUT, or --topic")
    from rmqha.pipeline.archive import restore as restore_job
    check_folder(out)
    with session(master, memory) as spark, progress("restore") as come_to:
        found = restore_job.restore(spark, archive, out, come_to, until=until, table=table)
    put(found, output, [f"{found.rows} messages, offsets {found.begin} to {found.end}, in {len(found.files)} files of "
                        f"{out}/commitlog; every CRC matches the manifests"])


@pipeline_group.command("report", short_help="Write an HTML report about a store.", epilog=examples(
    "rmqha pipeline report ~/store report.html --since 24h"))
@click.argument("store", type=click.Path(exists=True))
@click.argument("page", type=click.Path(dir_okay=False))
@click.option("--subscribe", help="Topics, separated by commas; all by default.")
@click.option("--since", metavar="TIME", callback=moment,
              help=f"Count only messages that were stored at TIME or later: {MOMENTS}.")
@click.option("--slave", "slaves", multiple=True, type=click.Path(exists=True),
              help="A slave's store, to show its lag; repeat for each slave.")
@job_options
def report_command(store: str, page: str, subscribe: str | None, since: int | None, slaves: tuple[str, ...],
                   master: str, memory: str, output: str) -> None:
    """Write an HTML page about the contents of STORE: rates, latency from client to store and sizes over time, topics
    by hour, groups with a backlog, replication, hot keys.
    """
    from rmqha.pipeline.jobs import report as report_job
    check_file(page)
    options = {name: str(value) for name, value in (("subscribe", subscribe), ("startingTimestamp", since))
               if value is not None}
    with session(master, memory) as spark, progress("report") as come_to:
        found = report_job.report(spark, store, page, options, come_to, slaves)
    put(found, output, [f"{found.messages} messages of {found.topicCount} topics: {page}"])


@pipeline_group.command("replay", short_help="Send messages of a store or an archive again.", epilog=examples(
    "rmqha pipeline replay ~/store -n 127.0.0.1:9876 --subscribe orders --dry-run"))
@click.argument("store")
@name_server_option("Address of the cluster to send to.", required=True)
@click.option("--to", "target", help="The topic to send to; by default each message goes to its original topic.")
@click.option("--subscribe", help="Topics to read, separated by commas.")
@click.option("--from-time", metavar="TIME", callback=moment, help=f"Only messages stored at TIME or later: {MOMENTS}.")
@click.option("--to-time", metavar="TIME", callback=moment, help="Only messages stored before TIME.")
@click.option("--from-offset", type=click.IntRange(0), help="Only messages at this offset of the log or later.")
@click.option("--to-offset", type=click.IntRange(0), help="Only messages before this offset of the log.")
@click.option("--where", help="An SQL condition, such as \"tags = 'a' and keys like 'order-%'\".")
@click.option("--idempotent", is_flag=True,
              help="Derive each message's unique key from its topic and key, so that repeats can be detected.")
@click.option("--dry-run", is_flag=True, help="Only count the messages.")
@client_settings
@job_options
def replay_command(store: str, name_server: str, target: str | None, subscribe: str | None, from_time: int | None,
                   to_time: int | None, from_offset: int | None, to_offset: int | None, where: str | None,
                   idempotent: bool, dry_run: bool, client: dict[str, str], master: str, memory: str,
                   output: str) -> None:
    """Send messages of STORE, a store or an archive, again."""
    given = {"subscribe": subscribe, "startingTimestamp": from_time, "endingTimestamp": to_time,
             "startingOffsets": from_offset, "endingOffsets": to_offset}
    options = {name: str(value) for name, value in given.items() if value is not None}
    _replay(store, name_server, target, options, master, memory, output, where=where, idempotent=idempotent,
            dry_run=dry_run, client=client)


def _replay(source: str, name_server: str, target: str | None, options: dict[str, str], master: str, memory: str,
            output: str, where: str | None = None, idempotent: bool = False, dry_run: bool = False,
            client: dict[str, str] | None = None) -> None:
    from rmqha.pipeline.archive import archive_table as replay_job
    with session(master, memory) as spark, progress("replay") as come_to:
        found = replay_job.replay(spark, source, name_server, target, options, where=where, idempotent=idempotent,
                                  dry_run=dry_run, client=with_context(client or {}), come_to=come_to)
    put(found, output, [f"{topic}: {count}" for topic, count in sorted(found.topics.items())]
        + [f"{found.messages} messages {'sent' if found.sent else 'chosen, nothing sent'}"])
