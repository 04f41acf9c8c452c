"""Bits of a subscription's flag.

Java: org.apache.rocketmq.common.sysflag.SubscriptionSysFlag (4.9.8)
"""

FLAG_UNIT = 0x1


def build_sys_flag(unit: bool) -> int:
    """The flag of the boolean."""
    return FLAG_UNIT * unit


def set_unit_flag(sys_flag: int) -> int:
    """`sys_flag` with the unit bit."""
    return sys_flag | FLAG_UNIT


def clear_unit_flag(sys_flag: int) -> int:
    """`sys_flag` without the unit bit."""
    return sys_flag & ~FLAG_UNIT


def has_unit_flag(sys_flag: int) -> bool:
    """Whether the subscription is a unit's."""
    return bool(sys_flag & FLAG_UNIT)
