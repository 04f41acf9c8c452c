"""Serving the commonest request without making a command of it."""
from typing import Protocol

from rmqha.remoting.channel import Channel


class ExpressLane(Protocol):
    """Takes the frames that it knows how to serve; all others go the general way. Everything on the IO thread."""

    def take(self, channel: Channel, frame: memoryview) -> bool:
        """Keep a frame to be served by `flush`; False when it has to go the general way. The frame, without its
        length field, is valid until `flush`."""

    def flush(self) -> None:
        """Serve what was taken: before any other frame of the channel is served, and at the end of each read."""
