"""The content of delayOffset.json."""
from dataclasses import dataclass, field


@dataclass(slots=True)
class DelayOffsetSerializeWrapper:
    """Delay level -> index of the next message to deliver in the level's queue. The field name is the JSON's.

    Java: org.apache.rocketmq.store.schedule.DelayOffsetSerializeWrapper (4.9.8)
    """

    offsetTable: dict[int, int] = field(default_factory=dict)
