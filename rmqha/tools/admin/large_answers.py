"""Requests whose answers may be larger than a frame usually is: the tables of a broker with very many topics or groups.

A frame has at most 16 MiB. The table of 100,000 topics has 12 to 36 MiB, by the length of their names, and brokers send
it nevertheless. So `ask_large` accepts up to MAX_ANSWER_BYTES. A larger answer is refused when its length has arrived.
`check_unusual` limits the memory for an answer that a broker did not write.
"""
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.client.exception import MQBrokerException
from rmqha.common.protocol import response_code
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.channel import HIGH_WATER_MARK, LOW_WATER_MARK, Channel
from rmqha.remoting.exception import RemotingSendRequestException
from rmqha.remoting.frame_decoder import LENGTH_FIELD_SIZE, FrameDecoder, FrameError

if TYPE_CHECKING:
    import socket

    from rmqha.remoting.channel import ChannelLoop
    from rmqha.remoting.protocol.remoting_command import RemotingCommand
    from rmqha.remoting.remoting_client import RemotingClient
    from rmqha.remoting.tls import TlsSocket

MAX_ANSWER_BYTES = 48 << 20
# Of an answer that is not in the form in which brokers write it: parsing may take fifty times its size.
MAX_UNUSUAL_BYTES = 8 << 20


class AnswerTooLargeError(ValueError):
    """An answer is larger than MAX_ANSWER_BYTES, or unusual and larger than MAX_UNUSUAL_BYTES."""


def check_unusual(body: bytes | bytearray | memoryview) -> None:
    """Check that a body in an unusual form may be parsed. AnswerTooLargeError."""
    if len(body) > MAX_UNUSUAL_BYTES:
        raise AnswerTooLargeError(f"it has {len(body):,} bytes in an unusual form, of which at most "
                                  f"{MAX_UNUSUAL_BYTES:,} are read")


class _Decoder(FrameDecoder):
    """Notes the length of a frame that it refuses because it is too large."""

    __slots__ = ("_note",)

    def __init__(self, note: Callable[[int], None]) -> None:
        super().__init__(MAX_ANSWER_BYTES)
        self._note = note

    def frame_at(self, view: memoryview, position: int) -> memoryview | None:
        """Return the frame at `position`, as FrameDecoder does."""
        try:
            return super().frame_at(view, position)
        except FrameError:
            self._note(int.from_bytes(view[position:position + LENGTH_FIELD_SIZE], signed=True))
            raise


class _LargeChannel(Channel):
    """A connection that accepts larger frames. Each client has a subclass with its own `refused`: lengths by address.
    """

    __slots__ = ()
    refused: dict[str, int]

    def __init__(self, connected: "socket.socket | TlsSocket", remote_address: tuple[str, int], io: "ChannelLoop",
                 high_water_mark: int = HIGH_WATER_MARK, low_water_mark: int = LOW_WATER_MARK) -> None:
        super().__init__(connected, remote_address, io, high_water_mark, low_water_mark)
        self.decoder = _Decoder(self._note)

    def _note(self, length: int) -> None:
        self.refused[parse_channel_remote_addr(self)] = length


def _refused_of(client: "RemotingClient") -> dict[str, int]:
    """Make the connections of a client accept larger frames; return the lengths of those that were refused."""
    known: dict[str, int] | None = getattr(client.channel_class, "refused", None)
    if known is not None:
        return known

    class LargeChannel(_LargeChannel):
        """The connections of this client."""

        __slots__ = ()
        refused: dict[str, int] = {}

    client.channel_class = LargeChannel
    # those that are connected already
    for channel in list(client.channel_tables.values()):
        channel.decoder.max_frame_length = MAX_ANSWER_BYTES
    return LargeChannel.refused


def ask_large(client: "RemotingClient", address: str, request: "RemotingCommand", timeout_ms: float
              ) -> "RemotingCommand":
    """Send a request to a broker and return its answer; up to MAX_ANSWER_BYTES.

    Raises MQBrokerException for an answer that is not a success, AnswerTooLargeError, and as `invoke_sync` does.
    """
    refused = _refused_of(client)
    try:
        response = client.invoke_sync(address, request, timeout_ms)
    except RemotingSendRequestException as error:
        length = refused.pop(error.addr, 0)
        if length <= MAX_ANSWER_BYTES:
            raise
        raise AnswerTooLargeError(f"it has {length:,} bytes; at most {MAX_ANSWER_BYTES:,} are read") from None
    if response.code != response_code.SUCCESS:
        raise MQBrokerException(response.code, response.remark, address)
    return response
