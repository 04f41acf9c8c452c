"""What became of a message consumed on demand."""
import enum
from dataclasses import dataclass


class CMResult(enum.Enum):
    """The listener's answer, or that there was none.

    Java: org.apache.rocketmq.common.protocol.body.CMResult (4.9.8)
    """

    CR_SUCCESS = 0
    CR_LATER = 1
    CR_ROLLBACK = 2
    CR_COMMIT = 3
    CR_THROW_EXCEPTION = 4
    CR_RETURN_NULL = 5


@dataclass(slots=True)
class ConsumeMessageDirectlyResult:
    """The answer of CONSUME_MESSAGE_DIRECTLY; the time is in ms.

    Java: org.apache.rocketmq.common.protocol.body.ConsumeMessageDirectlyResult (4.9.8)
    """

    order: bool = False
    autoCommit: bool = True
    consumeResult: CMResult | None = None
    remark: str | None = None
    spentTimeMills: int = 0

    def __str__(self) -> str:
        result = "null" if self.consumeResult is None else self.consumeResult.name
        return (f"ConsumeMessageDirectlyResult [order={str(self.order).lower()}, "
                f"autoCommit={str(self.autoCommit).lower()}, consumeResult={result}, "
                f"remark={'null' if self.remark is None else self.remark}, spentTimeMills={self.spentTimeMills}]")
