"""Bits of a topic's topicSysFlag.

Java: org.apache.rocketmq.common.sysflag.TopicSysFlag (4.9.8)
"""

FLAG_UNIT = 0x1
FLAG_UNIT_SUB = 0x1 << 1


def build_sys_flag(unit: bool, has_unit_sub: bool) -> int:
    """The flag of the two booleans."""
    return FLAG_UNIT * unit | FLAG_UNIT_SUB * has_unit_sub


def has_unit_flag(sys_flag: int) -> bool:
    """Whether the topic belongs to a unit."""
    return bool(sys_flag & FLAG_UNIT)


def has_unit_sub_flag(sys_flag: int) -> bool:
    """Whether a unit's consumers subscribe to the topic."""
    return bool(sys_flag & FLAG_UNIT_SUB)
