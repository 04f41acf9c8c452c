"""Who is told of new messages."""


class MessageArrivingListener:
    """Told of every record that was dispatched, on the dispatching thread.

    Java: org.apache.rocketmq.store.MessageArrivingListener (4.9.8)
    """

    def is_waiting(self, topic: str, queue_id: int) -> bool:
        """False when nobody waits for this queue, so that the store may spare the call. Not in Java."""
        return True

    def arriving(self, topic: str, queue_id: int, logic_offset: int, tags_code: int, msg_store_time: int,
                 filter_bit_map: bytes | None, properties: dict[str, str] | None) -> None:
        """`logic_offset` is the queue's new end: the index of the message plus one."""
        raise NotImplementedError
