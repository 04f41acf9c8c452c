"""A broker whose connection ends is gone.

    the remoting server's event thread --close, exception, idle--> RouteInfoManager.on_channel_destroy
"""
from typing import TYPE_CHECKING

from rmqha.remoting.interfaces import ChannelEventListener

if TYPE_CHECKING:
    from rmqha.namesrv.namesrv_controller import NamesrvController
    from rmqha.remoting.channel import Channel


class BrokerHousekeepingService(ChannelEventListener):
    """Takes brokers off the route table with their channels.

    Java: org.apache.rocketmq.namesrv.routeinfo.BrokerHousekeepingService (4.9.8)
    """

    def __init__(self, namesrv_controller: "NamesrvController") -> None:
        self._namesrv_controller = namesrv_controller

    def on_channel_connect(self, remote_addr: str, channel: "Channel") -> None:
        """Nothing: a broker counts from its registration."""

    def on_channel_close(self, remote_addr: str, channel: "Channel") -> None:
        """The connection ended."""
        self._namesrv_controller.route_info_manager.on_channel_destroy(remote_addr, channel)

    def on_channel_exception(self, remote_addr: str, channel: "Channel") -> None:
        """The connection failed."""
        self._namesrv_controller.route_info_manager.on_channel_destroy(remote_addr, channel)

    def on_channel_idle(self, remote_addr: str, channel: "Channel") -> None:
        """Nothing came for too long."""
        self._namesrv_controller.route_info_manager.on_channel_destroy(remote_addr, channel)
