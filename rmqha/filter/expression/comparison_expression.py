"""Comparisons."""
from collections.abc import Callable

from rmqha.filter.expression.constant_expression import NULL, ConstantExpression
from rmqha.filter.expression.expression import BooleanExpression, EvaluationContext, Expression, PropertyExpression
from rmqha.filter.expression.java_values import Value, compare, double_value_of, same, value_text
from rmqha.filter.expression.logic_expression import LogicExpression
from rmqha.filter.expression.mq_filter_exception import FilterError
from rmqha.filter.expression.unary_expression import UnaryExpression

_AS_BOOLEAN: dict[str, Callable[[int], bool]] = {
    ">": lambda answer: answer > 0,
    ">=": lambda answer: answer >= 0,
    "<": lambda answer: answer < 0,
    "<=": lambda answer: answer <= 0,
}


class ComparisonExpression(BooleanExpression):
    """`<`, `<=`, `>`, `>=` and `=` of two expressions; the text of a property is converted to the other side's type.

    Java: org.apache.rocketmq.filter.expression.ComparisonExpression (4.9.8)
    """

    __slots__ = ("left", "right", "expression_symbol", "_as_boolean")

    def __init__(self, left: Expression, right: Expression, symbol: str) -> None:
        self.left = left
        self.right = right
        self.expression_symbol = symbol
        self._as_boolean = _AS_BOOLEAN.get(symbol)

    @staticmethod
    def create_between(value: Expression, left: Expression, right: Expression) -> BooleanExpression:
        """`value BETWEEN left AND right`; FilterError when two literals are the wrong way round."""
        if isinstance(left, ConstantExpression) and isinstance(right, ConstantExpression):
            low, high = left.value, right.value
            if low is None or high is None:
                raise FilterError("Illegal values of between, values can not be null!")
            if compare(high, low) < 0:
                raise FilterError(f"Illegal values of between, left value({value_text(low)}) must less than or equal "
                                  f"to right value({value_text(high)})")
        return LogicExpression.create_and(ComparisonExpression.create_greater_than_equal(value, left),
                                          ComparisonExpression.create_less_than_equal(value, right))

    @staticmethod
    def create_not_between(value: Expression, left: Expression, right: Expression) -> BooleanExpression:
        """`value NOT BETWEEN left AND right`; nothing is said about the order of the two."""
        return LogicExpression.create_or(ComparisonExpression.create_less_than(value, left),
                                         ComparisonExpression.create_greater_than(value, right))

    @staticmethod
    def create_in_filter(left: Expression, elements: list[str], is_not: bool = False) -> BooleanExpression:
        """`left IN (elements)`, with `is_not` NOT IN; `left` must be a property."""
        if not isinstance(left, PropertyExpression):
            raise FilterError(f"Expected a property for In expression, got: {left}")
        return UnaryExpression.create_in_expression(left, elements, is_not)

    @staticmethod
    def create_is_null(left: Expression) -> BooleanExpression:
        """`left IS NULL`."""
        return _Equal(left, NULL)

    @staticmethod
    def create_is_not_null(left: Expression) -> BooleanExpression:
        """`left IS NOT NULL`."""
        return UnaryExpression.create_not(_Equal(left, NULL))

    @staticmethod
    def create_not_equal(left: Expression, right: Expression) -> BooleanExpression:
        """`left <> right`."""
        return UnaryExpression.create_not(ComparisonExpression.create_equal(left, right))

    @staticmethod
    def create_equal(left: Expression, right: Expression) -> BooleanExpression:
        """`left = right`."""
        check_equal_operand(left)
        check_equal_operand(right)
        _check_equal_operand_compatability(left, right)
        return _Equal(left, right)

    @staticmethod
    def create_greater_than(left: Expression, right: Expression) -> BooleanExpression:
        """`left > right`."""
        return _ordered(left, right, ">")

    @staticmethod
    def create_greater_than_equal(left: Expression, right: Expression) -> BooleanExpression:
        """`left >= right`."""
        return _ordered(left, right, ">=")

    @staticmethod
    def create_less_than(left: Expression, right: Expression) -> BooleanExpression:
        """`left < right`."""
        return _ordered(left, right, "<")

    @staticmethod
    def create_less_than_equal(left: Expression, right: Expression) -> BooleanExpression:
        """`left <= right`."""
        return _ordered(left, right, "<=")

    def evaluate(self, context: EvaluationContext) -> bool | None:
        """NULL when a side is; two texts are compared as numbers."""
        left = self.left.evaluate(context)
        if left is None:
            return None
        right = self.right.evaluate(context)
        if right is None:
            return None
        if isinstance(left, str) and isinstance(right, str):
            left, right = self._numbers(left, right)
        return self._as_boolean(compare(left, right))  # type: ignore[misc]  # subclasses without one do not come here

    @staticmethod
    def _numbers(left: str, right: str) -> tuple[float, float]:
        try:
            return double_value_of(left), double_value_of(right)
        except FilterError as failure:
            raise FilterError("It's illegal to compare string by '>=', '>', '<', '<='. "
                              f"lv={left}, rv={right}") from failure

    def __str__(self) -> str:
        return f"({self.left} {self.expression_symbol} {self.right})"


class _Equal(ComparisonExpression):
    __slots__ = ()

    def __init__(self, left: Expression, right: Expression) -> None:
        super().__init__(left, right, "==")

    def evaluate(self, context: EvaluationContext) -> bool | None:
        left: Value = self.left.evaluate(context)
        right: Value = self.right.evaluate(context)
        if left is None or right is None:
            if left is right:
                return True
            return None if left is None else False
        return same(left, right) or compare(left, right) == 0


def _ordered(left: Expression, right: Expression, symbol: str) -> BooleanExpression:
    check_less_than_operand(left)
    check_less_than_operand(right)
    return ComparisonExpression(left, right, symbol)


def check_less_than_operand(expression: Expression) -> None:
    """Only numbers, and what may become one, have an order. FilterError."""
    if isinstance(expression, ConstantExpression):
        if isinstance(expression.value, (int, float)) and not isinstance(expression.value, bool):
            return
        raise FilterError(f"Value '{expression}' cannot be compared.")
    if isinstance(expression, BooleanExpression):
        raise FilterError(f"Value '{expression}' cannot be compared.")


def check_equal_operand(expression: Expression) -> None:
    """NULL is compared by IS only. FilterError."""
    if isinstance(expression, ConstantExpression) and expression.value is None:
        raise FilterError(f"'{expression}' cannot be compared.")


def _check_equal_operand_compatability(left: Expression, right: Expression) -> None:
    if isinstance(left, ConstantExpression) and isinstance(right, ConstantExpression) \
            and isinstance(left, BooleanExpression) and not isinstance(right, BooleanExpression):
        raise FilterError(f"'{left}' cannot be compared with '{right}'")
