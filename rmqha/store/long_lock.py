"""Logging which threads were busy while the put lock was held for long."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rmqha.common import mix_all
from rmqha.common.threads import thread_stacks

if TYPE_CHECKING:
    from rmqha.store.commit_log import CommitLog

_LONG_MS, _ENDLESS_MS = 1000, 10_000_000


def dump_long_lock(commit_log: CommitLog) -> None:
    """Write all threads' stacks to ~/debug/lock when the lock has been held for more than a second.

    Java: org.apache.rocketmq.store.DefaultMessageStore#addScheduleTask (4.9.8)
    """
    begin, held = commit_log.begin_time_in_lock, commit_log.lock_time_mills()
    if commit_log.config.debugLockEnable and begin and _LONG_MS < held < _ENDLESS_MS:
        folder = os.path.join(os.path.expanduser("~"), "debug", "lock")
        os.makedirs(folder, exist_ok=True)
        mix_all.string2file_not_safe(thread_stacks(), os.path.join(folder, f"stack-{begin}-{held}"))
