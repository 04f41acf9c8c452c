"""The interface of queue sharing."""
from rmqha.common.message.message_queue import MessageQueue


class AllocateMessageQueueStrategy:
    """Decides which queues of a topic one consumer of a group takes; every consumer must come to the same split.

    Java: org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy (4.9.8)
    """

    def allocate(
        self, consumer_group: str, current_cid: str, mq_all: list[MessageQueue], cid_all: list[str]
    ) -> list[MessageQueue]:
        """The queues of `mq_all` (sorted) for client `current_cid` among `cid_all` (sorted)."""
        raise NotImplementedError

    def get_name(self) -> str:
        """Short name for log lines."""
        raise NotImplementedError
