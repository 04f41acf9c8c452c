"""Literals."""
from rmqha.common import util_all
from rmqha.filter.expression.expression import BooleanExpression, EvaluationContext, Expression
from rmqha.filter.expression.java_values import (
    MAX_DOUBLE,
    MIN_DOUBLE,
    Integer,
    Long,
    Value,
    double_text,
    double_value_of,
    long_value_of,
    value_text,
)
from rmqha.filter.expression.mq_filter_exception import FilterError


class ConstantExpression(Expression):
    """A number or a text.

    Java: org.apache.rocketmq.filter.expression.ConstantExpression (4.9.8)
    """

    __slots__ = ("_value",)

    def __init__(self, value: Value) -> None:
        self._value = value

    @staticmethod
    def create_from_decimal(text: str) -> "ConstantExpression":
        """A whole number, `l` or `L` behind it or not; FilterError beyond 64 bits."""
        value = long_value_of(text[:-1] if text[-1] in "lL" else text)
        return ConstantExpression(Integer(value) if -(1 << 31) <= value < 1 << 31 else Long(value))

    @staticmethod
    def create_float(text: str) -> "ConstantExpression":
        """A number with fraction or exponent. As in the original, 0.0 is too small."""
        value = double_value_of(text)
        if value > MAX_DOUBLE:
            raise FilterError(f"{text} is greater than {double_text(MAX_DOUBLE)}")
        if value < MIN_DOUBLE:
            raise FilterError(f"{text} is less than {double_text(MIN_DOUBLE)}")
        return ConstantExpression(value)

    def evaluate(self, context: EvaluationContext) -> Value:
        """The literal."""
        return self._value

    @property
    def value(self) -> Value:
        """The literal."""
        return self._value

    def __str__(self) -> str:
        value = self.value
        if value is None:
            return "NULL"
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        return encode_string(value) if isinstance(value, str) else value_text(value)


class NowExpression(ConstantExpression):
    """The time of evaluation in ms since the epoch.

    Java: org.apache.rocketmq.filter.expression.NowExpression (4.9.8)
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("now")

    def evaluate(self, context: EvaluationContext) -> Value:
        """The time."""
        return self.value

    @property
    def value(self) -> Value:
        """The time."""
        return Long(util_all.current_time_millis())


class BooleanConstantExpression(ConstantExpression, BooleanExpression):
    """TRUE, FALSE or NULL.

    Java: org.apache.rocketmq.filter.expression.BooleanConstantExpression (4.9.8)
    """

    __slots__ = ()


NULL = BooleanConstantExpression(None)
TRUE = BooleanConstantExpression(True)
FALSE = BooleanConstantExpression(False)


def encode_string(text: str) -> str:
    """A text as it is written in an expression."""
    return "'" + text.replace("'", "''") + "'"
