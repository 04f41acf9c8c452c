"""A client behind a channel."""
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.protocol.header_codec import LanguageCode


def now_ms() -> int:
    """Milliseconds of the monotonic clock; for ages only."""
    return time.monotonic_ns() // 1_000_000


class ClientChannelInfo:
    """Channel, client id, language, version, and when the last heartbeat came. Equal when the channel is the same.

    Java: org.apache.rocketmq.broker.client.ClientChannelInfo (4.9.8)
    """

    __slots__ = ("channel", "client_id", "language", "version", "last_update_timestamp", "last_update_monotonic_ms",
                 "access_key")

    def __init__(self, channel: "Channel", client_id: str, language: "LanguageCode | None" = None,
                 version: int = 0, access_key: str | None = None) -> None:
        self.channel = channel
        self.client_id = client_id
        self.language = language
        self.version = version
        self.access_key = access_key  # the account that signed the heartbeat; None without access control
        self.touch()

    def touch(self) -> None:
        """A heartbeat came now."""
        self.last_update_timestamp = time.time_ns() // 1_000_000  # ms since the epoch; shown to people
        self.last_update_monotonic_ms = now_ms()  # ages are measured on this one

    def age_ms(self) -> int:
        """Milliseconds since the last heartbeat."""
        return now_ms() - self.last_update_monotonic_ms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientChannelInfo) and other.channel is self.channel

    def __hash__(self) -> int:
        return hash(self.channel)

    def __repr__(self) -> str:
        language = getattr(self.language, "name", None)
        return (f"ClientChannelInfo [channel={self.channel}, clientId={self.client_id}, language={language}, "
                f"version={self.version}, lastUpdateTimestamp={self.last_update_timestamp}]")
