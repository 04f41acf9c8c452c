"""What dispatching needs to know of one record."""


class DispatchRequest:
    """Summary of a record of the commit log, or why there is none.

    success and msg_size > 0: a record; success and 0: the blank rest of a file; not success and -1: no record (bad
    magic, bad checksum, cut off); not success and > 0: a record whose length does not add up. `tags_code` may be a
    delivery time, see the layout of the consume queue. `properties_map` is None for a record without properties.

    Java: org.apache.rocketmq.store.DispatchRequest (4.9.8)
    """

    __slots__ = ("topic", "queue_id", "commit_log_offset", "msg_size", "tags_code", "store_timestamp",
                 "consume_queue_offset", "keys", "uniq_key", "sys_flag", "prepared_transaction_offset", "success",
                 "bit_map", "buffer_size", "properties_map")

    def __init__(self, msg_size: int, success: bool = False) -> None:
        self.topic = ""
        self.queue_id = 0
        self.commit_log_offset = 0
        self.msg_size = msg_size
        self.tags_code = 0
        self.store_timestamp = 0
        self.consume_queue_offset = 0
        self.keys: str | None = ""
        self.uniq_key: str | None = None
        self.sys_flag = 0
        self.prepared_transaction_offset = 0
        self.success = success
        self.bit_map: bytes | None = None
        self.buffer_size = -1  # bytes; larger than msg_size when something is wrapped around the record
        self.properties_map: dict[str, str] | None = None

    def __repr__(self) -> str:
        return (f"DispatchRequest(topic={self.topic!r}, queue_id={self.queue_id}, offset={self.commit_log_offset}, "
                f"size={self.msg_size}, queue_offset={self.consume_queue_offset}, success={self.success})")
