"""A connected client."""
from dataclasses import dataclass

from rmqha.common.text_hash import text_hash


@dataclass(slots=True)
class Connection:
    """Id and address of a client; `language` is the name of its LanguageCode, `version` its MQVersion.

    Java: org.apache.rocketmq.common.protocol.body.Connection (4.9.8)
    """

    clientId: str | None = None
    clientAddr: str | None = None
    language: str | None = None
    version: int = 0

    def __hash__(self) -> int:
        return text_hash(self.clientId, self.clientAddr, self.language, self.version)
