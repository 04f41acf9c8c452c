"""Settings of producers."""
from rmqha.client.client_config import ClientConfig, ClientSettings
from rmqha.client.hooks import TransactionListener
from rmqha.common import topics
from rmqha.common.protocol import response_code
from rmqha.common.sys_flags import CompressionType

RETRY_RESPONSE_CODES = frozenset((
    response_code.TOPIC_NOT_EXIST,
    response_code.SERVICE_NOT_AVAILABLE,
    response_code.SYSTEM_ERROR,
    response_code.NO_PERMISSION,
    response_code.NO_BUYER_ID,
    response_code.NOT_IN_CURRENT_UNIT,
))


class ProducerConfig(ClientConfig):
    """The group, limits and retries of a producer; times are in ms, sizes in bytes.

    Base class of the producers. The implementation reads the settings at each send.
    """

    def __init__(self) -> None:
        super().__init__()
        self.producer_group = ""
        self.retry_response_codes = set(RETRY_RESPONSE_CODES)
        self.create_topic_key = topics.AUTO_CREATE_TOPIC_KEY_TOPIC
        self.default_topic_queue_nums = 4
        self.send_msg_timeout = 3_000
        self.compress_msg_body_over_howmuch = 4 * 1024
        self.compress_type = CompressionType.ZLIB
        self.compress_level = 5  # ZLIB: 0 to 9; ZSTD: 1 to 22
        self.retry_times_when_send_failed = 2
        self.retry_times_when_send_async_failed = 2
        self.retry_another_broker_when_not_store_ok = False
        self.max_message_size = 4 * 1024 * 1024


class TransactionProducerConfig(ProducerConfig):
    """The settings of a producer with transactions, with the listener that runs them."""

    def __init__(self) -> None:
        super().__init__()
        self.transaction_listener: TransactionListener | None = None
        self.check_thread_pool_max_size = 1
        self.check_request_hold_max = 2000


class ProducerSettings(ClientSettings, total=False):
    """Settings of producers; times are in ms, sizes in bytes."""

    retry_response_codes: set[int]
    create_topic_key: str
    default_topic_queue_nums: int
    send_msg_timeout: int
    send_latency_fault_enable: bool
    compress_msg_body_over_howmuch: int
    compress_type: CompressionType
    compress_level: int
    retry_times_when_send_failed: int
    retry_times_when_send_async_failed: int
    retry_another_broker_when_not_store_ok: bool
    max_message_size: int


class TransactionProducerSettings(ProducerSettings, total=False):
    """Settings of producers with transactions."""

    check_thread_pool_max_size: int
    check_request_hold_max: int
