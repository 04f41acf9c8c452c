"""Deleting a topic: all that the broker knows of it goes in one step, and nobody makes it again before that is over.

    admin thread --delete--> [topic table locked] out of the table -> store: mark, dispatch, queues -> offsets, filters,
                             statistics -> held pulls are answered
    slave        --take_over--> the same, as far as its master's marks say and its log has come
"""
from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rmqha.store.message_store_config import BrokerRole

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.common.topics import TopicConfig

log = logging.getLogger("RocketmqBroker")


class TopicDeletion:
    """What AdminBrokerProcessor, SlaveSynchronize and whoever takes offsets ask. Any thread but the IO threads.

    Differs: the original takes the topic out of its table, then destroys the queues of all topics that it does not
    know, while sends that were checked before go on and the dispatch is behind: what the topic acknowledges when it is
    made again is not in its queues. It keeps offsets, filters and held pulls.
    """

    def __init__(self, broker_controller: BrokerController) -> None:
        self._controller = broker_controller

    def delete(self, topic: str) -> None:
        """Delete a topic, or what is left of one. OSError: the disk takes no mark of it, and nothing is done."""
        store = self._controller.message_store
        with self._controller.topic_config_manager.without(topic) as was_there:
            if was_there or topic in store.consume_queue_table:  # else a mark would stay of a name that nobody has
                store.delete_topic(topic)
            self._forget(topic)

    def delete_light_queue(self, topic: str) -> None:
        """Delete a light queue; no table knows it. OSError, as above."""
        if topic in self._controller.message_store.consume_queue_table:
            self._controller.message_store.delete_topic(topic)
            self._forget(topic)

    def delete_unused(self) -> None:
        """Delete the queues of all topics that are not in the table. A slave asks its master for the table first.

        RemotingException when the master does not answer: nothing is done.
        """
        controller = self._controller
        table = controller.topic_config_manager.topic_config_table
        if controller.message_store_config.brokerRole is BrokerRole.SLAVE:
            self._delete_unused_of_slave(table)
            return
        for topic in controller.message_store.queue_removal.unused_topics(list(table)):
            with controller.topic_config_manager.unless_known(topic) as is_unknown:
                if is_unknown:
                    controller.message_store.delete_topic(topic)
                    self._forget(topic)

    def _delete_unused_of_slave(self, table: Mapping[str, TopicConfig]) -> None:
        """What the master made before this moment is in its table, or is deleted."""
        # Differs: the original goes by the table of up to 10 s ago, and forgets what came for newer topics
        store = self._controller.message_store
        came_to = store.reput_message_service.reput_from_offset
        unused = store.queue_removal.unused_topics(())
        self._controller.slave_synchronize.take_topics()
        self.take_over({topic: came_to for topic in unused if topic not in table})

    def take_over(self, marks: Mapping[str, int]) -> None:
        """A slave: the marks of the master's deletions."""
        for topic in self._controller.message_store.deleted_topics.take_over(marks):
            log.info("topic %s was deleted on the master before offset %s of the log", topic, marks[topic])
            self._forget(topic)

    def queues_of(self, topic: str) -> int:
        """How many queue ids the topic takes messages for."""
        config = self._controller.topic_config_manager.select_topic_config(topic)
        return max(config.writeQueueNums, config.readQueueNums) if config is not None else 0

    def is_stale(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a consumer offset is of a topic that was deleted: it is gone, or made again and not that far."""
        store = self._controller.message_store
        if topic not in store.deleted_topics.names:
            return False
        queue = store.get_consume_queue(topic, queue_id)
        end = max(store.commit_log.topic_queue_table.get(f"{topic}-{queue_id}", 0),
                  queue.get_max_offset_in_queue() if queue is not None else 0)
        return not self.queues_of(topic) or offset > end

    def _forget(self, topic: str) -> None:
        controller = self._controller
        controller.consumer_offset_manager.remove_topic(topic)
        controller.consumer_filter_manager.remove_topic(topic)
        # Differs: whatever autoDeleteUnusedStats says
        controller.broker_stats_manager.on_topic_deleted(topic)
        controller.pull_request_hold_service.answer_all(topic)
