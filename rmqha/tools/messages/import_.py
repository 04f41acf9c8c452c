"""`rmqha import`: the messages of an export into topics."""
import time
from collections.abc import Iterable, Iterator

import click

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.producer.send_result import SendStatus
from rmqha.common.message.message_queue import MessageQueue
from rmqha.common.mix_all import RETRY_GROUP_TOPIC_PREFIX
from rmqha.tools.dialect.errors import CLIENT_ERRORS, one_line
from rmqha.tools.dialect.exit_codes import CannotAnswerError, WorkFailedError
from rmqha.tools.dialect.options import namesrv_option
from rmqha.tools.dialect.output import put
from rmqha.tools.messages.clients import new_producer, write_queues
from rmqha.tools.messages.export_file import Exported, ExportReader, QueueName
from rmqha.tools.store.output import counted

_BATCH_MESSAGES, _BATCH_BYTES = 64, 256 * 1024
_ROUTE_WAIT_S, _ROUTE_STEP_S = 10, 0.1


def target_queues(source: list[QueueName], target: list[MessageQueue], merge: bool) -> dict[QueueName, MessageQueue]:
    """Where each queue of a topic goes: to that of the same name if all are there, else to the one of its rank.

    Never do two go to one, whose messages would be mixed, unless `merge`; CannotAnswerError when there are too few.
    """
    by_name = {(queue.brokerName, queue.queueId): queue for queue in target}
    if all(name in by_name for name in source):
        return {name: by_name[name] for name in source}
    if len(source) > len(target) and not merge:
        raise CannotAnswerError(f"{target[0].topic!r} has {counted(len(target), 'queue')} that can be sent to, and had "
                                f"{len(source)}: give it as many (mqadmin updateTopic), or say --merge to mix them")
    return {name: target[rank % len(target)] for rank, name in enumerate(source)}


def queues_made(producer: DefaultMQProducer, topic: str, source: dict[str, int]) -> list[MessageQueue]:
    """The queues of a topic; made when there is none, as many as it had where it came from."""
    try:
        return write_queues(producer, topic)
    except CannotAnswerError:
        masters = len({queue.brokerName for queue in write_queues(producer, producer.create_topic_key)})
    total, most = sum(source.values()), max(source.values())
    each = most if masters >= len(source) else -(-total // masters)
    producer.admin.create_topic(producer.create_topic_key, topic, each)
    deadline = time.monotonic() + _ROUTE_WAIT_S
    while True:
        try:
            return write_queues(producer, topic)
        except CannotAnswerError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_ROUTE_STEP_S)


def runs(messages: Iterable[Exported]) -> Iterator[list[Exported]]:
    """Messages that may go as one batch: of one queue, up to 64 and 256 KiB. What fails does so behind them."""
    run: list[Exported] = []
    size, failure = 0, None
    try:
        for each in messages:
            length = len(each.message.body)
            if run and (each.queue != run[0].queue or each.topic != run[0].topic or len(run) == _BATCH_MESSAGES
                        or size + length > _BATCH_BYTES or each.topic.startswith(RETRY_GROUP_TOPIC_PREFIX)):
                yield run
                run, size = [], 0
            run.append(each)
            size += length
    except WorkFailedError as error:
        failure = error
    if run:
        yield run
    if failure is not None:
        raise failure


class Importer:
    """Sends the messages of a file, each queue in its order."""

    def __init__(self, producer: DefaultMQProducer, reader: ExportReader, rename: str | None, merge: bool) -> None:
        self._producer = producer
        self._reader = reader
        self._names = {topic: rename or topic for topic in reader.topics}
        self._queues = {(topic, name): queue for topic, source in reader.topics.items()
                        for name, queue in self._targets(topic, source, merge).items()}
        self.count = 0

    def _targets(self, topic: str, source: dict[str, int], merge: bool) -> dict[QueueName, MessageQueue]:
        names = [(broker, number) for broker, count in sorted(source.items()) for number in range(count)]
        return target_queues(names, queues_made(self._producer, self._names[topic], source), merge)

    def run(self, skip: int) -> None:
        """Send all behind the first `skip`. WorkFailedError at the first that fails."""
        self.count = skip
        messages = (each for number, each in enumerate(self._reader.messages()) if number >= skip)
        try:
            for run in runs(messages):
                self._send(run)
        except WorkFailedError as error:
            done = f"the first {counted(self.count, 'message')} of the file are imported, --skip {self.count} goes " \
                "on behind them" if self.count else "nothing is imported"
            raise WorkFailedError(f"{error.message}; {done}") from error

    def _send(self, run: list[Exported]) -> None:
        queue = self._queues[run[0].topic, run[0].queue]
        for each in run:
            each.message.topic = queue.topic
        try:
            result = self._producer.send(run[0].message, queue=queue) if len(run) == 1 else \
                self._producer.send_batch([each.message for each in run], queue=queue)
        except CLIENT_ERRORS as error:
            raise WorkFailedError(f"{self._reader.path}:{run[0].line}: {one_line(error)}") from error
        self.count += len(run)
        if result.send_status is not SendStatus.SEND_OK:
            raise WorkFailedError(f"{self._reader.path}:{run[0].line}: stored, but {result.send_status.name}")


@click.command("import")
@namesrv_option
@click.option("-t", "--topic", help="Import into this topic; for a file of one topic.")
@click.option("--merge", is_flag=True, help="Mix several queues into one where there are fewer than there were.")
@click.option("--skip", type=click.IntRange(0), default=0, show_default=True,
              help="Leave out the first messages of the file, which an earlier run imported.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
def import_command(namesrv: str | None, topic: str | None, merge: bool, skip: int, file: str) -> None:
    """Send the messages of FILE, which `rmqha export` wrote, to the topics that they came from, or to another.

    Queues and their order are kept, and body, keys, tag, properties, flag and message id; times and offsets are new.
    A topic that is missing is made.
    """
    with ExportReader(file) as reader:
        if topic is not None and len(reader.topics) > 1:
            raise click.UsageError(f"-t is for a file of one topic; {file} has {', '.join(sorted(reader.topics))}")
        with new_producer(namesrv) as producer:
            importer = Importer(producer, reader, topic, merge)
            importer.run(skip)
    put(f"{counted(importer.count - skip, 'message')} imported", err=True)
