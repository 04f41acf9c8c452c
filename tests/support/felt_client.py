"""One producer and one push consumer of a client that Python can use, with its default options: C++'s, or rmqha's own.

    python -m tests.support.felt_client --client cpp|rmqha --namesrv HOST:PORT --topic T --group G --log FILE

A synchronous send begins every `--interval` ms until the standard input ends; then only the consumer runs, until a
signal. Each send and each received message is a line of JSON, see tests/faults/felt/records.py.
"""
import argparse
import json
import os
import sys
import threading
import time

from tests.support.wait import wait_until

DIGITS = 8  # of the number, at the beginning of each body
_END_S = 120


class Journal:
    """A file with a line per record."""

    def __init__(self, file: str):
        self._out = open(file, "a", encoding="utf-8")
        self._lock = threading.Lock()

    def write(self, **record: object) -> None:
        """Append a record."""
        line = json.dumps(record)
        with self._lock:
            self._out.write(line + "\n")
            self._out.flush()


def _now_us() -> int:
    return time.time_ns() // 1000


def body_of(number: int, size: int) -> bytes:
    """Return the body of a message: its number, filled up."""
    return f"{number:0{DIGITS}d}".ljust(size, ".").encode()


class CppClient:
    """The C++ client. It does not show how often it tries to send a message."""

    tries = None

    def __init__(self, options: argparse.Namespace, journal: Journal):
        from rocketmq.client import Producer, PushConsumer
        self._topic, self._journal = options.topic, journal
        self._consumer = PushConsumer(options.group)
        self._consumer.set_namesrv_addr(options.namesrv)
        self._consumer.subscribe(options.topic, self._received)
        self._consumer.start()
        self._producer = Producer(options.group + "-p")
        self._producer.set_namesrv_addr(options.namesrv)
        if options.sendtimeout:
            self._producer.set_timeout(options.sendtimeout)
        self._producer.start()

    def _received(self, message):
        from rocketmq.client import ConsumeStatus
        self._journal.write(got=int(message.body[:DIGITS]), at=_now_us(), id=message.id, offset=message.queue_offset,
                            queue=message.queue_id, again=message.reconsume_times)
        return ConsumeStatus.CONSUME_SUCCESS

    def send(self, body: bytes) -> dict:
        """Send, and return the outcome."""
        from rocketmq.client import Message
        message = Message(self._topic)
        try:
            message.set_body(body)
            result = self._producer.send_sync(message)
            return {"status": "SEND_OK" if result.status.name == "OK" else result.status.name, "id": result.msg_id,
                    "offset": result.offset}
        finally:
            message.destroy()


class OwnClient:
    """rmqha's client."""

    def __init__(self, options: argparse.Namespace, journal: Journal):
        from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
        from rmqha.client.hooks import SendMessageHook
        from rmqha.client.producer.default_mq_producer import DefaultMQProducer
        self._topic, self._journal, self.tries = options.topic, journal, 0
        client = self

        class CountTries(SendMessageHook):
            """Counts the attempts of a send."""

            def hook_name(self) -> str:
                return "tries"

            def send_message_before(self, context) -> None:
                client.tries += 1

        self._consumer = DefaultMQPushConsumer(options.group, options.namesrv, self._received)
        self._consumer.subscribe(options.topic)
        self._consumer.start()
        self._producer = DefaultMQProducer(options.group + "-p", options.namesrv)
        self._producer.register_send_message_hook(CountTries())
        if options.sendtimeout:
            self._producer.send_msg_timeout = options.sendtimeout
        self._producer.start()

    def _received(self, messages):
        from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus
        at = _now_us()
        for message in messages:
            self._journal.write(got=int(message.body[:DIGITS]), at=at, id=message.msg_id, offset=message.queue_offset,
                                queue=message.queue_id, broker=message.broker_name, again=message.reconsume_times)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    def send(self, body: bytes) -> dict:
        """Send, and return the outcome. `tries` is the number of attempts then."""
        from rmqha.common.message.message import Message
        self.tries = 0
        result = self._producer.send(Message(self._topic, body))
        return {"status": result.send_status.name, "id": result.msg_id, "offset": result.queue_offset,
                "queue": result.message_queue.queueId, "broker": result.message_queue.brokerName}


CLIENTS = {"cpp": CppClient, "rmqha": OwnClient}


def produce(client: CppClient | OwnClient, journal: Journal, options: argparse.Namespace,
            stop: threading.Event) -> None:
    """Send until `stop` is set."""
    number = 0
    while not stop.is_set():
        at, begin = _now_us(), time.monotonic_ns()
        try:
            outcome = client.send(body_of(number, options.size))
        except Exception as error:  # whatever the client throws is the outcome
            outcome = {"error": f"{type(error).__name__}: {error}"}
        took_us = (time.monotonic_ns() - begin) // 1000
        if client.tries is not None:
            outcome["tries"] = client.tries
        journal.write(send=number, at=at, us=took_us, **outcome)
        number += 1
        stop.wait(max(options.interval / 1000 - took_us / 1e6, 0))


def main() -> None:
    """Run until the standard input ends and a signal comes."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.felt_client", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", choices=list(CLIENTS), required=True)
    for name in ("namesrv", "topic", "group", "log"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--interval", type=float, default=20, help="ms between the beginnings of two sends")
    parser.add_argument("--size", type=int, default=256, help="bytes of a body")
    parser.add_argument("--sendtimeout", type=int, default=0, help="ms; 0: the client's default")
    options = parser.parse_args()
    journal, stop = Journal(options.log), threading.Event()
    client = CLIENTS[options.client](options, journal)
    sending = threading.Thread(target=produce, args=(client, journal, options, stop), name="sending")
    sending.start()
    print("ready", flush=True)
    sys.stdin.read()
    stop.set()
    wait_until(lambda: not sending.is_alive(), _END_S * 1000, "the last send ends")
    print("stopped", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        # without the destructors of a native library, which may hang
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(1)
