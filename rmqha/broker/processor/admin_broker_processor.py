"""Everything that is not about messages; runs on AdminBrokerThread_<n>."""
from typing import TYPE_CHECKING

from rmqha.broker.processor import admin_handlers
from rmqha.broker.processor.admin_broker_handlers import AdminBrokerHandlers
from rmqha.broker.processor.admin_group_handlers import AdminAclHandlers, AdminGroupHandlers, AdminTransactionHandlers
from rmqha.broker.processor.admin_role_handlers import AdminHaHandlers, AdminRoleHandlers
from rmqha.broker.processor.admin_topic_handlers import AdminTopicHandlers
from rmqha.common.protocol import response_code
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.interfaces import Answer


class AdminBrokerProcessor:
    """The default processor: admin requests by code. What it does not know is REQUEST_CODE_NOT_SUPPORTED.

    Java: org.apache.rocketmq.broker.processor.AdminBrokerProcessor (4.9.8)
    """

    def __init__(self, broker_controller: "BrokerController") -> None:
        self._turns = broker_controller.admin_turns
        self._broker_controller = broker_controller
        self._handlers = {
            **AdminTopicHandlers(broker_controller).handlers(),
            **AdminGroupHandlers(broker_controller).handlers(),
            **AdminBrokerHandlers(broker_controller).handlers(),
            **AdminAclHandlers(broker_controller).handlers(),
            **AdminTransactionHandlers(broker_controller).handlers(),
            **AdminHaHandlers(broker_controller).handlers(),
            **AdminRoleHandlers(broker_controller).handlers(),
        }

    def process_request(self, channel: "Channel", request: RemotingCommand) -> "Answer":
        """Serve one request."""
        handler = self._handlers.get(request.code)
        if handler is None:
            return RemotingCommand.create_response_command(response_code.REQUEST_CODE_NOT_SUPPORTED,
                                                           f" request type {request.code} not supported")

        def serve() -> RemotingCommand:
            return self._turns.run(request.code, lambda: handler(channel, request))
        if request.code in admin_handlers.TELL_ENDS:
            return admin_handlers.answer(self._broker_controller.message_store, request.code, serve)
        return serve()

    def reject_request(self) -> bool:
        """Never."""
        return False
