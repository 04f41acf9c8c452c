"""Least offsets of other groups."""
from dataclasses import dataclass, field


@dataclass(slots=True)
class QueryCorrectionOffsetBody:
    """Offset by queue id (answer of QUERY_CORRECTION_OFFSET).

    Java: org.apache.rocketmq.common.protocol.body.QueryCorrectionOffsetBody (4.9.8)
    """

    correctionOffsets: dict[int, int] = field(default_factory=dict)
