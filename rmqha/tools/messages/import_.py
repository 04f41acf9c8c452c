"""`rmqha import`: the messages of an export into topics."""
import time
from collections.abc import Iterable, Iterator

import click

from rmqha.client import exception
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendStatus
from rmqha.common.message import message_decoder
from rmqha.common.message.message import MessageQueue
from rmqha.common.message.message_decoder import MessageBatch, may_join_batch, size_in_batch
from rmqha.common.program import interrupted_later
from rmqha.tools.dialect.errors import CLIENT_ERRORS, one_line
from rmqha.tools.dialect.exit_codes import CannotAnswerError, WorkFailedError
from rmqha.tools.dialect.options import namesrv_option
from rmqha.tools.dialect.output import put
from rmqha.tools.messages.clients import new_producer, write_queues
from rmqha.tools.messages.export_file import Exported, ExportReader, MessageFailedError, QueueName
from rmqha.tools.messages.json_lines import LONGEST_BODY
from rmqha.tools.store.output import counted

_BATCH_MESSAGES, _BATCH_BYTES = 64, 256 * 1024
_ROUTE_WAIT_S, _ROUTE_STEP_S = 10, 0.1
_REFUSALS = (MQClientException, MQBrokerException)  # what was not sent, or has an answer: it is not stored


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
    size, failure, is_open = 0, None, False  # whether others may join the run
    try:
        for each in messages:
            length, may_join = size_in_batch(each.message), may_join_batch(each.message)
            if run and (not is_open or not may_join or each.queue != run[0].queue or each.topic != run[0].topic
                        or len(run) == _BATCH_MESSAGES or size + length > _BATCH_BYTES):
                yield run
                run, size = [], 0
            run.append(each)
            size, is_open = size + length, may_join
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
        producer.max_message_size = LONGEST_BODY  # the broker decides: it counts what arrives, which is compressed
        self._names = {topic: rename or topic for topic in reader.topics}
        for topic in self._names.values():
            exception.check_topic(topic)
        self._queues = {(topic, name): queue for topic, source in reader.topics.items()
                        for name, queue in self._targets(topic, source, merge).items()}
        self.count = 0

    def _targets(self, topic: str, source: dict[str, int], merge: bool) -> dict[QueueName, MessageQueue]:
        names = [(broker, number) for broker, count in sorted(source.items()) for number in range(count)]
        return target_queues(names, queues_made(self._producer, self._names[topic], source), merge)

    def run(self, skip: int) -> None:
        """Send all after the first `skip`. WorkFailedError at the first that fails. Says how far it came."""
        self.count = skip
        try:
            for run in runs(self._reader.messages(skip)):
                self._send(run)
        except WorkFailedError as error:
            left_out = f", --skip {self.count + 1} leaves this one out" if isinstance(error, MessageFailedError) else ""
            raise WorkFailedError(f"{error.message}; {self._done()}{left_out}") from error
        except BaseException:
            put(self._done(), err=True)
            raise

    def _done(self) -> str:
        if not self.count:
            return "nothing is imported"
        return f"the first {counted(self.count, 'message')} of the file are imported, --skip {self.count} continues " \
            "after them"

    def _send(self, run: list[Exported]) -> None:
        try:
            self._send_together(run)
        except _REFUSALS as error:
            if len(run) == 1:
                raise MessageFailedError(f"{self._place(run)}: {one_line(error)}") from error
            for each in run:  # the batch was refused as a whole: one of them is why
                self._send([each])
        except CLIENT_ERRORS as error:
            raise WorkFailedError(f"{self._place(run)}: {one_line(error)}; whether the broker has "
                                  f"{'it' if len(run) == 1 else 'them'} is not known") from error

    def _send_together(self, run: list[Exported]) -> None:
        """Send one, or a batch, and count; nothing comes between."""
        queue = self._queues[run[0].topic, run[0].queue]
        for each in run:
            each.message.topic = queue.topic
        is_single = len(run) == 1 and (len(run[0].message.body) > 0 or not may_join_batch(run[0].message))
        with interrupted_later():
            result = self._producer.send(run[0].message if is_single else _batch(run), queue=queue)
            self.count += len(run)
        if result.send_status is not SendStatus.SEND_OK:
            raise WorkFailedError(f"{self._place(run)}: stored, but {result.send_status.name}")

    def _place(self, run: list[Exported]) -> str:
        lines = f"{run[0].line}" if len(run) == 1 else f"{run[0].line}-{run[-1].line}"
        return f"{self._reader.path}:{lines}"


def _batch(run: list[Exported]) -> MessageBatch:
    """A batch that producers do not check again: a body may be empty, as it was where it was exported from."""
    batch = MessageBatch.generate_from_list([each.message for each in run])
    for message in batch:
        message_decoder.set_uniq_id(message)
    batch.body = batch.encode()
    batch.is_checked = True
    return batch


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
