"""`rmqha export`: topics with their messages into a file."""
from typing import IO

import click

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.consumer.listeners import MessageSelector
from rmqha.common import topics as topic_validator
from rmqha.common.message.message import MessageQueue
from rmqha.common.mix_all import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from rmqha.tools.dialect.options import namesrv_option
from rmqha.tools.dialect.output import put, to_json
from rmqha.tools.messages import export_file
from rmqha.tools.messages.clients import new_consumer, read_queues
from rmqha.tools.messages.message_json import as_object
from rmqha.tools.messages.queue_feed import QueueFeed
from rmqha.tools.store.output import counted, progress

_ASK_TIMEOUT_MS = 3_000


def own_topics(consumer: DefaultMQPullConsumer) -> list[str]:
    """The topics that are neither the system's, nor groups' retries and dead letters, nor brokers' and clusters'."""
    api = consumer.api
    info = api.get_broker_cluster_info(_ASK_TIMEOUT_MS)
    names = {*info.brokerAddrTable, *info.clusterAddrTable}
    return sorted(topic for topic in api.get_topic_list_from_name_server(_ASK_TIMEOUT_MS).topicList or ()
                  if topic not in names and not topic_validator.is_system_topic(topic)
                  and not topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)))


def queue_counts(queues: list[MessageQueue]) -> dict[str, int]:
    """Broker -> how many queues, with those that can't be read between them."""
    counts: dict[str, int] = {}
    for queue in queues:
        counts[queue.brokerName] = max(counts.get(queue.brokerName, 0), queue.queueId + 1)
    return counts


def export_queue(consumer: DefaultMQPullConsumer, queue: MessageQueue, end: int, stream: IO[str]) -> int:
    """Write a queue's messages up to `end`; how many."""
    count, feed = 0, QueueFeed(consumer, MessageSelector.by_tag("*"))
    feed.open(queue, consumer.admin.min_offset(queue), end)
    for batch in feed.batches(None):
        stream.writelines(to_json(as_object(message)) + "\n" for message in batch.messages)
        count += len(batch.messages)
    return count


@click.command("export")
@namesrv_option
@click.option("-t", "--topic", "topics", multiple=True, help="A topic; more than once for several.")
@click.option("--all", "all_topics", is_flag=True, help="All topics that are not the system's, or groups' retries.")
@click.option("--force", is_flag=True, help="Write over FILE.")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
def export_command(namesrv: str | None, topics: tuple[str, ...], all_topics: bool, force: bool, file: str) -> None:
    """Write topics with all messages that they hold now to FILE, compressed when its name ends in .gz; - prints.

    JSON lines, whose last one says how many there are; see docs/commands.md. `rmqha import` reads them.
    """
    if bool(topics) == all_topics:
        raise click.UsageError("give topics with -t, or --all")
    with new_consumer(namesrv) as consumer:
        wanted = own_topics(consumer) if all_topics else list(dict.fromkeys(topics))
        queues = {topic: read_queues(consumer, topic) for topic in wanted}
        ends = {queue: consumer.admin.max_offset(queue) for each in queues.values() for queue in each}
        with export_file.writing(file, force) as stream, progress("export", sum(ends.values())) as come_to:
            stream.write(export_file.header({topic: queue_counts(each) for topic, each in queues.items()}) + "\n")
            count, passed = 0, 0
            for queue, end in ends.items():
                count, passed = count + export_queue(consumer, queue, end, stream), passed + end
                come_to(passed)
            stream.write(export_file.trailer(count) + "\n")
    put(f"{counted(count, 'message')} of {counted(len(wanted), 'topic')} exported", err=True)
