"""What a consumer group wants of a topic, when it says so by an expression."""
from dataclasses import dataclass, field

from rmqha.common import util_all
from rmqha.filter.bloom_filter import BloomFilterData
from rmqha.filter.expressions import Expression


@dataclass(eq=False)
class ConsumerFilterData:
    """The expression, its compiled form, and the group's bits. Times are ms since the epoch; deadTime 0: never dead.

    Java: org.apache.rocketmq.broker.filter.ConsumerFilterData (4.9.8)
    """

    consumerGroup: str | None = None
    topic: str | None = None
    expression: str | None = None
    expressionType: str | None = None
    compiled_expression: Expression | None = field(default=None, metadata={"json": False}, repr=False)
    bornTime: int = 0
    deadTime: int = 0
    bloomFilterData: BloomFilterData | None = None
    clientVersion: int = 0
    dead: bool = field(default=False, init=False)  # for the file only, as in Java: see is_dead

    @property
    def is_dead(self) -> bool:
        """Whether nobody of the group has been online since deadTime."""
        return self.deadTime >= self.bornTime

    def how_long_after_death(self) -> int:
        """ms since deadTime, -1 while alive."""
        return util_all.current_time_millis() - self.deadTime if self.is_dead else -1

    def is_msg_in_live(self, msg_store_time: int) -> bool:
        """Whether a message stored at this time has the group's result in its bit map."""
        return msg_store_time > self.bornTime
