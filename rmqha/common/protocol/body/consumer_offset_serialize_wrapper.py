"""All consumer offsets of a broker."""
from dataclasses import dataclass, field


@dataclass(slots=True)
class ConsumerOffsetSerializeWrapper:
    """Queue id to offset by `topic@group` (answer of GET_ALL_CONSUMER_OFFSET, consumerOffset.json).

    Java: org.apache.rocketmq.common.protocol.body.ConsumerOffsetSerializeWrapper (4.9.8)
    """

    offsetTable: dict[str, dict[int, int]] = field(default_factory=dict)
