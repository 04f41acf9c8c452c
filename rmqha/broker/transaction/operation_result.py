"""What became of looking for a half message."""
from dataclasses import dataclass

from rmqha.common.message.message_ext import MessageExt


@dataclass
class OperationResult:
    """`prepare_message` with SUCCESS, or a response code and a remark without one.

    Java: org.apache.rocketmq.broker.transaction.OperationResult (4.9.8)
    """

    prepare_message: MessageExt | None = None
    response_code: int = 0
    response_remark: str | None = None
