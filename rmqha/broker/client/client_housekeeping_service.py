"""Forgets clients that went silent or away.

    NettyEventExecutor --channel events--> managers <--scan each 10 s-- ClientHousekeepingScheduledThread1
"""
from typing import TYPE_CHECKING

from rmqha.common.threads import ScheduledService
from rmqha.remoting.interfaces import ChannelEventListener

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.remoting.channel import Channel

_SCAN_INTERVAL_MS = 10 * 1000


class ClientHousekeepingService(ChannelEventListener):
    """Hears of channels that close, and scans for expired ones.

    Java: org.apache.rocketmq.broker.client.ClientHousekeepingService (4.9.8)
    """

    def __init__(self, broker_controller: "BrokerController") -> None:
        self._broker_controller = broker_controller
        self._scheduler = ScheduledService("ClientHousekeepingScheduledThread1")

    def start(self) -> None:
        """Begin to scan."""
        self._scheduler.schedule_at_fixed_rate(self._scan_exception_channel, _SCAN_INTERVAL_MS, _SCAN_INTERVAL_MS)

    def shutdown(self) -> None:
        """Stop. Idempotent."""
        self._scheduler.shutdown()

    def on_channel_connect(self, remote_addr: str, channel: "Channel") -> None:
        """Nothing to do: a client counts from its first heartbeat on."""

    def on_channel_close(self, remote_addr: str, channel: "Channel") -> None:
        """Forget the channel's clients."""
        self._forget(remote_addr, channel)

    def on_channel_exception(self, remote_addr: str, channel: "Channel") -> None:
        """Forget the channel's clients."""
        self._forget(remote_addr, channel)

    def on_channel_idle(self, remote_addr: str, channel: "Channel") -> None:
        """Forget the channel's clients."""
        self._forget(remote_addr, channel)

    def _scan_exception_channel(self) -> None:
        self._broker_controller.producer_manager.scan_not_active_channel()
        self._broker_controller.consumer_manager.scan_not_active_channel()
        self._broker_controller.rebalance_lock_manager.remove_expired()

    def _forget(self, remote_addr: str, channel: "Channel") -> None:
        self._broker_controller.producer_manager.do_channel_close_event(remote_addr, channel)
        self._broker_controller.consumer_manager.do_channel_close_event(remote_addr, channel)
