"""A connected producer."""
from dataclasses import dataclass


@dataclass(slots=True)
class ProducerInfo:
    """A producer; `language` is the name of its LanguageCode, the time is in ms since the epoch.

    Java: org.apache.rocketmq.common.protocol.body.ProducerInfo (4.9.8)
    """

    clientId: str | None = None
    remoteIP: str | None = None
    language: str | None = None
    version: int = 0
    lastUpdateTimestamp: int = 0

    def __str__(self) -> str:
        return (f"clientId={self.clientId},remoteIP={self.remoteIP}, language={self.language}, version={self.version}, "
                f"lastUpdateTimestamp={self.lastUpdateTimestamp}")
