"""The values of haHandshakeEnable."""
from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqha.store.config.message_store_config import MessageStoreConfig

class HandshakeMode(Enum):
    """Whether slave and master greet each other; the value is the config value."""

    AUTO = "auto"  # a slave asks a master that is known to be ours
    ALWAYS = "true"  # a slave asks every master
    NEVER = "false"  # a slave does not ask, a master does not answer


def handshake_mode(config: MessageStoreConfig) -> HandshakeMode:
    """What `config` says; what a boolean key takes for false is NEVER."""
    text = str(config.haHandshakeEnable).strip().lower()
    return next((mode for mode in HandshakeMode if mode.value == text), HandshakeMode.NEVER)
