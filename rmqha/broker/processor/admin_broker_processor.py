"""The processor of admin requests; runs on AdminBrokerThread_<n>."""
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmqha.broker.processor import admin_handlers
from rmqha.broker.processor.admin_handlers import AdminHandlers, AdminTurns
from rmqha.common.protocol import response_code
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.interfaces import Answer
    from rmqha.store.reput_message_service import ReputMessageService


class AdminBrokerProcessor:
    """The default processor: admin requests by code; REQUEST_CODE_NOT_SUPPORTED for an unknown code.

    Java: org.apache.rocketmq.broker.processor.AdminBrokerProcessor (4.9.8)
    """

    def __init__(self, reput: "ReputMessageService", turns: AdminTurns, families: Iterable[AdminHandlers]) -> None:
        self._reput = reput
        self._turns = turns
        self._handlers = {code: handler for family in families for code, handler in family.handlers().items()}

    def process_request(self, channel: "Channel", request: RemotingCommand) -> "Answer":
        """Serve one request."""
        handler = self._handlers.get(request.code)
        if handler is None:
            return RemotingCommand.create_response_command(response_code.REQUEST_CODE_NOT_SUPPORTED,
                                                           f" request type {request.code} not supported")

        def serve() -> RemotingCommand:
            return self._turns.run(request.code, lambda: handler(channel, request))
        if request.code in admin_handlers.TELL_ENDS:
            return admin_handlers.answer(self._reput, request.code, serve)
        return serve()

    def reject_request(self) -> bool:
        """Return False: these requests are never rejected."""
        return False
