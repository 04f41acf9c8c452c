"""A program that sends and consumes while a cluster is upgraded; it runs with the client of any version since 0.1.0.

    python upgrade_load.py NAME TOPIC GROUP     # the name servers are in $NAMESRV_ADDR

It reads commands, one a line, and answers each with a line of JSON:

    count      how many messages were acknowledged, consumed, and refused so far
    stop       stop sending; return the acknowledged messages: {body: [broker name, queue id, queue offset]}
    consumed   return how often each message was consumed: {body: count}, and the longest pause of any sender in s

At the end of its input it shuts down.
"""
import json
import sys
import threading
import time
from collections import Counter

try:
    from rmqha import ConsumeStatus, Message, Producer, PushConsumer, SendStatus
    from rmqha.client.exception import CLIENT_ERRORS
except ImportError:  # 0.1.0
    from rmqha.client.consumer.listener.message_listener import ConsumeConcurrentlyStatus as ConsumeStatus
    from rmqha.client.producer.send_result import SendStatus

    from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer as PushConsumer
    from rmqha.client.exception import MQBrokerException, MQClientException
    from rmqha.client.producer.default_mq_producer import DefaultMQProducer as Producer
    from rmqha.common.message.message import Message
    from rmqha.remoting.exception import RemotingException
    CLIENT_ERRORS = (MQBrokerException, MQClientException, RemotingException)

SENDERS = 2
PACE_S = 0.02
"""The pause of a sender between two messages: the load must not slow the servers' starts down."""
OFTEN_MS = 1000
"""Instead of 30 s: a test should not wait for the clients' next request for routes, or for the heartbeat by which a
broker that was started again learns of its consumers."""


class Load:
    """A consumer, and senders that send one message after the other, each until it is acknowledged."""

    def __init__(self, name, topic, group):
        self._name, self._topic = name, topic
        self.acknowledged = {}  # each sender writes its own bodies
        self.consumed = Counter()  # guarded by _lock
        self.refused = Counter()
        self.longest_s = 0.0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._producer = Producer(f"{name}-producers")
        self._consumer = PushConsumer(group, message_listener=self._take)
        for client in (self._producer, self._consumer):
            client.poll_name_server_interval = client.heartbeat_broker_interval = OFTEN_MS
            client.start()
        self._consumer.subscribe(topic)
        self._senders = [threading.Thread(target=self._send, args=(number,)) for number in range(SENDERS)]
        for sender in self._senders:
            sender.start()

    def _take(self, messages):
        with self._lock:
            self.consumed.update(bytes(message.body).decode() for message in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    def _send(self, sender):
        number, last = 0, time.monotonic()
        while not self._stopped.is_set():
            body = f"{self._name}-{sender}-{number}"
            try:
                result = self._producer.send(Message(self._topic, body.encode()))
            except CLIENT_ERRORS as error:
                with self._lock:
                    self.refused[type(error).__name__] += 1
                self._stopped.wait(10 * PACE_S)
                continue
            if result.send_status in (SendStatus.SEND_OK, SendStatus.SLAVE_NOT_AVAILABLE):
                queue = result.message_queue
                self.acknowledged[body] = (queue.brokerName, queue.queueId, result.queue_offset)
                number += 1
                with self._lock:
                    self.longest_s = max(self.longest_s, time.monotonic() - last)
                last = time.monotonic()
            else:
                with self._lock:
                    self.refused[result.send_status.name] += 1
            self._stopped.wait(PACE_S)

    def answer(self, command):
        """Carry out a command; return its answer."""
        if command == "stop":
            self._stopped.set()
            for sender in self._senders:
                sender.join()
            return self.acknowledged
        with self._lock:
            if command == "consumed":
                return {"consumed": self.consumed, "longest_s": round(self.longest_s, 2), "refused": self.refused}
            return {"acknowledged": len(self.acknowledged), "consumed": len(self.consumed),
                    "refused": sum(self.refused.values())}

    def close(self):
        """Stop, and save the group's offsets."""
        self.answer("stop")
        self._consumer.shutdown()
        self._producer.shutdown()


def main():
    """Carry out commands until the input ends."""
    load = Load(*sys.argv[1:])
    try:
        for line in sys.stdin:
            print(json.dumps(load.answer(line.strip())), flush=True)
    finally:
        load.close()


if __name__ == "__main__":
    main()
