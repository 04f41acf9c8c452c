"""What the families of admin handlers share."""
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.common.data_version import ChangeLog
from rmqha.common.protocol import response_code, table_version
from rmqha.common.protocol.command_custom_header import CommandCustomHeader
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.message_store_config import BrokerRole

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.remoting.channel import Channel

NO_REMARK = "not set any response code"  # what Java's answers say until somebody says something else
Handler = Callable[["Channel", RemotingCommand], RemotingCommand]


class AdminHandlers:
    """A family of handlers; `handlers` gives them by request code. They run on AdminBrokerThread_<n> and may block."""

    def __init__(self, broker_controller: "BrokerController") -> None:
        self.broker_controller = broker_controller

    def handlers(self) -> dict[int, Handler]:
        """Handler by request code."""
        raise NotImplementedError

    def refuse_on_slave(self) -> RemotingCommand | None:
        """The answer to a change on a slave, None on a master."""
        if self.broker_controller.message_store_config.brokerRole is not BrokerRole.SLAVE:
            return None
        return RemotingCommand.create_response_command(
            response_code.SYSTEM_ERROR, "Can't modify topic or subscription group from slave broker, please execute "
            "it from master broker.")


def success(body: object = None, header: CommandCustomHeader | None = None) -> RemotingCommand:
    """SUCCESS with a body: a dataclass to be written as JSON, a text, or bytes."""
    response = RemotingCommand.create_response_command(response_code.SUCCESS, None, header)
    if isinstance(body, str):
        response.body = body.encode("utf-8", "replace")
    elif isinstance(body, bytes):
        response.body = body
    elif body is not None:
        response.body = remoting_serializable.encode(body)
    return response


def table_answer(request: RemotingCommand, changes: ChangeLog, encode: Callable[[list[str] | None], str],
                 header: CommandCustomHeader | None = None, also: str = "") -> RemotingCommand:
    """A table as JSON: all of it, or for a slave of ours those entries alone that have changed since it was told.

    `encode` gets the names of the entries, None for all. `also` is what the table's state consists of beside them,
    without a blank. The table may be newer than the state that is told.
    Differs: the original sends its slaves the whole tables every ten seconds, whether or not something has changed.
    """
    fields = request.ext_fields or {}
    known = fields.get(table_version.KNOWN)
    if known is None:
        return success(encode(None), header)
    told = f"{changes.mark()} {also}"  # before `encode`: what changes while it runs comes with the next answer
    known_mark, _, known_also = known.partition(" ")
    takes_changes = table_version.CHANGES in fields and known_also == also
    changed = changes.since(known_mark) if takes_changes else None
    response = success(encode(changed) if known != told else None, header)
    response.add_ext_field(table_version.TOLD, told)
    if changed is not None:
        response.add_ext_field(table_version.CHANGES, "true")
    return response


def system_error(remark: str) -> RemotingCommand:
    """SYSTEM_ERROR with a remark."""
    return RemotingCommand.create_response_command(response_code.SYSTEM_ERROR, remark)
