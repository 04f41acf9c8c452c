"""A client whose connections matter by themselves: who must know before this side closes one is told first."""
import dataclasses
import socket
from collections.abc import Callable

from rmqha.remoting.channel import Channel
from rmqha.remoting.client_config import ClientConfig
from rmqha.remoting.remoting_client import RemotingClient


class WatchedChannel(Channel):
    """A connection whose `before_close` is called before this side shuts it down, or knows of its end."""

    __slots__ = ("before_close",)
    before_close: Callable[[], None]

    def _shutdown_socket(self) -> None:
        self.before_close()  # in this order: nothing more is written, then this, then the other side may see it
        super()._shutdown_socket()


class WatchedClient(RemotingClient):
    """A call that gets no answer does not close its connection.

    Both are called on any thread: `before_close` before one is closed, `after_close` once it is gone.
    """

    channel_class = WatchedChannel

    def __init__(self, config: ClientConfig, before_close: Callable[[], None],
                 after_close: Callable[[], None]) -> None:
        super().__init__(dataclasses.replace(config, clientCloseSocketIfTimeout=False))
        self._before_close = before_close
        self._after_close = after_close

    def _adopt(self, connected: socket.socket, deadline: float) -> Channel:
        channel = super()._adopt(connected, deadline)
        assert isinstance(channel, WatchedChannel)  # as channel_class says
        channel.before_close = self._before_close
        return channel

    def on_closed(self, channel: Channel) -> None:
        """A connection is gone."""
        super().on_closed(channel)
        self._after_close()
