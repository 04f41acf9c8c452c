"""What a trace says about one message."""
import functools
from dataclasses import dataclass, field

from rmqha.client.producer.local_transaction_state import LocalTransactionState
from rmqha.common import mix_all
from rmqha.common.message.message_type import MessageType

_local_address = functools.cache(mix_all.get_local_address)


@dataclass
class TraceBean:
    """One message of a trace. Times are ms, `body_length` bytes (at consumption the whole record's).

    Java: org.apache.rocketmq.client.trace.TraceBean (4.9.8)
    """

    topic: str = ""
    msg_id: str | None = ""
    offset_msg_id: str | None = ""
    tags: str | None = ""
    keys: str | None = ""
    store_host: str = field(default_factory=_local_address)
    client_host: str = field(default_factory=_local_address)
    store_time: int = 0
    retry_times: int = 0
    body_length: int = 0
    msg_type: MessageType | None = None
    transaction_state: LocalTransactionState | None = None
    transaction_id: str | None = None
    from_transaction_check: bool = False
