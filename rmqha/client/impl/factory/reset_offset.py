"""Letting a running consumer go on at other offsets."""
import logging
from typing import Any

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.common.message.message import MessageQueue
from rmqha.remoting.exception import RemotingException

log = logging.getLogger("RocketmqClient")


def reset_offset(consumer: Any, topic: str, group: str, offset_table: dict[MessageQueue, int]) -> None:
    """Pause, drop the queues of `topic` that `offset_table` names, store the new offsets, rebalance.

    Java: org.apache.rocketmq.client.impl.factory.MQClientInstance#resetOffset (4.9.8)
    """
    rebalance = getattr(consumer, "rebalance_impl", None)
    if consumer is None or not hasattr(consumer, "suspend") or rebalance is None:
        log.info("[reset-offset] consumer dose not exist. group=%s", group)
        return
    consumer.suspend()
    try:
        # Differs: 4.9.8 sleeps for 10 s here, so that listeners finish; what they report of a dropped queue is
        # thrown away, so nothing has to be waited for
        for queue, process_queue in list(rebalance.process_queue_table.items()):
            if queue.topic == topic and queue in offset_table:
                process_queue.dropped = True
                process_queue.clear()
                _store_and_remove(consumer, queue, offset_table[queue], group)
    finally:
        consumer.resume()


def _store_and_remove(consumer: Any, queue: MessageQueue, offset: int, group: str) -> None:
    try:
        # waits for the answer: the rebalance that follows reads the offset back
        consumer.offset_store.update_consume_offset_to_broker(queue, offset, is_oneway=False)
        consumer.offset_store.remove_offset(queue)
        consumer.rebalance_impl.remove_process_queue(queue)
    except (MQClientException, MQBrokerException, RemotingException) as error:
        log.warning("reset offset failed. group=%s, %s: %s", group, queue, error)
