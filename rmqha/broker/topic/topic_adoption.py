"""Topics that a new master has messages of, and has not heard of: its master has died before it told."""
import logging
from typing import TYPE_CHECKING

from rmqha.common import mix_all
from rmqha.common.topics import TopicConfig

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController

log = logging.getLogger("RocketmqBroker")


def adopt_topics(broker_controller: "BrokerController") -> list[str]:
    """Make the topics whose queues have messages and which are in no table. Their names.

    Differs: in 5.1.4 what was acknowledged in such a topic can't be read before somebody makes the topic again. What
    the topic had beyond as many queues as have messages is not known any more.
    """
    store, topics = broker_controller.message_store, broker_controller.topic_config_manager
    with store.consume_queue_table.lock:
        unknown = {topic: list(queues.values()) for topic, queues in store.consume_queue_table.items()
                   if topic not in topics.topic_config_table and not mix_all.is_lmq(topic)}
    adopted = []
    for topic, queues in unknown.items():
        used = [queue.queue_id for queue in queues if queue.get_max_offset_in_queue() > 0]
        if used:
            count = max(used) + 1
            log.warning("the topic %s has messages, and the last master has not told of it: it is made with %d queues",
                        topic, count)
            topics.update_topic_config(TopicConfig(topic, count, count))
            adopted.append(topic)
    return adopted
