"""The interface of trace dispatchers."""
import enum

from rmqha.client.client_config import AccessChannel
from rmqha.client.trace.trace_context import TraceContext


class TraceDispatcherType(enum.Enum):
    """Whose events.

    Java: org.apache.rocketmq.client.trace.TraceDispatcher$Type (4.9.8)
    """

    PRODUCE = 0
    CONSUME = 1


class TraceDispatcher:
    """Takes events without ever waiting, and brings them to where traces are kept.

    Java: org.apache.rocketmq.client.trace.TraceDispatcher (4.9.8)
    """

    def start(self, name_srv_addr: str, access_channel: AccessChannel) -> None:
        """Begin; MQClientException when that fails."""
        raise NotImplementedError

    def append(self, context: TraceContext) -> bool:
        """Take an event; False when it is thrown away."""
        raise NotImplementedError

    def flush(self) -> None:
        """Bring all on its way."""
        raise NotImplementedError

    def shutdown(self) -> None:
        """Flush and end."""
        raise NotImplementedError
