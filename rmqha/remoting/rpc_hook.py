"""Looking at requests and responses on their way."""
from typing import Protocol

from rmqha.remoting.protocol.remoting_command import RemotingCommand


class RPCHook(Protocol):
    """Called around each request: by the server around the processor, by the client around the call.

    Java: org.apache.rocketmq.remoting.RPCHook (4.9.8)
    """

    def do_before_request(self, remote_addr: str, request: RemotingCommand) -> None:
        """Before it is served or sent. An exception here is the answer."""

    def do_after_response(self, remote_addr: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """After it was served or answered; `response` is None when there is none."""
