"""What became of a message consumed on demand."""
from dataclasses import dataclass

from rmqha.common.protocol.body.cm_result import CMResult


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
