"""Send many messages in one request: all of them are stored, or none. A batch may have 4 MiB, so this sends several."""
from collections.abc import Iterator

from rmqha import Message, Producer

LIMIT = 1_000_000  # total size of the bodies; properties and headers are added to it
readings = [Message("Readings", b"%d: %d degrees" % (number, 20 + number % 5)) for number in range(30_000)]


def batches(messages: list[Message]) -> Iterator[list[Message]]:
    batch: list[Message] = []
    size = 0
    for message in messages:
        if batch and (size + len(message.body) > LIMIT or len(batch) == 10_000):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += len(message.body)
    if batch:
        yield batch


with Producer("thermometers", send_msg_timeout=30_000) as producer:
    for batch in batches(readings):
        result = producer.send_batch(batch)
        print(f"{len(batch)} messages from offset {result.queue_offset} of queue {result.message_queue.queueId} on: "
              f"{result.send_status.name}")
