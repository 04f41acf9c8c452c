"""A subscription of a group to a topic."""
import time
from dataclasses import dataclass, field

from rmqha.common.filter import expression_type
from rmqha.common.later import LATER
from rmqha.common.text_hash import text_hash

SUB_ALL = "*"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class SubscriptionData:
    """Topic and expression; for tags their names and hash codes. subVersion: ms since the epoch, the newer one wins.

    Sorting is by `topic@expression`. Java's filterClassSource, which is never sent, is left out.

    Java: org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData (4.9.8)
    """

    topic: str = LATER
    subString: str | None = None
    classFilterMode: bool = False
    tagsSet: set[str] = field(default_factory=set)
    codeSet: set[int] = field(default_factory=set)
    subVersion: int = field(default_factory=_now_ms)
    expressionType: str | None = expression_type.TAG

    def __hash__(self) -> int:
        return text_hash(self.topic, self.subString, self.classFilterMode, sorted(self.tagsSet), sorted(self.codeSet),
                         self.subVersion, self.expressionType)

    def __lt__(self, other: "SubscriptionData") -> bool:
        return f"{self.topic}@{self.subString}" < f"{other.topic}@{other.subString}"

    def __str__(self) -> str:
        return (f"SubscriptionData [classFilterMode={str(self.classFilterMode).lower()}, topic={self.topic}, "
                f"subString={self.subString}, tagsSet={sorted(self.tagsSet)}, codeSet={sorted(self.codeSet)}, "
                f"subVersion={self.subVersion}, expressionType={self.expressionType}]")
