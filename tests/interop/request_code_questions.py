"""Consumers that brokers ask: Java's on rmqha's broker, and rmqha's on Java's. Whoever asks gets the same answers."""
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus
from rmqha.client.impl.mq_client_manager import MQClientManager
from rmqha.common.subscriptions import ConsumeFromWhere
from rmqha.remoting.protocol import fastjson
from tests.interop.request_code_compare import Servers
from tests.support.java_driver import JavaDriver, Workload
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until

TOPIC, GROUP = "CodesAsked", "codes-asked"
LOAD = Workload(TOPIC, 11, [40])
FIRST = 10  # of the eleven; the last one ends the consumer's job
LONG_MS = 60_000


@dataclass
class Asked:
    """A consumer that has consumed the first ten messages of queue 0."""

    broker: RawClient
    client_id: str
    message_id: str
    consumed: Callable[[], int]  # messages that its listener has got, repeats counted

    def ask(self, code: int, **fields: object) -> object:
        """The JSON of a successful answer."""
        answer = self.broker.request(code, **fields)
        assert answer.code == 0, answer
        return fastjson.loads(answer.body)


@contextmanager
def java_consumer(servers: Servers, driver: JavaDriver) -> Iterator[Asked]:
    """The official push consumer, in the driver's JVM."""
    with _filled(servers, driver) as (broker, message_id):
        namesrv = servers.namesrv.address
        job = driver.start_consume(namesrv, LOAD, GROUP)
        job.wait_progress(0)
        client_id = _client_id(broker)
        taken: list[int] = []

        def consumed() -> int:
            """Ends the consumer."""
            if not taken:
                driver.produce(namesrv, LOAD.part(FIRST, 1), threads=1)
                report = job.result()
                taken.append(report["distinct"] - 1 + report["repeats"])
            return taken[0]
        yield Asked(broker, client_id, message_id, consumed)
        consumed()


@contextmanager
def rmqha_consumer(servers: Servers, driver: JavaDriver) -> Iterator[Asked]:
    """rmqha's push consumer, in this process."""
    with _filled(servers, driver) as (broker, message_id):
        bodies: list[bytes] = []

        def listener(messages: list) -> ConsumeConcurrentlyStatus:
            bodies.extend(message.body for message in messages)
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        consumer = DefaultMQPushConsumer(GROUP, servers.namesrv.address, listener, client_manager=MQClientManager())
        consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        consumer.subscribe(TOPIC)
        with consumer:
            yield Asked(broker, _client_id(broker), message_id, lambda: len(bodies))


@contextmanager
def _filled(servers: Servers, driver: JavaDriver) -> Iterator[tuple[RawClient, str]]:
    with RawClient(servers.broker.address, 60) as broker:
        broker.create_topic(TOPIC, 1)
        namesrv = servers.namesrv.address
        with RawClient(namesrv) as client:
            wait_until(lambda: client.request(105, topic=TOPIC).code == 0, LONG_MS, f"route of {TOPIC}")
        sent = driver.produce(namesrv, LOAD.part(0, FIRST), threads=1)
        assert all(one.ok for one in sent)
        yield broker, sent[0].offset_msg_id


def _client_id(broker: RawClient) -> str:
    def members() -> list[str]:
        answer = broker.request(38, consumerGroup=GROUP)
        return json.loads(answer.body)["consumerIdList"] if answer.code == 0 else []
    wait_until(members, LONG_MS, "the consumer is known")
    return members()[0]
