"""Permission bits of topics and brokers.

Java: org.apache.rocketmq.common.constant.PermName (4.9.8)
"""

PERM_READ = 0x1 << 2
PERM_WRITE = 0x1 << 1
PERM_INHERIT = 0x1


def perm2_string(perm: int) -> str:
    """`RWX` with a `-` for each missing bit; X stands for inherit."""
    return ("R" if is_readable(perm) else "-") + ("W" if is_writeable(perm) else "-") + (
        "X" if is_inherited(perm) else "-")


def is_readable(perm: int) -> bool:
    """Whether the read bit is set."""
    return bool(perm & PERM_READ)


def is_writeable(perm: int) -> bool:
    """Whether the write bit is set."""
    return bool(perm & PERM_WRITE)


def is_inherited(perm: int) -> bool:
    """Whether topics may be created after this one's example."""
    return bool(perm & PERM_INHERIT)
