"""An expression that is nested too deep."""
from rmqha.filter.expression.mq_filter_exception import FilterError

MAX_DEPTH = 50  # parentheses, NOTs and signs within each other
MAX_LOOKS = 5_000  # operands that are looked at ahead of their turn, behind plus signs
MAX_CHAIN = 200  # comparisons whose left side is a comparison


class StackOverflowError(FilterError):
    """Java: java.lang.StackOverflowError"""

    # Differs: nesting has a fixed limit, below what the original's stack takes
    java_name = "java.lang.StackOverflowError"
