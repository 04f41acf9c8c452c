"""What serves requests."""
from typing import Protocol

from rmqha.common.completable import Completable
from rmqha.remoting.channel import Channel
from rmqha.remoting.protocol.remoting_command import RemotingCommand

Answer = RemotingCommand | Completable[RemotingCommand | None] | None


class RequestProcessor(Protocol):
    """Serves the requests of the codes it is registered for.

    Java: org.apache.rocketmq.remoting.netty.NettyRequestProcessor (4.9.8)
    """

    def process_request(self, channel: Channel, request: RemotingCommand) -> Answer:
        """The response, now or later; None when there is none (yet: the processor may write one itself)."""

    def reject_request(self) -> bool:
        """True when requests are to be turned away (SYSTEM_BUSY)."""
