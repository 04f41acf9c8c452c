"""Bits of the sysFlag of a pull request.

Java: org.apache.rocketmq.common.sysflag.PullSysFlag (4.9.8)
"""

FLAG_COMMIT_OFFSET = 0x1
FLAG_SUSPEND = 0x1 << 1
FLAG_SUBSCRIPTION = 0x1 << 2
FLAG_CLASS_FILTER = 0x1 << 3
FLAG_LITE_PULL_MESSAGE = 0x1 << 4


def build_sys_flag(commit_offset: bool, suspend: bool, subscription: bool, class_filter: bool,
                   lite_pull: bool = False) -> int:
    """The flag of the five booleans."""
    return (FLAG_COMMIT_OFFSET * commit_offset | FLAG_SUSPEND * suspend | FLAG_SUBSCRIPTION * subscription
            | FLAG_CLASS_FILTER * class_filter | FLAG_LITE_PULL_MESSAGE * lite_pull)


def clear_commit_offset_flag(sys_flag: int) -> int:
    """`sys_flag` without its commit bit, for a pull that went to a slave."""
    return sys_flag & ~FLAG_COMMIT_OFFSET


def has_commit_offset_flag(sys_flag: int) -> bool:
    """Whether the request carries an offset to be stored."""
    return bool(sys_flag & FLAG_COMMIT_OFFSET)


def has_suspend_flag(sys_flag: int) -> bool:
    """Whether the broker may hold the request until data arrives."""
    return bool(sys_flag & FLAG_SUSPEND)


def has_subscription_flag(sys_flag: int) -> bool:
    """Whether the request carries its own subscription."""
    return bool(sys_flag & FLAG_SUBSCRIPTION)
