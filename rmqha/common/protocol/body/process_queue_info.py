"""What a push consumer holds of one queue."""
from dataclasses import dataclass

from rmqha.common import util_all


@dataclass(slots=True)
class ProcessQueueInfo:
    """Cached messages, offsets and lock of a queue in a consumer; times are ms since the epoch.

    Java: org.apache.rocketmq.common.protocol.body.ProcessQueueInfo (4.9.8)
    """

    commitOffset: int = 0
    cachedMsgMinOffset: int = 0
    cachedMsgMaxOffset: int = 0
    cachedMsgCount: int = 0
    cachedMsgSizeInMiB: int = 0
    transactionMsgMinOffset: int = 0
    transactionMsgMaxOffset: int = 0
    transactionMsgCount: int = 0
    locked: bool = False
    tryUnlockTimes: int = 0
    lastLockTimestamp: int = 0
    droped: bool = False
    lastPullTimestamp: int = 0
    lastConsumeTimestamp: int = 0

    def __str__(self) -> str:
        human = util_all.time_millis_to_human_string
        return (f"ProcessQueueInfo [commitOffset={self.commitOffset}, cachedMsgMinOffset={self.cachedMsgMinOffset}, "
                f"cachedMsgMaxOffset={self.cachedMsgMaxOffset}, cachedMsgCount={self.cachedMsgCount}, "
                f"cachedMsgSizeInMiB={self.cachedMsgSizeInMiB}, "
                f"transactionMsgMinOffset={self.transactionMsgMinOffset}, "
                f"transactionMsgMaxOffset={self.transactionMsgMaxOffset}, "
                f"transactionMsgCount={self.transactionMsgCount}, locked={str(self.locked).lower()}, "
                f"tryUnlockTimes={self.tryUnlockTimes}, lastLockTimestamp={human(self.lastLockTimestamp)}, "
                f"droped={str(self.droped).lower()}, lastPullTimestamp={human(self.lastPullTimestamp)}, "
                f"lastConsumeTimestamp={human(self.lastConsumeTimestamp)}]")
