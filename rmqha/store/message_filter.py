"""Which messages a consumer wants."""


class MessageFilter:
    """Asked first with the consume queue's unit, then with the record itself.

    Java: org.apache.rocketmq.store.MessageFilter (4.9.8)
    """

    def is_matched_by_consume_queue(self, tags_code: int | None, cq_ext_unit=None) -> bool:
        """False when the unit alone tells that the message is not wanted; `tags_code` None when it is not known."""
        raise NotImplementedError

    def is_matched_by_commit_log(self, msg_buffer: memoryview | None, properties: dict[str, str] | None) -> bool:
        """False when the record is not wanted; one of the two is given."""
        raise NotImplementedError
