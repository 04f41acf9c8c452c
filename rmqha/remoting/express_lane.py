"""Serving the commonest request without making a command of it."""
from typing import Protocol

from rmqha.remoting.channel import Channel


class ExpressLane(Protocol):
    """Serves the frames that it knows how to serve; all others go the general way. Everything on the IO thread."""

    def serve(self, channel: Channel, data: memoryview, position: int) -> int:
        """Serve the frames that lie whole in `data` from `position` on, up to the first that has to go the general
        way; the position behind them. `data` is valid until it returns."""
