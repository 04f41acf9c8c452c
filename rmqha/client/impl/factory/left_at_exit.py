"""What a client that nobody shut down leaves undone when its process ends."""
import logging
import os
from typing import TYPE_CHECKING

from rmqha.common import mix_all

if TYPE_CHECKING:
    from rmqha.client.impl.consumer.mq_consumer_inner import MQConsumerInner
    from rmqha.client.impl.producer.mq_producer_inner import MQProducerInner
    from rmqha.client.producer.request_response_future import RequestFutureHolder
    from rmqha.remoting.remoting_client import RemotingClient

log = logging.getLogger("RocketmqClient")


def log_what_is_left(
    client_id: str, pid: int, remoting_client: "RemotingClient", requests: "RequestFutureHolder",
    producers: "dict[str, MQProducerInner]", consumers: "dict[str, MQConsumerInner]",
) -> None:
    """Log at DEBUG what was pending, at the exit of the process that started the client; nothing in a forked one."""
    if os.getpid() != pid or not log.isEnabledFor(logging.DEBUG):
        return
    groups = sorted({*producers} - {mix_all.CLIENT_INNER_PRODUCER_GROUP})
    log.debug("the process ends, and nobody has shut down the client [%s]: producers %s, consumers %s, %d calls and %d "
              "requests without an answer", client_id, groups, sorted(consumers),
              len(remoting_client.response_table), len(requests.request_future_table))
    for group, consumer in sorted(consumers.items()):
        rebalance = getattr(consumer, "rebalance_impl", None)
        for queue, process_queue in list(rebalance.process_queue_table.items()) if rebalance is not None else ():
            if process_queue.msg_count:
                log.debug("the group %s has not consumed %d messages of %s that it had pulled", group,
                          process_queue.msg_count, queue)
