"""A broker whose connection ends is dead.

    the port's event thread --close, exception, idle--> ControllerManager.on_broker_channel_close
"""
from typing import TYPE_CHECKING

from rmqha.remoting.interfaces import ChannelEventListener

if TYPE_CHECKING:
    from rmqha.controller.controller_manager import ControllerManager
    from rmqha.remoting.channel import Channel


class BrokerHousekeepingService(ChannelEventListener):
    """Hands on which connections have ended.

    Java: org.apache.rocketmq.controller.BrokerHousekeepingService (5.1.4)
    """

    def __init__(self, controller_manager: "ControllerManager") -> None:
        self._controller_manager = controller_manager

    def on_channel_close(self, remote_addr: str, channel: "Channel") -> None:
        """The connection ended, for whatever reason: each end is told here."""
        self._controller_manager.on_broker_channel_close(channel)
