"""Frames that have begun and not ended, of all connections: one sum.

A stranger needs no more than a connection to have 16 MiB kept of him; of those who do, the one that began first goes.
"""
import logging
import threading
from collections import OrderedDict

from rmqha.remoting.channel import Channel
from rmqha.remoting.common.remoting_helper import parse_channel_remote_addr
from rmqha.remoting.frame_decoder import FRAME_MAX_LENGTH

log = logging.getLogger("RocketmqRemoting")

# Differs: 4.9 keeps what any number of connections begins
MAX_BEGUN_BYTES = 16 * FRAME_MAX_LENGTH


class BegunFrames:
    """What is kept of frames whose end has not come. For the IO threads of any number of servers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes_of: OrderedDict[Channel, int] = OrderedDict()  # the one that began first comes first; by _lock
        self._sum = 0  # guarded by _lock

    @property
    def all_bytes(self) -> int:
        """That are kept now."""
        return self._sum

    def note(self, channel: Channel, size: int, begins: bool) -> None:
        """A connection has so many bytes of a frame, which `begins` with what was read now.

        When there are too many of all, the connections that began first are closed, but not the last one.
        """
        closed: list[tuple[Channel, int]] = []
        with self._lock:
            self._sum += size - self._bytes_of.get(channel, 0)
            if size == 0:
                self._bytes_of.pop(channel, None)
                return
            self._bytes_of[channel] = size
            if begins:
                self._bytes_of.move_to_end(channel)
            while self._sum > MAX_BEGUN_BYTES and len(self._bytes_of) > 1:
                closed.append(self._bytes_of.popitem(last=False))
                self._sum -= closed[-1][1]
        for one, held in closed:
            log.warning("%d bytes of frames have begun, the connection whose frame began first is closed: %s, %d bytes",
                        MAX_BEGUN_BYTES, parse_channel_remote_addr(one), held)
            one.close()
