"""Expressions with one operand."""
from enum import Enum

from rmqha.common.java import int32, int64
from rmqha.filter.expression.expression import BooleanExpression, EvaluationContext, Expression, PropertyExpression
from rmqha.filter.expression.java_values import Integer, Long, Value


class UnaryType(Enum):
    """Java: org.apache.rocketmq.filter.constant.UnaryType (4.9.8)"""

    NEGATE = "NEGATE"
    IN = "IN"
    NOT = "NOT"
    BOOLEANCAST = "BOOLEANCAST"
    LIKE = "LIKE"


class UnaryExpression(Expression):
    """An operator and what is right of it.

    Java: org.apache.rocketmq.filter.expression.UnaryExpression (4.9.8)
    """

    __slots__ = ("right",)
    unary_type: UnaryType
    expression_symbol = ""

    def __init__(self, right: Expression) -> None:
        self.right = right

    @staticmethod
    def create_negate(right: Expression) -> "UnaryExpression":
        """`-x`."""
        return _Negate(right)

    @staticmethod
    def create_in_expression(right: PropertyExpression, elements: list[str], is_not: bool) -> "UnaryInExpression":
        """`x IN (...)` and `x NOT IN (...)`."""
        return UnaryInExpression(right, elements, is_not)

    @staticmethod
    def create_not(right: BooleanExpression) -> BooleanExpression:
        """`NOT x`."""
        return _Not(right)

    @staticmethod
    def create_boolean_cast(right: Expression) -> BooleanExpression:
        """A property where a condition is wanted."""
        return _BooleanCast(right)

    def __str__(self) -> str:
        return f"({self.expression_symbol} {self.right})"


class _Negate(UnaryExpression):
    __slots__ = ()
    unary_type = UnaryType.NEGATE
    expression_symbol = "-"

    def evaluate(self, context: EvaluationContext) -> Value:
        value = self.right.evaluate(context)
        if isinstance(value, Integer):
            return Integer(int32(-value))
        if isinstance(value, Long):
            return Long(int64(-value))
        return -value if isinstance(value, float) else None


class _Not(UnaryExpression, BooleanExpression):
    __slots__ = ()
    unary_type = UnaryType.NOT
    expression_symbol = "NOT"

    def evaluate(self, context: EvaluationContext) -> bool | None:
        value = self.right.evaluate(context)
        return None if value is None else not value


class _BooleanCast(UnaryExpression, BooleanExpression):
    __slots__ = ()
    unary_type = UnaryType.BOOLEANCAST

    def evaluate(self, context: EvaluationContext) -> bool | None:
        value = self.right.evaluate(context)
        return None if value is None else value is True

    def __str__(self) -> str:
        return str(self.right)


class UnaryInExpression(UnaryExpression, BooleanExpression):
    """Whether a property is one of several texts.

    Java: org.apache.rocketmq.filter.expression.UnaryInExpression (4.9.8)
    """

    __slots__ = ("in_list", "is_not", "_in_set")
    unary_type = UnaryType.IN

    def __init__(self, right: PropertyExpression, elements: list[str], is_not: bool) -> None:
        super().__init__(right)
        self.in_list = elements
        self.is_not = is_not
        self._in_set = frozenset(elements)

    def evaluate(self, context: EvaluationContext) -> bool | None:
        """NULL for a property that is absent or no text."""
        value = self.right.evaluate(context)
        return (value in self._in_set) is not self.is_not if isinstance(value, str) else None

    @property
    def expression_symbol(self) -> str:  # type: ignore[override]  # the only one that varies
        """The operator."""
        return "NOT IN" if self.is_not else "IN"

    def __str__(self) -> str:
        return f"{self.right} {self.expression_symbol} ( {', '.join(self.in_list)} )"
