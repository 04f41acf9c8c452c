"""What an orderly listener says about its messages."""
from enum import Enum


class ConsumeOrderlyStatus(Enum):
    """Done, or the queue waits a moment and the same messages come again.

    ROLLBACK and COMMIT: without auto-commit only.

    Java: org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus (4.9.8)
    """

    SUCCESS = "SUCCESS"
    ROLLBACK = "ROLLBACK"
    COMMIT = "COMMIT"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"
