"""The queues that a topic can be sent to."""
from dataclasses import dataclass, field

from rmqha.client.common.thread_local_index import ThreadLocalIndex
from rmqha.common import sys_flags
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol.topic_route_data import TopicRouteData


@dataclass
class TopicPublishInfo:
    """A topic's writable queues, taken in turns. Replaced as a whole when the route changes.

    Java: org.apache.rocketmq.client.impl.producer.TopicPublishInfo (4.9.8)
    """

    order_topic: bool = False
    have_topic_router_info: bool = False
    message_queue_list: list[MessageQueue] = field(default_factory=list)
    send_which_queue: ThreadLocalIndex = field(default_factory=ThreadLocalIndex)
    topic_route_data: TopicRouteData | None = None

    def ok(self) -> bool:
        """True when there is a queue to send to."""
        return bool(self.message_queue_list)

    def select_one_message_queue(self, last_broker_name: str | None = None) -> MessageQueue:
        """The next queue of this thread's turn, on another broker than `last_broker_name` when there is one."""
        queues = self.message_queue_list
        if last_broker_name is not None:
            for _ in queues:
                queue = queues[self.send_which_queue.increment_and_get() % len(queues)]
                if queue.brokerName != last_broker_name:
                    return queue
        return queues[self.send_which_queue.increment_and_get() % len(queues)]

    def get_queue_id_by_broker(self, broker_name: str) -> int:
        """How many queues of the topic `broker_name` takes messages for; -1 when none."""
        for data in self.topic_route_data.queueDatas if self.topic_route_data else ():
            if sys_flags.is_writeable(data.perm) and data.brokerName == broker_name:
                return data.writeQueueNums
        return -1
