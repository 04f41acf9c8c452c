"""From the store's dispatch to the held pulls."""
from rmqha.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rmqha.store.message_arriving_listener import MessageArrivingListener


class NotifyMessageArrivingListener(MessageArrivingListener):
    """Wakes held pulls, on the dispatching thread.

    Java: org.apache.rocketmq.broker.longpolling.NotifyMessageArrivingListener (4.9.8)
    """

    def __init__(self, pull_request_hold_service: PullRequestHoldService) -> None:
        self._pull_request_hold_service = pull_request_hold_service

    def is_waiting(self, topic: str, queue_id: int) -> bool:
        """Whether any pull of the queue is held."""
        return self._pull_request_hold_service.is_waiting(topic, queue_id)

    def arriving(self, topic: str, queue_id: int, logic_offset: int, tags_code: int, msg_store_time: int,
                 filter_bit_map: bytes | None, properties: dict[str, str] | None) -> None:
        """A message is in its queue."""
        self._pull_request_hold_service.notify_message_arriving(
            topic, queue_id, logic_offset, tags_code, msg_store_time, filter_bit_map, properties)
