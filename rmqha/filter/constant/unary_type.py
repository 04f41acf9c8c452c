"""The kinds of expressions with one operand."""
from enum import Enum


class UnaryType(Enum):
    """Java: org.apache.rocketmq.filter.constant.UnaryType (4.9.8)"""

    NEGATE = "NEGATE"
    IN = "IN"
    NOT = "NOT"
    BOOLEANCAST = "BOOLEANCAST"
    LIKE = "LIKE"
