"""What wants to hear of connections that open and close."""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqha.remoting.channel import Channel


class ChannelEventListener:
    """Override what is of interest. Called on the NettyEventExecutor thread, in the order of the events.

    Java: org.apache.rocketmq.remoting.ChannelEventListener (4.9.8)
    """

    def on_channel_connect(self, remote_addr: str, channel: "Channel") -> None:
        """A connection is there."""

    def on_channel_close(self, remote_addr: str, channel: "Channel") -> None:
        """A connection is gone."""

    def on_channel_exception(self, remote_addr: str, channel: "Channel") -> None:
        """Serving a connection failed; it is being closed."""

    def on_channel_idle(self, remote_addr: str, channel: "Channel") -> None:
        """Nothing moved on a connection for too long; it is being closed."""
