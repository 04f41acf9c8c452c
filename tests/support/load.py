"""Senders in threads, for tests that kill a broker under load: what was acknowledged, and with which queue offset."""
import itertools
import threading
from collections.abc import Callable

from rmqha.client.exception import CLIENT_ERRORS
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendStatus
from rmqha.common.message.message import Message
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until

Acknowledged = tuple[int, int]  # (queue id, queue offset)


class Load:
    """`threads` threads that call `send(index)` until `stop`; an exception (the broker is away) ends a thread.

    `send` gives (queue id, queue offset) for SEND_OK, None for any other status.
    """

    def __init__(self, make_sender: Callable[[], Callable[[int], Acknowledged | None]], threads: int, first: int = 0):
        self.acknowledged: dict[int, Acknowledged] = {}  # each thread writes its own indices
        self.endings: list[str] = []
        self._make_sender = make_sender
        self._indices = itertools.count(first)
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._run, name=f"load-{n}", daemon=True) for n in range(threads)]

    def start(self) -> "Load":
        """Begin to send."""
        for thread in self._threads:
            thread.start()
        return self

    def _run(self) -> None:
        try:
            send = self._make_sender()
            while not self._stopped.is_set():
                index = next(self._indices)
                placed = send(index)
                if placed is not None:
                    self.acknowledged[index] = placed
        except Exception as e:  # whatever the client throws when its broker is gone; the test looks at the endings
            self.endings.append(repr(e))

    def wait_for(self, count: int, timeout_ms: int = 110_000) -> None:
        """Until `count` messages are acknowledged."""
        wait_until(lambda: len(self.acknowledged) >= count or not any(t.is_alive() for t in self._threads), timeout_ms,
                   f"{count} messages acknowledged")
        assert len(self.acknowledged) >= count, f"only {len(self.acknowledged)}; {self.endings}"

    def stop(self) -> dict[int, Acknowledged]:
        """End the threads; index -> place of each acknowledged message."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(240)
            assert not thread.is_alive(), f"{thread.name} hangs in its client"
        return self.acknowledged


def send_until_stored(producer: DefaultMQProducer, message: Message, timeout_ms: int = 90_000) -> None:
    """Send until it is acknowledged, as a caller of a producer does while another broker becomes the master."""
    def is_stored() -> bool:
        try:
            return producer.send(message, 10_000).send_status is SendStatus.SEND_OK
        except CLIENT_ERRORS as error:
            refusals.append(str(error))
            return False
    refusals: list[str] = []
    try:
        wait_until(is_stored, timeout_ms, "a message is acknowledged")
    except AssertionError as error:
        raise AssertionError(f"{error}; last refusals: {refusals[-3:]}") from None


def raw_sender(address: str, topic: str, queues: int, body: bytes) -> Callable[[], Callable]:
    """Senders over bare connections; message `index` goes to queue `index % queues`."""
    def make() -> Callable[[int], Acknowledged | None]:
        client = RawClient(address)

        def send(index: int) -> Acknowledged | None:
            answer = client.send_message(topic, body, index % queues, properties=f"index\x01{index}\x02TAGS\x01TagA")
            return (index % queues, int(answer.fields["queueOffset"])) if answer.code == 0 else None
        return send
    return make


def rmqha_sender(namesrv: str, topic: str, body: bytes) -> tuple[Callable[[], Callable], Callable[[], None]]:
    """Senders over one producer of rmqha's own client, and how to shut it down."""
    producer = DefaultMQProducer("crash-producer", namesrv)
    producer.retry_times_when_send_failed = 0
    producer.send_msg_timeout = 60_000
    producer.start()

    def send(index: int) -> Acknowledged | None:
        message = Message(topic, body, "TagA", f"key-{index}")
        message.put_user_property("index", str(index))
        result = producer.send(message)
        return (result.message_queue.queueId, result.queue_offset) if result.send_status == SendStatus.SEND_OK else None
    return lambda: send, producer.shutdown
