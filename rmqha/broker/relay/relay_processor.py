"""The master's side of relaying: it accepts connections that carry the requests of other replicas' clients."""
from __future__ import annotations

import ipaddress
import logging
from typing import TYPE_CHECKING

from rmqha.broker.client.client_channels import RELAYED
from rmqha.common.protocol import response_code
from rmqha.common.protocol.admin_headers import RelayClientRequestHeader
from rmqha.common.protocol.command_custom_header import HeaderFieldError
from rmqha.remoting.addresses import parse_channel_remote_addr, string2_socket_address
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.broker.broker_addresses import BrokerAddresses
    from rmqha.broker.relay.master_route import MasterRoute
    from rmqha.remoting.channel import Channel

log = logging.getLogger("RocketmqBroker")


class RelayProcessor:
    """Processor of RELAY_CLIENT."""

    def __init__(self, route: MasterRoute, addresses: BrokerAddresses) -> None:
        self._route, self._addresses = route, addresses

    def process_request(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Take the channel for the client's from now on, or refuse."""
        header = request.decode_command_custom_header(RelayClientRequestHeader)
        if header.brokerName != self._addresses.broker_name:
            return _refusal(response_code.NO_PERMISSION, f"this is the broker {self._addresses.broker_name}, not "
                            f"{header.brokerName}")
        if RELAYED in channel.attributes:
            return _refusal(response_code.NO_PERMISSION, "a relayed connection cannot relay")
        if not self._route.is_here():
            return _refusal(response_code.RELAY_NOT_MASTER, "this broker is not the master, or accepts no messages at "
                            "present")
        address = _client_address(header.clientAddr or "")
        log.info("broker %s relays the requests of %s through %s", header.brokerId, header.clientAddr,
                 parse_channel_remote_addr(channel))
        channel.attributes[RELAYED] = header.brokerId
        channel.remote_address = address
        return RemotingCommand.create_response_command(response_code.SUCCESS, None)

    def reject_request(self) -> bool:
        """Return False: these requests are never rejected."""
        return False


def _client_address(text: str) -> tuple[str, int]:
    """Return the address in a header. Raises HeaderFieldError if it is not an IP address with a port."""
    try:
        host, port = string2_socket_address(text)
        return str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))), port
    except ValueError as error:
        raise HeaderFieldError(f"clientAddr={text!r} is not an IP address with a port") from error


def _refusal(code: int, remark: str) -> RemotingCommand:
    return RemotingCommand.create_response_command(code, remark)
