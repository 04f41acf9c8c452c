"""Whether a server speaks TLS."""
from enum import Enum


class TlsMode(Enum):
    """disabled: TLS connections are closed; permissive: both kinds are served; enforcing: plain ones are closed.

    Java: org.apache.rocketmq.remoting.common.TlsMode (4.9.8)
    """

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"

    @classmethod
    def parse(cls, mode: str) -> "TlsMode":
        """The mode of a word. Raises ValueError for any other."""
        # Differs: Java takes PERMISSIVE for a word that it does not know, so that `ENFORCING` enforces nothing
        return cls(mode)
