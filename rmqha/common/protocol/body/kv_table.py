"""Names and values."""
from dataclasses import dataclass, field


@dataclass(slots=True)
class KVTable:
    """A plain table (run-time information, order topics).

    Java: org.apache.rocketmq.common.protocol.body.KVTable (4.9.8)
    """

    table: dict[str, str] = field(default_factory=dict)
