"""Queues whose offsets are gone while they are read: reported, and read at the right place, or an error."""
import pytest

from rmqha.client.consumer.listeners import MessageSelector
from rmqha.client.results import PullResult, PullStatus
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.tools.messages.consume import QueueFeed
from rmqha.tools.terminal import WorkFailedError

QUEUE = MessageQueue("T", "b", 0)


class FakeConsumer:
    """A consumer of a queue that has offsets [first, end), of which it gives two at a time; nothing comes later."""

    def __init__(self, first: int, end: int) -> None:
        self.first, self.end = first, end

    def pull_block_if_not_found_async(self, queue, selector, offset, most, callback) -> None:
        if self.first <= offset < self.end:
            found = []
            for number in range(offset, min(offset + 2, self.end)):
                message = MessageExt("T", b"")
                message.queue_offset = number
                found.append(message)
            callback.on_success(PullResult(PullStatus.FOUND, offset + len(found), self.first, self.end, found))
        elif offset != self.end:
            following = self.first if offset < self.first else 0 if not self.first else self.end
            callback.on_success(PullResult(PullStatus.OFFSET_ILLEGAL, following, self.first, self.end))


def read(first: int, end: int, begin: int, stop: int | None) -> list[int]:
    feed = QueueFeed(FakeConsumer(first, end), MessageSelector.by_tag("*"))
    feed.open(QUEUE, begin, stop)
    return [message.queue_offset for batch in feed.batches(0.2) for message in batch.messages]


@pytest.mark.parametrize("first, end, begin, stop, taken, said", [
    (0, 5, 0, 5, range(5), ""),
    (0, 5, 3, None, range(3, 5), ""),
    (4, 9, 1, 8, range(4, 8), "T b:0: offsets 1 to 4 are gone, the queue begins at 4"),
    (4, 9, 1, None, range(4, 9), "T b:0: offsets 1 to 4 are gone, the queue begins at 4"),
    (0, 3, 7, None, range(3), "T b:0 ends at offset 3, before 7: the topic may have been deleted and made again; it is "
                              "read from its beginning, offset 0"),
    (2, 3, 7, None, range(2, 3), "T b:0 ends at offset 3, before 7: the topic may have been deleted and made again; it "
                                 "is read from its beginning, offset 2"),
])
def test_offsets_that_are_gone_are_reported(first, end, begin, stop, taken, said, capsys):
    assert read(first, end, begin, stop) == list(taken)
    assert capsys.readouterr().err.strip() == said


def test_a_queue_that_ends_before_what_was_read_is_an_error_where_an_end_was_wanted():
    with pytest.raises(WorkFailedError, match="T b:0 ends at offset 3, before 7: .*made again. Run the command again"):
        read(0, 3, 7, 9)
