"""Lets a server serve only what a validator permits."""
from typing import Any

from rmqha.acl.access_validator import AccessValidator
from rmqha.remoting.protocol.remoting_command import RemotingCommand


class AccessRPCHook:
    """A server's hook: its AclException is the answer to a request that is not permitted.

    Java: org.apache.rocketmq.broker.BrokerController#initialAcl (4.9.8)
    """

    def __init__(self, validator: AccessValidator[Any]) -> None:
        self._validator = validator

    def do_before_request(self, remote_addr: str, request: RemotingCommand) -> None:
        """Raise AclException unless the request is permitted."""
        self._validator.validate(self._validator.parse(request, remote_addr))

    def do_after_response(self, _remote_addr: str, _request: RemotingCommand,
                          _response: RemotingCommand | None) -> None:
        """Nothing."""
