"""An event of a trace, and what it says about each message."""
import enum
import functools
import time
from dataclasses import dataclass, field

from rmqha.client.client_config import AccessChannel
from rmqha.client.producer.transaction_listener import LocalTransactionState
from rmqha.common import mix_all, util_all
from rmqha.common.message import message_decoder
from rmqha.common.message.message import MessageType

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


class TraceType(enum.Enum):
    """A send, the begin and the end of a listener's call, the end of a transaction.

    Java: org.apache.rocketmq.client.trace.TraceType (4.9.8)
    """

    Pub = 0
    SubBefore = 1
    SubAfter = 2
    EndTransaction = 3


@dataclass
class TraceContext:
    """An event and its messages. Times are ms; `request_id` is shared by SubBefore and its SubAfter.

    `context_code` is a ConsumeReturnType's number.

    Java: org.apache.rocketmq.client.trace.TraceContext (4.9.8)
    """

    trace_type: TraceType
    time_stamp: int = field(default_factory=util_all.current_time_millis)
    region_id: str | None = ""
    group_name: str | None = ""
    cost_time: int = 0
    is_success: bool = True
    request_id: str = field(default_factory=message_decoder.create_uniq_id)
    context_code: int = 0
    access_channel: AccessChannel | None = None
    trace_beans: list[TraceBean] = field(default_factory=list)
    begin_ns: int = field(default_factory=time.monotonic_ns, repr=False, compare=False)

    def elapsed_ms(self) -> int:
        """For how long it has been there, whatever the wall clock did meanwhile."""
        return (time.monotonic_ns() - self.begin_ns) // 1_000_000
